/* world.h - the server, the clients, and the line that each of them has to it. */
#pragma once
#include "clients.h"
#include "fault/redis_scene.h"
#include "proxy.h"
#include "quorum.h"

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
    int64_t ahead_ns, highest_ns;
    int64_t forgot_us; /* when the server last lost data, by its own clock */
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
    snprintf(c->part.url, sizeof c->part.url, "redis://127.0.0.1:%u?wake=%s&retry_min=5ms&retry_max=100ms",
             proxy_port(c->proxy), wake[c->part.number % 3]);
}

static inline void start_client(struct client *c)
{
    if (!c->proxy || c->plants > PLANTS / 2)
        lay_line(c);
    c->actor = actor_start_part(play, &c->part);
    actor_answer(c->actor, ORDER_GO, 0);
}

static inline void go_on(struct client *c)
{
    atomic_fetch_add(&world.shared->stopped_ns[c->part.number], now_ns() - c->stopped_at);
    actor_go_on(c->actor);
    c->stopped_at = 0;
}

/* Was the server's clock then behind what it had shown before? */
static inline bool clock_was_behind(int64_t at)
{
    return at + world.ahead_ns < world.highest_ns;
}

/* Between then and now the server lost data, or some. */
static inline void note_forgetting(const char *why, int64_t from)
{
    assert_true(history_note(world.shared->log, "forgot %s %d %lld %lld\n", why, clock_was_behind(from),
                             (long long)from, (long long)now_ns()));
    world.forgot_us = server_clock_us(scene.server);
}
