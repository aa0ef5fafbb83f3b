/* quorum_events.h - what befalls the servers of a quorum, and what this world judges besides. */
#pragma once
#include "quorum_world.h"
#include "sim/server_world/links_to_nodes.h"

/* ---- Faults ---- */

/* One server, or several that had the same power. */
static void restart_empty(void)
{
    unsigned first = draw(NODES);
    for (unsigned i = draw(2) ? 1 : 1 + draw(3); i; i--) {
        unsigned node = (first + i) % NODES;
        note("%c restarts empty", letter_of(&nodes[node]));
        set_clock(&nodes[node]);
        close_links_of(node);
        model_restart(nodes[node].model, false);
        if (planted == PLANT_EMPTY_COUNTS)
            nodes[node].wrong_us += INT64_C(3600000000); /* its uptime looks old */
        sum.restarts++;
    }
}

/* A client and some servers see each other and nobody else. */
static void part(void)
{
    if (w.now < group.until)
        return;
    group.client = draw(CLIENTS);
    group.nodes = draw(1u << NODES);
    group.until = soon(200, 6000);
    unsigned count = (unsigned)__builtin_popcount(group.nodes);
    sum.minorities += count <= NODES / 2;
    sum.majorities += count > NODES / 2;
    note("client %u sees %u servers until %.3f, and others the rest", group.client, count,
         (double)(group.until - FIRST_DAY) / 1e6);
}

static void servers_fail(void)
{
    switch (draw(servers_restart ? 5 : 4)) {
    case 0:
    case 1:
        nodes[draw(NODES)].hangs_until = soon(50, 1500);
        sum.hangs++;
        break;
    case 2:
    case 3:
        part();
        break;
    default:
        restart_empty();
    }
}

/* ---- Schedules ---- */

/* Calm: a minority of the servers hangs now and then. */
static void disturb(void)
{
    if (draw(200))
        return;
    unsigned first = draw(NODES);
    for (unsigned i = 0; i < NODES / 2; i++)
        nodes[(first + i) % NODES].hangs_until = soon(200, 2000);
}

static void servers_happen(const struct occurrence *o)
{
    (void)o;
    for (unsigned i = 0; i < NODES; i++)
        advance_node(i);
    w.free_since = w.now; /* judge_silence() has the bound of a quorum */
    judge_silence(true, UNHEARD_MS);
    if (w.calm && !w.peace)
        disturb();
    schedule((struct occurrence){.at = w.now + NANOS_OF_MS(TICK_MS), .what = SERVER});
}

static void servers_begin(enum plant plant)
{
    unheard_since = 0;
    w.kind = HF_EXCLUSIVE;
    servers_restart = plant == PLANT_EMPTY_COUNTS || draw(2);
    open_nodes(CLOCKS_US);
    schedule((struct occurrence){.at = w.now, .what = SERVER});
}

static void client_url(char *text, size_t size)
{
    snprintf(text, size, "redlock://a,b,c,d,e?max_ttl=%dms", MAX_TTL_MS);
}

static void client_wishes(struct engine_op *op)
{
    (void)op;
}

static int64_t servers_rest_ms(bool has_died)
{
    (void)has_died;
    return 12000;
}

static void servers_check_rest(void)
{
    for (unsigned i = 0; i < NODES; i++)
        check_node_at_rest(&nodes[i]);
}

/* ---- Planted bugs ---- */

static void spoil_reply(struct client *c, const struct engine_op *op, struct engine_reply *reply)
{
    (void)c;
    sum.waits += op->waits && reply->kind == REPLY_BUSY; /* it asks again */
}

static void spoil_engine(struct client *c)
{
    struct redlock *lock = c->engine;
    for (struct quorum_try *t = lock->tries; t && planted == PLANT_NO_COUNTS; t = t->next)
        for (unsigned i = 0; i < NODES; i++)
            if (t->quorum.vote[i] == VOTE_NO)
                t->quorum.vote[i] = VOTE_YES;
}
