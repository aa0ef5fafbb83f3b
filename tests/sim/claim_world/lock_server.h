/* lock_server.h - a model of a lock server for the simulator: one resource with a capacity, owners
 * that hold it by sets of attempts, a first-come queue, hand-over, leases, tombstones and one token
 * counter. Checks itself: order, tokens, no idle capacity, nothing leaked.
 *
 * A reader takes one unit, a writer all; an owner's units count once, however many attempts it
 * holds by. Times are those of the server's own clock. What it answers to whom stands in
 * lock_replies.h. */
#pragma once
#include "claim_plants.h"
#include "core/engine_protocol.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_ATTEMPTS 64
#define TOMBSTONE_FOR NANOS_OF_MS(60000)

struct hold {
    unsigned id, owner, units;
    nanos end;
    uint64_t token, birth; /* birth: tells a hold from a later one of the same attempt */
};

struct waiter {
    unsigned id, owner, units;
    nanos lease_end;
    uint64_t arrival;
};

struct push {
    unsigned id;
    uint64_t token;
    nanos end;
};

struct lock_server {
    bool queues;
    unsigned capacity, hold_count, waiter_count, push_count;
    nanos grace, refresh;
    struct hold holds[2 * MAX_ATTEMPTS];
    struct waiter queue[MAX_ATTEMPTS];
    struct push pushes[MAX_ATTEMPTS]; /* since the last look: what holders by hand-over are told */
    nanos tombstones[MAX_ATTEMPTS];
    uint64_t counter, births, hand_overs;
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

/* The first hold of that owner: the one that its units are counted by. */
static struct hold *find_owner(struct lock_server *s, unsigned owner)
{
    for (unsigned i = 0; i < s->hold_count && s->plant != PLANT_DEAF_TO_OWNER; i++)
        if (s->holds[i].owner == owner)
            return &s->holds[i];
    return NULL;
}

static unsigned used(struct lock_server *s)
{
    unsigned units = 0;
    for (unsigned i = 0; i < s->hold_count; i++) {
        struct hold *first = find_owner(s, s->holds[i].owner);
        units += !first || first == &s->holds[i] ? s->holds[i].units : 0;
    }
    return units;
}

static bool fits(struct lock_server *s, unsigned units)
{
    return used(s) + units <= s->capacity;
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
static void reap(struct lock_server *s, nanos now)
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
            server_fails(s, "attempt %u moved on and left its place in the queue behind",
                         s->queue[i].id);
        drop_waiter(s, &s->queue[i]);
    }
}

/* An owner that comes in again shares its hold's token and passes the queue; anybody else is
 * checked against it. */
static struct hold *grant(struct lock_server *s, const struct waiter *to, nanos end)
{
    const struct hold *entered = find_owner(s, to->owner);
    for (unsigned i = 0; i < s->waiter_count && !entered; i++)
        if (s->queue[i].id != to->id && s->queue[i].arrival < to->arrival)
            server_fails(s, "attempt %u passed attempt %u, which waits and lives", to->id,
                         s->queue[i].id);
    uint64_t token = entered ? entered->token : ++s->counter;
    struct hold *hold = &s->holds[s->hold_count++];
    *hold = (struct hold){
        .id = to->id, .owner = to->owner, .units = to->units, .end = end, .token = token};
    hold->birth = ++s->births;
    return hold;
}

/* The first in line if it fits, else anyone whose owner is inside already. */
static struct waiter *next_to_enter(struct lock_server *s)
{
    if (s->waiter_count && fits(s, s->queue[0].units))
        return &s->queue[0];
    for (unsigned i = 0; i < s->waiter_count; i++)
        if (find_owner(s, s->queue[i].owner))
            return &s->queue[i];
    return NULL;
}

static void admit(struct lock_server *s, nanos now)
{
    for (struct waiter *next; (next = next_to_enter(s));) {
        struct waiter first = *next;
        nanos end = first.lease_end > now + s->grace ? first.lease_end : now + s->grace;
        drop_waiter(s, next);
        if (s->plant == PLANT_SAME_TOKEN)
            s->counter--;
        struct hold *hold = grant(s, &first, end);
        s->pushes[s->push_count++] = (struct push){first.id, hold->token, end};
        s->hand_overs++;
    }
}
