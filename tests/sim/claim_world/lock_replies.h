/* lock_replies.h - what the model of a lock server answers to each verb. */
#pragma once
#include "lock_server.h"

struct request {
    enum op_verb verb;
    unsigned id, owner, units;
    bool wait, may_be_in_flight;
    nanos ttl;
};

struct answer {
    enum reply_kind kind;
    nanos good, again, at; /* at: the server's time */
    uint64_t token, counter;
};

static struct answer granted(const struct hold *hold, nanos good, nanos now)
{
    return (struct answer){.kind = REPLY_GRANTED, .token = hold->token, .good = good, .at = now};
}

static struct answer still_held(const struct hold *hold, nanos good, nanos now)
{
    return (struct answer){.kind = REPLY_EXTENDED, .token = hold->token, .good = good, .at = now};
}

static struct answer serve_busy(struct lock_server *s, const struct request *r, nanos now)
{
    nanos left = s->refresh;
    for (unsigned i = 0; i < s->hold_count; i++)
        left = s->holds[i].end - now < left ? s->holds[i].end - now : left;
    struct waiter *me = find_waiter(s, r->id);
    if (!r->wait || !s->queues) {
        if (me)
            drop_waiter(s, me);
        return (struct answer){.kind = REPLY_BUSY, .again = left, .at = now};
    }
    if (!me) {
        me = &s->queue[s->waiter_count++];
        *me = (struct waiter){
            .id = r->id, .owner = r->owner, .units = r->units, .arrival = ++s->counter};
    }
    nanos again = left + NANOS_OF_MS(10) + (me - s->queue) * NANOS_OF_MS(20);
    again = again < s->refresh ? again : s->refresh;
    me->lease_end = now + again + s->grace;
    return (struct answer){.kind = REPLY_QUEUED, .again = again, .at = now, .counter = s->counter};
}

static struct answer serve_acquire(struct lock_server *s, const struct request *r, nanos now)
{
    if (s->tombstones[r->id] > now)
        return (struct answer){.kind = REPLY_NOT_HELD, .at = now};
    if (s->plant != PLANT_BARGE)
        admit(s, now);
    struct hold *mine = find_hold(s, r->id);
    bool room = fits(s, r->units) && (!s->waiter_count || s->plant == PLANT_BARGE);
    bool again = mine && s->plant == PLANT_COUNT_TWICE && s->hold_count < MAX_ATTEMPTS;
    if ((!mine && (room || find_owner(s, r->owner))) || again) {
        struct waiter newcomer = {
            .id = r->id, .owner = r->owner, .units = r->units, .arrival = UINT64_MAX};
        mine = grant(s, &newcomer, now + r->ttl);
    }
    if (!mine)
        return serve_busy(s, r, now);
    if (now + r->ttl > mine->end)
        mine->end = now + r->ttl;
    return granted(mine, r->ttl, now);
}

static struct answer serve_renewal(struct lock_server *s, const struct request *r, nanos now)
{
    struct hold *mine = find_hold(s, r->id);
    bool extend = r->verb == OP_EXTEND;
    if (!mine && s->plant == PLANT_REVIVE && fits(s, r->units)) {
        mine = &s->holds[s->hold_count++];
        *mine =
            (struct hold){.id = r->id, .owner = r->owner, .units = r->units, .end = now + r->ttl};
    }
    if (!mine)
        return (struct answer){.kind = REPLY_NOT_HELD, .at = now};
    if (extend && (now + r->ttl > mine->end || s->plant == PLANT_SHORTEN))
        mine->end = now + r->ttl;
    return still_held(mine, extend ? r->ttl : mine->end - now, now);
}

/* Asked again by who writes already it changes nothing: a request may come twice. */
static struct answer serve_upgrade(struct lock_server *s, struct hold *mine, nanos now)
{
    bool alone = used(s) == mine->units || s->plant == PLANT_UPGRADE_AMONG;
    if (mine->units < s->capacity && !alone) {
        if (s->plant == PLANT_BUSY_DROPS)
            drop_hold(s, mine);
        return (struct answer){.kind = REPLY_BUSY, .at = now};
    }
    if (mine->units < s->capacity && s->plant != PLANT_UPGRADE_KEEPS)
        mine->token = ++s->counter;
    mine->units = s->capacity;
    return still_held(mine, mine->end - now, now);
}

static struct answer serve_conversion(struct lock_server *s, const struct request *r, nanos now)
{
    struct hold *mine = find_hold(s, r->id);
    if (!mine)
        return (struct answer){.kind = REPLY_NOT_HELD, .at = now};
    if (r->verb == OP_UPGRADE)
        return serve_upgrade(s, mine, now);
    mine->units = 1;
    return still_held(mine, mine->end - now, now);
}

static struct answer serve_end(struct lock_server *s, const struct request *r, nanos now)
{
    struct hold *mine = find_hold(s, r->id);
    struct waiter *place = find_waiter(s, r->id);
    if (!mine && s->plant == PLANT_RELEASE_ANY && s->hold_count)
        mine = &s->holds[0];
    if (mine && r->verb == OP_LEAVE)
        return granted(mine, mine->end - now, now);
    if (mine)
        drop_hold(s, mine);
    for (unsigned i = 0; s->plant == PLANT_RELEASE_ALL && i < s->hold_count; i++)
        if (s->holds[i].owner == r->owner)
            drop_hold(s, &s->holds[i--]);
    if (place)
        drop_waiter(s, place);
    if (r->may_be_in_flight && s->plant != PLANT_NO_TOMBSTONE)
        s->tombstones[r->id] = now + TOMBSTONE_FOR;
    return (struct answer){.kind = mine || r->verb == OP_LEAVE ? REPLY_RELEASED : REPLY_NOT_HELD,
                           .at = now};
}

static struct answer answer_to(struct lock_server *s, const struct request *r, nanos now)
{
    if (r->verb == OP_ACQUIRE)
        return serve_acquire(s, r, now);
    if (r->verb == OP_EXTEND || r->verb == OP_CHECK)
        return serve_renewal(s, r, now);
    if (r->verb == OP_UPGRADE || r->verb == OP_DOWNGRADE)
        return serve_conversion(s, r, now);
    return serve_end(s, r, now);
}

static void check_queue(struct lock_server *s)
{
    if (s->waiter_count && fits(s, s->queue[0].units))
        server_fails(s, "attempt %u waits although there is room", s->queue[0].id);
    for (unsigned i = 0; i < s->waiter_count; i++)
        for (unsigned k = 0; k < s->hold_count; k++)
            if (s->queue[i].owner == s->holds[k].owner)
                server_fails(s, "attempt %u waits for its own owner", s->queue[i].id);
}

static struct answer serve(struct lock_server *s, const struct request *r, nanos now)
{
    reap(s, now);
    struct answer answer = answer_to(s, r, now);
    bool admits = s->plant != PLANT_NO_HAND_OVER &&
                  !(s->plant == PLANT_DOWNGRADE_ALONE && r->verb == OP_DOWNGRADE);
    if (admits)
        admit(s, now);
    check_queue(s);
    return answer;
}
