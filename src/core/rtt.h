/* rtt.h - how long requests on a connection take: a smoothed round trip and its variation, as in
 * TCP (RFC 6298). */
#pragma once
#include "engine_protocol.h"

struct rtt {
    nanos smooth, variation; /* smooth is 0 before the first measurement */
};

/* Adds the round trip of one request. Only for a request that was sent while no other was in
 * flight: otherwise the time includes those before it. */
void rtt_learn(struct rtt *rtt, nanos sent_at, nanos received_at);

/* Returns how long the next request may take; 0 before the first measurement. */
nanos rtt_timeout(const struct rtt *rtt);
