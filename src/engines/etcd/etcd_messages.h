/* etcd_messages.h - the messages of etcd's API v3 that the engine sends and reads. Field numbers
 * are those of etcd's rpc.proto and kv.proto. */
#pragma once
#include "protobuf.h"

struct slice {
    const char *at;
    size_t len;
};

#define SLICE_NONE ((struct slice){0})

/* ---- Requests ---- */

enum compare_target { COMPARE_CREATED = 1, COMPARE_CHANGED = 2 };
enum compare_relation { COMPARE_EQUAL = 0, COMPARE_GREATER = 1, COMPARE_LESS = 2 };

/* The parts of a transaction. `range_end` is SLICE_NONE for a single key. */
void message_compare(struct pb_writer *to, struct slice key, struct slice range_end,
                     enum compare_target target, enum compare_relation relation, uint64_t revision);
void message_compare_value(struct pb_writer *to, struct slice key, struct slice value);

enum txn_branch { TXN_THEN = 2, TXN_ELSE = 3 };

void message_txn_put(struct pb_writer *to, enum txn_branch branch, struct slice key,
                     struct slice value, int64_t lease);
void message_txn_delete(struct pb_writer *to, enum txn_branch branch, struct slice key);

/* A read. Sorted by creation if there is a range_end. */
struct range_request {
    struct slice key, range_end;
    uint32_t limit;    /* 0: all */
    uint64_t revision; /* 0: now */
    bool by_key;       /* sorted by key instead */
    bool serializable; /* one member may answer alone: the reply may be old */
};
void message_txn_range(struct pb_writer *to, enum txn_branch branch,
                       const struct range_request *range);
void message_range(struct pb_writer *to, const struct range_request *range);

void message_lease_grant(struct pb_writer *to, int64_t seconds);
void message_lease_id(struct pb_writer *to, int64_t lease); /* keep alive, time to live */
void message_watch(struct pb_writer *to, int64_t watch_id, struct slice key, struct slice range_end,
                   bool deletes_only);
void message_unwatch(struct pb_writer *to, int64_t watch_id);
void message_authenticate(struct pb_writer *to, const char *user, const char *password);

/* ---- Replies ---- */

struct reply_header {
    uint64_t cluster, member, revision, term;
};

struct key_value {
    struct slice key, value;
    uint64_t created, changed;
    int64_t lease;
};

/* A reply of any kind. Each field names the kinds that fill it in. */
struct message {
    struct reply_header header;
    uint64_t call;              /* number of the call that it answers */
    bool succeeded;             /* of a transaction */
    struct pb_reader responses; /* of a transaction: for message_next_response() */
    struct pb_reader pairs;     /* of a read: for message_next_pair() */
    uint64_t count;             /* of a read: how many there are, beyond its limit, too */
    bool more;                  /* of a read: the limit cut it */
    int64_t lease, ttl;         /* of a lease; ttl 0 or below: there is none */
    struct slice token;         /* of an authentication */
};

enum message_kind { MESSAGE_TXN, MESSAGE_RANGE, MESSAGE_LEASE, MESSAGE_AUTH };

/* Returns false if the bytes are no such message. */
bool message_read(struct message *message, enum message_kind kind, const char *bytes, size_t len);
/* The next response of a transaction. A read has its pairs and count, everything else has none.
 * Returns false if there is none. */
bool message_next_response(struct pb_reader *responses, struct message *read);
bool message_next_pair(struct pb_reader *pairs, struct key_value *pair);

struct watch_message {
    struct reply_header header;
    int64_t watch_id;
    bool created, canceled;
    struct slice reason; /* why it was canceled */
    struct pb_reader events;
};
bool message_read_watch(struct watch_message *message, const char *bytes, size_t len);

struct watch_event {
    bool deleted;
    struct key_value pair; /* deletion: its key, and its revision in `changed` */
};
bool message_next_event(struct pb_reader *events, struct watch_event *event);
