/* consul_messages.h - requests to Consul as text, and its replies as pairs of key and value. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t;

enum {
    CONSUL_SESSION_TEXT = 36, /* length of a UUID */
    /* longest value that this engine writes; a longer value is truncated on reading and counts as
     * another program's */
    CONSUL_VALUE_MAX = 511
};

struct slice {
    const char *at;
    size_t len;
};

/* ---- Writing ---- */

/* A text that grows. A zeroed text is empty. */
struct consul_text {
    char *at;
    size_t len, room;
    bool failed; /* an allocation failed; the text is incomplete */
};

void text_clear(struct consul_text *text);
void text_free(struct consul_text *text);
void text_bytes(struct consul_text *text, const char *bytes, size_t len);
__attribute__((format(printf, 2, 3))) void text_print(struct consul_text *text, const char *format,
                                                      ...);
/* Appends a key to a URL's path: percent-encodes everything except letters, digits and "-._~/". */
void text_path(struct consul_text *text, struct slice key);

/* One operation of a transaction. Fields that are zero are left out. */
struct txn_op {
    const char *verb; /* name of the operation, as in "check-index" */
    struct slice key;
    const char *session;
    struct slice value;
    uint64_t index, flags;
};
void txn_begin(struct consul_text *text);
void txn_add(struct consul_text *text, const struct txn_op *op);
void txn_end(struct consul_text *text);

/* ---- Reading ---- */

struct consul_pair {
    const char *key; /* valid until the reply is freed */
    size_t key_len;
    const char *session; /* session that has locked the key; "": none */
    uint64_t created, changed, flags;
    size_t value_len;
    char value[CONSUL_VALUE_MAX + 1];
};

struct consul_reply {
    unsigned status;     /* HTTP status */
    uint64_t index;      /* value of X-Consul-Index; 0: none */
    struct json_t *json; /* parsed body; NULL: the body is not JSON */
    const char *text;    /* the body as text */
};

/* Returns the number of pairs in the reply to a read of keys or to a transaction. */
size_t reply_pairs(const struct consul_reply *reply);
/* Reads the i-th pair. Returns false if it is not a pair. */
bool reply_pair(const struct consul_reply *reply, size_t i, struct consul_pair *pair);
/* Reads only the key of the i-th pair. */
bool reply_key(const struct consul_reply *reply, size_t i, struct consul_pair *pair);
/* Finds the last pair with that key. */
bool reply_find(const struct consul_reply *reply, struct slice key, struct consul_pair *pair);
/* Returns the index of the operation that made the transaction fail, and the reason; -1: not
 * known. */
int reply_failed_op(const struct consul_reply *reply, const char **why);
/* Returns the "ID" of a new session; NULL if the reply has none. */
const char *reply_session(const struct consul_reply *reply);
