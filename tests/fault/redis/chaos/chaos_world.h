/* chaos_world.h - the server, the clients, and the line that each of them has to it. */
#pragma once
#include "chaos_clients.h"
#include "fault/redis/redis_fixture.h"
#include "lib/proxy.h"
#include "lib/quorum_servers_setup.h"

enum { PLANTS = 60 }; /* that one proxy can remember */

/* What was switched on for a while, and until when. */
struct client {
    struct part part;
    struct actor *actor;
    struct proxy *proxy;
    int plants;                         /* faults at a byte so far, */
    bool seen[PLANTS];                  /* and which of them were seen to have happened */
    enum proxy_fault_kind kind[PLANTS]; /* what they were */
    bool slow, dribbles, frozen, shut;
    int64_t line_until, stopped_at, stopped_until; /* 0: it is not */
};

static struct {
    struct shared *shared;
    struct client client[CLIENTS];
    struct quorum clock; /* the server's: it can be stepped */
    unsigned kills;
    unsigned late_bytes;
} world;

static inline struct client *some_client(void)
{
    return &world.client[draw(CLIENTS)];
}

/* A way of its own to the server; a new one when the old one has no room for more faults. */
static inline void lay_line(struct client *c)
{
    static const char *const wake[] = {"inbox", "pubsub", "poll"};
    if (c->proxy)
        proxy_end(c->proxy);
    *c = (struct client){.part = c->part, .proxy = proxy_start(server_port(scene.server))};
    snprintf(c->part.url, sizeof c->part.url,
             "redis://127.0.0.1:%u?wake=%s&retry_min=5ms&retry_max=100ms", proxy_port(c->proxy),
             wake[c->part.number % 3]);
}

static inline void start_client(struct client *c)
{
    if (!c->proxy || c->plants > PLANTS / 2)
        lay_line(c);
    c->part.life++;
    c->actor = actor_start_part(play, &c->part);
    actor_answer(c->actor, ORDER_GO, 0);
}

/* It struck that client, or all of them, at some time between then and now, or lasted for that
 * long. */
static inline void tell_fault(enum history_fault fault, unsigned process, int64_t from,
                              int64_t by_seconds)
{
    RECORD(world.shared->told, .at = from, .what = H_FAULT, .fault = (uint8_t)fault,
           .process = process, .until = now_ns(), .by = by_seconds * 1000000000);
}

static inline void go_on(struct client *c)
{
    tell_fault(H_PAUSED, c->part.number, c->stopped_at, 0);
    actor_go_on(c->actor);
    c->stopped_at = 0;
}
