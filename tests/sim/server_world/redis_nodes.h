/* redis_nodes.h - the world of several Redis servers: nodes with clocks of their own, connections
 * to them, and groups that are cut off. Worlds add what makes the nodes one service: sentinels and
 * a name (failover_world), slots (cluster_world), or nothing (quorum_world).
 *
 * Included once by a world, behind wire_world.h, with NODES defined. Nodes are called a, b, c. */
#pragma once
#include "sim/model/model.h"
#include "sim/wire_world/wire_events.h"

#define START_US INT64_C(1735689600000000) /* microseconds since 1970 when the world begins */

/* A Redis server. */
struct redis_node {
    struct redis_model *model;
    int64_t wrong_us, fast_ppm; /* of its clock */
    bool is_up, is_primary;
    nanos lags_until; /* a replica that gets nothing from its primary */
    nanos hangs_until;
    nanos up_at, demote_at; /* 0: not planned */
    uint64_t epoch;         /* of the failover that made it a primary; 0: none did */
};

/* What a link leads to. */
struct peer {
    bool is_node, is_open;
    bool is_subscribed;  /* to announcements of a sentinel */
    unsigned index;      /* of the node, or of something else that the world has */
    unsigned connection; /* of the node's model */
};

static struct redis_node nodes[NODES];
static struct peer peers[LINKS];
static struct redis_model *models[NODES];

/* A client and some nodes that see each other and nobody else. */
static struct {
    unsigned client; /* CLIENTS: none */
    unsigned nodes;  /* as bits */
    nanos until;
} group;

static char letter_of(const struct redis_node *n)
{
    return (char)('a' + (n - nodes));
}

static nanos soon(uint32_t least_ms, uint32_t more_ms)
{
    return w.now + NANOS_OF_MS(least_ms + draw(more_ms));
}

/* ---- Clocks ---- */

static int64_t clock_us(const struct redis_node *n)
{
    int64_t us = w.now / 1000;
    return START_US + us + us / 1000000 * n->fast_ppm + n->wrong_us;
}

static void set_clock(struct redis_node *n)
{
    model_time_set(n->model, clock_us(n));
}

/* All nodes begin empty; a world sets what else they are. */
static inline void open_nodes(int64_t clocks_differ_us)
{
    memset(peers, 0, sizeof peers);
    group.client = CLIENTS;
    group.until = 0;
    for (unsigned i = 0; i < NODES; i++) {
        models[i] = models[i] ? models[i] : model_open(1);
        nodes[i] = (struct redis_node){.model = models[i],
                                       .is_up = true,
                                       .wrong_us = (int64_t)draw((uint32_t)clocks_differ_us)};
        model_reset(models[i], w.seed + i);
        set_clock(&nodes[i]);
    }
}

/* ---- The judge ---- */

static inline void tell_fault(enum history_fault fault, int64_t by)
{
    history_add(judge, &(struct history_event){.what = H_FAULT,
                                               .fault = (uint8_t)fault,
                                               .process = H_ALL,
                                               .at = w.now,
                                               .until = w.now,
                                               .by = by});
}

/* ---- Connections ---- */

static void flush_node(unsigned node)
{
    struct redis_model *model = nodes[node].model;
    for (int connection; (connection = model_ready(model)) >= 0;) {
        size_t len;
        const char *bytes = model_take(model, (unsigned)connection, &len);
        for (unsigned i = w.links; i-- > 0;) {
            const struct peer *peer = &peers[i];
            if (peer->is_open && peer->is_node && peer->index == node &&
                peer->connection == (unsigned)connection) {
                answer(i, bytes, len);
                break;
            }
        }
    }
}

/* Returns false if the node is down. */
static bool node_link_up(unsigned link)
{
    struct peer *peer = &peers[link];
    struct redis_node *n = &nodes[peer->index];
    peer->is_open = n->is_up;
    if (!n->is_up)
        return false;
    set_clock(n);
    peer->connection = model_connect(n->model);
    return true;
}

/* All that the client has sent has arrived. */
static bool has_arrived(unsigned link)
{
    return links[link].to_server.arrived == links[link].to_server.sent;
}

static void end_link(unsigned link)
{
    struct peer *peer = &peers[link];
    const struct redis_node *n = &nodes[peer->index];
    bool has_model = peer->is_open && peer->is_node && n->is_up;
    if (has_model && model_connected(n->model, peer->connection))
        model_disconnect(n->model, peer->connection);
    peer->is_open = false;
}

/* A node executes what was sent before the end, however late it comes. */
static void servers_link_closed(unsigned link)
{
    if (has_arrived(link) || !peers[link].is_node)
        end_link(link);
}

/* The node closes all its connections. at_once: what is under way to clients is lost. */
static void close_links(unsigned node, bool at_once)
{
    for (unsigned i = 0; i < w.links; i++) {
        bool is_its = peers[i].is_open && peers[i].is_node && peers[i].index == node;
        if (!is_its)
            continue;
        peers[i].is_open = false;
        nanos takes = at_once ? 0 : delay();
        if (links[i].is_open)
            schedule((struct occurrence){.at = w.now + takes, .what = LINK_DOWN, .who = i});
    }
}

static inline void close_links_of(unsigned node)
{
    close_links(node, false);
}

static void node_receive(const struct occurrence *o)
{
    const struct peer *peer = &peers[o->who];
    struct redis_node *n = &nodes[peer->index];
    set_clock(n);
    model_feed(n->model, peer->connection, o->bytes, o->len);
    flush_node(peer->index);
    if (!links[o->who].is_open && has_arrived(o->who))
        end_link(o->who);
}

/* The members of a group see each other only. */
static bool is_cut_off(unsigned client, const struct peer *peer)
{
    bool is_member = peer->is_node && group.nodes >> peer->index & 1;
    return w.now < group.until && (client == group.client) != is_member;
}

/* A node that stands still reads later; between groups TCP repeats until they see each other. */
static nanos servers_hold_up(const struct occurrence *o)
{
    bool of_link = o->what == LINK_UP || o->what == TO_CLIENT || o->what == TO_SERVER;
    if (!of_link)
        return 0;
    const struct peer *peer = &peers[o->who];
    nanos until = is_cut_off(links[o->who].client, peer) ? group.until : 0;
    bool hangs = o->what == TO_SERVER && peer->is_node;
    nanos hung = hangs ? nodes[peer->index].hangs_until : 0;
    return until > hung ? until : hung;
}

static bool client_send(void *ctx, unsigned line, const void *bytes, size_t len)
{
    return send_bytes(ctx, line, bytes, len);
}

/* ---- What a node has ---- */

/* Its model answers those whose wait has run out. */
static void advance_node(unsigned index)
{
    struct redis_node *n = &nodes[index];
    set_clock(n);
    if (!n->is_up || w.now < n->hangs_until)
        return;
    model_advance(n->model);
    flush_node(index);
}

/* Returns true if the lock has a record of the attempt there. */
static inline bool node_has_record(const struct redis_node *n, const struct id *attempt)
{
    char text[REDIS_ID_TEXT + 1];
    struct model_key key;
    redis_id_text(attempt, text);
    if (!model_look(n->model, "lock:job", 8, &key))
        return false;
    for (uint32_t i = 0; i < key.items; i++) {
        struct model_item item = model_look_item(n->model, &key, i);
        if (memmem(item.name, item.name_len, text, REDIS_ID_TEXT))
            return true;
    }
    return false;
}

static inline void check_node_at_rest(struct redis_node *n)
{
    struct model_key key;
    set_clock(n);
    if (model_look(n->model, "lock:job", 8, &key) && key.kind == 's')
        flaw("the lock is left on %c, for %lld ms", letter_of(n), (long long)key.left_ms);
}

/* ---- Calm schedules ---- */

static nanos unheard_since; /* somebody asks, and nobody holds, since then */

/* Calm: who asks is heard. judge_availability() looks at those who heard that they wait. */
static inline void judge_silence(bool is_served, int most_ms)
{
    bool asks = false, held = false;
    for (unsigned i = 0; i < CLIENTS * SLOTS; i++) {
        const struct attempt *a = &w.client[i / SLOTS].attempt[i % SLOTS];
        held |= a->alive && (is_held(a) || a->claim.state == CLAIM_RELEASING);
        asks |= a->alive;
    }
    if (held || !asks || !is_served || !w.calm)
        unheard_since = w.now;
    else if (w.now - unheard_since > NANOS_OF_MS(most_ms))
        flaw("nobody is granted it since %d ms, and somebody asks", most_ms);
}

/* Calm: nobody believes in a record that the node does not have. */
static inline void judge_beliefs_at(const struct redis_node *n)
{
    for (unsigned i = 0; i < CLIENTS * SLOTS; i++) {
        const struct attempt *a = &w.client[i / SLOTS].attempt[i % SLOTS];
        bool believes = a->alive && a->claim.state == CLAIM_HELD &&
                        a->claim.valid_until > local_time(&w.client[i / SLOTS]);
        if (believes && !node_has_record(n, &a->op.attempt))
            flaw("attempt %u believes in a record that %c does not have", a->id, letter_of(n));
    }
}
