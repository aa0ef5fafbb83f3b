/* lock_server.h - a model of a lock server for the simulator: one resource with a capacity, a first-come queue,
 * hand-over, leases, tombstones and one token counter. Checks itself: order, tokens, no idle capacity, nothing leaked.
 *
 * Included once, by claims.c. Times are those of the server's own clock. */
#pragma once
#include "core/message.h"
#include "plants.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_ATTEMPTS 32
#define TOMBSTONE_FOR HF_MS(60000)

struct hold {
    unsigned id;
    hf_nanos end;
    uint64_t token;
};

struct waiter {
    unsigned id;
    hf_nanos lease_end;
    uint64_t arrival;
};

struct push {
    unsigned id;
    uint64_t token;
    hf_nanos end;
};

struct answer {
    enum hf_cue cue;
    hf_nanos good, again, at; /* at: the server's time */
    uint64_t token, counter;
};

struct lock_server {
    bool queues;
    unsigned capacity, hold_count, waiter_count, push_count;
    hf_nanos grace, refresh;
    struct hold holds[MAX_ATTEMPTS];
    struct waiter queue[MAX_ATTEMPTS];
    struct push pushes[MAX_ATTEMPTS]; /* since the last look: what holders by hand-over are told */
    hf_nanos tombstones[MAX_ATTEMPTS];
    uint64_t counter, hand_overs;
    enum plant plant;
    bool (*moved_on)(unsigned id); /* the attempt's process lives and has ended that claim */
    char failure[200];             /* the first broken invariant; "" while all is well */
};

static void server_fails(struct lock_server *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!*s->failure)
        vsnprintf(s->failure, sizeof s->failure, format, args);
    va_end(args);
}

static struct hold *find_hold(struct lock_server *s, unsigned id)
{
    for (unsigned i = 0; i < s->hold_count; i++)
        if (s->holds[i].id == id)
            return &s->holds[i];
    return NULL;
}

static struct waiter *find_waiter(struct lock_server *s, unsigned id)
{
    for (unsigned i = 0; i < s->waiter_count; i++)
        if (s->queue[i].id == id)
            return &s->queue[i];
    return NULL;
}

static void drop_hold(struct lock_server *s, struct hold *hold)
{
    *hold = s->holds[--s->hold_count];
}

static void drop_waiter(struct lock_server *s, struct waiter *waiter)
{
    size_t behind = (size_t)(&s->queue[s->waiter_count] - (waiter + 1));
    memmove(waiter, waiter + 1, behind * sizeof *waiter);
    s->waiter_count--;
}

/* What nobody renewed ends. It must not be what somebody who lives forgot to give back. */
static void reap(struct lock_server *s, hf_nanos now)
{
    for (unsigned i = 0; i < s->hold_count;) {
        if (s->holds[i].end > now) {
            i++;
            continue;
        }
        if (s->moved_on(s->holds[i].id))
            server_fails(s, "attempt %u moved on and left its hold behind", s->holds[i].id);
        drop_hold(s, &s->holds[i]);
    }
    for (unsigned i = 0; i < s->waiter_count;) {
        if (s->queue[i].lease_end > now) {
            i++;
            continue;
        }
        if (s->moved_on(s->queue[i].id))
            server_fails(s, "attempt %u moved on and left its place in the queue behind", s->queue[i].id);
        drop_waiter(s, &s->queue[i]);
    }
}

static struct hold *grant(struct lock_server *s, unsigned id, uint64_t arrival, hf_nanos end)
{
    for (unsigned i = 0; i < s->waiter_count; i++)
        if (s->queue[i].id != id && s->queue[i].arrival < arrival)
            server_fails(s, "attempt %u passed attempt %u, which waits and lives", id, s->queue[i].id);
    struct hold *hold = &s->holds[s->hold_count++];
    *hold = (struct hold){.id = id, .end = end, .token = ++s->counter};
    return hold;
}

static void admit(struct lock_server *s, hf_nanos now)
{
    while (s->waiter_count && s->hold_count < s->capacity) {
        struct waiter first = s->queue[0];
        hf_nanos end = first.lease_end > now + s->grace ? first.lease_end : now + s->grace;
        drop_waiter(s, &s->queue[0]);
        if (s->plant == PLANT_SAME_TOKEN)
            s->counter--;
        struct hold *hold = grant(s, first.id, first.arrival, end);
        s->pushes[s->push_count++] = (struct push){first.id, hold->token, end};
        s->hand_overs++;
    }
}

static struct answer granted(const struct hold *hold, hf_nanos good, hf_nanos now)
{
    return (struct answer){.cue = HF_N_GRANTED, .token = hold->token, .good = good, .at = now};
}

static struct answer serve_busy(struct lock_server *s, unsigned id, bool wait, hf_nanos now)
{
    hf_nanos left = s->refresh;
    for (unsigned i = 0; i < s->hold_count; i++)
        left = s->holds[i].end - now < left ? s->holds[i].end - now : left;
    struct waiter *me = find_waiter(s, id);
    if (!wait || !s->queues) {
        if (me)
            drop_waiter(s, me);
        return (struct answer){.cue = HF_N_BUSY, .again = left, .at = now};
    }
    if (!me) {
        me = &s->queue[s->waiter_count++];
        *me = (struct waiter){.id = id, .arrival = ++s->counter};
    }
    hf_nanos again = left + HF_MS(10) + (me - s->queue) * HF_MS(20);
    again = again < s->refresh ? again : s->refresh;
    me->lease_end = now + again + s->grace;
    return (struct answer){.cue = HF_N_QUEUED, .again = again, .at = now, .counter = s->counter};
}

static struct answer serve_acquire(struct lock_server *s, unsigned id, bool wait, hf_nanos ttl, hf_nanos now)
{
    if (s->tombstones[id] > now)
        return (struct answer){.cue = HF_N_GONE, .at = now};
    if (s->plant != PLANT_BARGE)
        admit(s, now);
    struct hold *mine = find_hold(s, id);
    if (!mine && s->hold_count < s->capacity && (!s->waiter_count || s->plant == PLANT_BARGE))
        mine = grant(s, id, UINT64_MAX, now + ttl);
    if (!mine)
        return serve_busy(s, id, wait, now);
    if (now + ttl > mine->end)
        mine->end = now + ttl;
    return granted(mine, ttl, now);
}

static struct answer serve_renewal(struct lock_server *s, enum hf_verb verb, unsigned id, hf_nanos ttl, hf_nanos now)
{
    struct hold *mine = find_hold(s, id);
    if (!mine && s->plant == PLANT_REVIVE && s->hold_count < s->capacity) {
        mine = &s->holds[s->hold_count++];
        *mine = (struct hold){.id = id, .end = now + ttl};
    }
    if (!mine)
        return (struct answer){.cue = HF_N_GONE, .at = now};
    if (verb == HF_V_EXTEND && (now + ttl > mine->end || s->plant == PLANT_SHORTEN))
        mine->end = now + ttl;
    hf_nanos good = verb == HF_V_EXTEND ? ttl : mine->end - now;
    return (struct answer){.cue = HF_N_EXTENDED, .good = good, .token = mine->token, .at = now};
}

static struct answer serve_end(struct lock_server *s, enum hf_verb verb, unsigned id, bool doubt, hf_nanos now)
{
    struct hold *mine = find_hold(s, id);
    struct waiter *place = find_waiter(s, id);
    if (!mine && s->plant == PLANT_RELEASE_ANY && s->hold_count)
        mine = &s->holds[0];
    if (mine && verb == HF_V_LEAVE)
        return granted(mine, mine->end - now, now);
    if (mine)
        drop_hold(s, mine);
    if (place)
        drop_waiter(s, place);
    if (doubt && s->plant != PLANT_NO_TOMBSTONE)
        s->tombstones[id] = now + TOMBSTONE_FOR;
    return (struct answer){.cue = mine || verb == HF_V_LEAVE ? HF_N_RELEASED : HF_N_GONE, .at = now};
}

static struct answer serve(struct lock_server *s, enum hf_verb verb, unsigned id, bool wait, bool doubt, hf_nanos ttl,
                           hf_nanos now)
{
    struct answer answer;
    reap(s, now);
    if (verb == HF_V_ACQUIRE)
        answer = serve_acquire(s, id, wait, ttl, now);
    else if (verb == HF_V_EXTEND || verb == HF_V_CHECK)
        answer = serve_renewal(s, verb, id, ttl, now);
    else
        answer = serve_end(s, verb, id, doubt, now);
    if (s->plant != PLANT_NO_HAND_OVER)
        admit(s, now);
    if (s->waiter_count && s->hold_count < s->capacity)
        server_fails(s, "attempt %u waits although there is room", s->queue[0].id);
    return answer;
}
