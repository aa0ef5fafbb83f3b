/* redis_member.h - the part of the Redis engine that engines made of Redis servers use: redlock,
 * sentinel and cluster. */
#pragma once
#include "core/timing.h"
#include "engines/wire_engine.h"

enum { REDIS_CONNECTIONS = 3 }; /* number of connections to one server */

#define REDIS_LIMITS                                                                               \
    {                                                                                              \
        .ttl_min_ms = 100, .ttl_max_ms = 24 * 3600 * 1000, .drift_ppm = 10000, .drift_ms = 2,      \
        .kinds = 1u << HF_EXCLUSIVE | 1u << HF_SEMAPHORE | 1u << HF_READ | 1u << HF_WRITE,         \
        .offers = ENGINE_QUEUES | ENGINE_REPLIES_LATER | ENGINE_CAN_DETACH | ENGINE_REENTRANT |    \
                  ENGINE_CAN_RESIZE | ENGINE_CAN_BREAK | ENGINE_CAN_CONVERT | ENGINE_FINDS_HOLDS | \
                  ENGINE_JOINS                                                                     \
    }

extern const struct wire_engine_type redis_wire_engine;
extern const struct setting_rows redis_settings;
void redis_override_timing(struct timing_overrides *overrides, const struct settings *settings);
/* Returns true if grants await replicas. */
bool redis_wants_replicas(const struct settings *settings);
