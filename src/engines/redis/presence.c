/* presence.c - proves to the server that this client lives, while one of its ops waits in a
 * queue.
 *
 * A release hands the lock to the first waiter that is alive. Up to PRESENCE_MS after its last
 * request a waiter counts as alive. For longer waits each client has one key, BOX:alive, which
 * stands for all its waiters and expires after PRESENCE_MS unless it is renewed. So if a client
 * dies, is stopped or is cut off, all its waiters are passed over within a second. A client that
 * was only slow finds that its key has expired: its waiters ask again and get their places back.
 *
 * A lock can become free without a release: its holder died, or a handoff went to a waiter that had
 * just died. So at a renewal the first local waiter of every lock polls, unless its last poll is
 * less than 1.5 renewals old: in effect at every other renewal. The other local waiters need not,
 * because none of them can be granted before the first.
 *
 * In a cluster no key of a client is in the slots of all locks. There the sign of life is in the
 * record of each lock, and every request of a waiter renews it for all waiters of its client. So
 * the first local waiter of every lock polls often enough to keep it. If a poll was answered too
 * late, all waiters ask again.
 *
 * Cost: nothing for waits below PRESENCE_RENEW_MS. After that one PEXPIRE per client every
 * PRESENCE_RENEW_MS, one request per client and lock every other time, and one PTTL in the script
 * that hands over to a waiter who has waited for longer. The first renewal is a SET; later ones are
 * PEXPIRE, because a server without memory still executes that. In a cluster: one request per
 * client and lock every PRESENCE_RENEW_MS. */
#include "redis.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define POLL_AFTER NANOS_OF_MS(3 * PRESENCE_RENEW_MS / 2)
#define POLL_AFTER_IN_CLUSTER NANOS_OF_MS(PRESENCE_RENEW_MS / 2)

void redis_presence_begin(struct redis *r, nanos asked_at)
{
    struct presence *p = &r->presence;
    assert(!r->queued);

    p->in_use = true;
    p->is_set = false;
    p->proved_at = asked_at;
    p->renew_at = asked_at + NANOS_OF_MS(PRESENCE_RENEW_MS);
}

static void send_renewal(struct redis *r, nanos now)
{
    struct presence *p = &r->presence;
    struct resp_command *c = &r->command;
    char key[sizeof r->box + 8];
    assert(!p->in_flight);

    snprintf(key, sizeof key, "%s:alive", r->box + 1);

    resp_command_begin(c, p->is_set ? 3 : 5);
    resp_command_text(c, p->is_set ? "PEXPIRE" : "SET");
    resp_command_text(c, key);

    if (!p->is_set) {
        resp_command_text(c, "1");
        resp_command_text(c, "PX");
    }

    resp_command_number(c, PRESENCE_MS);

    p->in_flight = true;
    p->renew_at = now + NANOS_OF_MS(PRESENCE_RENEW_MS);
    redis_connection_send(r, &r->connection[CONNECTION_COMMANDS],
                          (struct request){.kind = REQ_PRESENCE, .patience = r->connect_timeout},
                          now);
}

/* ---- Polls ---- */

static struct redis_op **slot_of(struct presence *p, const struct redis_op *a)
{
    uint32_t hash = redis_name_hash(a->sent_op.name, a->sent_op.name_len);

    struct redis_op **slot = &p->first[hash % (sizeof p->first / sizeof p->first[0])];
    while (*slot && !redis_op_same_name(*slot, a))
        slot = &(*slot)->next_first;
    return slot;
}

/* Of two waiters for the same lock, keeps the one that arrived first. */
static void consider(struct presence *p, struct redis_op *a)
{
    struct redis_op **slot = slot_of(p, a), *other = *slot;
    assert(a->queued && other != a);
    if (other && other->arrival_number <= a->arrival_number)
        return;

    a->next_first = other ? other->next_first : NULL;
    *slot = a;
}

static bool waits_quietly(const struct redis_op *a)
{
    return a->queued && !a->unsent && !redis_op_is_in_flight(a);
}

static void poll_first_waiters(struct redis *r, nanos now)
{
    struct presence *p = &r->presence;
    nanos after = r->cluster.is_on ? POLL_AFTER_IN_CLUSTER : POLL_AFTER;
    if (redis_polls_only(r) && !r->cluster.is_on)
        return; /* poll_schedule.c plans polls that are more frequent than these */

    for (struct redis_op *a = r->ops; a; a = a->next)
        if (waits_quietly(a))
            consider(p, a);

    for (size_t i = 0; i < sizeof p->first / sizeof p->first[0]; i++) {
        for (struct redis_op *a = p->first[i]; a; a = a->next_first)
            if (!a->queued_reply.set || now - a->queued_reply.asked_at >= after) {
                a->vouches = true;
                redis_op_reply(
                    r, a, &(struct engine_reply){.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER});
            }
        p->first[i] = NULL;
    }
}

/* ---- The key ---- */

/* Handles the reply: OK to SET; to PEXPIRE 1, or 0 if the key had expired. */
void redis_presence_answer(struct redis *r, const struct request *request,
                           const struct resp_reply *resp, nanos now)
{
    struct presence *p = &r->presence;
    assert(request->kind == REQ_PRESENCE);
    p->in_flight = false;
    if (resp->type == RESP_ERROR)
        return; /* the waiters' own requests meet the same error and report it */

    bool had_ended = resp->type == RESP_NUMBER && resp->number == 0;
    bool may_have_ended = now - p->proved_at >= NANOS_OF_MS(PRESENCE_MS);
    p->is_set = !had_ended;
    p->proved_at = request->sent_at;
    if (had_ended)
        p->renew_at = now;

    if (had_ended || may_have_ended)
        redis_connection_notify_all(r);
    else
        poll_first_waiters(r, now);
}

/* ---- In a cluster ---- */

/* Called when the server has queued an op. If this client's sign of life had expired since the
 * previous request, waiters of others may have passed its waiters, so all of them ask again. */
void redis_presence_on_queued(struct redis *r, struct redis_op *a, nanos now)
{
    const struct queued_reply *last = &a->queued_reply;
    assert(r->cluster.is_on);
    if (a->vouches && last->set && now - last->asked_at >= NANOS_OF_MS(PRESENCE_MS))
        r->presence.has_ended = true;
    a->vouches = false;
}

static nanos vouch_by_polls(struct redis *r, nanos now)
{
    struct presence *p = &r->presence;
    bool has_ended = p->has_ended || now - p->proved_at >= NANOS_OF_MS(PRESENCE_MS);
    p->has_ended = false;
    p->proved_at = now;
    p->renew_at = now + NANOS_OF_MS(PRESENCE_RENEW_MS);

    if (has_ended)
        redis_connection_notify_all(r);
    else
        poll_first_waiters(r, now);

    return p->renew_at;
}

void redis_presence_cut(struct redis *r)
{
    r->presence.in_flight = false;
}

nanos redis_presence_tick(struct redis *r, nanos now)
{
    struct presence *p = &r->presence;
    struct redis_connection *connection = &r->connection[CONNECTION_COMMANDS];
    if (!p->in_use)
        return TIME_NEVER;
    if (!r->queued) {
        p->in_use = false;
        return TIME_NEVER;
    }

    if (now < p->renew_at && !p->has_ended)
        return p->renew_at;
    if (r->cluster.is_on)
        return vouch_by_polls(r, now);
    if (!redis_connection_need(r, connection, now))
        return connection->redial.dial_at;
    if (p->in_flight || connection->state != CONNECTION_UP)
        return TIME_NEVER; /* redis_connection_tick() says when to go on */

    send_renewal(r, now);
    return p->renew_at;
}
