/* timing.h - the timing sheet: every interval of the library that follows from a ttl, in one place,
 * and those of queues that are the same in all engines. How long a call to a server may take, or a
 * connection be idle, stands in the engine's own header. */
#pragma once
#include "engine_protocol.h"

#include <stdatomic.h>

struct settings;

/* Longest time between two refreshes of a waiter, also of one that an event would notify. */
#define TIMING_REFRESH_MOST NANOS_OF_MS(5000)
/* Each place in the queue adds this, so that waiters do not ask all at once. */
#define TIMING_STAGGER NANOS_OF_MS(20)

/* All in nanoseconds. renew, warn and stop count from the start of a validity (asked_at). */
struct timing {
    nanos ttl;
    nanos renew; /* ttl/3, so that two more tries fit before the end */
    nanos warn;  /* 2/3 of the ttl: the warning, if there was no renewal */
    nanos stop;  /* ttl minus drift: after this another client may hold the lock */
    nanos drift; /* part of the ttl that is subtracted because clocks differ */
    /* Time for one request: ttl/20, between 50 ms and 500 ms; on a slow connection up to 2 s; never
     * above ttl/5. */
    nanos op_timeout;
    /* How long a caller with wait=0 waits for its reply, connecting included. Without a queue: two
     * op_timeouts. With a queue: op_timeout if that is set; otherwise at least 500 ms, and on a
     * slow connection up to 500 ms more. Twice acknowledge_ms is added in all cases. */
    nanos answer;
    /* How long the background thread may block in the engine for one lease: other leases wait. */
    nanos patience;
    nanos retry_min, retry_max;
    nanos retry_floor; /* shortest pause, so that no retry loop spins */
    nanos release_for; /* how long a release without reply is tried again */

    /* Queues on servers, which pass these to their waiters: */

    /* Time between two refreshes of a waiter: ttl/2, between 50 ms and TIMING_REFRESH_MOST. */
    nanos refresh;
    /* Time between two refreshes of the first waiter: ttl/20, between 50 ms and 500 ms. Each place
     * behind it adds as much. */
    nanos refresh_first;
    /* Grace of a handoff: the new holder must extend its hold within this time, else the lock is
     * free again. min(ttl/5, 900 ms), at least 7/4 of op_timeout and of refresh_first, so that a
     * lost request, its time-out and a second try fit. */
    nanos handoff_grace;
    /* A waiter asks `margin` after the end of the hold ahead, and `stagger` (TIMING_STAGGER) later
     * for each place in the queue. */
    nanos margin, stagger;
};

/* A client that waits for locks on a server proves that it is alive: its presence key lasts for
 * PRESENCE_MS (scripts/holdfast.lua has the same number) and is renewed so often that one lost
 * renewal does no harm. PRESENCE_MS is below the longest handoff_grace: after one handoff that
 * nobody claimed, every client that had died before it is known to be dead. */
enum { PRESENCE_MS = 850, PRESENCE_RENEW_MS = 350 };

/* The values of a timing that settings and connection change; 0: as derived from the ttl. */
struct timing_overrides {
    int64_t op_timeout_ms, retry_min_ms, retry_max_ms;
    int64_t renew_permille; /* part of the ttl after which to renew; 0: a third */
    int64_t acknowledge_ms; /* time for others to acknowledge a grant; 0: none has to */
    nanos takes;            /* how long requests take on the connection (rtt.h); 0: not known */
};

/* Reads the overrides from a client's settings, and how far clocks may differ. */
struct timing_overrides timing_overrides_of(const struct settings *settings);
void timing_set_drift(struct engine_limits *limits, const struct settings *settings);

void timing_fill(struct timing *t, int64_t ttl_ms, const struct engine_limits *limits,
                 const struct timing_overrides *overrides);

/* A timing with the limits that it was made for. All claims of a client with the same ttl share one
 * sheet. */
struct timing_sheet {
    struct timing t;
    struct engine_limits limits;
    /* As in t, but adapted to the connection while claims use the sheet. */
    _Atomic nanos op_timeout, answer;
};
void timing_sheet_fill(struct timing_sheet *sheet, int64_t ttl_ms,
                       const struct engine_limits *limits,
                       const struct timing_overrides *overrides);
/* Adapts op_timeout and answer to a new overrides->takes. */
void timing_sheet_adapt(struct timing_sheet *sheet, int64_t ttl_ms,
                        const struct timing_overrides *overrides);

static inline nanos timing_sheet_op_timeout(const struct timing_sheet *sheet)
{
    return atomic_load_explicit(&sheet->op_timeout, memory_order_relaxed);
}

static inline nanos timing_sheet_answer(const struct timing_sheet *sheet)
{
    return atomic_load_explicit(&sheet->answer, memory_order_relaxed);
}

/* Returns the drift over an interval of that length, rounded up. */
nanos timing_drift_ppm(const struct engine_limits *limits, nanos length);
static inline nanos timing_drift(const struct engine_limits *limits, nanos length)
{
    return limits->drift_ppm ? timing_drift_ppm(limits, length) : NANOS_OF_MS(limits->drift_ms);
}

/* Scales `part` (renew or warn) to a validity that is shorter than the sheet's own. A longer
 * validity changes nothing. */
nanos timing_share(const struct timing *t, nanos part, nanos length);

/* Converts milliseconds to nanoseconds. A value that would overflow becomes the longest interval
 * that can still be added to a time. */
nanos timing_nanos(int64_t ms);
