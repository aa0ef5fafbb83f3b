/* pg_replies.c - turns a reply of the server into a reply to the client, and notifications of
 * handoffs into grants.
 *
 * A hold that begins with a notification is counted from a request that we timed ourselves. Let s
 * be the time when our last request was sent, T the server's time in the reply to it, and E the end
 * of the hold in the notification: the hold is good for E - T from s on, and at most for the time
 * that the handoff gave, counted from now. If these times cannot be trusted, the waiter asks the
 * server.
 */
#include "postgres.h"

#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ---- */

enum { NUMBERS_MAX = 8 };
struct numbers {
    int64_t at[NUMBERS_MAX];
    int count;
};

/* Reads "{1,2,3}". */
static bool read_numbers(const struct pg_reply *reply, struct numbers *n)
{
    const char *at = reply->rows == 1 ? pg_reply_value(reply, 0, 0) : "";
    n->count = 0;
    if (*at++ != '{')
        return false;

    while (n->count < NUMBERS_MAX) {
        char *end;
        n->at[n->count++] = strtoll(at, &end, 10);
        if (end == at)
            return false;
        if (*end == '}')
            return true;
        if (*end != ',')
            return false;
        at = end + 1;
    }

    return false;
}

/* Converts microseconds, bounded so that the result can be added to a time. */
static nanos microseconds(int64_t us)
{
    static const int64_t most = TIME_NEVER / 8 / 1000;
    if (us > most)
        us = most;
    return (us < -most ? -most : us) * 1000;
}

/* ---- Verbs ---- */

static struct engine_reply reply_of(const struct pg_request *request, enum reply_kind kind)
{
    return (struct engine_reply){
        .kind = kind, .asked_at = request->sent_at, .retry_at = TIME_NEVER};
}

static void note_era(struct postgres *p, const struct pg_op *a, const struct numbers *n, int index)
{
    if (n->count > index && n->at[index] >= 0 && n->at[index] <= INT32_MAX)
        pg_seen_of(p, &a->sent_op)->era = (int32_t)n->at[index];
}

/* Reads {1 or 3, token, left, now, era}. No hold is longer than the longest ttl. */
static bool read_held(struct postgres *p, const struct pg_op *a, const struct numbers *n,
                      struct engine_reply *reply)
{
    bool is_in_range = n->count == 5 && n->at[1] > NO_TOKEN && n->at[2] >= 0 &&
                       n->at[2] <= p->limits.ttl_max_ms * 1000;
    if (!is_in_range)
        return false;

    reply->token = (uint64_t)n->at[1];
    reply->good = microseconds(n->at[2]);
    note_era(p, a, n, 4);
    return true;
}

/* Reads {2, left, again, now, number, place, ticket, era}. */
static bool read_queued(struct postgres *p, struct pg_op *a, const struct numbers *n,
                        struct engine_reply *reply)
{
    bool is_in_range = n->count == 8 && n->at[2] >= 0 && n->at[5] > 0 && n->at[5] < UINT32_MAX &&
                       n->at[2] <= pg_op_timing(p, a)->refresh / NANOS_OF_MS(1) && n->at[6] > 0;

    if (!is_in_range)
        return false;

    reply->kind = REPLY_QUEUED;
    reply->retry_at = reply->asked_at + NANOS_OF_MS(n->at[2]);
    reply->place = (uint32_t)n->at[5];
    a->ticket = n->at[6];
    note_era(p, a, n, 7);
    pg_seen_of(p, &a->sent_op)->contended = true;
    pg_op_set_queued(p, a, true);
    a->queued_reply = (struct pg_queued_reply){.set = true,
                                               .asked_at = reply->asked_at,
                                               .due = reply->retry_at,
                                               .at = n->at[3],
                                               .number = n->at[4]};
    return true;
}

static const char *class_text(int64_t class)
{
    if (class == 'e')
        return "exclusive";
    return class == 's' ? "a semaphore" : "read-write";
}

static char class_of(hf_kind kind)
{
    if (kind == HF_EXCLUSIVE)
        return 'e';
    return kind == HF_SEMAPHORE ? 's' : 'x';
}

static void read_mismatch(const struct pg_op *a, const struct numbers *n)
{
    char own = class_of(a->sent_op.kind);
    if (n->at[1] == own)
        error_set(HF_MISMATCH, "is in use with capacity %" PRId64 ", not %u", n->at[2],
                  a->sent_op.capacity);
    else
        error_set(HF_MISMATCH, "is in use as %s, not as %s", class_text(n->at[1]), class_text(own));
}

/* Reads a refusal with a reason: {-2, class, capacity}, {-3, capacity}, {-4}, {-5}, {-6, left}. */
static bool read_reason(const struct postgres *p, const struct pg_op *a, const struct numbers *n,
                        struct engine_reply *reply)
{
    reply->kind = REPLY_FAILED;
    if (n->at[0] == -2 && n->count == 3) {
        reply->status = HF_MISMATCH;
        read_mismatch(a, n);
    } else if (n->at[0] == -3 && n->count == 2) {
        reply->status = error_set(
            HF_TOO_BIG, "%u units are more than its capacity, which was changed to %" PRId64,
            a->sent_op.units, n->at[1]);
    } else if (n->at[0] == -4) {
        reply->status = error_set(HF_FULL, "%d wait for it already", PG_WAITERS_MAX);
    } else if (n->at[0] == -5) {
        reply->status =
            error_set(HF_MISMATCH, "this owner reads it; hf_upgrade makes it the writer");
    } else if (n->at[0] == -6 && n->count == 2) {
        reply->retry_at = reply->asked_at + microseconds(n->at[1]);
        reply->status =
            error_set(HF_UNAVAILABLE,
                      "%s: the server may have lost data (a failover, or a crash with "
                      "memory=1): nothing is granted for %" PRId64 " ms (%s.setup.grace_ms)",
                      p->where, n->at[1] / 1000, p->schema);
    } else {
        return false;
    }

    reply->text = error_text();
    return true;
}

static bool read_acquired(struct postgres *p, struct pg_op *a, const struct numbers *n,
                          struct engine_reply *reply)
{
    if (n->at[0] == 2)
        return read_queued(p, a, n, reply);

    pg_op_set_queued(p, a, false);
    if (n->at[0] == 1) {
        reply->kind = REPLY_GRANTED;
        a->key_polls = 0;
        return read_held(p, a, n, reply);
    }

    a->ticket = 0;
    if (n->at[0] == 7 && p->interop) {
        pg_interop_key_is_taken(p, a, reply);
        return true;
    }
    if (n->at[0] == 0 && n->count == 3) {
        reply->kind = REPLY_BUSY;
        reply->retry_at = reply->asked_at + microseconds(n->at[1]);
        note_era(p, a, n, 2);
        return true;
    }
    if (n->at[0] == -1) {
        reply->kind = REPLY_NOT_HELD;
        return true;
    }
    return read_reason(p, a, n, reply);
}

/* Reads {0 or 1, waiting} and {3, token, left, now, era}. */
static bool read_released(struct postgres *p, struct pg_op *a, enum op_verb verb,
                          const struct numbers *n, struct engine_reply *reply)
{
    pg_op_set_queued(p, a, false);
    a->ticket = 0;
    if (n->at[0] == 3 && verb == OP_LEAVE) {
        reply->kind = REPLY_GRANTED;
        reply->brief = true;
        return read_held(p, a, n, reply);
    }
    if (n->at[0] < 0 || n->at[0] > 1 || n->count < 2)
        return false;

    a->key_given = 0;

    pg_seen_of(p, &a->sent_op)->contended = n->at[1] > 0;
    reply->kind = n->at[0] == 1 || verb == OP_LEAVE ? REPLY_RELEASED : REPLY_NOT_HELD;
    return true;
}

/* Reads {1, token, left, now, era}: extended; {2}: there are other readers; {0}: not held; and for
 * an upgrade {-6, left}. */
static bool read_extended(struct postgres *p, struct pg_op *a, enum op_verb verb,
                          const struct numbers *n, struct engine_reply *reply)
{
    reply->kind = REPLY_EXTENDED;
    if (n->at[0] == 1)
        return read_held(p, a, n, reply);
    if (n->at[0] == -6 && verb == OP_UPGRADE)
        return read_reason(p, a, n, reply);

    reply->kind = n->at[0] == 2 ? REPLY_BUSY : REPLY_NOT_HELD;
    return n->count == 1 && (n->at[0] == 0 || n->at[0] == 2);
}

void pg_reply_note_key(struct postgres *p, const struct pg_request *request,
                       const struct pg_reply *reply)
{
    struct numbers n;
    bool is_held = request->verb == OP_ACQUIRE && read_numbers(reply, &n) && n.at[0] == 1;
    if (p->interop && is_held)
        request->op->key_ups = p->connection.ups;
}

bool pg_reply_to_verb(struct postgres *p, const struct pg_request *request,
                      const struct pg_reply *reply)
{
    assert(request->kind == PG_REQ_VERB && request->op);
    struct engine_reply own = reply_of(request, REPLY_FAILED);
    struct pg_op *a = request->op;
    struct numbers n;
    bool is_given_back = request->verb == OP_ACQUIRE && pg_op_gives_back(p, a);
    bool understood = read_numbers(reply, &n);

    if (understood && request->verb == OP_ACQUIRE)
        understood = read_acquired(p, a, &n, &own);
    else if (understood && (request->verb == OP_RELEASE || request->verb == OP_LEAVE))
        understood = read_released(p, a, (enum op_verb)request->verb, &n, &own);
    else if (understood)
        understood = read_extended(p, a, (enum op_verb)request->verb, &n, &own);

    /* A grant may arrive for a waiter that has already left. A release of that grant is already in
     * flight, sent after the ACQUIRE, and the reply to the release decides. */
    if (understood && is_given_back)
        pg_op_settle(p, a);
    else if (understood)
        pg_op_reply(p, a, &own);
    return understood;
}

/* ---- Notifications ---- */

void pg_reply_notify_all(struct postgres *p)
{
    for (struct pg_op *a = p->active, *next; a; a = next) {
        next = a->next_active;
        if (a->queued && !a->in_flight && !a->unsent)
            pg_op_reply(p, a, &(struct engine_reply){.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER});
    }
}

struct notification {
    char id[PG_ID_TEXT + 1];
    /* till, at: end of the hold and time of the handoff, by the server's clock */
    int64_t token, till, at;
};

/* Reads "uuid token till now". */
static bool read_notification(const char *payload, struct notification *n)
{
    assert(payload);
    char uuid[64];
    size_t len = 0;
    int count =
        sscanf(payload, "%60s %" SCNd64 " %" SCNd64 " %" SCNd64, uuid, &n->token, &n->till, &n->at);

    for (const char *at = uuid; count == 4 && *at; at++)
        if (*at != '-' && len < PG_ID_TEXT)
            n->id[len++] = *at;

    n->id[len] = 0;
    return len == PG_ID_TEXT;
}

/* Returns how long the hold is good, counted from our last request. */
static nanos good_for(const struct pg_op *a, const struct notification *n, nanos now)
{
    nanos from_request = microseconds(n->till - a->queued_reply.at);
    nanos from_now = now - a->queued_reply.asked_at + microseconds(n->till - n->at);
    return from_request < from_now ? from_request : from_now;
}

/* Returns true if the notification alone proves the hold; otherwise the server is asked. In a
 * durable schema it never proves the hold, because the handoff is not on disk yet. */
static bool can_be_trusted(struct postgres *p, const struct pg_op *a, nanos good, nanos now)
{
    const struct timing *t = pg_op_timing(p, a);
    nanos until = a->queued_reply.asked_at + good - timing_drift(&p->limits, good);
    bool is_plausible = good <= t->refresh + t->handoff_grace;
    bool is_in_time = until - now > t->op_timeout && now < a->queued_reply.due;

    return p->memory && !p->interop && a->queued_reply.set && is_plausible && is_in_time;
}

static void notify_waiter(struct postgres *p, struct pg_op *a, const struct notification *n,
                          nanos now)
{
    assert(a->queued && !a->in_flight);
    struct engine_reply reply = {.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER};
    if (n->token == 0) {
        pg_op_set_queued(p, a, false);
        a->ticket = 0;
        pg_op_fail(p, a, now, HF_TOO_BIG, "more units than its capacity, which was changed");
        return;
    }

    if (a->queued_reply.set && n->token <= a->queued_reply.number)
        return; /* the reply is newer than the notification */

    nanos good = good_for(a, n, now);
    if (can_be_trusted(p, a, good, now)) {
        reply.kind = REPLY_GRANTED;
        reply.asked_at = a->queued_reply.asked_at;
        reply.good = good;
        reply.token = (uint64_t)n->token;
        reply.brief = true;
        pg_op_set_queued(p, a, false);
    }

    pg_op_reply(p, a, &reply);
}

/* Handles a notification. If a request of the waiter is in flight, nothing is done: the reply to
 * that request is newer and decides. */
void pg_reply_notified(struct postgres *p, const char *payload, nanos now)
{
    assert(payload);
    struct notification n;

    if (!read_notification(payload, &n))
        return;

    for (struct pg_op *a = p->active, *next; a; a = next) {
        char id[PG_ID_TEXT + 1];
        next = a->next_active;
        bool waits = a->queued && !a->in_flight && !a->unsent;
        if (!waits)
            continue;
        pg_id_text(&a->sent_op.attempt, id);
        if (strcmp(id, n.id) == 0)
            notify_waiter(p, a, &n, now);
    }
}
