/* attempts.c - who is known: a memo for each ask until it is forgotten, and an attempt while something goes on with it.
 *
 * A client may hold very many locks, of which few are asked about at a time. */
#include "redis.h"

#include <stdlib.h>
#include <string.h>

enum { UNUSED_MOST = 64 }; /* that are kept */

/* ---- Memos ---- */

static struct memo **bucket_of(struct hf_redis *r, const char id[HF_ID_TEXT])
{
    uint32_t hash;
    memcpy(&hash, id, sizeof hash);
    return &r->bucket[hash % ATTEMPT_BUCKETS];
}

struct memo *hf_memo_of(struct hf_redis *r, const char id[HF_ID_TEXT])
{
    struct memo *memo = *bucket_of(r, id);
    while (memo && memcmp(memo->id, id, HF_ID_TEXT) != 0)
        memo = memo->same_hash;
    return memo;
}

struct memo *hf_memo_next(const struct memo *one)
{
    struct memo *memo = one->same_hash;
    while (memo && memcmp(memo->id, one->id, HF_ID_TEXT) != 0)
        memo = memo->same_hash;
    return memo;
}

static struct memo *note(struct hf_redis *r, struct hf_ask *ask)
{
    struct memo *memo = r->free_memos;
    if (memo)
        r->free_memos = memo->same_hash;
    else if (!(memo = malloc(sizeof *memo)))
        return NULL;
    *memo = (struct memo){0};
    hf_id_text(&ask->attempt, memo->id);
    struct memo **bucket = bucket_of(r, memo->id);
    memo->same_hash = *bucket;
    *bucket = memo;
    ask->engine_state = memo;
    return memo;
}

static void drop(struct hf_redis *r, struct memo *memo)
{
    struct memo **at = bucket_of(r, memo->id);
    while (*at != memo)
        at = &(*at)->same_hash;
    *at = memo->same_hash;
    memo->same_hash = r->free_memos;
    r->free_memos = memo;
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
    *a = (struct attempt){.ask = ask, .next = r->attempts, .memo = memo, .sent = memo->sent};
    a->first_ttl_ms = memo->first_ttl_ms;
    a->acknowledged = memo->acknowledged;
    memcpy(a->id, memo->id, sizeof a->id);
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
        a->memo->first_ttl_ms = a->first_ttl_ms;
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

static void free_memos(struct memo *memo)
{
    for (struct memo *next; memo; memo = next) {
        next = memo->same_hash;
        free(memo);
    }
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
    for (int i = 0; i < ATTEMPT_BUCKETS; i++)
        free_memos(r->bucket[i]);
    free_memos(r->free_memos);
}
