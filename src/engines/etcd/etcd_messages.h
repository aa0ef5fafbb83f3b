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

/* The parts of a transaction: conditions, and operations of its branches. `range_end` is SLICE_NONE
 * for a single key. */
void message_compare(struct pb_writer *to, struct slice key, struct slice range_end,
                     enum compare_target target, enum compare_relation relation, uint64_t revision);
void message_compare_value(struct pb_writer *to, struct slice key, struct slice value);

enum txn_branch { TXN_THEN = 2, TXN_ELSE = 3 };

void message_txn_put(struct pb_writer *to, enum txn_branch branch, struct slice key,
                     struct slice value, int64_t lease);
void message_txn_delete(struct pb_writer *to, enum txn_branch branch, struct slice key);

/* A transaction inside a branch: until it ends, message_compare(), message_txn_delete() and so on
 * write into the inner one. Its conditions see the state before the outer transaction. */
struct txn_inside {
    size_t op, txn;
};
struct txn_inside message_txn_begin(struct pb_writer *to, enum txn_branch branch);
void message_txn_end(struct pb_writer *to, struct txn_inside inside);

/* A read. If it has a range_end, the pairs are sorted by creation. */
struct range_request {
    struct slice key, range_end;
    uint32_t limit;    /* most pairs; 0: all */
    uint64_t revision; /* revision to read at; 0: the newest */
    bool by_key;       /* sorts by key instead of creation */
    bool serializable; /* one member may answer without a quorum, perhaps from old data */
};
void message_txn_range(struct pb_writer *to, enum txn_branch branch,
                       const struct range_request *range);
void message_range(struct pb_writer *to, const struct range_request *range);

void message_lease_grant(struct pb_writer *to, int64_t seconds);
/* Writes the request of LeaseKeepAlive or LeaseTimeToLive. */
void message_lease_id(struct pb_writer *to, int64_t lease);
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
    uint64_t call;              /* number of the call that is answered */
    bool succeeded;             /* transaction: its conditions were true */
    struct pb_reader responses; /* transaction: input of message_next_response() */
    struct pb_reader pairs;     /* read: input of message_next_pair() */
    uint64_t count;             /* read: number of pairs in the range, also beyond the limit */
    bool more;                  /* read: the range has more pairs than the limit allowed */
    /* lease: its id, and its ttl in seconds; 0 or below: no such lease */
    int64_t lease, ttl;
    struct slice token; /* authentication: the token */
};

enum message_kind { MESSAGE_TXN, MESSAGE_RANGE, MESSAGE_LEASE, MESSAGE_AUTH };

/* Returns false if the bytes are not a message of that kind. */
bool message_read(struct message *message, enum message_kind kind, const char *bytes, size_t len);
/* Reads the next response of a transaction. The response to a read has pairs and a count, all other
 * responses are empty. Returns false at the end. */
bool message_next_response(struct pb_reader *responses, struct message *read);
bool message_next_pair(struct pb_reader *pairs, struct key_value *pair);

struct watch_message {
    struct reply_header header;
    int64_t watch_id;
    bool created, canceled;
    struct slice reason; /* reason why the watch was canceled */
    struct pb_reader events;
};
bool message_read_watch(struct watch_message *message, const char *bytes, size_t len);

struct watch_event {
    bool deleted;
    /* deletion: the key, and in `changed` the revision of the deletion */
    struct key_value pair;
};
bool message_next_event(struct pb_reader *events, struct watch_event *event);
