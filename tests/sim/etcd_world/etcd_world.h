/* etcd_world.h - the world of an etcd: one store, three clients, and virtual time. Included once,
 * by sim/etcd_sim.c, as are the other headers here. */
#pragma once
#include "base/settings.h"
#include "base/url.h"
#include "checker/checker.h"
#include "core/claim.h"
#include "engines/engine.h"
#include "engines/etcd/etcd.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 3, SLOTS = 2, ROUNDS = 6, LINKS = 4000, LOCK_DELAY_MS = 4000, TTL_MAX_MS = 3000 };
#define FIRST_DAY NANOS_OF_MS(INT64_C(3600000))

enum what { LINK_UP, LINK_DOWN, TO_SERVER, TO_CLIENT, TICK, TIMER, WISH, FAULT, EXPIRY };

struct occurrence {
    nanos at;
    uint64_t order; /* among those at the same time */
    enum what what;
    unsigned who;    /* link; client; or attempt */
    uint64_t serial; /* of a tick, a timer or a wish: an old one counts for nothing */
    char *bytes;
    size_t len;
};

#include "sim/calendar.h"

/* One connection, from its dial on. Calls that were sent on it arrive also when it is closed. */
struct link {
    unsigned client, line;
    bool is_open;
    nanos watch_at;    /* messages of the watch stream do not overtake each other */
    nanos stale_until; /* its member follows a leader that was replaced, until then, */
    uint64_t term;     /* in that term */
};

struct attempt {
    struct claim claim;
    struct engine_op op;
    struct timing_sheet sheet;
    unsigned client;
    uint32_t id;             /* as the judge knows it */
    bool alive, is_answered; /* granted or denied */
    uint64_t timer, wish;
};

struct client {
    void *engine;
    struct wire_engine_host host;
    int link[CONNECTIONS]; /* -1: down */
    nanos stands_until;
    int64_t ahead, fast_ppm; /* of its clock */
    uint64_t tick;
    bool recheck;
    unsigned rounds;
    struct attempt attempt[SLOTS];
    struct {
        struct engine_op *op;
        struct engine_reply reply;
    } told[64]; /* inside a call of the engine: dealt with afterwards */
    unsigned tolds;
};

static struct {
    nanos now;
    uint64_t seed, orders;
    struct occurrence *heap;
    unsigned count, room;
    struct client client[CLIENTS];
    struct link link[LINKS];
    unsigned links;
    hf_kind kind;  /* of the lock: HF_READ stands for readers and writers */
    bool delays;   /* the clients have lock_delay */
    bool calm;     /* no faults: what is free is granted soon */
    bool peace;    /* the faults are over */
    bool has_died; /* some client: its leases end by themselves */
    nanos free_since;
    uint64_t stored;
    uint32_t attempts;
    char flaw[300];
} w;

/* Over all schedules: what never happened was not tried. */
static struct {
    unsigned long grants, waits, denied, lost, cuts, late, revokes, stale, elections, deaths;
} sum;

#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(NO_VERIFY, "no-verify", "a keepalive counts without a read behind it")                       \
    X(NO_TERM, "no-term", "the read behind a keepalive does not compare the term")                 \
    X(NO_EPOCH, "no-epoch", "a late request for a place does not compare the epoch")               \
    X(LATE_RAISE, "late-raise", "a raise of the epoch does not compare its last change")           \
    X(NO_LOOK, "no-look", "a watch that began late does not read the list again")                  \
    X(OLD_TOKEN, "old-token", "the token of a reader that waited is the creation of its key")      \
    X(REPLY_TIME, "reply-time", "a belief counts from the reply")                                  \
    X(NO_GUARD, "no-guard", "lock_delay: guards of lost holds are not seen")                       \
    X(SHORT_DELAY, "short-delay", "lock_delay: the guard of a lost hold is gone at once")
#include "sim/plant_selection.h"

static enum plant planted;
static struct engine_limits limits = ETCD_LIMITS;

static void flaw(const char *format, ...)
{
    if (w.flaw[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w.flaw, sizeof w.flaw, format, args);
    va_end(args);
}

static uint32_t draw(uint32_t below)
{
    w.seed = w.seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w.seed >> 33) % below;
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
    o.at = o.at > w.now ? o.at : w.now;
    calendar_add(w.heap, &w.count, o);
}

static nanos local_time(const struct client *c)
{
    return w.now + c->ahead + w.now / 1000000 * c->fast_ppm;
}

/* When the client's clock shows that, or a moment later: local_time() counts in steps. */
static nanos real_time(const struct client *c, nanos local)
{
    enum { STEP = 3000 };
    return (nanos)((__int128)(local - c->ahead) * 1000000 / (1000000 + c->fast_ppm)) + STEP;
}

/* Mostly a moment, sometimes longer than any time-out. */
static nanos delay(void)
{
    if (w.peace || w.calm || draw(30))
        return NANOS_OF_MS(1) / 4 + (nanos)draw(1000000);
    return NANOS_OF_MS(draw(draw(4) ? 300 : 4000));
}
