/* poll_schedule.c - decides when each local waiter asks a server again. */
#include "poll_schedule.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 16 };

struct poll_group {
    /* next group in the bucket, and the pointer to this one */
    struct poll_group *same_hash, **to_me;
    struct heap waiters;       /* waiters in order of arrival */
    struct poll_waiter *scout; /* the waiter that polls often; NULL: it has left */
    size_t name_len;
    char name[];
};

/* ---- Groups ---- */

static size_t bucket_number(const struct engine_op *op)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (uint32_t i = 0; i < op->name_len; i++)
        hash = (hash ^ (uint8_t)op->name[i]) * 16777619u;
    return hash % POLL_GROUP_BUCKETS;
}

static bool is_for(const struct poll_group *group, const struct engine_op *op)
{
    return group->name_len == op->name_len && memcmp(group->name, op->name, op->name_len) == 0;
}

static struct poll_group *find(const struct poll_schedule *schedule, const struct engine_op *op)
{
    struct poll_group *group = schedule->bucket[bucket_number(op)];

    while (group && !is_for(group, op))
        group = group->same_hash;
    return group;
}

static struct poll_group *gather(struct poll_schedule *schedule, const struct engine_op *op)
{
    struct poll_group **bucket = &schedule->bucket[bucket_number(op)];
    struct poll_group *group = malloc(sizeof *group + op->name_len);
    if (!group)
        return NULL;

    *group = (struct poll_group){.same_hash = *bucket, .to_me = bucket, .name_len = op->name_len};
    memcpy(group->name, op->name, op->name_len);
    if (*bucket)
        (*bucket)->to_me = &group->same_hash;
    *bucket = group;
    return group;
}

static void dissolve(struct poll_group *group)
{
    *group->to_me = group->same_hash;
    if (group->same_hash)
        group->same_hash->to_me = group->to_me;
    heap_free(&group->waiters);
    free(group);
}

static struct poll_waiter *first_of(const struct poll_group *group)
{
    char *node = (char *)heap_first(&group->waiters);
    return node ? (struct poll_waiter *)(void *)(node - offsetof(struct poll_waiter, arrival))
                : NULL;
}

/* Adds the waiter to the group of its lock. Without memory it has no group. */
static void join(struct poll_schedule *schedule, struct poll_waiter *waiter,
                 const struct engine_op *op, int64_t arrival)
{
    assert(arrival >= 0);
    struct poll_group *group = waiter->group ? waiter->group : find(schedule, op);
    if (!group && !(group = gather(schedule, op)))
        return;

    if (heap_reserve(&group->waiters, group->waiters.count + 1) == HF_OK) {
        heap_put(&group->waiters, &waiter->arrival, arrival);
        waiter->group = group;
    } else if (!group->waiters.count) {
        dissolve(group);
    }
}

/* Makes the first waiter the scout. Returns that waiter if it is a new scout, otherwise NULL. */
static struct poll_waiter *choose_scout(struct poll_group *group)
{
    struct poll_waiter *first = first_of(group);
    assert(first);
    if (first == group->scout)
        return NULL;

    group->scout = first;
    return first;
}

/* ---- Times ---- */

/* Returns the latest time that the place allows. Waiters due in the same sixteenth of that time
 * poll together, so that their requests share a send. A new waiter starts at a random sixteenth. */
static nanos late_poll_at(const struct poll_queued *queued, const struct wire_engine_host *host)
{
    nanos part = queued->longest / PARTS;
    nanos parts = queued->is_new ? 1 + host->random(host->ctx) % PARTS : PARTS;

    nanos at = queued->asked_at + parts * part;
    nanos together = part ? at / part * part : at;
    return together > queued->asked_at ? together : at;
}

nanos poll_schedule_next(struct poll_schedule *schedule, struct poll_waiter *waiter,
                         const struct engine_op *op, const struct poll_queued *queued,
                         const struct wire_engine_host *host, struct poll_waiter **scout)
{
    assert(queued->longest >= 0);
    *scout = NULL;
    join(schedule, waiter, op, queued->arrival);
    bool is_behind = waiter->group && first_of(waiter->group) != waiter;
    if (is_behind && !queued->may_pass) {
        *scout = choose_scout(waiter->group);
        return late_poll_at(queued, host);
    }

    if (waiter->group && !is_behind)
        waiter->group->scout = waiter;
    nanos pause = queued->often < queued->longest ? queued->often : queued->longest;
    return queued->asked_at + pause;
}

struct poll_waiter *poll_schedule_leave(struct poll_waiter *waiter)
{
    struct poll_group *group = waiter->group;
    if (!group)
        return NULL;

    assert(group->waiters.count > 0);
    waiter->group = NULL;
    heap_remove(&group->waiters, &waiter->arrival);
    if (group->scout == waiter)
        group->scout = NULL;
    if (group->waiters.count)
        return choose_scout(group);

    dissolve(group);
    return NULL;
}

struct poll_waiter *poll_schedule_first(const struct poll_schedule *schedule,
                                        const struct engine_op *op)
{
    const struct poll_group *group = find(schedule, op);
    return group ? first_of(group) : NULL;
}

void poll_schedule_free(struct poll_schedule *schedule)
{
    for (unsigned i = 0; i < POLL_GROUP_BUCKETS; i++)
        while (schedule->bucket[i])
            dissolve(schedule->bucket[i]);
}
