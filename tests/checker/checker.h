/* checker.h - what those who use some locks, and those who watch them, told one after the other;
 * and its judge, who knows nothing else. The simulator tells it while it happens; processes on real
 * servers write it down together (history_recording.h) and it is judged when all is over. The
 * invariants stand in invariants.def, each with its promise and the faults that suspend it.
 *
 * Times are nanoseconds of one clock. A belief is what a user may rely on: from the grant until the
 * time that its own clock says, unless it gave back or lost it before. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define H_NEVER INT64_MAX
enum { H_NOBODY = -1, H_SEEN = 128, H_PROCESSES = 64, H_ALL = H_PROCESSES };

enum history_kind {
    H_NOTHING,
    /* Of the attempt `who`. */
    H_ASKED, /* `process` asks for `units` of `capacity` of `lock`, and wants an outcome by `until`,
                at most `slack` later. `reach`: for how long a belief can last without the server.
                `owner`: attempts of one owner hold together. `other`: it is asked for together with
                that one, or takes up what that one left */
    H_QUEUED,   /* it heard that it waits */
    H_LEAVES,   /* it does not want to wait any more, and the server has yet to hear of it */
    H_GRANTED,  /* with `token`, good `until`, as was answered to a request sent at `from`. `slack`:
                   without a renewal,  too, it should live until then */
    H_REFUSED,  /* it ends without a grant */
    H_EXTENDS,  /* it asks for more time; `reach` as above */
    H_BELIEVES, /* it is good `until` under `token`, by an answer to a request sent at `from` (0: as
                   before) */
    H_RELIES,   /* its user relies on `units` only */
    H_CONVERTED, /* it has `units` now, under `token` */
    H_ENDED,     /* its user does not rely on it any more */
    H_LOST,      /* its user was told that it is lost */
    H_OVER,      /* nothing of it is to come */
    H_WROTE,     /* with `token` to the store that guards `lock` */
    H_CALLED,    /* another call about it begins, to return by `until`, at most `slack` later */
    H_RETURNED,
    H_HELD, /* told when it was over: somebody alone had `lock` from `at` until `until`, under
               `token`. A history of such has nothing else, and they have no numbers; times of one
               hold that follow each other may be told one by one */
    /* Of the world. */
    H_FAULT,   /* `fault` struck `process`, or H_ALL; see history_fault */
    H_BROKEN,  /* somebody takes the hold of `owner` with `token` away */
    H_RESIZED, /* `lock` has `capacity` */
    H_FOREIGN, /* another program has `lock` until `until` */
    H_SHOWN,   /* what the server has of a lock, after a request changed it: `sight` */
    H_REST, /* all is over, and `thing` was found: of `who`, called `text`, for `until` nanoseconds
               more */
};

enum history_flag {
    H_RENEWS = 1,     /* ASKED: renewed by itself */
    H_BOUNDED = 2,    /* ASKED: for so long at most, whatever is renewed */
    H_BARGES = 4,     /* ASKED: does not queue */
    H_ENTERS = 8,     /* ASKED: its owner may hold already */
    H_ADOPTS = 16,    /* ASKED: takes up what `other` left behind; GRANTED: did */
    H_LEFT = 32,      /* ENDED: the hold goes on without a user */
    H_WISHED = 64,    /* LOST: its user gave it up */
    H_DOUBT = 128,    /* OVER: the server did not say that it knows */
    H_FRESH = 256,    /* CONVERTED: the token is new */
    H_ADMITTED = 512, /* WROTE: what the store said */
    H_HARDLY = 1024,  /* GRANTED: there is hardly time to renew it */
    H_PASSES = 4096,  /* ASKED: takes what is free, whoever waits for it; queues otherwise */
    H_WHOLE = 2048,   /* the judge's own: of an H_HELD */
    H_POLLS = 8192,   /* ASKED: is not notified; only the first waiter of a process polls often */
};

/* A fault of a process or of its line counts as near for so long as it lasts (`until`) and a while
 * (rules.settles). */
enum history_fault {
    H_LINE,   /* bytes were lost, late, or could not go */
    H_PAUSED, /* stood still until `until` */
    H_ASLEEP, /* its machine slept until `until`: its timers are late by that much, too */
    H_JUMPED, /* its clock went ahead */
    H_KILLED, /* and whoever starts in its place has another life */
    H_AWAY,   /* the server was away, or refused, and kept its data */
    H_LAGS,   /* its replica does not follow, until = H_NEVER; or does again */
    H_KEPT,   /* a replica took over that has all that was acknowledged */
    H_STALE,  /* a replica took over that has not */
    H_FORGOT, /* the server lost data, at some time between `at` and `until` */
    H_AHEAD,  /* its clock stepped by `by` > 0 nanoseconds, at some time between `at` and `until` */
    H_BACK,   /* or by less than 0 */
    H_FAULTS
};

enum history_thing { H_PERMIT, H_WAITER, H_INBOX, H_KEY };

struct seen_hold {
    int attempt; /* H_NOBODY: a stranger */
    uint64_t token;
    uint32_t units;
    int64_t end_us; /* by the server's clock */
    double arrival; /* the number of the place that it had in the queue; 0: it did not wait */
};

struct seen_place {
    int attempt;
    double arrival;
    int64_t due_us; /* the end of its record, unless it asks again */
    bool alive;     /* its record has not ended, and its client gave a sign of life within the last
                       second */
};

struct history_sight {
    uint32_t lock;
    bool there, plain, foreign; /* plain: a string, which is gone when its time is over */
    uint32_t capacity, used;
    int64_t clock_us; /* what the server's clock shows */
    int by; /* the process whose request it was, in that life; H_NOBODY: of nobody, it was time */
    unsigned by_life;
    unsigned holds, places;
    struct seen_hold hold[H_SEEN];
    struct seen_place place[H_SEEN];
};

struct history_event {
    int64_t at;
    uint8_t what, fault, thing;
    uint16_t flags;
    uint32_t who, process, life, lock, units, capacity, owner;
    int other;
    uint64_t token;
    int64_t from, until, slack, reach, by;
    union {
        const struct history_sight *sight; /* is looked at while the event is added */
        char text[40];
    };
};

struct history_rules {
    bool exact;       /* every change of a belief, every fault and every end is told at once, as the
                         simulator can. Without:       what was good twice was good in between, and a busy
                         machine is a fault that nobody tells of */
    bool quorum;      /* a majority of servers: what happens to one of them excuses nothing */
    int64_t settles;  /* for so long after a fault anything may be its fault */
    int64_t recovery; /* after a death, besides the reach of the hold; 0: there is no queue, and no
                         bound */
    int64_t inbox;    /* how long an inbox may live on */
};

enum invariant {
#define INVARIANT(id, name, promises, doubts, excuses, remains) INV_##id,
#include "invariants.def"
    INVARIANTS
};

struct history;

struct history *history_open(void);
void history_close(struct history *h);

/* A new history; the memory of the last one is used again. */
void history_begin(struct history *h, const struct history_rules *rules);
void history_add(struct history *h, const struct history_event *event);
void history_finish(struct history *h);

/* The server has this now, by force and not by a request: nothing follows from what was before. */
void history_look_away(struct history *h, const struct history_sight *sight);

/* The first thing that was wrong, with the name of the invariant; "": nothing. */
const char *history_failure(const struct history *h);
unsigned history_failures(const struct history *h);

/* How often that invariant was applied to something that no fault excused. */
uint64_t history_judged(const struct history *h, enum invariant which);
uint64_t history_hand_overs(const struct history *h);
