/* attempts.c - who is known: a memo for each ask until it is forgotten, and an attempt while something goes on with it.
 *
 * A client may hold very many locks, of which few are asked about at a time. */
#include "redis.h"

#include <stdlib.h>
#include <string.h>

enum { UNUSED_MOST = 64, SLAB = 64, FIRST_BUCKETS = 64 }; /* attempts that are kept; memos that are made at once */

struct memo_slab {
    struct memo_slab *next;
    struct memo memo[SLAB];
};

/* ---- Memos ---- */

static struct memo **bucket_of(struct hf_redis *r, const struct hf_id *id)
{
    uint32_t hash;
    memcpy(&hash, id, sizeof hash);
    return &r->bucket[hash & (r->buckets - 1)];
}

static void enter(struct hf_redis *r, struct memo *memo)
{
    struct memo **bucket = bucket_of(r, &memo->ask->attempt);
    memo->same_hash = *bucket;
    *bucket = memo;
}

/* As many buckets as memos, or there is no memory for them and chains grow instead. False: there is none at all. */
static bool make_buckets(struct hf_redis *r)
{
    if (r->memos < r->buckets)
        return true;
    uint32_t had = r->buckets, more = had ? 2 * had : FIRST_BUCKETS;
    struct memo **old = r->bucket, **bucket = calloc(more, sizeof(struct memo *));
    if (!bucket)
        return old != NULL;
    r->bucket = bucket;
    r->buckets = more;
    for (uint32_t i = 0; i < had; i++)
        for (struct memo *memo = old[i], *next; memo; memo = next) {
            next = memo->same_hash;
            enter(r, memo);
        }
    free(old);
    return true;
}

static struct memo *first_with(struct memo *memo, const struct hf_id *id)
{
    while (memo && !hf_id_same(&memo->ask->attempt, id))
        memo = memo->same_hash;
    return memo;
}

struct memo *hf_memo_of(struct hf_redis *r, const char text[HF_ID_TEXT])
{
    struct hf_id id;
    return r->buckets && hf_id_read(text, &id) ? first_with(*bucket_of(r, &id), &id) : NULL;
}

struct memo *hf_memo_next(const struct memo *one)
{
    return first_with(one->same_hash, &one->ask->attempt);
}

static bool make_memos(struct hf_redis *r)
{
    struct memo_slab *slab = malloc(sizeof *slab);
    if (!slab)
        return false;
    slab->next = r->memo_slabs;
    r->memo_slabs = slab;
    for (int i = 0; i < SLAB; i++) {
        slab->memo[i].same_hash = r->unused_memos;
        r->unused_memos = &slab->memo[i];
    }
    return true;
}

static struct memo *note(struct hf_redis *r, struct hf_ask *ask)
{
    if ((!r->unused_memos && !make_memos(r)) || !make_buckets(r))
        return NULL;
    struct memo *memo = r->unused_memos;
    r->unused_memos = memo->same_hash;
    *memo = (struct memo){.ask = ask};
    enter(r, memo);
    r->memos++;
    ask->engine_state = memo;
    return memo;
}

static void drop(struct hf_redis *r, struct memo *memo)
{
    struct memo **at = bucket_of(r, &memo->ask->attempt);
    while (*at != memo)
        at = &(*at)->same_hash;
    *at = memo->same_hash;
    memo->same_hash = r->unused_memos;
    r->unused_memos = memo;
    r->memos--;
}

/* ---- Attempts ---- */

struct attempt *hf_attempt_meet(struct hf_redis *r, struct hf_ask *ask)
{
    struct memo *memo = ask->engine_state ? ask->engine_state : note(r, ask);
    struct attempt *a = memo ? memo->awake : NULL;
    if (a || !memo)
        return a;
    a = r->unused;
    if (a) {
        r->unused = a->next;
        r->unused_count--;
    } else if (!(a = malloc(sizeof *a))) {
        return NULL;
    }
    memset(a, 0, offsetof(struct attempt, id));
    a->ask = ask;
    a->memo = memo;
    a->next = r->attempts;
    a->sent = memo->sent;
    a->cut = memo->cut;
    a->first_ttl_ms = memo->first_ttl_ms;
    a->acknowledged = memo->acknowledged;
    hf_id_text(&ask->attempt, a->id);
    if (r->attempts)
        r->attempts->prev = a;
    r->attempts = memo->awake = a;
    return a;
}

static void leave_list(struct hf_redis *r, struct attempt *a)
{
    *(a->prev ? &a->prev->next : &r->attempts) = a->next;
    if (a->next)
        a->next->prev = a->prev;
    free(a->lack_text);
    if (r->unused_count == UNUSED_MOST) {
        free(a);
        return;
    }
    a->next = r->unused;
    r->unused = a;
    r->unused_count++;
}

static bool is_idle(const struct attempt *a)
{
    return !hf_attempt_flies(a) && !a->unsent && !a->queued && !a->listens && !a->job;
}

void hf_attempts_rest(struct hf_redis *r)
{
    while (r->told) {
        struct attempt *a = r->told;
        r->told = a->next_told;
        a->told = false;
        if (!is_idle(a))
            continue;
        a->memo->sent = a->sent;
        a->memo->cut = a->cut;
        a->memo->first_ttl_ms = (uint32_t)a->first_ttl_ms;
        a->memo->acknowledged = a->acknowledged;
        a->memo->awake = NULL;
        leave_list(r, a);
    }
}

static void forget_awake(struct hf_redis *r, struct attempt *a)
{
    hf_wake_set_ear(r, a, false, r->told_at);
    hf_attempt_set_queued(r, a, false);
    for (unsigned i = 0; i < LINES; i++)
        if (a->in_flight[i])
            hf_line_forget(&r->line[i], a);
    hf_job_free(a);
    if (a->told) { /* by what was just done */
        struct attempt **at = &r->told;
        while (*at != a)
            at = &(*at)->next_told;
        *at = a->next_told;
    }
    leave_list(r, a);
}

void hf_attempt_forget(struct hf_redis *r, struct hf_ask *ask)
{
    struct memo *memo = ask->engine_state;
    if (!memo)
        return;
    if (memo->awake)
        forget_awake(r, memo->awake);
    ask->engine_state = NULL;
    ask->lines = 0;
    drop(r, memo);
}

void hf_attempts_free(struct hf_redis *r)
{
    for (struct attempt *a = r->attempts; a; a = a->next)
        hf_job_free(a);
    while (r->attempts)
        leave_list(r, r->attempts);
    for (struct attempt *a = r->unused, *next; a; a = next) {
        next = a->next;
        free(a);
    }
    for (struct memo_slab *slab = r->memo_slabs, *next; slab; slab = next) {
        next = slab->next;
        free(slab);
    }
    free(r->bucket);
}
