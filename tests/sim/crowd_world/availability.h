/* availability.h - the judge of crowds. Four rules:
 *
 * A lock that nobody holds is granted to a living waiter within plan.bound. A handoff that nobody
 * took is not a hold. The time counts from the end of the last hold, or from the last death,
 * whichever is later. A request that does not wait is told BUSY only if somebody holds the lock or
 * a living waiter is before it. A waiter that was never silent is never passed, and no waiter loses
 * the number of its place. No two hold the lock at once, nor more units than there are. */
#pragma once
#include "waiters.h"

enum { JUDGE_EVERY_MS = 10, ROUND_TRIPS_MS = 30, IN_ALL_MS = 2000, SHORT_STEP_MS = 10000 };

static nanos free_since, longest_free, in_all;
static uint64_t grants_seen;

/* ---- What the server has ---- */

static bool has_hold(const struct attempt_of_user *a)
{
    struct model_key key;
    if (!model_look(model, "lock:L", 6, &key))
        return false;
    if (key.kind == 's')
        return memcmp(model_look_item(model, &key, 0).name, a->id, REDIS_ID_TEXT) == 0;
    if (!model_look(model, "{lock:L}:h", 10, &key))
        return false;
    for (uint32_t i = 0; i < key.items; i++) {
        struct model_item end = model_look_item(model, &key, i);
        if (memcmp(end.name, a->id, REDIS_ID_TEXT) == 0)
            return end.score > (double)server_us();
    }
    return false;
}

/* The hold of a process that died, stands still or is cut off lasts until the server ends it. */
static bool holds(unsigned id)
{
    const struct attempt_of_user *a = &w.attempt[id];
    if (is_living(&w.process[a->process]))
        return is_held(a);
    return waiters[id].granted && has_hold(a);
}

static bool waits(const struct attempt_of_user *a)
{
    return a->claim.state == CLAIM_QUEUED && is_living(&w.process[a->process]);
}

/* ---- Availability ---- */

static bool is_withheld(void)
{
    bool somebody_waits = false;
    for (unsigned id = 0; id < w.attempts; id++) {
        if (holds(id))
            return false;
        somebody_waits |= waits(&w.attempt[id]);
    }
    return somebody_waits;
}

static void judge_availability(void)
{
    bool is_granted = grants != grants_seen;
    grants_seen = grants;
    if (is_granted || !is_withheld())
        free_since = w.now;
    bool died_before = last_death <= free_since;
    nanos withheld = w.now - later(free_since, last_death);
    nanos bound = died_before && plan.bound > in_all && !stepped_back ? in_all : plan.bound;
    longest_free = later(longest_free, withheld);
    if (withheld > bound)
        fails("a lock that nobody holds is withheld from the living for %lld ms",
              (long long)(withheld / NANOS_OF_MS(1)));
}

static void judge_refusal(unsigned id, hf_status status)
{
    if (w.attempt[id].process != newcomer())
        fails("a%u is denied: %s", id, hf_status_text(status));
    bool is_explained = stepped_back || w.now - last_death < plan.bound;
    for (unsigned i = 0; i < w.attempts && !is_explained; i++)
        is_explained = holds(i) || waits(&w.attempt[i]);
    if (!is_explained)
        fails("a%u is told that a lock is busy which nobody holds", id);
}

/* ---- Order ---- */

static void judge_place(unsigned id)
{
    const struct redis_op *active = redis_active_op(&w.attempt[id].op);
    if (!active || !active->queued)
        return; /* it was granted meanwhile */
    int64_t number = active->arrival_number;
    bool may_have_held = waiters[id].granted || waiters[id].polled;
    if (waiters[id].arrival && number > waiters[id].arrival && !may_have_held)
        fails("a%u had place number %lld and has %lld now", id, (long long)waiters[id].arrival,
              (long long)number);
    waiters[id].arrival = number;
}

static bool believes(const struct attempt_of_user *a)
{
    const struct process *p = &w.process[a->process];
    return is_held(a) && !p->dead && local_time(p, w.now) < a->claim.valid_until;
}

/* Requests of one owner have one token, and their units count once. */
static uint64_t units_beside(unsigned id)
{
    const struct attempt_of_user *a = &w.attempt[id];
    uint64_t units = a->units;
    unsigned counted = 1u << a->owner;
    for (unsigned i = 0; i < w.attempts; i++) {
        const struct attempt_of_user *other = &w.attempt[i];
        bool is_sibling = w.kind == REENTRANT && other->owner == a->owner;
        if (i == id || !believes(other))
            continue;
        if (is_sibling && other->claim.token != a->claim.token && !stepped_ahead)
            fails("a%u and a%u are of one owner and hold with two tokens", i, id);
        if (w.kind != REENTRANT || !(counted & 1u << other->owner))
            units += other->units;
        counted |= 1u << other->owner;
    }
    return units;
}

static void judge_order(unsigned id)
{
    const struct waiter *own = &waiters[id];
    int64_t number = own->arrival ? own->arrival : (int64_t)w.attempt[id].claim.token;
    for (unsigned i = 0; i < w.attempts; i++) {
        bool is_before = waiters[i].arrival && waiters[i].arrival < number && !waiters[i].silent;
        if (is_before && waits(&w.attempt[i]) && !has_hold(&w.attempt[i]))
            fails("a%u is granted before a%u, which waits for longer and was never silent", id, i);
    }
}

static void judge_grant(unsigned id)
{
    uint64_t units = units_beside(id);
    if (units > w.capacity && !stepped_ahead)
        fails("a%u is granted: %llu of %u units are held", id, (unsigned long long)units,
              w.capacity);
    if (w.kind != REENTRANT) /* an owner's requests are let in together */
        judge_order(id);
}
