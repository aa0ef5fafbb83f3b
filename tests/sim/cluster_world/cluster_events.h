/* cluster_events.h - the slot moves, primaries are replaced, and what else befalls the nodes; and
 * what this world judges besides. */
#pragma once
#include "cluster_map.h"
#include "sim/server_world/links_to_nodes.h"

/* ---- Replicas ---- */

static bool is_in_step(const struct redis_node *n)
{
    return n->is_up && w.now >= n->lags_until;
}

/* The replica of a primary has what that one has, unless it lags or the primary was replaced. */
static void replicate(void)
{
    for (unsigned shard = 0; shard < MOVABLE; shard++) {
        unsigned primary = s.truth.primary[shard], replica = other_node(primary);
        bool follows = !nodes[replica].is_primary && is_in_step(&nodes[replica]);
        unsigned count = planted == PLANT_NO_WAIT || follows;
        model_replicas(nodes[primary].model, count);
        model_replicas(nodes[replica].model, planted == PLANT_NO_WAIT);
        flush_node(primary);
        if (follows)
            model_copy(nodes[replica].model, nodes[primary].model);
    }
}

/* While an old primary goes on, a yes of it counts for nothing: two may hold, and it gives out
 * tokens by a clock that may be behind. With replicas=1 it says no. */
static void doubt(void)
{
    if (w.now > s.split_until || s.is_strong || s.is_clean)
        return;
    tell_fault(H_STALE, 0);
    tell_fault(H_BACK, -1);
}

/* ---- Failovers ---- */

enum cause { DIES, HANGS, IS_CUT_OFF, OPERATOR, CAUSES };

/* A client and the primary are cut off from all others. */
static void part(unsigned node, nanos until)
{
    group.client = draw(CLIENTS);
    group.nodes = 1u << node;
    group.until = until;
    nodes[other_node(node)].lags_until = until;
    note("client %u sees only %c until %.3f", group.client, letter_of(&nodes[node]),
         (double)(until - FIRST_DAY) / 1e6);
    sum.partitions++;
}

static void strike(struct redis_node *old, enum cause cause)
{
    static const char *const texts[] = {[DIES] = "dies",
                                        [HANGS] = "stands still",
                                        [IS_CUT_OFF] = "is cut off",
                                        [OPERATOR] = "is replaced by an operator"};
    note("the primary %c %s", letter_of(old), texts[cause]);
    if (cause == DIES) {
        old->is_up = false;
        old->up_at = soon(3000, 4000);
        close_links_of(s.from);
    } else if (cause == HANGS) {
        old->hangs_until = soon(2000, 3000);
    } else if (cause == IS_CUT_OFF) {
        part(s.from, soon(2500, 4000));
    } else {
        old->hangs_until = s.step_at + NANOS_OF_MS(TICK_MS); /* it is told to wait */
    }
}

static void begin_failover(void)
{
    if (s.step != IDLE)
        return;
    s.shard = draw(MOVABLE);
    s.from = s.truth.primary[s.shard];
    s.to = other_node(s.from);
    enum cause cause = s.is_clean ? OPERATOR : (enum cause)draw(CAUSES);
    struct redis_node *replica = &nodes[s.to];
    bool may = replica->is_up && !replica->is_primary && w.now >= group.until &&
               w.now >= s.split_until && w.now >= replica->hangs_until &&
               w.now >= nodes[s.from].hangs_until;
    if (!may || is_behind(&s.view[s.to]))
        return;
    s.keeps = cause == OPERATOR || (cause == DIES && w.now >= replica->lags_until);
    if (s.keeps)
        replica->lags_until = 0;
    s.step = PROMOTING;
    s.step_at = cause == OPERATOR ? soon(20, 100) : soon(NODE_TIMEOUT_MS + 300, 500);
    strike(&nodes[s.from], cause);
    if (s.keeps)
        model_copy(replica->model, nodes[s.from].model);
}

static void promote(void)
{
    struct redis_node *old = &nodes[s.from], *n = &nodes[s.to];
    note("%c is the primary, %s", letter_of(n), s.keeps ? "with all data" : "with old data");
    sum.kept += s.keeps;
    sum.stale += !s.keeps;
    sum.strong += s.is_strong;
    if (s.keeps || !s.is_strong)
        tell_fault(s.keeps ? H_KEPT : H_STALE, 0);
    int64_t lead_us = clock_us(n) - clock_us(old);
    if (lead_us < 0 && !s.keeps && !s.is_strong) /* else the counter is there */
        tell_fault(H_BACK, lead_us * 1000);
    s.truth.primary[s.shard] = s.to;
    n->epoch = ++s.truth.epoch[s.shard];
    n->lags_until = 0;
    learn(s.to);
    bool is_well = old->is_up && w.now + NANOS_OF_MS(2 * TICK_MS) >= old->hangs_until;
    if (s.keeps && is_well)
        learn(s.from); /* the operator's command ends with that */
    s.step = IDLE;
}

/* It goes on until it hears of its successor. */
static void tend_old_primary(unsigned node)
{
    const struct redis_node *n = &nodes[node];
    bool is_old = n->is_up && n->is_primary && s.truth.primary[shard_of_node(node)] != node;
    if (!is_old)
        return;
    sum.splits += w.now > s.split_until;
    nanos until = w.now + NANOS_OF_MS(2 * TICK_MS);
    s.split_until = until > s.split_until ? until : s.split_until;
}

/* It says that the cluster is down until it has heard what has changed. */
static void tend_start(unsigned node)
{
    struct redis_node *n = &nodes[node];
    if (!n->up_at || w.now < n->up_at)
        return;
    n->up_at = 0;
    n->is_up = true;
    set_clock(n);
    model_restart(n->model, draw(2));
    s.view[node].down_until = soon(2000, 500);
    note("%c starts again", letter_of(n));
}

/* ---- Moves of the slot ---- */

static void begin_move(void)
{
    if (s.step != IDLE)
        return;
    s.from = s.truth.owner;
    s.to = !s.from;
    bool may = w.now >= group.until && w.now >= s.split_until;
    for (unsigned shard = 0; shard < MOVABLE; shard++)
        may &= nodes[s.truth.primary[shard]].is_up && !is_behind(&s.view[s.truth.primary[shard]]);
    if (!may)
        return;
    note("the slot moves from %c to %c", letter_of(&nodes[s.truth.primary[s.from]]),
         letter_of(&nodes[s.truth.primary[s.to]]));
    /* keys that a failover to an old replica brought back stand in the way of a move */
    model_empty_slot(nodes[s.truth.primary[s.to]].model, s.slot);
    s.step = MOVE_BEGINS;
    s.step_at = soon(0, 10);
}

static void move_key(void)
{
    struct redis_node *source = &nodes[s.truth.primary[s.from]],
                      *target = &nodes[s.truth.primary[s.to]];
    bool may = w.now >= source->hangs_until && w.now >= target->hangs_until;
    s.step_at = soon(1, 40);
    if (!may)
        return;
    set_clock(source);
    set_clock(target);
    if (model_migrate(source->model, target->model, s.slot)) {
        sum.keys++;
        return;
    }
    s.truth.owner = s.to;
    s.truth.moves++;
    learn(s.truth.primary[s.to]);
    s.step = MOVE_ENDS;
    sum.moves++;
}

/* The source is told by the tool that moves slots, others by the target. */
static void end_move(void)
{
    learn(s.truth.primary[s.from]);
    s.step = IDLE;
}

static void take_step(void)
{
    if (s.step == IDLE || w.now < s.step_at)
        return;
    if (s.step == PROMOTING)
        promote();
    else if (s.step == MOVE_BEGINS)
        s.step = KEYS_MOVE;
    else if (s.step == KEYS_MOVE)
        move_key();
    else
        end_move();
}

/* ---- Faults ---- */

static void servers_fail(void)
{
    unsigned replica = other_node(s.truth.primary[draw(MOVABLE)]);
    bool may_part = s.step == IDLE && !s.is_clean && w.now >= group.until && w.now >= s.split_until;
    switch (draw(8)) {
    case 0:
        nodes[replica].lags_until = soon(200, 4000);
        break;
    case 1:
        nodes[draw(NODES)].hangs_until = soon(50, 800);
        break;
    case 2:
        if (may_part) /* too short for a failover */
            part(s.truth.primary[draw(MOVABLE)], soon(200, NODE_TIMEOUT_MS + 200));
        break;
    case 3:
    case 4:
        begin_failover();
        break;
    default:
        begin_move();
    }
}

/* ---- What this world judges besides ---- */

static void judge_now(void)
{
    bool is_well = s.step == IDLE && w.now >= s.split_until && w.now >= group.until;
    for (unsigned i = 0; i < NODES; i++)
        is_well &= nodes[i].is_up && w.now >= nodes[i].hangs_until && !is_behind(&s.view[i]) &&
                   !is_down(&s.view[i]);
    if (!is_well)
        s.well_since = w.now;
    if (w.calm && w.now - s.well_since >= NANOS_OF_MS(TOLD_MS))
        judge_beliefs_at(primary_of_lock());
    bool is_served = !s.is_strong && w.now - s.well_since >= NANOS_OF_MS(TOLD_MS);
    if (!is_served)
        w.free_since = w.now;
    judge_silence(is_served, UNHEARD_MS);
}

/* ---- Schedules ---- */

static void servers_happen(const struct occurrence *o)
{
    (void)o;
    for (unsigned i = 0; i < NODES; i++) {
        set_clock(&nodes[i]);
        tend_start(i);
        tend_view(i);
        tend_old_primary(i);
        advance_node(i);
    }
    take_step();
    replicate();
    doubt();
    judge_now();
    nanos next = w.now + NANOS_OF_MS(TICK_MS);
    bool is_sooner = s.step != IDLE && s.step_at < next && s.step_at > w.now;
    schedule((struct occurrence){.at = is_sooner ? s.step_at : next, .what = SERVER});
    if (!w.calm || w.peace)
        return;
    if (draw(200) == 0)
        begin_failover();
    else if (draw(100) == 0)
        begin_move();
}

static void servers_begin(enum plant plant)
{
    memset(&s, 0, sizeof s);
    unheard_since = 0;
    w.calm |= plant == PLANT_NO_RECHECK || plant == PLANT_NO_SEARCH;
    s.keeps_history = plant == PLANT_ALWAYS_ASKING || w.seed % 4 == 0;
    s.is_clean = plant == PLANT_HALF_MOVED || plant == PLANT_ALWAYS_ASKING ||
                 (plant == PLANT_NONE && draw(2));
    s.is_strong = plant == PLANT_NO_WAIT || (plant == PLANT_NONE && draw(4) == 0);
    s.slot = redis_cluster_slot("lock:", "job", 3);
    for (unsigned shard = 0; shard < SHARDS; shard++)
        s.truth.primary[shard] = 2 * shard;
    s.truth.owner = draw(MOVABLE);
    open_nodes(CLOCKS_US);
    for (unsigned i = 0; i < NODES; i++) {
        s.view[i] = s.truth;
        nodes[i].is_primary = i % 2 == 0;
        model_join(nodes[i].model, place_of_node(i));
        model_set_replica(nodes[i].model, !nodes[i].is_primary);
    }
    schedule((struct occurrence){.at = w.now, .what = SERVER});
}

static void client_url(char *text, size_t size)
{
    snprintf(text, size, "redis+cluster://a,d,e?history=%d%s", s.keeps_history ? 5 : 0,
             s.is_strong ? "&replicas=1&replica_timeout=300ms" : "");
}

static void client_wishes(struct engine_op *op)
{
    (void)op;
}

static int64_t servers_rest_ms(bool has_died)
{
    (void)has_died;
    return 12000; /* a failover may be going on */
}

static void servers_check_rest(void)
{
    check_node_at_rest(primary_of_lock());
}

/* ---- Planted bugs ---- */

static void spoil_reply(struct client *c, const struct engine_op *op, struct engine_reply *reply)
{
    (void)c, (void)op, (void)reply;
    doubt();
}

static void spoil_engine(struct client *c)
{
    struct cluster *cluster = c->engine;
    if (planted == PLANT_NO_RECHECK)
        c->recheck = false;
    if (planted == PLANT_NO_SEARCH && cluster->is_mapped)
        cluster->search = (struct cluster_search){.again_at = TIME_NEVER};
}
