/* poll_schedule.h - for servers that do not notify waiters of their turn: when each local waiter
 * asks again.
 *
 * The local waiters for one lock are a group, in the order of their arrival. None of them can be
 * granted before the first, so only the first polls often: it is the scout. The others poll as
 * rarely as their places allow. Their first polls are spread over that time, so that they do not
 * all ask at the same moment from then on. When the scout leaves, the next waiter becomes the
 * scout. */
#pragma once
#include "base/heap.h"
#include "engines/wire_engine.h"

struct poll_group;

/* The waiter's part of the schedule; zero at first. */
struct poll_waiter {
    struct poll_group *group; /* its group; NULL: none */
    struct heap_node arrival; /* node in the group's heap */
};

enum { POLL_GROUP_BUCKETS = 1024 };

/* A zeroed schedule is empty. */
struct poll_schedule {
    struct poll_group *bucket[POLL_GROUP_BUCKETS];
};

/* The server's answer about a waiter that it queued. */
struct poll_queued {
    int64_t arrival; /* number of its place; lower numbers come first */
    nanos asked_at;
    nanos often;   /* pause of the first waiter */
    nanos longest; /* longest pause that its place allows */
    bool is_new;   /* this was the waiter's first request */
    bool may_pass; /* the waiter may be granted ahead of others, so it polls often at any place */
};

/* Returns when the waiter polls next. *scout: the waiter that has just become the first of its
 * group and must poll often; NULL: none. Without memory the waiter polls as if it were alone. */
nanos poll_schedule_next(struct poll_schedule *schedule, struct poll_waiter *waiter,
                         const struct engine_op *op, const struct poll_queued *queued,
                         const struct wire_engine_host *host, struct poll_waiter **scout);
/* Removes a waiter. Returns the new scout, or NULL. */
struct poll_waiter *poll_schedule_leave(struct poll_waiter *waiter);
/* Returns the first local waiter for the lock of the op; NULL: none. */
struct poll_waiter *poll_schedule_first(const struct poll_schedule *schedule,
                                        const struct engine_op *op);
void poll_schedule_free(struct poll_schedule *schedule);
