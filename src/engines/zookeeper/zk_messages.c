/* zk_messages.c - the messages of ZooKeeper's client protocol. */
#include "zk_messages.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum op_code {
    OP_CODE_DELETE = 2,
    OP_CODE_GET_DATA = 4,
    OP_CODE_SET_DATA = 5,
    OP_CODE_CHILDREN = 8,
    OP_CODE_SYNC = 9,
    OP_CODE_PING = 11,
    OP_CODE_CHECK = 13,
    OP_CODE_MULTI = 14,
    OP_CODE_CREATE2 = 15,
    OP_CODE_CREATE_CONTAINER = 19,
    OP_CODE_AUTH = 100,
    OP_CODE_CLOSE_SESSION = -11
};

enum { ALL_RIGHTS = 31, PASSWORD_LEN = 16 };

const char *zk_error_text(int32_t error)
{
    switch (error) {
    case ZK_OK:
        return "done";
    case ZK_UNIMPLEMENTED:
        return "the server does not know this request: ZooKeeper 3.5 or newer is needed";
    case ZK_NO_NODE:
        return "the node does not exist";
    case ZK_NO_AUTH:
        return "the access list of a node does not allow it";
    case ZK_BAD_VERSION:
        return "the node was changed";
    case ZK_NODE_EXISTS:
        return "the node exists";
    case ZK_NOT_EMPTY:
        return "the node has children";
    case ZK_SESSION_EXPIRED:
        return "the session has expired";
    case ZK_INVALID_ACL:
        return "the server does not accept the access list";
    case ZK_AUTH_FAILED:
        return "the server does not accept user and password";
    case ZK_SESSION_MOVED:
        return "the session has moved to another server";
    case ZK_NOT_READ_ONLY:
        return "the server is in read-only mode";
    case ZK_QUOTA_EXCEEDED:
        return "a quota is exceeded";
    case ZK_THROTTLED:
        return "the server has too much to do";
    default:
        return "the server reported an error";
    }
}

/* ---- Requests ---- */

static size_t begin(struct jute_writer *w, int32_t xid, enum op_code code)
{
    size_t frame = jute_begin_frame(w);
    jute_put_int(w, xid);
    jute_put_int(w, code);
    return frame;
}

void zk_put_connect(struct jute_writer *w, const struct zk_connect *connect)
{
    assert(w->len <= w->room);
    static const char no_password[PASSWORD_LEN];
    size_t frame = jute_begin_frame(w);
    jute_put_int(w, 0); /* protocol version; there is only one */
    jute_put_long(w, connect->zxid);
    jute_put_int(w, connect->timeout_ms);
    jute_put_long(w, connect->session);

    if (connect->session)
        jute_put_bytes(w, connect->password.at, connect->password.len);
    else
        jute_put_bytes(w, no_password, sizeof no_password);

    jute_put_bool(w, false); /* no read-only server */
    jute_end_frame(w, frame);
}

void zk_put_create(struct jute_writer *w, int32_t xid, const struct zk_create *create)
{
    assert(w->len <= w->room);
    bool is_container = create->node == ZK_CONTAINER;
    size_t frame = begin(w, xid, is_container ? OP_CODE_CREATE_CONTAINER : OP_CODE_CREATE2);
    jute_put_text(w, create->path);
    jute_put_bytes(w, create->data.at, create->data.len);
    jute_put_int(w, 1); /* number of entries in the access list */
    jute_put_int(w, ALL_RIGHTS);
    jute_put_text(w, create->is_private ? "auth" : "world");
    jute_put_text(w, create->is_private ? "" : "anyone");
    jute_put_int(w, create->node);
    jute_end_frame(w, frame);
}

void zk_put_delete(struct jute_writer *w, int32_t xid, const char *path)
{
    size_t frame = begin(w, xid, OP_CODE_DELETE);
    jute_put_text(w, path);
    jute_put_int(w, -1); /* version that must match: any */
    jute_end_frame(w, frame);
}

void zk_put_set_data(struct jute_writer *w, int32_t xid, const char *path, struct jute_bytes data)
{
    size_t frame = begin(w, xid, OP_CODE_SET_DATA);
    jute_put_text(w, path);
    jute_put_bytes(w, data.at, data.len);
    jute_put_int(w, -1); /* version that must match: any */
    jute_end_frame(w, frame);
}

static void put_read(struct jute_writer *w, int32_t xid, enum op_code code, const char *path,
                     bool watch)
{
    size_t frame = begin(w, xid, code);
    jute_put_text(w, path);
    jute_put_bool(w, watch);
    jute_end_frame(w, frame);
}

void zk_put_get_data(struct jute_writer *w, int32_t xid, const char *path, bool watch)
{
    put_read(w, xid, OP_CODE_GET_DATA, path, watch);
}

void zk_put_children(struct jute_writer *w, int32_t xid, const char *path, bool watch)
{
    put_read(w, xid, OP_CODE_CHILDREN, path, watch);
}

void zk_put_sync(struct jute_writer *w, int32_t xid, const char *path)
{
    size_t frame = begin(w, xid, OP_CODE_SYNC);
    jute_put_text(w, path);
    jute_end_frame(w, frame);
}

static void put_multi_header(struct jute_writer *w, int32_t type, bool done)
{
    jute_put_int(w, type);
    jute_put_bool(w, done);
    jute_put_int(w, -1);
}

void zk_put_quorum_check(struct jute_writer *w, int32_t xid, const char *path)
{
    assert(w->len <= w->room);
    size_t frame = begin(w, xid, OP_CODE_MULTI);
    put_multi_header(w, OP_CODE_CHECK, false);
    jute_put_text(w, path);
    jute_put_int(w, -1); /* version that must match: any */
    put_multi_header(w, -1, true);
    jute_end_frame(w, frame);
}

void zk_put_ping(struct jute_writer *w)
{
    jute_end_frame(w, begin(w, ZK_XID_PING, OP_CODE_PING));
}

void zk_put_digest(struct jute_writer *w, const char *user, const char *password)
{
    char text[1024];
    int len = snprintf(text, sizeof text, "%s:%s", user, password);
    assert(len > 0 && (size_t)len < sizeof text);
    size_t frame = begin(w, ZK_XID_AUTH, OP_CODE_AUTH);
    jute_put_int(w, 0);
    jute_put_text(w, "digest");
    jute_put_bytes(w, text, (size_t)len);
    jute_end_frame(w, frame);
    explicit_bzero(text, sizeof text);
}

void zk_put_close_session(struct jute_writer *w, int32_t xid)
{
    jute_end_frame(w, begin(w, xid, OP_CODE_CLOSE_SESSION));
}

/* ---- Replies ---- */

bool zk_read_header(struct jute_reader *r, struct zk_header *header)
{
    header->xid = jute_get_int(r);
    header->zxid = jute_get_long(r);
    header->error = jute_get_int(r);
    return !r->failed;
}

bool zk_read_connected(struct jute_reader *r, struct zk_connected *connected)
{
    assert(r->at <= r->end);
    jute_get_int(r);
    connected->timeout_ms = jute_get_int(r);
    connected->session = jute_get_long(r);
    connected->password = jute_get_bytes(r);
    return !r->failed && connected->password.len <= ZK_PASSWORD_MAX;
}

bool zk_read_stat(struct jute_reader *r, struct zk_stat *stat)
{
    assert(r->at <= r->end);
    stat->created = jute_get_long(r);
    stat->changed = jute_get_long(r);
    stat->created_ms = jute_get_long(r);
    jute_get_long(r); /* skips the wall clock of the change, */
    jute_get_int(r);  /* the version of the data, */
    jute_get_int(r);  /* the version of the children */
    jute_get_int(r);  /* and the version of the access list */
    stat->owner = jute_get_long(r);
    jute_get_int(r);  /* skips the length of the data, */
    jute_get_int(r);  /* the number of children */
    jute_get_long(r); /* and the newest change of the children */
    return !r->failed;
}

bool zk_read_created(struct jute_reader *r, struct jute_bytes *path, struct zk_stat *stat)
{
    *path = jute_get_bytes(r);
    return zk_read_stat(r, stat);
}

bool zk_read_data(struct jute_reader *r, struct jute_bytes *data, struct zk_stat *stat)
{
    *data = jute_get_bytes(r);
    return zk_read_stat(r, stat);
}

bool zk_read_children(struct jute_reader *r, uint32_t *count)
{
    int32_t all = jute_get_int(r);
    *count = all > 0 ? (uint32_t)all : 0;
    /* Each name needs at least the four bytes of its length. */
    return !r->failed && *count <= (size_t)(r->end - r->at) / 4;
}

bool zk_next_child(struct jute_reader *r, struct jute_bytes *name)
{
    *name = jute_get_bytes(r);
    return !r->failed;
}

bool zk_read_event(struct jute_reader *r, struct zk_event *event)
{
    event->type = jute_get_int(r);
    jute_get_int(r); /* skips the state of the session */
    event->path = jute_get_bytes(r);
    return !r->failed;
}
