/* zk_messages.h - the messages of ZooKeeper's client protocol that the engine sends and reads.
 * Numbers are those of ZooDefs.OpCode and KeeperException.Code; servers from 3.5 on know them. */
#pragma once
#include "jute.h"

enum zk_error {
    ZK_OK = 0,
    ZK_UNIMPLEMENTED = -6,
    ZK_NO_NODE = -101,
    ZK_NO_AUTH = -102,
    ZK_BAD_VERSION = -103,
    ZK_NODE_EXISTS = -110,
    ZK_NOT_EMPTY = -111,
    ZK_SESSION_EXPIRED = -112,
    ZK_INVALID_ACL = -114,
    ZK_AUTH_FAILED = -115,
    ZK_SESSION_MOVED = -118,
    ZK_NOT_READ_ONLY = -119,
    ZK_QUOTA_EXCEEDED = -125,
    ZK_THROTTLED = -127,
};
/* Returns the meaning of an error in words; never NULL. */
const char *zk_error_text(int32_t error);

/* Ids of messages without a running number. */
enum { ZK_XID_EVENT = -1, ZK_XID_PING = -2, ZK_XID_AUTH = -4 };

enum { ZK_PASSWORD_MAX = 32 };

/* ---- Requests ---- */

struct zk_connect {
    int64_t zxid; /* newest transaction (zxid) that the client has seen */
    int32_t timeout_ms;
    int64_t session; /* id of the session; 0: begins a new one */
    struct jute_bytes password;
};
void zk_put_connect(struct jute_writer *w, const struct zk_connect *connect);

enum zk_node { ZK_PERSISTENT = 0, ZK_EPHEMERAL_SEQUENTIAL = 3, ZK_CONTAINER = 4 };

struct zk_create {
    const char *path;
    struct jute_bytes data;
    enum zk_node node;
    /* true: only the logged-in user may see or change the node; false: everybody */
    bool is_private;
};
void zk_put_create(struct jute_writer *w, int32_t xid, const struct zk_create *create);
void zk_put_delete(struct jute_writer *w, int32_t xid, const char *path);
void zk_put_set_data(struct jute_writer *w, int32_t xid, const char *path, struct jute_bytes data);
/* Writes a read of the data. A watch is set only if the node exists; the request `exists` would
 * leave one behind on a path that is never used again. */
void zk_put_get_data(struct jute_writer *w, int32_t xid, const char *path, bool watch);
void zk_put_children(struct jute_writer *w, int32_t xid, const char *path, bool watch);
void zk_put_sync(struct jute_writer *w, int32_t xid, const char *path);
/* Writes a transaction that checks that the path exists. It changes nothing, but is answered
 * only after a quorum has it. */
void zk_put_quorum_check(struct jute_writer *w, int32_t xid, const char *path);
void zk_put_ping(struct jute_writer *w);
void zk_put_digest(struct jute_writer *w, const char *user, const char *password);
void zk_put_close_session(struct jute_writer *w, int32_t xid);

/* ---- Replies ---- */

struct zk_header {
    int32_t xid;
    int64_t zxid;
    int32_t error;
};
/* Reads the header. Returns false if the frame is too short. The reader then stands behind the
 * header. */
bool zk_read_header(struct jute_reader *r, struct zk_header *header);

struct zk_connected {
    int32_t timeout_ms; /* timeout that the server granted; 0: the session has expired */
    int64_t session;
    struct jute_bytes password;
};
bool zk_read_connected(struct jute_reader *r, struct zk_connected *connected);

struct zk_stat {
    /* zxid of the creation (czxid) and of the last change (mzxid) */
    int64_t created, changed;
    int64_t created_ms; /* wall clock of the leader at the creation */
    int64_t owner;      /* session that owns the ephemeral node; 0: none */
};
bool zk_read_stat(struct jute_reader *r, struct zk_stat *stat);

/* Reads the reply to a creation: the path with the sequence number that the server chose. */
bool zk_read_created(struct jute_reader *r, struct jute_bytes *path, struct zk_stat *stat);
bool zk_read_data(struct jute_reader *r, struct jute_bytes *data, struct zk_stat *stat);

/* Reads the number of children; zk_next_child() reads each name. */
bool zk_read_children(struct jute_reader *r, uint32_t *count);
bool zk_next_child(struct jute_reader *r, struct jute_bytes *name);

enum zk_event_type { ZK_EVENT_SESSION = -1, ZK_CREATED = 1, ZK_DELETED, ZK_CHANGED, ZK_CHILDREN };

struct zk_event {
    int32_t type;
    struct jute_bytes path;
};
bool zk_read_event(struct jute_reader *r, struct zk_event *event);
