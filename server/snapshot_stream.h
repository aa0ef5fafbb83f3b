/* snapshot_stream.h - polls the engine for the page, the gauges and the patterns. */
#pragma once
#include "server.h"

/* The last poll of the engine. */
struct snapshot {
    bool up;
    size_t held, waiters;
    size_t servers_up; /* number of servers of a quorum that answered */
    size_t deadlocks;  /* number of circles of holders that wait for each other */
    int64_t oldest_holder_ms, oldest_waiter_ms;
};

/* A change of a lock, as it is shown on the pages. */
struct lease_change {
    const char *event; /* queued, left, granted, released, expired, broken, resized */
    const char *name, *label, *text;
    uint64_t token;
    int64_t at_ms;              /* milliseconds since 1970; 0: now */
    int64_t held_ms, waited_ms; /* -1 if unknown */
    /* true: found by comparing two polls, so its times are as inexact as the interval of the
     * polls */
    bool sampled;
};

struct snapshot_stream *snapshot_new(struct server *server);
void snapshot_free(struct snapshot_stream *view);
void snapshot_stop(struct snapshot_stream *view); /* Ends all streams. */
void snapshot_change(struct snapshot_stream *view, const struct lease_change *change);
/* Returns the number of names that were dropped from the patterns. */
uint64_t snapshot_dropped(const struct snapshot_stream *view);
const struct snapshot *snapshot_latest(const struct snapshot_stream *view);
