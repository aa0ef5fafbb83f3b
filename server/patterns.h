/* patterns.h - how waiting and losses spread over time, as this instance saw it: kept in memory, for the page. */
#pragma once
#include "access.h"
#include <jansson.h>
#include <stdint.h>

enum { PATTERN_MINUTES = 60, PATTERN_DAYS = 14, PATTERN_NAMES = 200 };

struct pattern {
    char *name;
    int64_t total_ms, touched_minute;
    int64_t waited_ms[PATTERN_MINUTES]; /* by minute, modulo */
    int64_t minute[PATTERN_MINUTES];    /* which minute a bucket is of */
};

struct patterns {
    struct pattern all[PATTERN_NAMES];
    size_t count;
    uint64_t lost[PATTERN_DAYS];
    int64_t day[PATTERN_DAYS];
};

void patterns_waited(struct patterns *patterns, const char *name, int64_t ms); /* one waiter, for so long */
void patterns_lost(struct patterns *patterns);
json_t *patterns_json(const struct patterns *patterns, const struct right_holder *caller);
void patterns_free(struct patterns *patterns);
