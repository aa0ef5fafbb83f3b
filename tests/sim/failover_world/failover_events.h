/* failover_events.h - failovers and what else befalls servers and sentinels; and what this world
 * judges besides. */
#pragma once
#include "failover_network.h"

/* ---- Replicas ---- */

static bool is_in_step(const struct redis_node *n)
{
    return n->is_up && w.now >= n->lags_until;
}

static unsigned replicas_in_step(unsigned primary)
{
    unsigned count = 0;
    for (unsigned i = 0; i < NODES; i++)
        count += i != primary && !nodes[i].is_primary && is_in_step(&nodes[i]);
    return primary == s.primary ? count : 0;
}

static void replicate(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        struct redis_node *n = &nodes[i];
        if (n->is_primary) {
            model_replicas(n->model, planted == PLANT_NO_WAIT ? 2 : replicas_in_step(i));
            flush_node(i);
        } else if (is_in_step(n)) {
            model_copy(n->model, nodes[s.primary].model);
        }
    }
}

/* ---- Failovers ---- */

static void set_role(struct redis_node *n, bool is_primary)
{
    n->is_primary = is_primary;
    model_set_replica(n->model, !is_primary && planted != PLANT_NO_ROLE);
}

static unsigned other_node(void)
{
    unsigned to = (s.primary + 1 + draw(2)) % NODES;
    return nodes[to].is_up ? to : NODES;
}

/* The primary dies, hangs, or is well and replaced by an operator. */
static void begin_failover(void)
{
    unsigned to = other_node(), how = planted == PLANT_WAITS ? 2 + draw(2) : draw(4);
    if (s.step != IDLE || to == NODES || w.now < s.split_until)
        return;
    struct redis_node *old = &nodes[s.primary];
    s.from = s.primary;
    s.to = to;
    s.leader = draw(NODES);
    s.keeps = how < 2 && w.now >= nodes[to].lags_until;
    if (how < 2) {
        if (s.keeps)
            model_copy(nodes[to].model, old->model);
        note("the primary %c dies", 'a' + (int)s.from);
        old->is_up = false;
        old->up_at = soon(1500, 4000); /* after the promotion: it comes back empty */
        close_links_of(s.from);
    } else if (how == 2) {
        note("the primary %c stands still", 'a' + (int)s.from);
        old->hangs_until = soon(1500, 3000);
    } else {
        note("an operator replaces the primary %c", 'a' + (int)s.from);
    }
    s.gives_up = how >= 2 && draw(3) == 0;
    s.step = CHOOSING;
    s.step_at = how == 3 ? soon(10, 40) : soon(300, 700);
}

static void give_up(void)
{
    char text[64];
    snprintf(text, sizeof text, "master mymaster %c 6379", 'a' + (int)s.from);
    s.watcher[s.leader].leads = false;
    announce(&s.watcher[s.leader], "-failover-abort-slave-timeout", text);
    s.step = IDLE;
    sum.aborts++;
}

static void choose(void)
{
    char text[64];
    snprintf(text, sizeof text, "slave %c:6379 %c 6379 @ mymaster %c 6379", 'a' + (int)s.to,
             'a' + (int)s.to, 'a' + (int)s.from);
    s.watcher[s.leader].leads = true;
    announce(&s.watcher[s.leader], "+selected-slave", text);
    s.step = PROMOTING;
    s.step_at = soon(40, 200);
}

/* How far the new primary's clock is ahead of the old one's. Within drift it is no fault. */
static int64_t clock_lead_us(void)
{
    return clock_us(&nodes[s.to]) - clock_us(&nodes[s.from]);
}

static void step_clocks(void)
{
    struct redis_node *n = &nodes[s.to];
    const struct redis_node *old = &nodes[s.from];
    if (draw(4) == 0 && !w.calm && !s.is_strong) {
        n->wrong_us += (int64_t)draw(AHEAD_MS * 2000) - AHEAD_MS * 1000;
        sum.steps++;
    } else if (w.calm && s.are_ahead) { /* a belief ends with its record all the same */
        n->wrong_us = old->wrong_us + AHEAD_MS * 1000;
        sum.steps++;
    }
    int64_t lead = clock_lead_us();
    if (lead > 2 * CLOCKS_US)
        tell_fault(H_AHEAD, lead * 1000);
    if (lead < 0 && !s.keeps && !s.is_strong) /* else the counter is there */
        tell_fault(H_BACK, lead * 1000);
    note("its clock is ahead by %lld us", (long long)lead);
}

static void promote(void)
{
    struct redis_node *old = &nodes[s.from], *n = &nodes[s.to];
    note("%c is the primary, %s", 'a' + (int)s.to, s.keeps ? "with all data" : "with old data");
    sum.kept += s.keeps;
    sum.stale += !s.keeps;
    sum.strong += s.is_strong;
    sum.splits += old->is_up;
    bool is_excused = !s.keeps && planted != PLANT_WAITS;
    if (!s.is_strong || s.keeps)
        tell_fault(is_excused ? H_STALE : H_KEPT, 0);
    if (planted == PLANT_WAITS)
        n->hangs_until = w.now + NANOS_OF_MS(WORLD_TTL_MAX_MS + WORLD_TTL_MAX_MS / 50);
    step_clocks();
    set_clock(n);
    model_restart(n->model, true); /* another run id */
    set_role(n, true);
    n->epoch = ++s.epoch;
    n->lags_until = 0;
    s.primary = s.to;
    old->demote_at = planted == PLANT_WAITS ? w.now : soon(1500, 5000);
    if (old->is_up)
        s.split_until = old->demote_at;
    s.step = FOLLOWING;
    s.step_at = soon(200, 700);
}

static void announce_switch(struct watcher *watcher)
{
    char text[64];
    snprintf(text, sizeof text, "mymaster %c 6379 %c 6379", 'a' + (int)watcher->primary,
             'a' + (int)s.primary);
    watcher->primary = s.primary;
    watcher->epoch = s.epoch;
    watcher->leads = false;
    announce(watcher, "+switch-master", text);
}

/* The others first, the leader a second later; one that is cut off when it sees them again. */
static void tend_watchers(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        struct watcher *watcher = &s.watcher[i];
        bool may = i == s.leader ? s.step == IDLE : s.step == ANNOUNCING || s.step == IDLE;
        if (may && watcher->epoch < s.epoch && w.now >= watcher->cut_until)
            announce_switch(watcher);
    }
}

static void step_failover(void)
{
    if (s.step == IDLE || w.now < s.step_at)
        return;
    switch (s.step) {
    case CHOOSING:
        choose();
        break;
    case PROMOTING:
        if (s.gives_up)
            give_up();
        else
            promote();
        break;
    case FOLLOWING:
        s.step = ANNOUNCING;
        s.name = s.primary;
        s.step_at = soon(300, 700);
        break;
    default:
        s.step = IDLE;
    }
}

/* An old primary comes back empty, and is one until somebody demotes it. */
static void tend_node(unsigned index)
{
    struct redis_node *n = &nodes[index];
    if (n->up_at && w.now >= n->up_at) {
        n->up_at = 0;
        n->is_up = true;
        set_clock(n);
        model_restart(n->model, false);
        n->demote_at = n->demote_at > w.now ? n->demote_at : soon(0, 2000);
        s.split_until = s.split_until > n->demote_at ? s.split_until : n->demote_at;
        sum.splits++;
    }
    bool is_old = n->is_up && n->is_primary && index != s.primary;
    if (is_old && w.now >= n->demote_at && w.now >= n->hangs_until && s.step == IDLE) {
        note("%c becomes a replica", 'a' + (int)index);
        set_role(n, false);
        close_links_of(index);
        n->lags_until = 0;
    }
    if (is_old && n->is_primary && s.split_until < w.now + NANOS_OF_MS(TICK_MS))
        s.split_until = w.now + NANOS_OF_MS(TICK_MS);
}

/* ---- Faults ---- */

static void restart_empty(void)
{
    struct redis_node *n = &nodes[s.primary];
    bool may = s.step == IDLE && !s.is_strong && !w.calm;
    if (!may)
        return;
    note("the primary restarts without data");
    set_clock(n);
    model_restart(n->model, false);
    close_links_of(s.primary);
    tell_fault(H_FORGOT, 0);
    sum.empties++;
}

/* A client and the primary are cut off from all others. */
static void part(void)
{
    if (s.step != IDLE || w.now < group.until)
        return;
    group.client = draw(CLIENTS);
    group.nodes = 1u << s.primary;
    group.until = soon(500, 6000);
    note("client %u sees only %c until %.3f", group.client, 'a' + (int)s.primary,
         (double)(group.until - FIRST_DAY) / 1e6);
    sum.partitions++;
}

static void servers_fail(void)
{
    switch (draw(8)) {
    case 0:
        s.watcher[draw(NODES)].cut_until = soon(500, 8000);
        sum.cutoffs++;
        break;
    case 1:
        nodes[(s.primary + 1 + draw(2)) % NODES].lags_until = soon(200, 4000);
        break;
    case 2:
        restart_empty();
        break;
    case 3:
        part();
        break;
    case 4:
        nodes[draw(NODES)].hangs_until = soon(50, 800);
        break;
    default:
        begin_failover();
    }
}

/* ---- What this world judges besides ---- */

/* The server said that a hold is released. A release is not repeated if its attempt may hold
 * again. */
static void note_release(const struct client *c, const struct engine_op *op,
                         const struct engine_reply *reply)
{
    bool is_repeated = !op->named && !op->may_be_in_flight;
    if (op->verb != OP_RELEASE || reply->kind != REPLY_RELEASED || !is_repeated)
        return;
    s.released[s.releases++ % RELEASES] = (struct released){
        .attempt = op->attempt, .client = (unsigned)(c - w.client), .life = c->life, .at = w.now};
}

/* Calm: a hold that its client gave back in the last seconds is not on the primary of the last half
 * second. */
static void judge_releases(void)
{
    for (unsigned i = 0; i < RELEASES; i++) {
        const struct released *r = &s.released[i];
        bool counts = r->life && r->life == w.client[r->client].life &&
                      w.now - r->at < NANOS_OF_MS(REPEATED_MS);
        if (counts && node_has_record(&nodes[s.primary], &r->attempt))
            flaw("client %u released the lock, and the primary has its hold", r->client);
    }
}

/* Calm: nobody believes in a record that the primary of the last half second does not have. */
static void judge_beliefs(void)
{
    bool is_well = s.step == IDLE;
    for (unsigned i = 0; i < NODES; i++)
        is_well &= nodes[i].is_up && w.now >= nodes[i].hangs_until && s.watcher[i].epoch == s.epoch;
    if (!is_well)
        s.well_since = w.now;
    if (!is_well || w.now - s.well_since < NANOS_OF_MS(TOLD_MS) || !w.calm || s.by_name)
        return;
    judge_releases();
    judge_beliefs_at(&nodes[s.primary]);
}

/* A client that knew a token when it asked gets a higher one. That is so for its first request and
 * not for a handoff: no waiter tells the server what it knows when it is its turn. */
static void judge_token(const struct client *c, const struct engine_op *op,
                        const struct engine_reply *reply)
{
    struct knowledge *knows = knowledge_of((unsigned)(c - w.client));
    uint64_t floor = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        const struct attempt *a = &c->attempt[slot];
        bool is_first = a->claim.state != CLAIM_QUEUED && knows->asked_by[slot] == c->link[0];
        floor = &a->op == op && is_first ? knows->floor[slot] : floor;
    }
    bool is_new = reply->kind == REPLY_GRANTED && op->kind == HF_EXCLUSIVE && !s.by_name;
    if (is_new && reply->token < floor)
        flaw("client %u gets token %llu, and had %llu when it asked", (unsigned)(c - w.client),
             (unsigned long long)reply->token, (unsigned long long)floor);
    knows->token = reply->token > knows->token ? reply->token : knows->token;
}

/* ---- Schedules ---- */

static void servers_happen(const struct occurrence *o)
{
    (void)o;
    for (unsigned i = 0; i < NODES; i++) {
        set_clock(&nodes[i]);
        tend_node(i);
        advance_node(i);
    }
    step_failover();
    tend_watchers();
    replicate();
    doubt();
    judge_beliefs();
    bool is_served = s.step == IDLE && w.now >= s.split_until && !s.is_strong;
    is_served &= w.now - s.well_since >= NANOS_OF_MS(FREE_AFTER_MS);
    if (!is_served)
        w.free_since = w.now;
    judge_silence(is_served, UNHEARD_MS);
    schedule((struct occurrence){.at = w.now + NANOS_OF_MS(TICK_MS), .what = SERVER});
    bool listens = w.now > FIRST_DAY + NANOS_OF_MS(LISTENS_MS);
    if (w.calm && !w.peace && draw(60) == 0)
        nodes[(s.primary + 1 + draw(2)) % NODES].lags_until = soon(200, 2000);
    if (w.calm && !w.peace && listens && draw(150) == 0)
        begin_failover();
}

static void servers_begin(enum plant plant)
{
    memset(&s, 0, sizeof s);
    bool needs_calm = plant == PLANT_NO_RECHECK || plant == PLANT_HOLDS_BACK ||
                      plant == PLANT_NO_LISTEN || plant == PLANT_NO_REPEAT ||
                      plant == PLANT_NOT_SHORTER;
    w.calm |= needs_calm;
    s.are_ahead = plant == PLANT_NOT_SHORTER || w.seed % 4 == 0;
    s.is_strong = plant == PLANT_NO_WAIT || (plant == PLANT_NONE && draw(4) == 0);
    s.by_name = plant == PLANT_NONE && draw(4) == 0;
    world_engine = s.by_name ? &redis_wire_engine : &sentinel_wire_engine;
    s.epoch = 1;
    open_nodes(CLOCKS_US);
    for (unsigned i = 0; i < NODES; i++) {
        nodes[i].epoch = i == 0;
        s.watcher[i] = (struct watcher){.epoch = 1};
        set_role(&nodes[i], i == 0);
    }
    schedule((struct occurrence){.at = w.now, .what = SERVER});
}

static void client_url(char *text, size_t size)
{
    const char *query = s.is_strong ? "?replicas=2&replica_timeout=300ms" : "";
    snprintf(text, size, s.by_name ? "redis://p:6379/%s" : "redis+sentinel://x,y,z/mymaster%s",
             query);
}

static void client_wishes(struct engine_op *op)
{
    for (unsigned i = 0; i < CLIENTS * SLOTS; i++) {
        struct knowledge *knows = knowledge_of(i / SLOTS);
        if (&w.client[i / SLOTS].attempt[i % SLOTS].op == op) {
            knows->floor[i % SLOTS] = knows->token;
            knows->asked_by[i % SLOTS] = w.client[i / SLOTS].link[0];
        }
    }
}

static int64_t servers_rest_ms(bool has_died)
{
    (void)has_died;
    return 12000; /* a failover may be going on */
}

static void servers_check_rest(void)
{
    check_node_at_rest(&nodes[s.primary]);
}

/* ---- Planted bugs ---- */

static void spoil_reply(struct client *c, const struct engine_op *op, struct engine_reply *reply)
{
    doubt();
    judge_token(c, op, reply);
    note_release(c, op, reply);
    if (planted == PLANT_NOT_SHORTER)
        reply->is_elsewhere = false;
}

static void spoil_engine(struct client *c)
{
    struct sentinel *sentinel = c->engine;
    if (s.by_name)
        return;
    struct redis *redis = sentinel->redis;
    struct knowledge *knows = knowledge_of((unsigned)(c - w.client));
    bool follows = sentinel->epoch > knows->believed;
    knows->believed = follows ? sentinel->epoch : knows->believed;
    knows->is_held_back = !follows && (knows->is_held_back || redis->follow.hold_back_until);
    if (planted == PLANT_ANY_EPOCH)
        sentinel->epoch = 0;
    if (planted == PLANT_NO_RECHECK)
        c->recheck = false;
    if (planted == PLANT_NO_REPEAT)
        redis->recent.len = 0;
    if (planted == PLANT_NO_FLOOR)
        redis->highest = 0;
    if (planted == PLANT_HOLDS_BACK && knows->is_held_back)
        redis->follow.hold_back_until = 2 * w.now;
    if (planted == PLANT_NO_LISTEN)
        sentinel->listen_from = 0;
}
