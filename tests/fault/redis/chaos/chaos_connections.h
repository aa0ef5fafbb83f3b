/* chaos_connections.h - what happens to clients and to their lines; each fault returns how often it
 * happened. */
#pragma once
#include "chaos_world.h"

/* ---- Clients ---- */

static inline unsigned kill_client(void)
{
    struct client *c = some_client();
    if (c->stopped_at)
        return 0;
    actor_kill(c->actor);
    actor_await_end(c->actor);
    tell_fault(H_KILLED, c->part.number, now_ns(), 0);
    start_client(c);
    world.kills++;
    return 1;
}

static inline unsigned stop_client(void)
{
    struct client *c = some_client();
    if (c->stopped_at)
        return 0;
    actor_stop(c->actor);
    c->stopped_at = now_ns();
    c->stopped_until = c->stopped_at + (int64_t)draw(1500) * 1000000;
    return 1;
}

/* ---- At a byte of a line ---- */

/* At a byte that will come soon, of a connection that is there or in the beginning of one that
 * comes. That it happened is seen later. */
static inline unsigned plant(enum proxy_fault_kind fault)
{
    struct client *c = some_client();
    uint32_t last = proxy_connections(c->proxy);
    if (c->plants == PLANTS)
        return 0;
    bool of_requests = fault == PROXY_LATE || fault == PROXY_BEHIND;
    enum proxy_way way = !of_requests && draw(2) ? PROXY_REPLIES : PROXY_REQUESTS;
    struct proxy_fault at = {fault, way, 0, draw(way == PROXY_REQUESTS ? 25000 : 1000)};
    if (last && draw(2)) {
        at.connection = last - draw(last < 2 ? 1 : 2);
        at.after = proxy_bytes(c->proxy, at.connection, way) + draw(300);
    }
    c->kind[c->plants++] = fault;
    if (fault == PROXY_BEHIND)
        proxy_plant_behind(c->proxy, at.connection, at.after, 1 + draw(500));
    else
        proxy_plant(c->proxy, &at);
    return 0;
}

static inline unsigned plant_cut(void)
{
    return plant(PROXY_CUT);
}

static inline unsigned plant_reset(void)
{
    return plant(PROXY_RESET);
}

static inline unsigned plant_stall(void)
{
    return plant(PROXY_STALL);
}

static inline unsigned plant_drop(void)
{
    return plant(PROXY_DROP);
}

static inline unsigned plant_late(void)
{
    return plant(PROXY_LATE);
}

static inline unsigned plant_half(void)
{
    return plant(PROXY_HALF);
}

/* What this client says later on another connection arrives first. */
static inline unsigned plant_behind(void)
{
    return plant(PROXY_BEHIND);
}

/* ---- A line as a whole ---- */

/* A line that nothing is wrong with as a whole so far. */
static inline struct client *sound_line(void)
{
    struct client *c = some_client();
    if (c->slow || c->dribbles || c->frozen || c->shut)
        return NULL;
    c->line_until = now_ns() + (int64_t)(50 + draw(800)) * 1000000;
    return c;
}

static inline unsigned slow_line(void)
{
    struct client *c = sound_line();
    if (!c)
        return 0;
    c->slow = true;
    proxy_delay(c->proxy, PROXY_REQUESTS, draw(150));
    proxy_delay(c->proxy, PROXY_REPLIES, 1 + draw(150));
    return 1;
}

static inline unsigned dribble(void)
{
    struct client *c = sound_line();
    if (!c)
        return 0;
    c->dribbles = true;
    proxy_dribble(c->proxy, PROXY_REQUESTS, true);
    proxy_dribble(c->proxy, PROXY_REPLIES, true);
    return 1;
}

static inline unsigned freeze(void)
{
    struct client *c = sound_line();
    if (!c)
        return 0;
    c->frozen = true;
    proxy_freeze(c->proxy, true);
    return 1;
}

static inline unsigned refuse(void)
{
    struct client *c = sound_line();
    if (!c)
        return 0;
    c->shut = true;
    proxy_refuse(c->proxy, true);
    return 1;
}

static inline unsigned cut_all(void)
{
    return proxy_cut_all(some_client()->proxy);
}

static inline void mend_line(struct client *c)
{
    for (enum proxy_way way = PROXY_REQUESTS; way <= PROXY_REPLIES; way++) {
        if (c->slow)
            proxy_delay(c->proxy, way, 0);
        if (c->dribbles)
            proxy_dribble(c->proxy, way, false);
    }
    if (c->frozen)
        proxy_freeze(c->proxy, false);
    if (c->shut)
        proxy_refuse(c->proxy, false);
    c->slow = c->dribbles = c->frozen = c->shut = false;
}
