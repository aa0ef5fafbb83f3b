/* redlock_world.h - the world of a quorum: five servers with clocks of their own, three clients,
 * and virtual time. Included once, by sim/redlock_sim.c, as are the other headers here. */
#pragma once
#include "base/settings.h"
#include "base/url.h"
#include "checker/checker.h"
#include "engines/engine.h"
#include "engines/redis/keys.h"
#include "engines/redis/scripts.h"
#include "engines/redlock/redlock.h"
#include "sim/model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SERVERS = 5,
    CLIENTS = 3,
    LINES_EACH = SERVERS * QUORUM_MEMBER_CONNECTIONS,
    LINKS = 20000,
    ROUNDS = 8
};
#define MAX_TTL_MS 5000
#define START_US INT64_C(1735689600000000)
#define FIRST_DAY                                                                                  \
    NANOS_OF_MS(INT64_C(3600000)) /* servers have run for that long when the clients come */

enum what { LINK_UP, LINK_DOWN, TO_SERVER, TO_CLIENT, SERVER_CLOSES, TICK, WISH, FAULT };

struct occurrence {
    nanos at;
    uint64_t order; /* among those at the same time */
    enum what what;
    unsigned who; /* link, client */
    char *bytes;
    size_t len;
};

#include "sim/calendar.h"

struct link {
    unsigned client, line, server, connection;
    bool client_open, server_open;
    nanos last_up, last_down; /* bytes do not overtake each other */
};

struct server {
    struct redis_model *model;
    nanos hangs_until;
    nanos slow;        /* each way takes that much longer */
    int64_t wrong_us;  /* its clock, at the beginning, */
    int64_t fast_ppm;  /* and how it runs */
    bool lies;         /* planted: it looks old when it has just started */
    int64_t jumped_us; /* because of that */
};

enum state { IDLE, ASKING, PAUSED, HOLDING, EXTENDING, RELEASING, DONE };

struct client {
    void *engine;
    struct wire_engine_host host;
    int link[LINES_EACH];  /* -1: down */
    bool unheard[SERVERS]; /* what it asked there was not answered */
    uint32_t max_ttl_ms;
    nanos stands_until, ticks_at;
    nanos waits_since;       /* when it began to wait, in true time */
    int64_t ahead, fast_ppm; /* of its clock */
    struct engine_op op;
    enum state state;
    nanos valid_until, release_at; /* on its own clock */
    uint64_t token, overrides, ticks;
    unsigned rounds;
    uint32_t attempt;              /* as the judge knows it */
    struct engine_reply reply[64]; /* told inside a call of the engine: dealt with afterwards */
    unsigned count;
};

static struct {
    nanos now;
    uint64_t seed, orders;
    uint64_t clock_seed; /* clients' clocks step apart from all else: without, a seed is the same
                            schedule */
    struct occurrence *heap;
    unsigned count, room;
    struct server server[SERVERS];
    struct client client[CLIENTS];
    struct link link[LINKS];
    unsigned links;
    bool data_is_lost, peace;
    bool calm; /* nothing happens to clients and connections: servers hang and are slow, for long */
    bool ill;  /* calm: some servers may hang or be slow now */
    nanos free_since;    /* calm: somebody waits, and nobody holds, since then */
    unsigned long waits; /* calm: grants that were judged */
    uint64_t stored;     /* the highest token that the store has seen */
    uint32_t attempts;
    unsigned grants, expiries, busy, failed, jumps, refusals;
    char flaw[300];
} w;

/* Each mistake that is planted must be found. */
#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(FORGETS_AGREED, "forgets-agreed", "servers do not keep the token that was agreed on")        \
    X(EMPTY_COUNTS, "empty-counts", "a server that restarted empty counts at once")                \
    X(BELIEVED_ONLY, "believed-only", "a release goes only where the hold is believed to be")      \
    X(WAITS_FOR_ALL, "waits-for-all",                                                              \
      "a try waits for servers that hang while others could decide it")                            \
    X(NO_TURNS, "no-turns", "servers grant to whoever asks, whoever's turn it is")                 \
    X(OWN_TTL, "own-ttl",                                                                          \
      "a server that restarted counts when the ttl of whoever asks is over, not the longest one")
#include "sim/plant_selection.h"

static enum plant planted;

static struct redis_model *models[SERVERS];
static struct engine_limits limits = REDLOCK_LIMITS;

static void flaw(const char *format, ...)
{
    if (w.flaw[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w.flaw, sizeof w.flaw, format, args);
    va_end(args);
}

static uint32_t draw_from(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

static uint32_t draw(uint32_t below)
{
    return draw_from(&w.seed, below);
}

/* ---- Time ---- */

static void schedule(struct occurrence o)
{
    if (w.count == w.room) {
        w.room = w.room ? w.room * 2 : 1024;
        w.heap = realloc(w.heap, w.room * sizeof *w.heap);
        if (!w.heap)
            abort();
    }
    o.order = w.orders++;
    calendar_add(w.heap, &w.count, o);
}

static nanos local_time(const struct client *c)
{
    return w.now + c->ahead + w.now / 1000000 * c->fast_ppm;
}

static void set_clock(struct server *s)
{
    int64_t us = w.now / 1000;
    model_time_set(s->model,
                   START_US + us + us / 1000000 * s->fast_ppm + s->wrong_us + s->jumped_us);
}

/* Mostly a moment, sometimes longer than any time-out. */
static nanos delay(void)
{
    if (w.peace || w.calm || draw(40))
        return NANOS_OF_MS(1) / 4 + (nanos)draw(1000000);
    return NANOS_OF_MS(draw(400));
}
