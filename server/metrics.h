/* metrics.h - what is counted, and how it is told to Prometheus. On the thread of the loop. */
#pragma once
#include "holdfast.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BUCKETS = 14 };

struct histogram {
    uint64_t bucket[BUCKETS + 1]; /* the last one: above all bounds */
    uint64_t count;
    double sum;
};

enum loss { LOSS_EXPIRED, LOSS_BROKEN, LOSS_ENGINE, LOSSES };

/* A label of a name's first parts, with its own counters. */
struct metrics_group {
    char *label;
    uint64_t acquired, contended;
    struct metrics_group *next;
};

/* The last hand-over of a name: a release and the grant that follows it, which may be told in either order. */
struct hand_over {
    uint64_t name;                              /* its hash */
    int64_t released_ms, granted_ms, waited_ms; /* 0: not told yet */
};
/* The last grants of this instance: when it releases them, it knows how long they were held. */
struct granted {
    uint64_t token;
    int64_t at_ms;
};
enum { HAND_OVERS = 256, GRANTS = 4096, ENDS = 1024, WARNINGS = 256 };

struct metrics {
    struct hand_over hand_overs[HAND_OVERS];
    uint64_t warned[WARNINGS]; /* tokens that could not be renewed in time */
    struct granted grants[GRANTS];
    uint64_t ends[ENDS]; /* hashes of leases whose end is known, so that it is not counted twice */
    int64_t max_hold_ms; /* no renewal after this */
    struct histogram wait, hold, hand_off, renew_slack, round_trip;
    uint64_t acquired, contended, refused, released, renewed, broken, undelivered, left;
    uint64_t lost[LOSSES];
    uint64_t answers[6]; /* by hundreds of the status */
    struct metrics_group *groups;
};

void histogram_note(struct histogram *histogram, double seconds);

/* What the library told of a lease; depth: how many parts of its name become a label. */
void metrics_note(struct metrics *metrics, const struct hf_log_event *event, int64_t depth);
/* A lease was given back over HTTP, where the library's handle does not know when it was granted. */
void metrics_released(struct metrics *metrics, const char *exported, uint64_t token);
/* A client asked for a lease that had ended. False: that was known before. */
bool metrics_expired(struct metrics *metrics, const char *exported);
void metrics_free(struct metrics *metrics);
