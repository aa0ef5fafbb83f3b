/* redial.h - when a connection that is down is dialled again: at once if it had lasted, soon if it
 * had worked, otherwise after a pause that grows with every failure and is drawn at random. */
#pragma once
#include "core/timing.h"

/* A zeroed one may dial at once. */
struct redial {
    nanos dial_at;     /* earliest time of the next dial */
    uint32_t failures; /* number of failed dials in a row: endpoints_turn(), endpoint.skip */
};

/* What was lost. A connection that worked before it was cut is dialled again sooner than one that
 * never came up: its server may well be up, and releases wait for it. */
enum redial_after {
    REDIAL_AFTER_FAILURE, /* a connection that never came up */
    REDIAL_AFTER_CUT,     /* one that was up, but not for long */
    REDIAL_AFTER_LONG     /* one that lasted: no failure */
};

/* `since`: when it came up, if it was up. */
static inline enum redial_after redial_after(bool was_up, nanos since, nanos now)
{
    if (!was_up)
        return REDIAL_AFTER_FAILURE;
    return now - since >= NANOS_OF_MS(1000) ? REDIAL_AFTER_LONG : REDIAL_AFTER_CUT;
}

/* The connection was lost, or could not be opened. `random`: any 32 random bits; unused after a
 * connection that lasted. */
void redial_lost(struct redial *redial, enum redial_after after, nanos now,
                 const struct engine_limits *limits, const struct timing_overrides *overrides,
                 uint32_t random);
