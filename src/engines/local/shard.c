/* shard.c - locking a shard: wait for its mutex, repair it if its owner died inside. */
#include "shard.h"

#include "base/error.h"
#include "repair.h"
#include "sys/clock.h"
#include "sys/process.h"

/* an op that may wait for this long or longer waits once; an op with less time waits repeatedly */
#define PATIENT_SLICE NANOS_OF_MS(600)
#define PATIENT_TOTAL NANOS_OF_MS(2000) /* longest time of the repeated waits */
enum { PATIENT_TRIES = 20 };

static hf_status blame_owner(struct table *t, uint32_t shard)
{
    assert(shard <= LOCAL_REGISTRY);
    int64_t thread = robust_mutex_owner(&t->shards[shard].mutex), pid = process_of_thread(thread);
    char state = process_state(thread);
    const char *how = state == 'T' || state == 't' ? "is stopped" : "stays";
    return error_set(HF_UNAVAILABLE, "%s: process %lld %s inside part %u of the table", t->path,
                     (long long)pid, how, shard);
}

/* A repair whose walks were ended has rebuilt some lists only, and a lock may look free that is
 * held. Then the mark stays at the mutex, and the next one to lock it repairs again. The status is
 * one after which a release is tried again. */
static hf_status repair_locked(struct table *t, uint32_t shard)
{
    shard_repair(t, shard);
    if (cell_walks_ended()) {
        shard_unlock(t, shard);
        return error_set(HF_UNAVAILABLE, "%s: part %u of the table was not repaired in time",
                         t->path, shard);
    }

    robust_mutex_make_consistent(&t->shards[shard].mutex);
    return HF_OK;
}

static hf_status settle_lock(struct table *t, uint32_t shard, enum robust_mutex_result locked)
{
    assert(shard <= LOCAL_REGISTRY);
    switch (locked) {
    case ROBUST_MUTEX_LOCKED:
        return HF_OK;

    case ROBUST_MUTEX_OWNER_DIED:
        return repair_locked(t, shard);

    default:
        return blame_owner(t, shard);
    }
}

/* Give up only if the mutex owner is stopped (SIGSTOP). If it is runnable but starved, wait as long
 * again, up to PATIENT_TRIES times and PATIENT_TOTAL. A forged thread id looks the same as a
 * stopped owner. */
static enum robust_mutex_result lock_patiently(struct table *t, uint32_t shard, int64_t until)
{
    assert(shard <= LOCAL_REGISTRY);
    struct robust_mutex *mutex = &t->shards[shard].mutex;
    int64_t began = clock_boot(), slice = until - began;
    enum robust_mutex_result locked = robust_mutex_lock(&t->owner, mutex, until);

    for (int tries = 1; locked == ROBUST_MUTEX_TIMEOUT && slice < PATIENT_SLICE; tries++) {
        char state = process_state(robust_mutex_owner(mutex));
        bool is_stopped = state == 'T' || state == 't';
        bool waited_enough = tries >= PATIENT_TRIES || clock_boot() - began >= PATIENT_TOTAL;
        if (is_stopped || waited_enough)
            break;
        locked = robust_mutex_lock(&t->owner, mutex, clock_boot() + slice);
    }

    return locked;
}

/* For an op that locks this shard alone. A repair may visit every cell. */
static hf_status settle_lock_alone(struct table *t, uint32_t shard, enum robust_mutex_result locked)
{
    if (locked == ROBUST_MUTEX_OWNER_DIED)
        cell_walk_restart_long(t);
    hf_status status = settle_lock(t, shard, locked);
    cell_walk_restart();
    return status;
}

hf_status shard_lock(struct table *t, uint32_t shard, int64_t until)
{
    return settle_lock_alone(t, shard, lock_patiently(t, shard, until));
}

hf_status shard_lock_next(struct table *t, uint32_t shard, nanos *wait)
{
    nanos from = clock_boot();
    enum robust_mutex_result locked = lock_patiently(t, shard, from + *wait);
    nanos waited = clock_boot() - from;

    *wait = waited < *wait ? *wait - waited : 0;
    cell_walk_waited(waited);
    return settle_lock(t, shard, locked);
}

hf_status shard_enter_late(struct table *t, uint32_t shard, int64_t until,
                           enum robust_mutex_result tried, nanos *now)
{
    if (tried == ROBUST_MUTEX_TIMEOUT)
        tried = lock_patiently(t, shard, until);
    hf_status status = settle_lock_alone(t, shard, tried);
    *now = clock_boot();
    return status;
}
