/* places.c - the queue of a quorum: which waiter asks next when the lock is free, so that votes
 * do not split.
 *
 * A wait has a place on every server (engines/redis/scripts/places.lua). Each server that refuses
 * the first try proposes a ticket above all that it knows. The highest proposal becomes the ticket
 * of the wait, and the next try carries it to all servers. So a wait that a majority knows comes
 * before every wait that begins later: any two majorities share a server, and that server proposes
 * a higher ticket to the later wait.
 *
 * After a release each server tells all waiters whose turn it is. The first waiter asks as soon as
 * a majority has told it so. The others hold back: the second for one grace, those behind it for
 * two. If one of them asks early, the servers refuse it for long enough that the first can come. If
 * the first is dead or slow, a later waiter takes its turn. */
#include "redlock.h"

#include <assert.h>

/* grace of the first waiter; four times the usual answer time of a majority is added */
#define GRACE NANOS_OF_MS(50)
#define GRACE_MOST NANOS_OF_MS(500) /* longest grace */
#define STEP NANOS_OF_MS(4)         /* interval between the waiters that ask after the grace */
#define SOON NANOS_OF_MS(1)
enum { STEPS_MOST = 16, DOUBLINGS_MOST = 7 };

static nanos grace_of(const struct redlock *l)
{
    nanos grace = GRACE + 4 * l->pace;

    return grace < GRACE_MOST ? grace : GRACE_MOST;
}

void redlock_place_begin_try(struct redlock *l, struct quorum_op *quorum_op)
{
    struct timing t;
    assert(quorum_op->asked_before); /* the wait's place has an id */

    timing_fill(&t, quorum_op->op->ttl_ms, &l->limits, &l->overrides);
    quorum_op->place.waits = quorum_op->op->waits;
    quorum_op->place.alive_ms = (uint32_t)((t.retry_max + 4 * t.op_timeout) / NANOS_OF_MS(1));
    quorum_op->place.grace_ms =
        quorum_op->op->barging ? 0 : (uint32_t)(grace_of(l) / NANOS_OF_MS(1));
    quorum_op->turns = 0;
}

/* ---- What a failed try has shown ---- */

/* Returns the number of waiters ahead: the median over the servers that know the place. */
static unsigned most_say(const struct redlock *l, const struct quorum_try *b)
{
    unsigned known = 0;
    assert(b->quorum.servers == l->servers);

    for (unsigned i = 0; i < l->servers; i++)
        known += b->node_op[i].answer.place > 0;

    for (unsigned i = 0; i < l->servers; i++) {
        unsigned place = b->node_op[i].answer.place, not_more = 0, less = 0;
        for (unsigned j = 0; j < l->servers; j++) {
            unsigned other = b->node_op[j].answer.place;
            not_more += other && other <= place;
            less += other && other < place;
        }

        bool is_median = 2 * less < known && 2 * not_more >= known;
        if (place && is_median)
            return place - 1;
    }
    return 0;
}

static uint64_t highest_ticket(const struct redlock *l, const struct quorum_try *b)
{
    uint64_t highest = 0;

    for (unsigned i = 0; i < l->servers; i++)
        if (b->node_op[i].answer.ticket > highest)
            highest = b->node_op[i].answer.ticket;
    return highest;
}

void redlock_place_learn(struct redlock *l, const struct quorum_try *b)
{
    struct quorum_op *quorum_op = b->quorum_op;

    if (!quorum_op || !quorum_op->place.waits)
        return;
    if (!quorum_op->place.ticket)
        quorum_op->place.ticket = highest_ticket(l, b);
    quorum_op->ahead = most_say(l, b);
    quorum_op->stands = true;
}

/* ---- When a waiter asks again ---- */

static nanos draw_within(struct redlock *l, nanos span)
{
    assert(span >= 0);
    return span / 1024 * (l->host->random(l->host->ctx) % 1024);
}

static nanos steps_of(const struct quorum_op *quorum_op)
{
    return STEP * (quorum_op->ahead < STEPS_MOST ? quorum_op->ahead : STEPS_MOST);
}

static nanos soon(const struct redlock *l)
{
    return l->pace > SOON ? l->pace : SOON;
}

/* It is another waiter's turn: returns how long to wait before checking whether that waiter
 * came. */
static nanos patience_of(struct redlock *l, const struct quorum_op *quorum_op)
{
    nanos graces = quorum_op->ahead > 1 ? 2 * grace_of(l) : grace_of(l);

    return graces + steps_of(quorum_op) + draw_within(l, STEP);
}

/* Plans a notification. If several times are planned for the waiter's own turn, the earliest
 * counts. The time of a check replaces only that of another check. */
static void notify_at(struct redlock *l, struct quorum_op *quorum_op, nanos at, bool is_sooner)
{
    assert(at != TIME_NEVER);
    if (is_sooner ? at < quorum_op->notify_at : !quorum_op->is_notify_soon) {
        quorum_op->notify_at = at;
        quorum_op->is_notify_soon = is_sooner;
    }
    redlock_op_set_alarm(l, quorum_op);
}

static unsigned count_bits(uint32_t bits)
{
    return (unsigned)__builtin_popcount(bits);
}

void redlock_place_on_turn(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    uint32_t turns = quorum_op->pending_turns;
    bool is_held = quorum_op->open_try && quorum_op->open_try->held;
    bool is_own = turns & 1u << QUORUM_TURN_OWN;
    bool is_sooner = is_own || (turns & 1u << QUORUM_TURN_UNKNOWN);
    assert(turns);

    quorum_op->pending_turns = 0;
    if (!quorum_op->listens || is_held)
        return;

    if (is_own && count_bits(quorum_op->turns) >= quorum_majority(l->servers))
        notify_at(l, quorum_op, now, true);
    else if (is_sooner)
        notify_at(l, quorum_op, now + soon(l) + (is_own ? 0 : draw_within(l, STEP)), true);
    else
        notify_at(l, quorum_op, now + patience_of(l, quorum_op), false);
}

void redlock_place_try_again(struct redlock *l, struct quorum_op *quorum_op, nanos now)
{
    unsigned doublings = quorum_op->vain < DOUBLINGS_MOST ? quorum_op->vain : DOUBLINGS_MOST;

    if (quorum_op->listens)
        notify_at(l, quorum_op,
                  now + soon(l) + steps_of(quorum_op) + draw_within(l, soon(l) << doublings), true);
}
