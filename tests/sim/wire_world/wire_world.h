/* wire_world.h - the part of a world that all engines on a wire share: clients with claims, their
 * connections, and virtual time. Included once by a world, as are the other headers here.
 *
 * A world defines before this header:
 *
 *     WORLD_ENGINE        the engine's table of functions
 *     WORLD_LIMITS        its limits
 *     WORLD_CONNECTIONS   number of connections of a client
 *     WORLD_TTL_MAX_MS    longest ttl that a user asks for
 *     WORLD_COUNTS(X)     X(name, what print_sums() calls it): what the world counts besides
 *     PLANTS(X)           its planted bugs: sim/plant_selection.h */
#pragma once
#ifndef WORLD_RESIZES /* users change capacities, and the servers tell the judge */
#define WORLD_RESIZES false
#endif
#ifndef WORLD_RULES /* for the judge; a quorum: what happens to one server excuses nothing */
#define WORLD_RULES                                                                                \
    {                                                                                              \
        .exact = true, .quorum = true                                                              \
    }
#endif

#include "base/settings.h"
#include "base/url.h"
#include "checker/checker.h"
#include "core/claim.h"
#include "core/entry_order.h"
#include "engines/engine.h"
#include "engines/wire_engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 3, SLOTS = 2, ROUNDS = 6, PERMITS = 3, LINKS = 20000, REPLIES = 64 };
#define FIRST_DAY NANOS_OF_MS(INT64_C(3600000))

enum what { LINK_UP, LINK_DOWN, TO_SERVER, TO_CLIENT, TICK, TIMER, WISH, FAULT, SERVER };

struct occurrence {
    nanos at;
    uint64_t order; /* among those at the same time */
    enum what what;
    unsigned who;    /* link; client; attempt; or as the servers say */
    uint64_t serial; /* of a tick, a timer or a wish: an old one counts for nothing. Of bytes: their
                        number in the stream; 0: they may overtake others */
    char *bytes;
    size_t len;
};

#include "sim/calendar.h"
#include "sim/plant_selection.h"

/* Bytes in one direction of a link. */
struct stream {
    uint64_t sent, arrived; /* number of the last part */
    nanos at;               /* when the last part that was sent arrives */
};

/* One connection, from its dial on. What was sent on it arrives at the server also when it is
 * closed. */
struct link {
    unsigned client, line;
    char host; /* first letter of the host that was dialled */
    bool is_open;
    struct stream to_server, to_client;
};

struct attempt {
    struct claim claim;
    struct engine_op op;
    struct timing_sheet sheet;
    unsigned client;
    uint32_t id;             /* as the judge knows it */
    bool alive, is_answered; /* granted or denied */
    enum op_verb wants;      /* the conversion that was asked for; OP_NONE: none */
    bool upgrade_doubt;      /* an upgrade may have happened unheard */
    uint64_t timer, wish;
};

struct client {
    void *engine;
    unsigned life; /* how often it was started */
    struct wire_engine_host host;
    int link[WORLD_CONNECTIONS]; /* -1: down */
    nanos stands_until;
    int64_t ahead, fast_ppm;     /* of its clock */
    uint64_t tick, tick_planned; /* serials: of the last tick that counts, and of the planned one */
    nanos tick_wanted, tick_at;  /* as the engine said, and when it comes */
    bool recheck;
    struct admin_op admin; /* a resize */
    bool resizes;          /* it is in flight */
    unsigned rounds;
    struct attempt attempt[SLOTS];
    struct {
        struct engine_op *op;
        struct engine_reply reply;
    } told[REPLIES]; /* inside a call of the engine: dealt with afterwards */
    unsigned tolds;
};

static struct {
    nanos now;
    uint64_t seed, orders;
    struct occurrence *heap;
    unsigned count, room;
    struct client client[CLIENTS];
    unsigned links;
    hf_kind kind;  /* of the lock: HF_READ stands for readers and writers */
    bool calm;     /* no faults but cuts: what is free is granted soon */
    bool peace;    /* the faults are over */
    bool has_died; /* some client: its sessions end by themselves */
    nanos free_since;
    uint64_t stored; /* highest token that the store which the lock guards has admitted */
    uint32_t attempts;
    char flaw[300];
} w;

static struct link links[LINKS]; /* the first w.links are in use */

/* Over all schedules: what never happened was not tried. */
#define ALL_COUNTS(X)                                                                              \
    X(grants, "grants")                                                                            \
    X(waits, "waits")                                                                              \
    X(denied, "denied")                                                                            \
    X(lost, "lost")                                                                                \
    X(cuts, "cuts")                                                                                \
    X(late, "late calls")                                                                          \
    X(deaths, "deaths")                                                                            \
    WORLD_COUNTS(X)
static struct {
#define X(name, text) unsigned long name;
    ALL_COUNTS(X)
#undef X
} sum;

static struct history *judge;
static enum plant planted;
static unsigned long upgrades, downgrades; /* over all schedules, in worlds that offer them */
static bool is_traced;
static struct engine_limits limits = WORLD_LIMITS;

static void flaw(const char *format, ...)
{
    if (w.flaw[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w.flaw, sizeof w.flaw, format, args);
    va_end(args);
}

/* --trace: says what happens. */
__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list args;
    if (!is_traced)
        return;
    printf("# %10.3f ms ", (double)(w.now - FIRST_DAY) / 1e6);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
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

/* Puts an occurrence into a stream: it happens after those that were put there before. */
static inline void keep_order(struct stream *stream, struct occurrence *o)
{
    stream->at = o->at = o->at > stream->at ? o->at : stream->at;
    o->serial = ++stream->sent;
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

/* ---- What a world defines behind this header ---- */

/* Begins the servers of a schedule; w.calm and w.kind were drawn and may be changed. */
static void servers_begin(enum plant plant);
/* Bytes of a client arrive. */
static void servers_receive(const struct occurrence *o);
/* An occurrence SERVER. */
static void servers_happen(const struct occurrence *o);
/* Returns until when an occurrence of a link is held up; 0: it is not. */
static nanos servers_hold_up(const struct occurrence *o);
/* A connection would come up. Returns false if it is refused instead. */
static bool servers_link_up(unsigned link);
/* How long it takes until a connection is up. */
static nanos dial_takes(unsigned line);
static void servers_link_closed(unsigned link);
/* A fault of the servers. */
static void servers_fail(void);
/* All is released: is anything left? */
static void servers_check_rest(void);
/* Returns how long after the last release things of the dead, or of the living, may be left. */
static int64_t servers_rest_ms(bool has_died);
/* The URL of a client. */
static void client_url(char *text, size_t size);
/* Changes what a user asks for. */
static void client_wishes(struct engine_op *op);
/* Planted bugs in what an engine says, and in what it believes: after every call of it. */
static void spoil_reply(struct client *c, const struct engine_op *op, struct engine_reply *reply);
static void spoil_engine(struct client *c);
/* The host's function `send`. */
static bool client_send(void *ctx, unsigned line, const void *bytes, size_t len);
