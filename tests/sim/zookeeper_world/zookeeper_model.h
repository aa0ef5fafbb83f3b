/* zookeeper_model.h - a model of a ZooKeeper ensemble: nodes, transactions, sessions, watches. The
 * leader decides a transaction at once; each server carries it out when it hears of it. */
#pragma once
#include "zookeeper_world.h"

#include "sim/wire_world/wire_links.h"

static void answer_frame(unsigned link, const struct jute_writer *frame);
static void answer_ping(unsigned link);
static void close_by_server(unsigned link);

/* ---- Nodes ---- */

static int64_t oldest_applied(void)
{
    int64_t oldest = INT64_MAX;
    for (unsigned i = 0; i < MEMBERS; i++)
        if (store.member[i].applied < oldest)
            oldest = store.member[i].applied;
    return oldest;
}

static void drop_old_nodes(void)
{
    int64_t oldest = oldest_applied();
    for (unsigned i = 0; i < store.nodes;) {
        if (store.node[i].to <= oldest)
            store.node[i] = store.node[--store.nodes];
        else
            i++;
    }
}

/* The node as a server has it that has carried out all up to zxid. */
static struct node *node_at(const char *path, int64_t zxid)
{
    for (unsigned i = 0; i < store.nodes; i++) {
        struct node *node = &store.node[i];
        bool is_then = node->from <= zxid && zxid < node->to;
        if (is_then && strcmp(node->path, path) == 0)
            return node;
    }
    return NULL;
}

static struct node *node_now(const char *path)
{
    return node_at(path, store.zxid);
}

static bool is_child(const char *path, const char *parent)
{
    size_t len = strlen(parent);
    return strncmp(path, parent, len) == 0 && path[len] == '/' && !strchr(path + len + 1, '/');
}

static bool has_children(const char *path)
{
    for (unsigned i = 0; i < store.nodes; i++)
        if (store.node[i].to == INT64_MAX && is_child(store.node[i].path, path))
            return true;
    return false;
}

static void note_change(enum zk_event_type type, const char *path)
{
    struct change *change = &store.change[store.changes++ % CHANGES];
    *change = (struct change){.zxid = store.zxid, .type = type};
    snprintf(change->path, PATH, "%s", path);
}

/* In the transaction store.zxid. */
static struct node *add_node(const char *path, struct jute_bytes data, int64_t owner)
{
    if (store.nodes == NODES)
        drop_old_nodes();
    if (store.nodes == NODES || strlen(path) >= PATH || data.len > ZK_DATA_MAX)
        abort();
    struct node *node = &store.node[store.nodes++];
    *node = (struct node){.len = data.len,
                          .created = store.zxid,
                          .from = store.zxid,
                          .to = INT64_MAX,
                          .owner = owner};
    strcpy(node->path, path);
    if (data.len)
        memcpy(node->data, data.at, data.len);
    return node;
}

static void remove_node(struct node *node)
{
    note_change(ZK_DELETED, node->path);
    node->to = store.zxid;
}

/* ---- Sessions ---- */

static struct zk_server_session *session_of(int64_t id)
{
    for (unsigned i = 0; i < store.sessions; i++)
        if (store.session[i].id == id)
            return &store.session[i];
    return NULL;
}

static nanos timeout_of(const struct zk_server_session *session)
{
    return NANOS_OF_MS(session->timeout_ms);
}

/* In the transaction store.zxid. */
static void end_session(struct zk_server_session *session)
{
    int64_t id = session->id;
    *session = store.session[--store.sessions];
    for (unsigned i = 0; i < store.nodes; i++)
        if (store.node[i].owner == id && store.node[i].to == INT64_MAX)
            remove_node(&store.node[i]);
    note_change(ZK_EVENT_SESSION, "/");
    store.change[(store.changes - 1) % CHANGES].session = id;
}

/* ---- Writes ---- */

static void put_stat(struct jute_writer *to, const struct node *node)
{
    jute_put_long(to, node->created);
    jute_put_long(to, node->from);
    jute_put_long(to, 0);
    jute_put_long(to, 0);
    jute_put_int(to, 0);
    jute_put_int(to, 0);
    jute_put_int(to, 0);
    jute_put_long(to, node->owner);
    jute_put_int(to, (int32_t)node->len);
    jute_put_int(to, 0);
    jute_put_long(to, node->from);
}

static void copy_text(char *to, struct jute_bytes text)
{
    if (text.len >= PATH)
        abort();
    memcpy(to, text.at, text.len);
    to[text.len] = '\0';
}

static int32_t create(int64_t session, struct jute_reader *from, struct jute_writer *reply)
{
    char path[PATH + 16], parent[PATH + 16];
    copy_text(path, jute_get_bytes(from));
    struct jute_bytes data = jute_get_bytes(from);
    jute_get_int(from); /* an access list of one entry */
    jute_get_int(from);
    jute_get_bytes(from);
    jute_get_bytes(from);
    enum zk_node mode = (enum zk_node)jute_get_int(from);
    bool is_sequential = mode == ZK_EPHEMERAL_SEQUENTIAL;

    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = '\0';
    struct node *above = node_now(parent);
    if (parent[0] && !above)
        return ZK_NO_NODE;
    if (is_sequential) {
        sprintf(path + strlen(path), "%010d", above->next_number);
        sum.wraps += above->next_number == INT32_MAX;
        above->next_number = (int32_t)((uint32_t)above->next_number + 1);
    }
    if (node_now(path))
        return ZK_NODE_EXISTS;

    struct node *node = add_node(path, data, is_sequential ? session : 0);
    note_change(ZK_CREATED, path);
    jute_put_text(reply, path);
    put_stat(reply, node);
    return ZK_OK;
}

static int32_t delete (struct jute_reader *from)
{
    char path[PATH];
    copy_text(path, jute_get_bytes(from));
    struct node *node = node_now(path);
    if (!node)
        return ZK_NO_NODE;
    if (has_children(path))
        return ZK_NOT_EMPTY;
    remove_node(node);
    return ZK_OK;
}

static int32_t set_data(struct jute_reader *from, struct jute_writer *reply)
{
    char path[PATH];
    copy_text(path, jute_get_bytes(from));
    struct jute_bytes data = jute_get_bytes(from);
    struct node *old = node_now(path);
    if (!old)
        return ZK_NO_NODE;
    old->to = store.zxid;
    struct node was = *old, *node = add_node(path, data, was.owner);
    node->created = was.created;
    node->next_number = was.next_number;
    note_change(ZK_CHANGED, path);
    put_stat(reply, node);
    return ZK_OK;
}

/* Numbers of ZooDefs.OpCode that the model serves. */
enum {
    CODE_CREATE_SESSION = -10,
    CODE_CLOSE_SESSION = -11,
    CODE_DELETE = 2,
    CODE_GET_DATA = 4,
    CODE_SET_DATA = 5,
    CODE_CHILDREN = 8,
    CODE_SYNC = 9,
    CODE_PING = 11,
    CODE_MULTI = 14,
    CODE_CREATE2 = 15,
    CODE_CREATE_CONTAINER = 19
};

static bool is_write(int32_t code)
{
    return code != CODE_GET_DATA && code != CODE_CHILDREN && code != CODE_PING;
}

/* The leader decides a request of a session. */
static int32_t decide(int64_t session, int32_t code, struct jute_reader *from,
                      struct jute_writer *reply)
{
    switch (code) {
    case CODE_CREATE2:
    case CODE_CREATE_CONTAINER:
        return create(session, from, reply);
    case CODE_DELETE:
        return delete (from);
    case CODE_SET_DATA:
        return set_data(from, reply);
    case CODE_CLOSE_SESSION:
        end_session(session_of(session));
        return ZK_OK;
    case CODE_MULTI:
    case CODE_SYNC:
        return ZK_OK;
    default:
        abort();
    }
}

/* ---- Watches ---- */

static void fire(unsigned link, enum zk_event_type type, const char *path)
{
    static struct jute_writer frame;
    jute_clear(&frame);
    size_t begin = jute_begin_frame(&frame);
    jute_put_int(&frame, ZK_XID_EVENT);
    jute_put_long(&frame, -1);
    jute_put_int(&frame, 0);
    jute_put_int(&frame, type);
    jute_put_int(&frame, 3); /* connected */
    jute_put_text(&frame, path);
    jute_end_frame(&frame, begin);
    answer_frame(link, &frame);
}

/* Fires the watch on that path, once. */
static void fire_watch(unsigned link, bool of_children, enum zk_event_type type, const char *path)
{
    struct served *s = served[link];
    for (unsigned i = 0; i < s->watches; i++) {
        if (s->watch[i].of_children != of_children || strcmp(s->watch[i].path, path) != 0)
            continue;
        s->watch[i] = s->watch[--s->watches];
        fire(link, type, path);
        return;
    }
}

static void add_watch(struct served *s, bool of_children, const char *path)
{
    for (unsigned i = 0; i < s->watches; i++)
        if (s->watch[i].of_children == of_children && strcmp(s->watch[i].path, path) == 0)
            return;
    if (s->watches == WATCHES)
        abort();
    struct watch *watch = &s->watch[s->watches++];
    watch->of_children = of_children;
    strcpy(watch->path, path);
}

static void tell_change(unsigned link, const struct change *change)
{
    char parent[PATH];
    served[link]->has_ended |= change->session && change->session == served[link]->session;
    strcpy(parent, change->path);
    *strrchr(parent, '/') = '\0';
    if (change->type != ZK_CREATED)
        fire_watch(link, false, change->type, change->path);
    if (change->type == ZK_DELETED)
        fire_watch(link, true, ZK_DELETED, change->path);
    if (change->type != ZK_CHANGED)
        fire_watch(link, true, ZK_CHILDREN, parent);
}

/* ---- Replies ---- */

static void begin_reply(struct jute_writer *frame, int32_t xid, int64_t zxid, int32_t error)
{
    jute_clear(frame);
    jute_begin_frame(frame);
    jute_put_int(frame, xid);
    jute_put_long(frame, zxid);
    jute_put_int(frame, error);
}

static void put_children(struct jute_writer *frame, const char *path, int64_t zxid)
{
    int32_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            jute_put_int(frame, count);
        for (unsigned i = 0; i < store.nodes; i++) {
            const struct node *node = &store.node[i];
            bool is_there = node->from <= zxid && zxid < node->to && is_child(node->path, path);
            count += is_there;
            if (is_there && pass)
                jute_put_text(frame, strrchr(node->path, '/') + 1);
        }
    }
}

static void answer_read(unsigned link, const struct request *r)
{
    static struct jute_writer frame;
    struct served *s = served[link];
    int64_t zxid = store.member[s->member].applied;
    const struct node *node = node_at(r->path, zxid);
    bool is_data = r->code == CODE_GET_DATA;
    bool is_hidden = planted == PLANT_EARLY_WATCH && is_data && r->watches;
    begin_reply(&frame, r->xid, zxid, node || is_hidden ? ZK_OK : ZK_NO_NODE);
    if (node && is_data) {
        jute_put_bytes(&frame, node->data, node->len);
        put_stat(&frame, node);
    } else if (node) {
        put_children(&frame, r->path, zxid);
    }
    jute_end_frame(&frame, 0);
    if (node && r->watches)
        add_watch(s, !is_data, r->path);
    answer_frame(link, &frame);
}

static void answer_write(unsigned link, const struct request *r)
{
    answer(link, r->reply, r->reply_len);
    if (r->code == CODE_CLOSE_SESSION)
        close_by_server(link);
}

/* Answers the requests of a link in their order, as far as that is possible now. */
static void answer_queue(unsigned link)
{
    struct served *s = served[link];
    while (s->count && !s->is_over) {
        const struct request *r = &s->queue[s->first];
        bool is_ready = !r->is_write || (r->zxid && r->zxid <= store.member[s->member].applied);
        if (!is_ready)
            return;
        s->first = (s->first + 1) % QUEUE;
        s->count--;
        if (r->is_write)
            answer_write(link, r);
        else if (r->code == CODE_PING)
            answer_ping(link);
        else
            answer_read(link, r);
    }
}

/* A server hears that all up to zxid was decided. */
static void carry_out(unsigned member, int64_t zxid)
{
    struct member *m = &store.member[member];
    if (zxid <= m->applied)
        return;
    if (store.changes - m->change > CHANGES)
        abort();
    for (; m->change < store.changes; m->change++) {
        const struct change *change = &store.change[m->change % CHANGES];
        if (change->zxid > zxid)
            break;
        m->applied = change->zxid;
        for (unsigned i = 0; i < lives; i++)
            if (served[live[i]]->member == member)
                tell_change(live[i], change);
    }
    m->applied = zxid;
    for (unsigned i = lives; i-- > 0;) {
        unsigned link = live[i];
        if (served[link]->member == member)
            answer_queue(link);
        if (served[link]->has_ended && !served[link]->is_over)
            close_by_server(link);
    }
}
