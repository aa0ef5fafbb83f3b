/* consul_messages.h - requests to Consul as text, and its replies as pairs of key and value. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t;

enum {
    CONSUL_SESSION_TEXT = 36, /* a UUID */
    CONSUL_VALUE_MAX = 511    /* longest value of ours; longer ones are cut, and are not ours */
};

struct slice {
    const char *at;
    size_t len;
};

/* ---- Writing ---- */

/* A text that grows. A zeroed one is empty. */
struct consul_text {
    char *at;
    size_t len, room;
    bool failed; /* there was no memory */
};

void text_clear(struct consul_text *text);
void text_free(struct consul_text *text);
void text_bytes(struct consul_text *text, const char *bytes, size_t len);
__attribute__((format(printf, 2, 3))) void text_print(struct consul_text *text, const char *format,
                                                      ...);
/* A key as a part of a URL's path: everything is escaped but letters, digits and "-._~/". */
void text_path(struct consul_text *text, struct slice key);

/* One operation of a transaction. Fields that are zero are left out. */
struct txn_op {
    const char *verb; /* as in "check-index" */
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
    const char *key; /* valid as long as the reply */
    size_t key_len;
    const char *session; /* that has locked it; "": none */
    uint64_t created, changed, flags;
    size_t value_len;
    char value[CONSUL_VALUE_MAX + 1];
};

struct consul_reply {
    unsigned status;     /* of HTTP */
    uint64_t index;      /* X-Consul-Index; 0: none */
    struct json_t *json; /* NULL: the body is not JSON */
    const char *text;    /* the body */
};

/* Number of pairs: of a read of keys, or of the results of a transaction. */
size_t reply_pairs(const struct consul_reply *reply);
/* Returns false if the i-th one is no pair. */
bool reply_pair(const struct consul_reply *reply, size_t i, struct consul_pair *pair);
bool reply_key(const struct consul_reply *reply, size_t i, struct consul_pair *pair); /* alone */
/* The last pair with that key. */
bool reply_find(const struct consul_reply *reply, struct slice key, struct consul_pair *pair);
/* The operation by which a transaction failed, counted from 0, and why; -1: not known. */
int reply_failed_op(const struct consul_reply *reply, const char **why);
/* The "ID" of a new session; NULL: there is none. */
const char *reply_session(const struct consul_reply *reply);
