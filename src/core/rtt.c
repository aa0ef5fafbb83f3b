/* rtt.c - the smoothed round trip of a connection. */
#include "rtt.h"

/* A round trip above this length counts as this length, so that sums cannot overflow. */
#define LONGEST NANOS_OF_MS(60000)

static nanos length(nanos sent_at, nanos received_at)
{
    if (received_at <= sent_at)
        return 1; /* 0 means: nothing measured */
    return received_at - sent_at < LONGEST ? received_at - sent_at : LONGEST;
}

void rtt_learn(struct rtt *rtt, nanos sent_at, nanos received_at)
{
    nanos took = length(sent_at, received_at);
    if (!rtt->smooth) {
        *rtt = (struct rtt){.smooth = took, .variation = took / 4};
        return;
    }

    nanos off = took > rtt->smooth ? took - rtt->smooth : rtt->smooth - took;
    rtt->variation += (off - rtt->variation) / 4;
    rtt->smooth += (took - rtt->smooth) / 8;
    rtt->smooth = rtt->smooth > 0 ? rtt->smooth : 1;
}

/* The slack is at least half of the round trip: on a steady connection the variation becomes 0, and
 * every delay would count as a time-out. */
nanos rtt_timeout(const struct rtt *rtt)
{
    nanos slack = 4 * rtt->variation;
    return rtt->smooth + (slack > rtt->smooth / 2 ? slack : rtt->smooth / 2);
}
