/* checker_internal.h - what the judge keeps of a history so far: attempts, locks, processes, and
 * the faults that struck. */
#pragma once
#include "checker.h"

struct attempt {
    uint32_t process, life, lock, owner;
    uint32_t asks, units; /* asked for; what its user relies on */
    int other;
    uint16_t flags;
    bool known, dead, waits, decided, held, lost, left, over, doubt, calling;
    bool revived;            /* it entered a hold of its owner that old data brought back */
    unsigned touched;        /* faults near it, a bit each */
    int64_t asked;           /* when */
    int64_t due, slack;      /* of the call that is under way */
    int64_t stood, late;     /* what its process had stood still, and slept, when that began */
    int64_t queued;          /* when it first heard that it waits; 0: never */
    int64_t sure;            /* when the newest request was sent that was answered with yes */
    int64_t until, promised; /* it is good; it should live without a renewal */
    int64_t reach;           /* the longest that it asked for */
    int64_t gone,
        let_in; /* when its user left it; when the server was first seen to have it as a holder */
    uint64_t token;
    uint64_t
        passed_token; /* of one who asked when this one waited already, and was let in; 0: none */
    uint32_t passed_by;
};

struct lock {
    uint32_t capacity;
    bool resized, entered; /* somebody changed its capacity; owners may enter again */
    bool uncounted;        /* nobody was surely granted since its counter may have been lost */
    uint64_t highest, highest_alone; /* token, of any, and of those who were alone */
    uint32_t highest_owner, alone_owner;
    int64_t restarted;              /* until when tokens may have begun anew */
    uint64_t stored, stored_before; /* the highest in the store; the same of those from before
                                       tokens began anew */
    int64_t foreign_from, foreign_until;
    int64_t busy;  /* until when somebody believed, or another program held */
    int64_t reach; /* the longest of any */
};

struct process {
    int64_t near_until, woke, stood, late;
    uint32_t lives, lives_over; /* those below these numbers have begun, and are over */
};

struct breaking {
    uint64_t token;
    uint32_t owner;
};

/* A list that grows, and whose memory is used again. */
#define LIST(type)                                                                                 \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t count, room;                                                                        \
    }

struct history {
    struct history_rules rules;
    int64_t now;
    LIST(struct attempt) attempts;
    LIST(struct lock) locks;
    LIST(uint32_t) open; /* attempts that are not over */
    LIST(struct breaking) broken;
    struct process process[H_PROCESSES];
    int64_t last[H_FAULTS]; /* when each struck last, at the latest */
    int64_t forgot;         /* the same of all after which the server may know less */
    int64_t asked_since;    /* when somebody asked first after that */
    int64_t healed;         /* when the last fault of a server was over */
    int64_t ahead, shown;   /* of the server's clock: by how much; the most that it showed before it
                               stepped back */
    bool lags, stepped_back;
    struct history_sight *sight; /* what the server showed last */
    uint64_t judged[INVARIANTS], hand_overs;
    unsigned failures;
    char failure[300];
};

/* Says what is wrong. */
__attribute__((format(printf, 3, 4))) void hist_fails(struct history *h, enum invariant which,
                                                      const char *format, ...);

/* True, and counted, unless a fault near it excuses it. */
bool hist_applies(struct history *h, enum invariant which, const struct attempt *a);

static inline struct attempt *attempt_at(const struct history *h, uint32_t who)
{
    return who < h->attempts.count && h->attempts.at[who].known ? &h->attempts.at[who] : NULL;
}

static inline uint32_t number_of(const struct history *h, const struct attempt *a)
{
    return (uint32_t)(a - h->attempts.at);
}

static inline struct lock *lock_of(const struct history *h, const struct attempt *a)
{
    return &h->locks.at[a->lock];
}

static inline int64_t later_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline double ms_of(int64_t nanos)
{
    return (double)nanos / 1e6;
}

bool hist_is_broken(const struct history *h, const struct attempt *a);
bool hist_believes(const struct history *h, const struct attempt *a);
bool hist_is_alone(const struct history *h, const struct attempt *a);

void *hist_grown(void *at, size_t wanted, size_t *room, size_t size);

/* Room for so many. */
#define GROW(list, wanted)                                                                         \
    ((list).at = hist_grown((list).at, wanted, &(list).room, sizeof *(list).at))

/* checker_attempts.c */
struct lock *hist_meet_lock(struct history *h, uint32_t number);
void hist_hear_ask(struct history *h, const struct history_event *e);
void hist_hear_held(struct history *h, const struct history_event *e);
void hist_hear_attempt(struct history *h, struct attempt *a, const struct history_event *e);
void hist_close_held(struct history *h); /* those of H_HELD that are over */

/* checker_faults.c */
void hist_strike(struct history *h, const struct history_event *e);

/* invariants.c: of what users are told. */
void judge_exclusion(struct history *h, uint32_t lock);
void judge_token(struct history *h, struct attempt *a);
void judge_write(struct history *h, const struct attempt *a, uint64_t token, bool admitted);
void judge_told_order(struct history *h, struct attempt *a);
void judge_return(struct history *h, struct attempt *a);
void judge_loss(struct history *h, struct attempt *a, bool wished);
void judge_waiting(struct history *h, const struct attempt *a);
void judge_embrace(struct history *h, const struct attempt *a);
void judge_rest(struct history *h, const struct history_event *e);
void judge_end(struct history *h);

/* checker_server_state.c: of what the server shows. */
void judge_sight(struct history *h, const struct history_sight *was,
                 const struct history_sight *is);
void judge_leaving(struct history *h, int who, const char *what);
