/* metrics.h - counters and histograms for Prometheus. Used on the loop's thread only. */
#pragma once
#include "holdfast.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BUCKETS = 14 };

struct histogram {
    uint64_t bucket[BUCKETS + 1]; /* the last bucket is above all bounds */
    uint64_t count;
    double sum;
};

/* How a lease that this instance granted ended. Each lease ends once (lease_ledger.c). */
enum lease_end {
    END_NONE,      /* still held, as far as this instance knows */
    END_RELEASED,  /* released through this instance, or by it */
    END_EXPIRED,   /* its ttl has passed, or max-hold was reached */
    END_BROKEN,    /* revoked */
    END_ENGINE,    /* this instance could not renew it */
    END_ELSEWHERE, /* ended before its time, and not through this instance */
    LEASE_ENDS
};

/* Counters for names with the same first parts. */
struct metrics_group {
    char *label;
    uint64_t acquired, contended;
    struct metrics_group *next;
};

/* The last handoff of a name: a release and the next grant, which may be reported in either
 * order. */
struct handoff {
    uint64_t name;                              /* hash of the name */
    int64_t released_ms, granted_ms, waited_ms; /* times; 0 until reported */
};
enum { HANDOFFS = 256, ENDS = 1024, WARNINGS = 256 };

struct metrics {
    struct handoff handoffs[HANDOFFS];
    /* tokens of leases that the library warned about, because they were not renewed in time */
    uint64_t warned[WARNINGS];
    uint64_t ends[ENDS]; /* hashes of leases whose end was counted, so that it is counted once */
    int64_t max_hold_ms; /* leases are renewed for this long at most */
    struct histogram wait, hold, hand_off, renew_slack, round_trip;
    uint64_t contended, refused, renewed, broken, undelivered, left;
    /* Leases that this instance granted, and those of them that have ended. */
    uint64_t acquired, ended[LEASE_ENDS];
    uint64_t released_for_others; /* leases that another instance granted */
    /* number of answers with a status of 1xx, 2xx and so on, at index 1, 2 ... */
    uint64_t answers[6];
    struct metrics_group *groups;
};

uint64_t text_hash(const char *text);
void histogram_note(struct histogram *histogram, double seconds);

/* Counts an event of the library. depth: number of parts of the name in its label. */
void metrics_note(struct metrics *metrics, const struct hf_log_event *event, int64_t depth);
/* Returns how a lease that the library reports as lost has ended. */
enum lease_end metrics_loss(const struct metrics *metrics, const struct hf_log_event *event);
/* Returns true if the end of a lease was not reported before. `hash`: of its exported text. */
bool metrics_first_end(struct metrics *metrics, uint64_t hash);
void metrics_free(struct metrics *metrics);
