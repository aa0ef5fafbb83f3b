/* looking.c - who is told of nothing looks (wake=poll): when each of ours who wait for a lock asks again.
 *
 * Those of ours who wait for the same lock are a crowd, in the order of their arrival. None of them can have its turn
 * before the first one has had it, so only that one looks often; the others ask as seldom as their places allow. Their
 * first looks are spread over that time, so that many do not ask in one moment for ever after. When the first one has
 * left, the next one becomes the one that looks; and when one of ours gives the lock back, it looks at once. */
#include "redis.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 16 };

struct crowd {
    struct crowd *same_hash, **to_me; /* among those of the same bucket */
    struct hf_heap waiters;           /* by their arrival */
    struct attempt *scout;            /* its first one, when that was last seen to; NULL: it has left */
    size_t name_len;
    char name[];
};

static struct crowd **bucket_of(struct hf_redis *r, const struct hf_ask *ask)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < ask->name_len; i++)
        hash = (hash ^ (unsigned char)ask->name[i]) * 16777619u;
    return &r->crowd[hash % CROWD_BUCKETS];
}

static struct crowd *find(struct hf_redis *r, const struct hf_ask *ask)
{
    struct crowd *crowd = *bucket_of(r, ask);
    while (crowd && (crowd->name_len != ask->name_len || memcmp(crowd->name, ask->name, ask->name_len) != 0))
        crowd = crowd->same_hash;
    return crowd;
}

static struct crowd *gather(struct hf_redis *r, const struct hf_ask *ask)
{
    struct crowd **bucket = bucket_of(r, ask), *crowd = malloc(sizeof *crowd + ask->name_len);
    if (!crowd)
        return NULL;
    *crowd = (struct crowd){.same_hash = *bucket, .to_me = bucket, .name_len = ask->name_len};
    memcpy(crowd->name, ask->name, ask->name_len);
    if (*bucket)
        (*bucket)->to_me = &crowd->same_hash;
    *bucket = crowd;
    return crowd;
}

static void dissolve(struct crowd *crowd)
{
    *crowd->to_me = crowd->same_hash;
    if (crowd->same_hash)
        crowd->same_hash->to_me = crowd->to_me;
    hf_heap_free(&crowd->waiters);
    free(crowd);
}

static struct attempt *first_of(const struct crowd *crowd)
{
    struct hf_heap_node *node = hf_heap_first(&crowd->waiters);
    return node ? (struct attempt *)(void *)((char *)node - offsetof(struct attempt, arrival)) : NULL;
}

/* Then the server hears from it later than of what just happened: requests are carried out in their order, as far as
 * they go out on the same line. */
static bool is_about_to_look(const struct hf_redis *r, const struct attempt *a)
{
    return a->hinted || a->unsent || (hf_attempt_flies(a) && !r->strong);
}

/* Once: hints that are not yet read would drive its answer out of the mailbox. */
static void hint(struct hf_redis *r, struct attempt *a)
{
    if (is_about_to_look(r, a))
        return;
    a->hinted = true;
    hf_attempt_tell(r, a, &(struct hf_news){.cue = HF_N_HINT, .retry_at = HF_NEVER});
}

/* The first one of a crowd may have become that only now. One that shares the lock may have been let in together with
 * the one before it, and looks at once. */
static void send_scout(struct hf_redis *r, struct crowd *crowd, hf_nanos now)
{
    struct attempt *first = first_of(crowd);
    if (first == crowd->scout)
        return;
    crowd->scout = first;
    if (is_about_to_look(r, first))
        return; /* the answer tells it when to look */
    if (first->said.kind == HF_READ || first->said.kind == HF_SEMAPHORE) {
        hint(r, first);
        return;
    }
    hf_nanos look_at = now + hf_attempt_timing(r, first)->refresh_first;
    if (look_at < first->pair.due) {
        first->pair.due = look_at;
        hf_attempt_tell(r, first,
                        &(struct hf_news){.cue = HF_N_QUEUED, .asked_at = first->pair.asked_at, .retry_at = look_at});
    }
}

/* Without memory for it everybody is a crowd of its own. */
static void join(struct hf_redis *r, struct attempt *a, int64_t arrival)
{
    struct crowd *crowd = a->crowd ? a->crowd : find(r, &a->said);
    if (!crowd && !(crowd = gather(r, &a->said)))
        return;
    if (hf_heap_reserve(&crowd->waiters, crowd->waiters.count + 1) == HF_OK) {
        hf_heap_put(&crowd->waiters, &a->arrival, arrival);
        a->crowd = crowd;
    } else if (!crowd->waiters.count) {
        dissolve(crowd);
    }
}

void hf_look_leave(struct hf_redis *r, struct attempt *a, hf_nanos now)
{
    struct crowd *crowd = a->crowd;
    if (!crowd)
        return;
    a->crowd = NULL;
    hf_heap_remove(&crowd->waiters, &a->arrival);
    if (crowd->scout == a)
        crowd->scout = NULL;
    if (crowd->waiters.count)
        send_scout(r, crowd, now);
    else
        dissolve(crowd);
}

/* As late as its place allows, together with others who are due in the same part of that time: they share a send. */
static hf_nanos keep_at(struct hf_redis *r, const struct attempt *a, hf_nanos asked_at, hf_nanos longest)
{
    bool is_new = !a->pair.set;
    hf_nanos part = longest / PARTS, parts = is_new ? 1 + r->host->random(r->host->ctx) % PARTS : PARTS;
    hf_nanos at = asked_at + parts * part;
    hf_nanos together = part ? at / part * part : at;
    return together > asked_at ? together : at;
}

hf_nanos hf_look_next(struct hf_redis *r, struct attempt *a, int64_t arrival, const struct hf_news *queued,
                      hf_nanos now)
{
    hf_nanos longest = queued->retry_at - queued->asked_at;
    join(r, a, arrival);
    if (a->crowd && first_of(a->crowd) != a) {
        send_scout(r, a->crowd, now);
        return keep_at(r, a, queued->asked_at, longest);
    }
    if (a->crowd)
        a->crowd->scout = a;
    hf_nanos often = queued->place * hf_attempt_timing(r, a)->refresh_first;
    return queued->asked_at + (often < longest ? often : longest);
}

void hf_look_own(struct hf_redis *r, const struct attempt *released)
{
    const struct crowd *crowd = hf_look_is_all(r) && r->queued ? find(r, &released->said) : NULL;
    if (crowd)
        hint(r, first_of(crowd));
}

void hf_look_close(struct hf_redis *r)
{
    for (unsigned i = 0; i < CROWD_BUCKETS; i++)
        while (r->crowd[i])
            dissolve(r->crowd[i]);
}
