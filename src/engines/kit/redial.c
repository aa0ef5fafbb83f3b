/* redial.c - decides when a connection that is down is dialled again. */
#include "redial.h"

#include "core/backoff.h"

#include <assert.h>

enum {
    ANY_TTL_MS = 1000, /* any ttl would do: the pauses depend on the settings alone */
    CUTS_MOST = 2      /* number of cuts in a row that lengthen the pause */
};
#define CUT_PAUSE NANOS_OF_MS(5)

static struct timing pauses(const struct engine_limits *limits,
                            const struct timing_overrides *overrides)
{
    struct timing timing;
    timing_fill(&timing, ANY_TTL_MS, limits, overrides);
    return timing;
}

void redial_lost(struct redial *redial, enum redial_after after, nanos now,
                 const struct engine_limits *limits, const struct timing_overrides *overrides,
                 uint32_t random)
{
    if (after == REDIAL_AFTER_LONG) {
        *redial = (struct redial){.dial_at = now};
        return;
    }

    struct timing timing = pauses(limits, overrides);
    redial->failures++;

    if (after == REDIAL_AFTER_CUT) {
        timing.retry_min = timing.retry_min < CUT_PAUSE ? timing.retry_min : CUT_PAUSE;
        redial->failures = redial->failures < CUTS_MOST ? redial->failures : CUTS_MOST;
    }

    redial->dial_at = now + backoff_pause(&timing, redial->failures, random);
    assert(redial->dial_at > now);
}

void redial_next_server(struct redial *redial, unsigned servers, nanos now,
                        const struct engine_limits *limits,
                        const struct timing_overrides *overrides, uint32_t random)
{
    assert(servers > 0);
    struct timing timing = pauses(limits, overrides);
    bool tried_all = redial->failures % servers == servers - 1;
    bool at_once = redial->failures == 0 || !tried_all;

    redial->dial_at =
        at_once ? now : now + backoff_pause(&timing, redial->failures / servers, random);
    redial->failures++;
}
