/* hour_stats.h - the last hour for the board: the numbers of holds, waiters and grants in each
 * minute, and the durations of waits and holds. Used on the loop's thread only. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOUR_MINUTES = 60, HOUR_SAMPLES = 4096 };

struct hour_minute {
    /* minute since 1970 that the numbers are for; any other value: no data */
    int64_t minute;
    size_t held, waiting; /* highest number that a poll of the engine showed in that minute */
    uint64_t grants;
};

/* The last durations, at most HOUR_SAMPLES of them. */
struct hour_samples {
    int64_t at_ms[HOUR_SAMPLES]; /* milliseconds since 1970 */
    int64_t ms[HOUR_SAMPLES];
    size_t next, count;
};

struct hour_stats {
    struct hour_minute minutes[HOUR_MINUTES];
    struct hour_samples waits, holds;
};

void hour_polled(struct hour_stats *hour, int64_t now_ms, size_t held, size_t waiting);
void hour_granted(struct hour_stats *hour, int64_t now_ms, int64_t waited_ms); /* -1: unknown */
void hour_ended(struct hour_stats *hour, int64_t now_ms, int64_t held_ms);     /* -1: unknown */

/* Returns {"held":[60 numbers],"waiting":[...],"grants":[...],"waits":{"count","p50Ms","p99Ms"},
 * "holds":...} with null for minutes without data and for percentiles of nothing. A new
 * reference. */
json_t *hour_json(const struct hour_stats *hour, int64_t now_ms);
