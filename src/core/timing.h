/* timing.h - the timing sheet: every interval that follows from a ttl, in one place. No duration literal that concerns
 * a lease lives anywhere else. */
#pragma once
#include "message.h"

struct hf_settings;

/* Nanoseconds. renew, warn and stop count from the moment that a validity is counted from (asked_at). */
struct hf_timing {
    hf_nanos ttl;
    hf_nanos renew;      /* ttl/3: two more tries fit before the end */
    hf_nanos warn;       /* 2/3 of ttl: nothing came through so far */
    hf_nanos stop;       /* ttl less drift: whoever still uses it now may not be alone */
    hf_nanos drift;      /* what was taken off */
    hf_nanos op_timeout; /* one request: ttl/20, between 50 ms and 500 ms, never above ttl/5 */
    hf_nanos answer;   /* how long one who does not wait gives a request: two op_timeouts, and what replicas may take */
    hf_nanos patience; /* how long the background thread waits to get through to the engine: others' leases wait too */
    hf_nanos retry_min, retry_max;
    hf_nanos retry_floor; /* no pause is shorter, so that nothing spins */
    hf_nanos release_for; /* how long a release without an answer is tried again */
    /* Queues on servers (they pass these on to their waiters): */
    hf_nanos refresh;       /* the longest time between two looks of a waiter: ttl/2, between 50 ms and 5 s */
    hf_nanos refresh_first; /* that of the first in line, each place behind it waits as much longer: ttl/20, between 50
                               ms and 500 ms */
    hf_nanos turn;          /* how long it stays the turn of one that is silent: the time for a lost request, its
                               time-out, a new connection and a second try; min(ttl/5, 2 s), at least 4 op_timeouts */
    hf_nanos margin;        /* after the end of the hold ahead, */
    hf_nanos stagger;       /* and this much for each place in line: not all look at once */
};

/* What the settings override; 0 (or for renew_permille 0) means: as derived. */
struct hf_timing_wishes {
    int64_t op_timeout_ms, retry_min_ms, retry_max_ms;
    int64_t renew_permille; /* renew at this part of the ttl; 0: a third */
    int64_t acknowledge_ms; /* what replicas have to acknowledge a grant; 0: none is asked to */
};

/* What a client's settings say of it: the wishes, and how far clocks may run apart. */
struct hf_timing_wishes hf_timing_wishes_of(const struct hf_settings *settings);
void hf_timing_set_drift(struct hf_limits *limits, const struct hf_settings *settings);

void hf_timing_fill(struct hf_timing *t, int64_t ttl_ms, const struct hf_limits *limits,
                    const struct hf_timing_wishes *wishes);

/* A timing sheet with the limits that it was made from. Claims of the same client with the same ttl share one. */
struct hf_sheet {
    struct hf_timing t;
    struct hf_limits limits;
};
void hf_sheet_fill(struct hf_sheet *sheet, int64_t ttl_ms, const struct hf_limits *limits,
                   const struct hf_timing_wishes *wishes);

/* The drift over an interval of that length, rounded up. */
hf_nanos hf_timing_drift_ppm(const struct hf_limits *limits, hf_nanos length);
static inline hf_nanos hf_timing_drift(const struct hf_limits *limits, hf_nanos length)
{
    return limits->drift_ppm ? hf_timing_drift_ppm(limits, length) : HF_MS(limits->drift_ms);
}

/* What `part` of the sheet (renew, warn) becomes for a validity that is shorter than the sheet's own: the same share. A
 * longer one changes nothing. */
hf_nanos hf_timing_share(const struct hf_timing *t, hf_nanos part, hf_nanos length);

/* Milliseconds as nanoseconds; what would overflow becomes the longest interval that can still be added to a time. */
hf_nanos hf_timing_nanos(int64_t ms);
