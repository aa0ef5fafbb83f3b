/* repair_world.h - a table in use: living clients that hold and wait in it, and the one whose death
 * is studied.
 *
 * Each client is a process of its own that does what it is told through a socket, one thing at a
 * time, so that nothing in the table moves but what the test moves. The functions of table_ops.h
 * and clients.h are called directly: one thread a client, and the same instructions every time. */
#pragma once
#include "base/error.h"
#include "engines/local/async_waiters.h"
#include "engines/local/clients.h"
#include "engines/local/shard.h"
#include "engines/local/table_ops.h"
#include "engines/local/wait_queue.h"
#include "sys/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ANNA,
    BERT,
    CARL,
    DORA,
    XENIA,
    ACTORS
}; /* Xenia is the one that is stepped; Dora dies before her */
enum { LONG_TTL_MS = 3600 * 1000, BRIEF_TTL_MS = 10, SLOTS = 160, SECOND = 64, PACKED = 128 };
enum { HISTORY = 3, AGED_MS = 1 };

/* What the names are for. Those with a number of bytes are filled up to it. */
#define NAME_LIST(X)                                                                               \
    X(DOOR, RICH, HF_EXCLUSIVE, 1, 0)                                                              \
    X(GATE, RICH, HF_EXCLUSIVE, 1, 0)                                                              \
    X(DESK, RICH, HF_EXCLUSIVE, 1, 0)                                                              \
    X(POOL, RICH, HF_SEMAPHORE, 5, 0)                                                              \
    X(SCROLL, RICH, HF_EXCLUSIVE, 1, HF_NAME_MAX)                                                  \
    X(SOLO, RICH, HF_EXCLUSIVE, 1, 0)                                                              \
    X(LOOSE, RICH, HF_EXCLUSIVE, 1, 0)                                                             \
    X(MINE, RICH, HF_EXCLUSIVE, 1, 0)                                                              \
    X(IDLE, RICH, HF_EXCLUSIVE, 1, 0)                                                              \
    X(CRYPT, RICH, HF_EXCLUSIVE, 1, 0)                                                             \
    X(BRIEF, RICH, HF_EXCLUSIVE, 1, 0)                                                             \
    X(FRESH, RICH, HF_EXCLUSIVE, 1, 0)                                                             \
    X(FRESH_SCROLL, RICH, HF_EXCLUSIVE, 1, HF_NAME_MAX)                                            \
    X(FULL, CRAMMED, HF_SEMAPHORE, 100, 0)                                                         \
    X(FULL_FRESH, CRAMMED, HF_EXCLUSIVE, 1, 0)                                                     \
    X(PACK, TIGHT, HF_SEMAPHORE, 100, 0)                                                           \
    X(DROPPED, TIGHT, HF_EXCLUSIVE, 1, HF_NAME_MAX)                                                \
    X(TIGHT_FRESH, TIGHT, HF_EXCLUSIVE, 1, 0)                                                      \
    X(TIGHT_SCROLL, TIGHT, HF_EXCLUSIVE, 1, HF_NAME_MAX)                                           \
    X(SPREAD_1, 40, HF_EXCLUSIVE, 1, 0)                                                            \
    X(SPREAD_2, 41, HF_EXCLUSIVE, 1, 0)                                                            \
    X(SPREAD_3, 42, HF_EXCLUSIVE, 1, 0)                                                            \
    X(SPREAD_4, 43, HF_EXCLUSIVE, 1, 0)                                                            \
    X(SPREAD_5, 44, HF_EXCLUSIVE, 1, 0)                                                            \
    X(CLUB, HALL, HF_EXCLUSIVE, 1, 0)                                                              \
    X(GUILD, HALL, HF_EXCLUSIVE, 1, 0)                                                             \
    X(KEEP, HALL, HF_SEMAPHORE, 5, 0)                                                              \
    X(CREW, HALL, HF_SEMAPHORE, 5, 0)                                                              \
    X(FERRY, HALL, HF_SEMAPHORE, 5, 0)                                                             \
    X(BOOK, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                     \
    X(DIARY, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                    \
    X(ATLAS, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                    \
    X(CHART, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                    \
    X(MAP, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                      \
    X(SHARED, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                   \
    X(TOME, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                     \
    X(LEDGER, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                   \
    X(ALBUM, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                    \
    X(TANK, HALL, HF_SEMAPHORE, 5, 0)                                                              \
    X(SHRUNK, HALL, HF_SEMAPHORE, 5, 0)                                                            \
    X(VAULT, HALL, HF_EXCLUSIVE, 1, 0)                                                             \
    X(HOUR, HALL, HF_EXCLUSIVE, 1, 0)                                                              \
    X(TOMB, HALL, HF_SEMAPHORE, 5, 0)                                                              \
    X(BAND, HALL, HF_SEMAPHORE, 5, 0)                                                              \
    X(GLOBE, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                                    \
    X(ECHO, HALL, HF_EXCLUSIVE, 1, 0)                                                              \
    X(FRESH_BOOK, HALL, HF_READ, HF_CAPACITY_MAX, 0)                                               \
    X(LOG, HALL, HF_EXCLUSIVE, 1, 0)                                                               \
    X(STAIRS, HALL, HF_SEMAPHORE, 5, 0)                                                            \
    X(AGED, HALL, HF_EXCLUSIVE, 1, 0)                                                              \
    X(PAGES, SNUG, HF_EXCLUSIVE, 1, 0)                                                             \
    X(SNUG_PACK, SNUG, HF_SEMAPHORE, 100, 0)                                                       \
    X(SNUG_FRESH, SNUG, HF_EXCLUSIVE, 1, 0)

enum {
    RICH = 7,
    CRAMMED = 21,
    TIGHT = 33,
    HALL = 50,
    SNUG = 51
}; /* shards; the names of the last two have a past */
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
#define X(id, shard_, kind_, capacity_, length_)                                                   \
    [id] = {.word = #id,                                                                           \
            .shard = (shard_),                                                                     \
            .kind = (kind_),                                                                       \
            .capacity = (capacity_),                                                               \
            .length = (length_)},
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
            if (shard_of_hash(resource_name_hash(names[n].text, all)) == names[n].shard)
                break;
        }
}

/* Up to DETACH: what a client does with an ask; up to RESIZE: with a name; then: with the table. */
enum deed {
    ASK,
    ASK_AGAIN,
    LEAVE,
    RELEASE,
    EXTEND,
    UPGRADE,
    DOWNGRADE,
    DETACH,
    SHOW,
    SHOW_PAST,
    LIST_ALL,
    BREAK,
    RESIZE,
    JOIN,
    QUIT,
    BURY,
    ENTER,
    DRAIN,
    CHURN,
    CHURN_IN_COMPANY
};
enum {
    QUEUE = 1,
    BELL = 2,
    LOOSELY = 4,
    BRIEFLY = 8,
    STEPPED = 16,
    WRITING = 32,
    BARGE = 64,
    MISFIT = 128,  /* with another kind than the name's */
    NO_ROOM = 256, /* the file system has no room for a longer file */
    REPEATED = 512 /* with an attempt that others have, too */
};
enum team { ALONE, REDS, BLUES }; /* owners that several clients have in common */

/* What a client is told to do. */
struct command {
    enum deed deed;
    uint32_t slot, name, units, flags;
    uint32_t target; /* BURY: the member; ENTER: the shard; CHURN: the seed; RESIZE: the capacity */
    enum team team;
    hf_status fails; /* how it must end */
};
struct reply {
    enum reply_kind kind;
    uint32_t client;
    hf_status status;
    uint64_t token;
    uint32_t thread;
};

struct actor {
    pid_t pid;       /* 0: not there */
    uint32_t thread; /* whose id stands in the mutexes that it locks */
    int socket;
    uint32_t client;
};

static struct world {
    char path[64], scratch[80];
    struct table table; /* the test's own view */
    struct actor actors[ACTORS];
    _Atomic uint64_t *highest; /* [NAMES] the highest token that anybody was given; shared by all */
} world;

static void give_up(const char *what)
{
    printf("Bail out! %s: %s\n", what, error_text());
    fflush(stdout);
    for (int i = 0; i < ACTORS; i++)
        if (world.actors[i].pid)
            kill(world.actors[i].pid, SIGKILL);
    unlink(world.path);
    unlink(world.scratch);
    _exit(70);
}
