/* redis_world.h - a world in a box: virtual time, processes with clocks of their own, users and
 * their attempts, and a heap of what will happen.
 *
 * Included once, by sim/redis_sim.c or sim/crowd.c, as are the other headers here. What runs in
 * this world is the product: claims (core/claim.h), the Redis engine without its sockets
 * (engines/wire_engine.h), and the shipped scripts inside the model of a server. "Real" time is the
 * server's rate; every process has a clock that is off and runs slower or faster.
 */
#pragma once
#include "checker/checker.h"
#include "core/claim.h"
#include "engines/redis/redis.h"
#include "redis_plants.h"
#include "refused.h"
#include "sim/coverage.h"
#include "sim/model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef WORLD_SIZES /* those of sim/crowd.c are larger */
enum {
    MAX_EVENTS = 8192,
    MAX_LINKS = 2048,
    MAX_ATTEMPTS = 128,
    MAX_ERRANDS = 16,
    NEWS_ROOM = 2048
};
enum { PROCESSES = 4, ROUNDS = 3 };
#define BYTES_ROOM (64u << 20)
#endif
enum {
    LONG = 2048,
    LONG_MOST = 1 << 17,
    OFTEN = 16
}; /* messages with the text of a script; see redis_network.h */

/* What can go wrong, a bit each: a failing schedule is tried again with fewer of them. The draws
 * are made in any case, so that the rest of the schedule stays as it was. */
#define FAULTS(X)                                                                                  \
    X(CUT, "cut")        /* a connection breaks at some byte, and one side or both hear of it */   \
    X(HALF, "half-open") /* it breaks, and nobody hears of it */                                   \
    X(LATE, "late")      /* bytes take up to 3 ttl, those behind them too */                       \
    X(PART,                                                                                        \
      "part") /* a process is cut off for up to 3 ttl; what was sent arrives then, some time */    \
    X(STALL, "stall")       /* a process is stopped for up to 3 ttl */                             \
    X(KILL, "kill")         /* a process dies; another one may start in its place */               \
    X(CLOSE, "close")       /* a process closes its client */                                      \
    X(SUSPEND, "suspend")   /* a machine sleeps for up to 3 ttl; see client_clocks.h */            \
    X(JUMP, "jump")         /* a machine's clock jumps ahead by up to 3 ttl */                     \
    X(RESTART, "restart")   /* the server starts again with its data */                            \
    X(WIPE, "wipe")         /* the server starts again without data */                             \
    X(FAILOVER, "failover") /* a replica that lags takes over */                                   \
    X(STEP, "step")         /* the server's clock steps */                                         \
    X(FULL, "full")         /* the server's memory is full for a while */                          \
    X(FLUSH, "flush")       /* the server forgets the library */                                   \
    X(FOREIGN, "foreign")   /* another program takes the lock with SET NX PX */                    \
    X(BREAK, "break")       /* somebody takes a hold away */                                       \
    X(RESIZE, "resize")     /* somebody changes the capacity */                                    \
    X(CONVERT, "convert")   /* readers become writers and back */                                  \
    X(EXTEND, "extend")     /* users extend */                                                     \
    X(CANCEL, "cancel")     /* users cancel, or forfeit */                                         \
    X(DETACH, "detach")     /* users leave their hold behind */                                    \
    X(ADOPT, "adopt")       /* somebody takes up a hold that was left behind */                    \
    X(SEVERAL, "several")   /* users who want two names, all or none */                            \
    X(JOINT, "joint")       /* some of these say which name they want next */                      \
    X(BARGE, "barge")       /* users who do not queue */                                           \
    X(PLAIN, "plain")       /* users who need no token, and take what is free without a script */  \
    X(UNREAD,                                                                                      \
      "unread") /* what a process was told is read later, when its timers may have gone off */     \
    X(REFUSE, "refuse") /* one call of a script is refused, half-way through it */                 \
    X(RIGHT, "right")   /* the user may not use some command for a while */

enum fault_bit {
#define X(id, name) FAULT_BIT_##id,
    FAULTS(X)
#undef X
        FAULT_KINDS
};
enum fault {
#define X(id, name) FAULT_##id = 1u << FAULT_BIT_##id,
    FAULTS(X)
#undef X
        FAULT_ALL = (1u << FAULT_KINDS) - 1
};
static const char *const fault_names[] = {
#define X(id, name) name,
    FAULTS(X)
#undef X
};

/* Which schedule: a failing one is shrunk by changing these. */
struct options {
    uint64_t seed;
    unsigned processes, rounds; /* at most */
    unsigned faults;
    enum plant plant;
    bool replicas;         /* every grant waits for the replica */
    bool converts;         /* readers and writers, in every schedule */
    bool looks;            /* every process lists something */
    bool refuses;          /* calls of scripts are refused, in every schedule */
    uint64_t refused_call; /* the call of a script, counted from 1, that is refused; 0: none */
    unsigned refused_with; /* in call_errors */
};

enum happening {
    LINK_UP,     /* of a link: the server has accepted */
    LINK_DOWN,   /* the client hears that it is closed, or could not be opened */
    BYTES_UP,    /* bytes reach the server */
    BYTES_DOWN,  /* bytes reach the client */
    LINK_CLOSED, /* the server hears that it is closed */
    TICK,        /* of a process: its engine wants to be called */
    READ,        /* of a process: it reads what it was told */
    TIMER,       /* of an attempt */
    WISH,        /* of an attempt */
    NEXT_ROUND,  /* of a user: process * 2 + number */
    STALL,       /* of a process */
    CLOSE,       /* of a process: it closes its client */
    CLOSED,      /* of a process: it is tired of waiting for answers */
    SUSPEND,     /* of its machine */
    JUMP,
    PART,
    KILL,
    SPAWN,
    ERRAND,       /* of a process: somebody breaks, resizes or looks */
    ADOPTION,     /* of a process: it takes up the hold of the attempt `serial` */
    SERVER_WAKES, /* a blocked request runs out */
    SERVER_FAULT, /* which one: enum fault_bit */
    SERVER_UP,
    SERVER_ROOM,   /* it has memory again */
    SERVER_RIGHTS, /* its user may use every command again */
    REPLICA_FOLLOWS,
    FOREIGN_ASK,
    FOREIGN_END,
};

struct occurrence {
    nanos at;
    uint64_t order; /* among those at the same time */
    uint8_t what;
    uint8_t wish; /* enum claim_input; of an ERRAND the verb */
    uint32_t who, serial;
    const char *bytes;
    uint32_t len;
};

#include "sim/calendar.h"

/* One connection. Client and server each have their view of whether it is open. */
struct link {
    unsigned process, line, life; /* `life` of the process */
    unsigned connection;          /* the model's */
    bool client_open, server_open;
    bool up_dead, down_dead; /* that way swallows everything */
    nanos up_last, down_last;
};

struct told {
    struct engine_op *op;
    struct engine_reply reply;
};

struct process {
    void *engine;
    struct wire_engine_host host;
    int64_t rate_ppm;
    nanos offset, stalled_until;
    nanos jumped_at, jumped_by; /* of its clock; real time. By 0: it did not jump */
    nanos parted_until;         /* nothing gets through to the server or from it */
    bool dead, closing;
    unsigned life; /* how often it was started */
    nanos died_at;
    bool recheck;
    int line[CONNECTIONS]; /* its links; -1: none */
    nanos tick_at;
    uint32_t tick;
    struct told *reply; /* a ring with room for news_room */
    unsigned news_room, first_news, news_count;
    nanos reads_at; /* before that it does not read them */
    struct admin_op errand[MAX_ERRANDS];
    unsigned errands;
};

/* One claim, and the user behind it. */
struct attempt_of_user {
    struct engine_op op;
    struct claim claim;
    struct timing_sheet sheet; /* the claim's */
    char id[REDIS_ID_TEXT + 1];
    unsigned process, life, user, owner, level;
    unsigned name; /* 0: L, the one that is looked at; 1: M, which those want who want several */
    bool several;
    int other;      /* the attempt at the other name of those; -1: none */
    unsigned units; /* what the user relies on while the claim is valid */
    enum op_verb wants;
    bool alive, decided, ended;
    bool forfeited, upgrade_doubt;
    bool disowned; /* whatever there is of it goes on by itself */
    bool adopts;   /* it asks whether a hold that was left behind is still there */
    bool adopted;
    bool was_taken; /* of a hold that was left behind: somebody took it up */
    bool downgrades;
    bool wrote_before;   /* it relied on writing when it wished to convert */
    bool leaves;         /* it will leave its hold behind */
    bool is_settled;     /* the text of the hold says that no ACQUIRE can arrive any more */
    uint64_t late_token; /* planted: the one from an extra counter */
    uint32_t timer;
    nanos wake_at; /* when the timer is due, by its process's clock */
    nanos hold_for;
    nanos longest; /* the longest ttl that was ever asked for */
    int64_t first_pair_at;
};

struct tally {
    uint64_t schedules, events, grants, pushed, hand_overs, lost, denied, released, cuts, halves,
        lates, parts, stalls, suspends, jumps, closes, ghosts, kills, restarts, wipes, failovers,
        steps, fulls, flushes, foreigners, breaks, resizes, upgrades, downgrades, extends, cancels,
        unread, reentries, detached, barges, plain, dials, scripts, stored, stored_late, adopted,
        several, joint, unreplicated, settled, kept_failovers, orders, refused, rights;
};

enum kind { EXCLUSIVE, REENTRANT, SEMAPHORE, READ_WRITE, READ_WRITE_AGAIN, KINDS };
static const char *const kind_names[] = {"exclusive", "reentrant", "semaphore", "read-write",
                                         "reentrant read-write"};
enum { NAMES = 2 };
static const char *const lock_names[NAMES] = {"L", "M"};

struct world {
    struct options options;
    enum kind kind;
    const char *wake;
    nanos ttl, now, heals_at, op_timeout, refresh, handoff_grace;
    uint32_t capacity; /* as asked for */
    int64_t history;
    bool calm;  /* nothing goes wrong at all */
    bool rough; /* the network is bad, clocks are as bad as promised, and the server is well:
                   nothing excuses anybody */
    bool server_up;
    int64_t server_offset_us;
    bool resized;
    nanos server_tick;
    uint32_t server_serial;
    unsigned rounds, users; /* of each process */
    bool owners;            /* attempts have owners, and owners enter again */
    bool shared_owners;     /* several processes ask for the same owner */
    bool several;           /* users want two names */
    bool strong;            /* what is granted waits for the replica */
    int64_t acknowledge_ms; /* so long */
    struct process process[PROCESSES];
    unsigned attempts, links;
    int rounds_of_user[2 * PROCESSES];
    unsigned events;
    uint64_t order, random;
    uint64_t clock_random;  /* see draw_clock() */
    uint64_t read_random;   /* the same for when it reads */
    bool reads_late;        /* some read what they were told later */
    uint64_t plain_random;  /* the same for who needs a token */
    bool plain;             /* not all do */
    uint64_t refuse_random; /* the same for calls that are refused */
    uint64_t refused_seen;  /* calls of scripts that were refused, and that the judge was told of */
    uint64_t stored[NAMES]; /* the highest token that the store of each name has seen */
    uint64_t late_tokens;   /* planted: the extra counter */
    nanos foreign_until;
    uint64_t scripts_seen, requests_seen;
    int served; /* the link whose bytes the server reads; -1: none */
    struct history_sight sight;
    uint64_t hash;
    char failure[200];
    struct attempt_of_user attempt[MAX_ATTEMPTS]; /* the last: what is not in use is not cleared */
};

static struct world w;
static struct told news_of_all[NEWS_ROOM]; /* each process has a part of it */
static struct link links[MAX_LINKS];
static struct occurrence heap[MAX_EVENTS];
static char *bytes_room;
static size_t bytes_used;
static struct redis_model *model;
static struct tally tally;

/* ---- Chance ---- */

static uint32_t draw_from(uint64_t *random, uint32_t below)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (uint32_t)(*random >> 32) % below;
}

static uint32_t draw(uint32_t below)
{
    return draw_from(&w.random, below);
}

static nanos draw_time(nanos below)
{
    return below / 4096 * draw(4096);
}

static bool is_healthy(void)
{
    return w.calm || w.now >= w.heals_at;
}

/* So many times in a thousand, while faults happen. */
static bool strikes(enum fault fault, uint32_t per_mille)
{
    bool drawn = draw(1000) < per_mille;
    return drawn && !is_healthy() && w.options.faults & fault;
}

/* ---- What went wrong, and the trace ---- */

static bool recording;                               /* every step, for people */
static void (*record)(int column, const char *text); /* column -1: the server */

__attribute__((format(printf, 2, 3))) static void note(int column, const char *format, ...)
{
    char text[160];
    va_list args;
    if (!recording || (*w.failure && column != -2))
        return; /* what is after the failure is of no interest */
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    record(column, text);
}

__attribute__((format(printf, 1, 2))) static void fails(const char *format, ...)
{
    va_list args;
    if (*w.failure)
        return;
    va_start(args, format);
    vsnprintf(w.failure, sizeof w.failure, format, args);
    va_end(args);
    note(-2, "%s", w.failure);
}

static void mix(uint64_t value)
{
    w.hash = (w.hash ^ value) * UINT64_C(0x100000001b3);
    w.hash ^= w.hash >> 29;
}

/* ---- Time ---- */

static nanos steady_time(const struct process *p, nanos real)
{
    return p->offset + real + real / 1000000 * p->rate_ppm + real % 1000000 * p->rate_ppm / 1000000;
}

static nanos local_time(const struct process *p, nanos real)
{
    return steady_time(p, real) + (real >= p->jumped_at ? p->jumped_by : 0);
}

/* The first real moment at which that clock shows at least `local`. */
static nanos real_time(const struct process *p, nanos local)
{
    if (local == TIME_NEVER)
        return TIME_NEVER;
    if (p->jumped_by && local > steady_time(p, p->jumped_at)) {
        local -= p->jumped_by;
        if (local <= steady_time(p, p->jumped_at))
            return p->jumped_at;
    }
    nanos real = (nanos)((double)(local - p->offset) / (1 + (double)p->rate_ppm / 1e6));
    while (steady_time(p, real) < local)
        real++;
    while (steady_time(p, real - 1) >= local)
        real--;
    return real;
}

static void schedule(struct occurrence o)
{
    if (w.events == MAX_EVENTS) {
        fails("too many things happen at once");
        return;
    }
    o.order = ++w.order;
    calendar_add(heap, &w.events, o);
}

static nanos travel(void)
{
    return NANOS_OF_MS(1) / 20 + draw_time(NANOS_OF_MS(1) * 45 / 100);
}

static int64_t server_us(void)
{
    return w.now / 1000 + w.server_offset_us;
}

/* ---- What the judge is told ---- */

static struct history *judge; /* NULL: this world has a judge of its own */

static void hear_judge(void)
{
    if (*history_failure(judge))
        fails("%s", history_failure(judge));
}

static void tell_judge(struct history_event event)
{
    if (!judge)
        return;
    event.at = w.now;
    history_add(judge, &event);
    hear_judge();
}

/* It strikes that process, or H_ALL, until then. */
static void tell_fault(enum history_fault fault, unsigned process, nanos until)
{
    tell_judge((struct history_event){
        .what = H_FAULT, .fault = (uint8_t)fault, .process = process, .until = until});
}

static void disturb(unsigned p)
{
    tell_fault(H_LINE, p, w.now);
}
