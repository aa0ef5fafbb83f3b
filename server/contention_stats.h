/* contention_stats.h - waits and losses over time as this instance saw them, in memory, for the
 * page. */
#pragma once
#include "auth_tokens.h"
#include <jansson.h>
#include <stdint.h>

enum { PATTERN_MINUTES = 60, PATTERN_DAYS = 14 };

struct contention_bucket {
    char *name;
    int64_t total_ms, touched_minute;
    int64_t waited_ms[PATTERN_MINUTES]; /* sum of waits, by minute modulo PATTERN_MINUTES */
    int64_t minute[PATTERN_MINUTES];    /* minute that each bucket belongs to */
};

struct contention {
    struct contention_bucket *all;
    size_t count, most; /* number of names, and the largest allowed */
    uint64_t dropped;   /* names that were dropped for others */
    uint64_t lost[PATTERN_DAYS];
    int64_t day[PATTERN_DAYS];
};

bool contention_open(struct contention *patterns, size_t most); /* false: out of memory */
/* Counts one waiter that has waited for `ms`. */
void contention_waited(struct contention *patterns, const char *name, int64_t ms);
void contention_lost(struct contention *patterns);
json_t *contention_json(const struct contention *patterns, const struct caller *caller);
void contention_free(struct contention *patterns);
