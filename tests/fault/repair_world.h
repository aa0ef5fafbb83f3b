/* repair_world.h - a table in use: living clients that hold and wait in it, and the one whose death is studied.
 *
 * Each client is a process of its own that does what it is told through a socket, one thing at a time, so that nothing
 * in the table moves but what the test moves. The functions of lease.h and members.h are called directly: one thread a
 * client, and the same instructions every time. */
#pragma once
#include "base/why.h"
#include "engines/local/lease.h"
#include "engines/local/members.h"
#include "engines/local/pending.h"
#include "engines/local/resource.h"
#include "engines/local/shard.h"
#include "sys/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANNA, BERT, CARL, DORA, XENIA, ACTORS }; /* Xenia is the one that is stepped; Dora dies before her */
enum { LONG_TTL_MS = 3600 * 1000, BRIEF_TTL_MS = 10, SLOTS = 96, SECOND = 32, PACKED = 64 };

/* What the names are for. Those with a number of bytes are filled up to it. */
#define NAME_LIST(X)                                                                                                   \
    X(DOOR, RICH, HF_EXCLUSIVE, 1, 0)                                                                                  \
    X(GATE, RICH, HF_EXCLUSIVE, 1, 0)                                                                                  \
    X(DESK, RICH, HF_EXCLUSIVE, 1, 0)                                                                                  \
    X(POOL, RICH, HF_SEMAPHORE, 5, 0)                                                                                  \
    X(SCROLL, RICH, HF_EXCLUSIVE, 1, HF_NAME_MAX)                                                                      \
    X(SOLO, RICH, HF_EXCLUSIVE, 1, 0)                                                                                  \
    X(LOOSE, RICH, HF_EXCLUSIVE, 1, 0)                                                                                 \
    X(MINE, RICH, HF_EXCLUSIVE, 1, 0)                                                                                  \
    X(IDLE, RICH, HF_EXCLUSIVE, 1, 0)                                                                                  \
    X(CRYPT, RICH, HF_EXCLUSIVE, 1, 0)                                                                                 \
    X(BRIEF, RICH, HF_EXCLUSIVE, 1, 0)                                                                                 \
    X(FRESH, RICH, HF_EXCLUSIVE, 1, 0)                                                                                 \
    X(FRESH_SCROLL, RICH, HF_EXCLUSIVE, 1, HF_NAME_MAX)                                                                \
    X(FULL, CRAMMED, HF_SEMAPHORE, 100, 0)                                                                             \
    X(FULL_FRESH, CRAMMED, HF_EXCLUSIVE, 1, 0)                                                                         \
    X(PACK, TIGHT, HF_SEMAPHORE, 100, 0)                                                                               \
    X(DROPPED, TIGHT, HF_EXCLUSIVE, 1, HF_NAME_MAX)                                                                    \
    X(TIGHT_FRESH, TIGHT, HF_EXCLUSIVE, 1, 0)                                                                          \
    X(TIGHT_SCROLL, TIGHT, HF_EXCLUSIVE, 1, HF_NAME_MAX)                                                               \
    X(SPREAD_1, 40, HF_EXCLUSIVE, 1, 0)                                                                                \
    X(SPREAD_2, 41, HF_EXCLUSIVE, 1, 0)                                                                                \
    X(SPREAD_3, 42, HF_EXCLUSIVE, 1, 0)                                                                                \
    X(SPREAD_4, 43, HF_EXCLUSIVE, 1, 0)                                                                                \
    X(SPREAD_5, 44, HF_EXCLUSIVE, 1, 0)

enum { RICH = 7, CRAMMED = 21, TIGHT = 33 }; /* shards */
enum name {
#define X(id, shard, kind, capacity, length) id,
    NAME_LIST(X)
#undef X
        NAMES
};
static_assert((int)NAMES <= (int)SECOND, "a slot for each name, and a second one");

struct known_name {
    const char *word;
    uint32_t shard;
    hf_kind kind;
    uint32_t capacity;
    size_t length;
    char text[HF_NAME_MAX + 1];
};
static struct known_name names[NAMES] = {
#define X(id, shard_, kind_, capacity_, length_)                                                                       \
    [id] = {.word = #id, .shard = (shard_), .kind = (kind_), .capacity = (capacity_), .length = (length_)},
    NAME_LIST(X)
#undef X
};

/* Numbers the names until each lies in its shard. */
static void choose_names(void)
{
    for (int n = 0; n < NAMES; n++)
        for (unsigned i = 0;; i++) {
            int len = snprintf(names[n].text, sizeof names[n].text, "%s-%u-", names[n].word, i);
            size_t all = names[n].length ? names[n].length : (size_t)len;
            memset(names[n].text + len, 'x', all - (size_t)len);
            names[n].text[all] = 0;
            if (hf_shard_of(hf_name_hash(names[n].text, all)) == names[n].shard)
                break;
        }
}

enum deed { ASK, ASK_AGAIN, LEAVE, RELEASE, EXTEND, DETACH, JOIN, QUIT, BURY, ENTER, DRAIN, CHURN };
enum { QUEUE = 1, BELL = 2, LOOSELY = 4, BRIEFLY = 8, STEPPED = 16 };

/* What a client is told to do. */
struct command {
    enum deed deed;
    uint32_t slot, name, units, flags;
    uint32_t target; /* BURY: the member; ENTER: the shard; CHURN: the seed */
};
struct reply {
    enum hf_cue cue;
    uint32_t member;
    hf_status status;
    uint64_t token;
};

struct actor {
    pid_t pid; /* 0: not there */
    int socket;
    uint32_t member;
};

static struct world {
    char path[64], scratch[80];
    struct hf_table table; /* the test's own view */
    struct actor actors[ACTORS];
    _Atomic uint64_t *highest; /* [NAMES] the highest token that anybody was given; shared by all */
} world;

static void give_up(const char *what)
{
    printf("Bail out! %s: %s\n", what, hf_why_text());
    fflush(stdout);
    for (int i = 0; i < ACTORS; i++)
        if (world.actors[i].pid)
            kill(world.actors[i].pid, SIGKILL);
    unlink(world.path);
    unlink(world.scratch);
    _exit(70);
}

/* ---- In a client ---- */

static struct role {
    int id;
    struct hf_table table;
    struct hf_asker who;
    struct hf_pending pending;
    struct hf_ask asks[SLOTS];
    uint32_t serial;
} role;

static void prepare_ask(struct hf_ask *ask, const struct command *c)
{
    *ask = (struct hf_ask){.name = names[c->name].text,
                           .name_len = strlen(names[c->name].text),
                           .kind = names[c->name].kind,
                           .units = c->units ? c->units : 1,
                           .capacity = names[c->name].capacity,
                           .ttl_ms = c->flags & BRIEFLY ? BRIEF_TTL_MS : LONG_TTL_MS,
                           .queue = c->flags & QUEUE,
                           .detached = c->flags & LOOSELY,
                           .label = "repair",
                           .label_len = 6};
    ask->attempt.b[0] = ask->owner.b[0] = (uint8_t)(role.id + 1);
    role.serial++;
    memcpy(ask->attempt.b + 4, &role.serial, sizeof role.serial);
    if (c->flags & BELL)
        ask->slot = hf_slot(0, hf_pending_add(&role.pending, ask));
}

static void note_token(uint32_t name, uint64_t token)
{
    if (token > atomic_load(&world.highest[name]))
        atomic_store(&world.highest[name], token);
}

/* The test drains by itself: what a client would do with the news does not matter here. */
static void ignore(void *ctx, struct hf_ask *ask)
{
    (void)ctx, (void)ask;
}

static void perform(const struct command *c, struct reply *reply);

/* Whatever an ordinary client does, for ever: somebody kills it. */
static _Noreturn void churn(uint32_t seed)
{
    static const uint32_t where[] = {FRESH, FRESH_SCROLL, IDLE, DESK, POOL, FULL_FRESH, TIGHT_FRESH, TIGHT_SCROLL};
    static const enum deed then[] = {RELEASE, EXTEND, ASK_AGAIN, LEAVE, RELEASE};
    struct reply reply;
    for (uint32_t x = seed;;) {
        x = x * 1664525u + 1013904223u;
        uint32_t name = where[(x >> 16) % 8], flags = x >> 24 & (QUEUE | BELL);
        flags = flags & QUEUE ? flags : 0;
        perform(&(struct command){.deed = ASK, .slot = name, .name = name, .flags = flags}, &reply);
        for (unsigned i = 0; i < 5; i++)
            perform(&(struct command){.deed = then[i], .slot = name, .name = name}, &reply);
        perform(&(struct command){.deed = DRAIN}, &reply);
        hf_pending_remove(&role.pending, 1);
    }
}

/* What a client asks of the table about a name. */
static void use_name(const struct command *c, struct hf_ask *ask, struct hf_news *news)
{
    struct hf_table *t = &role.table;
    hf_nanos now = hf_clock_boot();
    switch (c->deed) {
    case LEAVE:
        hf_lease_leave(t, ask, now, news);
        break;
    case RELEASE:
        hf_lease_release(t, ask, now, news);
        break;
    case EXTEND:
        hf_lease_extend(t, ask, now, false, news);
        break;
    case DETACH:
        if (!hf_lease_detach(t, ask, false)) {
            hf_pending_drain(&role.pending, t, role.who.member, ignore, NULL);
            hf_lease_detach(t, ask, true);
        }
        break;
    default:
        hf_lease_ask(t, &role.who, ask, now, news);
    }
}

/* What a client does as one of several. */
static hf_status use_table(const struct command *c, hf_nanos until)
{
    struct hf_table *t = &role.table;
    hf_status status = HF_OK;
    switch (c->deed) {
    case JOIN:
        return hf_member_join(t, getpid(), until, &role.who.member);
    case QUIT:
        return hf_member_leave(t, role.who.member) ? HF_OK : HF_UNAVAILABLE;
    case BURY:
        return hf_member_bury(t, c->target) == HF_BURIAL_DONE ? HF_OK : HF_UNAVAILABLE;
    case ENTER:
        status = hf_shard_lock(t, c->target, until);
        if (status == HF_OK)
            hf_shard_unlock(t, c->target);
        return status;
    case DRAIN:
        hf_pending_drain(&role.pending, t, role.who.member, ignore, NULL);
        return HF_OK;
    default:
        churn(c->target);
    }
}

static void perform(const struct command *c, struct reply *reply)
{
    struct hf_ask *ask = &role.asks[c->slot];
    struct hf_news news = {.cue = HF_N_CUES};
    if (c->deed == ASK)
        prepare_ask(ask, c);
    ask->until = hf_clock_boot() + HF_MS(1000);
    reply->status = HF_OK;
    if (c->flags & STEPPED)
        raise(SIGSTOP);
    if (c->deed <= DETACH)
        use_name(c, ask, &news);
    else
        reply->status = use_table(c, ask->until);
    if (c->flags & STEPPED)
        raise(SIGSTOP);
    reply->cue = news.cue;
    reply->member = role.who.member;
    reply->token = news.cue == HF_N_GRANTED ? news.token : 0;
    if (news.cue == HF_N_FAILED)
        reply->status = news.status;
    if (reply->token)
        note_token(c->name, reply->token);
}

static void live_as(int id, int socket)
{
    struct command c;
    struct reply reply;
    role.id = id;
    role.who.pid = getpid();
    hf_pending_init(&role.pending);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((id == XENIA || id == DORA) && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(1);
    if (hf_table_open(&role.table, world.path, 0600) != HF_OK)
        _exit(1);
    while (read(socket, &c, sizeof c) == sizeof c) {
        perform(&c, &reply);
        if (write(socket, &reply, sizeof reply) != sizeof reply)
            break;
    }
    _exit(0);
}
