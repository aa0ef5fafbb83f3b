/* redial.h - when a connection that is down is dialled again: at once if it was up for long,
 * soon if it was up at all, otherwise after a random pause that grows with every failure. */
#pragma once
#include "core/timing.h"

/* State of one connection; zero: it may be dialled at once. */
struct redial {
    nanos dial_at;     /* earliest time of the next dial */
    uint32_t failures; /* number of failed dials in a row; endpoints_turn() chooses by it */
};

/* The kind of loss. A connection that was cut is redialled sooner than one that never came up:
 * its server is more likely to be up, and releases wait for it. */
enum redial_after {
    REDIAL_AFTER_FAILURE, /* the connection never came up */
    REDIAL_AFTER_CUT,     /* the connection was up, but not for long */
    REDIAL_AFTER_LONG     /* the connection was up for long: not a failure */
};

/* `since`: time when it came up, if it was up */
static inline enum redial_after redial_after(bool was_up, nanos since, nanos now)
{
    if (!was_up)
        return REDIAL_AFTER_FAILURE;
    return now - since >= NANOS_OF_MS(1000) ? REDIAL_AFTER_LONG : REDIAL_AFTER_CUT;
}

/* Plans the next dial after the connection was lost, or could not be opened. Each pause is longer
 * than the one before. `random`: 32 random bits; unused after REDIAL_AFTER_LONG. */
void redial_lost(struct redial *redial, enum redial_after after, nanos now,
                 const struct engine_limits *limits, const struct timing_overrides *overrides,
                 uint32_t random);

/* Plans the next dial for a client of several servers with the same data, after a connection was
 * lost or could not be opened. After the first loss the next server is dialled at once
 * (endpoints_turn()), and each further round begins after a pause. Set `failures` to 0 when a
 * connection came up. `random`: 32 random bits. */
void redial_next_server(struct redial *redial, unsigned servers, nanos now,
                        const struct engine_limits *limits,
                        const struct timing_overrides *overrides, uint32_t random);
