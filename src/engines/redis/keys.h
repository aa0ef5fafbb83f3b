/* keys.h - how names and ids are written as keys and texts of the server.
 *
 * A lock is the key prefix + name, as in other lock libraries. Its companion keys are {KEY}:x,
 * which are in the same slot of a cluster. If KEY contains a }, that would end the hash tag early,
 * so the companions are ~x:KEY. That is the same slot only if KEY has a hash tag of its own; if it
 * has none, its companions in a cluster are {TAG}~x:KEY, with a tag that lies in its slot. A name
 * whose key looks like one of these is refused, so no lock is the companion of another. */
#pragma once
#include "core/engine_protocol.h"

enum {
    REDIS_ID_TEXT = 22,
    REDIS_PREFIX_MAX = 128,
    REDIS_KEY_MAX = REDIS_PREFIX_MAX + HF_NAME_MAX + 16,
    /* number of keys that a call names */
    REDIS_KEYS = 6,
    /* number of keys that a call names if scripts may use keys that it does not name: the library
     * derives the others */
    REDIS_KEYS_BRIEF = 2,
    /* number of keys that a call names in a quorum and in a cluster; in a cluster the last key
     * never exists */
    REDIS_KEYS_QUORUM = 7,
};

/* Letters of the companions, in the order of the scripts' KEYS. */
#define REDIS_COMPANION_LETTERS "tqwhpl"

/* The keys of one lock in the order of the scripts' KEYS: the lock itself, t counter, q queue, w
 * waiters, h ends of holds, p past holds, and on a server of a quorum l its queue. The companions
 * differ in one letter, so one text serves for all. */
struct redis_keys {
    char lock[REDIS_KEY_MAX];
    char companion[REDIS_KEY_MAX];
    size_t lock_len, companion_len;
    size_t letter; /* index of the letter in `companion` */
};

/* Fills in the keys of a name. HF_INVALID if the key could be taken for a companion of another
 * lock or for an inbox. */
hf_status redis_keys_of(struct redis_keys *keys, const char *prefix, const char *name, size_t len);
/* As redis_keys_of(), but in a cluster: all keys of a lock are in one slot. */
hf_status redis_keys_in_cluster(struct redis_keys *keys, const char *prefix, const char *name,
                                size_t len);
/* Returns the name that a key stands for; NULL: the key is not a lock's. */
const char *redis_keys_name(const char *prefix, const char *key, size_t len);

/* As redis_keys_name(), but accepts the key of a counter, too. */
const char *redis_keys_any_name(const char *prefix, const char *key, size_t len, size_t *name_len);

/* Returns the channel on which waiters of a quorum are notified that the lock is free. */
const char *redis_keys_channel(const struct redis_keys *keys, char channel[REDIS_KEY_MAX]);

/* FNV-1a, for hash tables with names as keys. */
static inline uint32_t redis_name_hash(const char *name, size_t len)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash;
}

/* Writes an id as 22 letters, digits, "-" and "_". */
void redis_id_text(const struct id *id, char text[REDIS_ID_TEXT + 1]);
/* Reads the text of an id. Returns false if the text is no id. */
bool redis_id_read(const char text[REDIS_ID_TEXT], struct id *id);

/* Writes a glob pattern for keys that begin with `prefix`, special characters escaped. `before`:
 * "" or "*". */
void redis_keys_pattern(const char *before, const char *prefix, size_t len, char *pattern,
                        size_t size);

/* A holder or waiter, from its record in the server: "ticket flags pid host label". The texts point
 * into the record. */
struct redis_meta {
    uint64_t ticket; /* arrival number in the queue; 0: never queued */
    bool detached;
    int64_t pid;
    const char *host, *label; /* `host` does not end with a 0 byte */
    int host_len;
};
/* Reads a record. Returns false if it is not one. */
bool redis_meta_read(const char *text, struct redis_meta *meta);
