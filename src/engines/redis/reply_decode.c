/* reply_decode.c - turns a reply of the server into a reply to the client. */
#include "redis.h"

#include "base/error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct engine_reply reply_of(const struct request *request, enum reply_kind kind)
{
    return (struct engine_reply){
        .kind = kind, .asked_at = request->sent_at, .retry_at = TIME_NEVER};
}

/* Reads {token, left}. No hold is longer than the longest ttl. */
static bool read_held(const struct redis *r, const struct resp_reply *resp,
                      struct engine_reply *reply)
{
    int64_t token = resp_count(resp_item(resp, 0)), left = resp_count(resp_item(resp, 1));
    bool is_pair = resp->type == RESP_LIST && resp->len == 2;
    bool is_in_range = token > 0 && left >= 0 && left <= r->limits.ttl_max_ms;
    if (!is_pair || !is_in_range)
        return false;

    reply->token = (uint64_t)token;
    reply->good = NANOS_OF_MS(left);
    return true;
}

/* Returns true for a valid {0, left, again, now, number, place, arrival}. `again` must not be
 * later than the waiter offered. */
static bool can_be_queued(struct redis *r, const struct redis_op *a, const struct resp_reply *resp)
{
    assert(resp->len == 7);
    for (size_t i = 2; i < 7; i++)
        if (resp_count(resp_item(resp, i)) < 0)
            return false;

    return resp_count(resp_item(resp, 2)) <= redis_op_timing(r, a)->refresh / NANOS_OF_MS(1) &&
           resp_count(resp_item(resp, 5)) < UINT32_MAX;
}

static void note_queued(struct redis *r, struct redis_op *a, const struct resp_reply *resp,
                        struct engine_reply *reply, nanos now)
{
    reply->kind = REPLY_QUEUED;
    reply->retry_at = reply->asked_at + NANOS_OF_MS(resp_count(resp_item(resp, 2)));
    reply->place = (uint32_t)resp_count(resp_item(resp, 5)) + 1;
    a->arrival_number = resp_count(resp_item(resp, 6));
    a->knows_grant = false;
    if (redis_polls_only(r))
        reply->retry_at = redis_poll_next(r, a, a->arrival_number, reply, now);

    if (r->cluster.is_on)
        redis_presence_on_queued(r, a, now);
    a->queued_reply = (struct queued_reply){
        .set = true,
        .asked_at = reply->asked_at,
        .due = reply->retry_at,
        .at = resp_count(resp_item(resp, 3)),
        .number = resp_count(resp_item(resp, 4)),
    };
    if (!r->queued)
        redis_presence_begin(r, reply->asked_at);
    if (redis_has_channels(r))
        redis_channel_join(r, a, now);
    redis_op_set_queued(r, a, true);
    redis_notify_listen(r, now);
}

static const char *kind_text(char class)
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

/* Reads {-2, class, capacity}: the lock is in use as another kind, or with another capacity. */
static bool read_mismatch(const struct redis_op *a, const struct resp_reply *resp)
{
    const struct resp_reply *class = resp_item(resp, 1);
    char own = class_of(a->sent_op.kind);
    if (!class || class->type != RESP_TEXT)
        return false;

    if (class->text[0] == own)
        error_set(HF_MISMATCH, "is in use with capacity %lld, not %u",
                  (long long)resp_count(resp_item(resp, 2)), a->sent_op.capacity);
    else
        error_set(HF_MISMATCH, "is in use as %s, not as %s", kind_text(class->text[0]),
                  kind_text(own));
    return true;
}

/* Reads a refusal with a reason: {-2, class, capacity}, {-3, capacity}, {-4}, {-5}. */
static bool read_reason(struct redis_op *a, const struct resp_reply *resp,
                        struct engine_reply *reply)
{
    assert(resp->type == RESP_LIST && resp->len > 0);
    reply->kind = REPLY_FAILED;

    switch (resp_item(resp, 0)->number) {
    case -2:
        if (!read_mismatch(a, resp))
            return false;
        reply->status = HF_MISMATCH;
        break;
    case -3:
        reply->status = HF_TOO_BIG;
        error_set(HF_TOO_BIG, "%u units are more than its capacity, which was changed to %lld",
                  a->sent_op.units, (long long)resp_count(resp_item(resp, 1)));
        break;
    case -4:
        reply->status = HF_FULL;
        error_set(HF_FULL, "%d wait for it already", REDIS_WAITERS_MAX);
        break;
    case -5:
        reply->status = HF_MISMATCH;
        error_set(HF_MISMATCH, "this owner reads it; hf_upgrade makes it the writer");
        break;
    default:
        return false;
    }
    reply->text = error_text();
    return true;
}

/* Reads "token meta", which names the holder. redlock compares it among its servers. */
static void read_holder(struct redis *r, const struct resp_reply *holder,
                        struct engine_reply *reply, struct quorum_answer *answer)
{
    char *words = r->holder_words;
    struct redis_meta meta;
    int meta_at = 0;
    if (!holder || holder->type != RESP_TEXT ||
        sscanf(holder->text, "%" SCNu64 " %n", &answer->holder_token, &meta_at) < 1 ||
        !redis_meta_read(holder->text + meta_at, &meta))
        return;

    bool labelled = *meta.label;
    snprintf(words, sizeof r->holder_words, "pid %" PRId64 " on %.*s%s%s%s", meta.pid,
             meta.host_len, meta.host, labelled ? " (" : "", meta.label, labelled ? ")" : "");
    reply->text = words;
}

/* Reads {0, left, holder, ticket, ahead}. */
static bool read_place(const struct resp_reply *resp, struct quorum_answer *answer)
{
    const struct resp_reply *holder = resp_item(resp, 2);
    assert(resp->len == 5);
    int64_t ticket = resp_count(resp_item(resp, 3)), ahead = resp_count(resp_item(resp, 4));
    if (ticket < 0 || ahead < 0 || ahead >= UINT32_MAX)
        return false;

    answer->ticket = (uint64_t)ticket;
    answer->place = (uint32_t)ahead + 1;
    answer->is_free = holder->type == RESP_TEXT && holder->len == 0;
    return true;
}

/* Reads the reply to a bare SET; OK: the lock was free. */
static bool read_plain_acquired(const struct request *request, const struct resp_reply *resp,
                                struct engine_reply *reply)
{
    if (resp->type != RESP_STATUS)
        return false;

    reply->kind = REPLY_GRANTED;
    reply->token = NO_TOKEN;
    reply->good = NANOS_OF_MS(request->ttl_ms);
    return true;
}

/* Reads the hold in the way from {number, left, "token meta"}. */
static void read_hold_ahead(struct redis *r, const struct resp_reply *resp,
                            struct engine_reply *reply)
{
    struct reply_holder *ahead = &r->hold_ahead;
    const struct resp_reply *holder = resp_item(resp, 2);
    struct redis_meta meta;
    uint64_t token = 0;
    int meta_at = 0;
    bool is_known = holder && holder->type == RESP_TEXT &&
                    sscanf(holder->text, "%" SCNu64 " %n", &token, &meta_at) == 1 &&
                    redis_meta_read(holder->text + meta_at, &meta);
    if (!is_known)
        return;

    *ahead = (struct reply_holder){.token = token, .pid = meta.pid, .detached = meta.detached};
    snprintf(ahead->host, sizeof ahead->host, "%.*s", meta.host_len, meta.host);
    snprintf(ahead->label, sizeof ahead->label, "%s", meta.label);
    reply->holder = ahead;
}

/* Reads {0, left} or {0, left, holder}, and from a server of a quorum {0, left, holder, ticket,
 * ahead}. */
static bool read_busy(struct redis *r, struct redis_op *a, const struct resp_reply *resp,
                      struct engine_reply *reply)
{
    const struct resp_reply *left = resp_item(resp, 1), *holder = resp_item(resp, 2);
    assert(resp->len >= 2);
    bool is_holder = !holder || holder->type == RESP_TEXT || holder->type == RESP_NIL;
    if (left->type != RESP_NUMBER || !is_holder)
        return false;

    reply->kind = REPLY_BUSY;
    reply->retry_at = left->number >= 0 ? reply->asked_at + timing_nanos(left->number) : TIME_NEVER;
    if (!r->is_quorum_member) {
        read_hold_ahead(r, resp, reply);
        return true;
    }

    struct quorum_answer *answer = &quorum_member_op_of(a->op)->answer;
    *answer = (struct quorum_answer){0};
    read_holder(r, holder, reply, answer);
    return resp->len < 5 || read_place(resp, answer);
}

static bool read_acquired(struct redis *r, const struct request *request,
                          const struct resp_reply *resp, struct engine_reply *reply, nanos now)
{
    struct redis_op *a = request->op;
    int64_t token = resp_count(resp);
    if (resp->type == RESP_TEXT && token > 0) {
        reply->kind = REPLY_GRANTED;
        reply->token = (uint64_t)token;
        reply->good = NANOS_OF_MS(request->ttl_ms);
        redis_op_set_queued(r, a, false);
        return true;
    }

    bool may_be_brief = a->arrival_number; /* a first request gets its whole ttl */
    if (may_be_brief && read_held(r, resp, reply)) {
        reply->kind = REPLY_GRANTED;
        reply->brief = true;
        redis_op_set_queued(r, a, false);
        return true;
    }

    const struct resp_reply *first = resp_item(resp, 0);
    if (!first || first->type != RESP_NUMBER)
        return false;
    if (first->number == 0 && resp->len == 7) {
        if (!can_be_queued(r, a, resp))
            return false;
        note_queued(r, a, resp, reply, now);
        return true;
    }

    redis_op_set_queued(r, a, false);
    bool has_place = r->is_quorum_member && resp->len == 5;
    if (first->number == 0 && (resp->len == 2 || resp->len == 3 || has_place))
        return read_busy(r, a, resp, reply);
    if (first->number == -1 && resp->len == 1) {
        reply->kind = REPLY_NOT_HELD;
        return true;
    }
    return read_reason(a, resp, reply);
}

/* Reads {number, left, holder}: another client holds the lock. Returns the number. */
static const struct resp_reply *read_left_behind(struct redis *r, const struct resp_reply *resp,
                                                 struct engine_reply *reply)
{
    const struct resp_reply *left = resp_item(resp, 1);
    assert(resp->len == 3);
    if (left->type == RESP_NUMBER && left->number >= 0)
        reply->retry_at = reply->asked_at + timing_nanos(left->number);
    if (!r->is_quorum_member)
        read_hold_ahead(r, resp, reply);
    return resp_item(resp, 0);
}

static bool read_released(struct redis *r, struct redis_op *a, enum op_verb verb,
                          const struct resp_reply *resp, struct engine_reply *reply)
{
    if (verb == OP_LEAVE && read_held(r, resp, reply)) {
        reply->kind = REPLY_GRANTED;
        reply->brief = true;
        redis_op_set_queued(r, a, false);
        return true;
    }
    const struct resp_reply *outcome = resp;
    if (verb == OP_LEAVE && resp->len == 3)
        outcome = read_left_behind(r, resp, reply);
    if (outcome->type != RESP_NUMBER)
        return false;

    bool released = outcome->number & 1 || a->released;
    reply->kind = verb == OP_LEAVE || released ? REPLY_RELEASED : REPLY_NOT_HELD;
    if (a->left_unacknowledged)
        redis_durable_explain_leave(r, reply);
    redis_op_set_queued(r, a, false);
    if (verb == OP_RELEASE)
        redis_poll_own_release(r, a);
    if (verb == OP_RELEASE && released)
        redis_recent_note(r, a);
    return true;
}

/* Reads {token, left}: extended; {1}: there are other readers; {0}: not held. */
static bool read_extended(const struct redis *r, const struct resp_reply *resp,
                          struct engine_reply *reply)
{
    const struct resp_reply *first = resp_item(resp, 0);
    if (read_held(r, resp, reply)) {
        reply->kind = REPLY_EXTENDED;
        return true;
    }

    bool is_number = first && resp->len == 1 && first->type == RESP_NUMBER;
    if (!is_number || (first->number != 0 && first->number != 1))
        return false;
    reply->kind = first->number ? REPLY_BUSY : REPLY_NOT_HELD;
    return true;
}

/* Reads the reply of the verb extend when it raised the token of a grant. */
static bool read_raised(const struct redis *r, const struct request *request,
                        const struct resp_reply *resp, struct engine_reply *reply)
{
    bool understood = read_extended(r, resp, reply);

    if (request->verb == OP_ACQUIRE && reply->kind == REPLY_EXTENDED)
        reply->kind = REPLY_GRANTED;
    return understood;
}

static bool read_answer(struct redis *r, const struct request *request,
                        const struct resp_reply *resp, struct engine_reply *reply, nanos now)
{
    if (request->raises)
        return read_raised(r, request, resp, reply);

    switch (request->verb) {
    case OP_ACQUIRE:
        if (request->plain)
            return read_plain_acquired(request, resp, reply);
        /* A token shows that the script has written the counter, which puts the name into the
         * index. Only tokenless requests need to know that. */
        if (resp->type == RESP_TEXT && request->op->sent_op.tokenless)
            redis_key_cache_set_listed(r, request->op->sent_op.name, request->op->sent_op.name_len,
                                       request->sent_at);
        return read_acquired(r, request, resp, reply, now);
    case OP_LEAVE:
    case OP_RELEASE:
        return read_released(r, request->op, request->verb, resp, reply);
    default:
        return read_extended(r, resp, reply);
    }
}

/* The server did nothing, so the request is sent again. But if the op has sent another request
 * meanwhile, the repeated request would be executed after that one; then it fails instead. */
static void resend(struct redis *r, const struct request *request, const char *why, nanos now)
{
    struct redis_op *a = request->op;
    const struct redis_connection *connection = redis_op_connection(r, a, request->verb);
    bool is_last = !redis_op_is_in_flight(a) && a->sent_op.verb == request->verb;
    assert(request->kind == REQ_VERB);

    if (!is_last || connection->state != CONNECTION_UP)
        redis_op_fail(r, a, request->sent_at, HF_UNAVAILABLE, why);
    else
        redis_op_send(r, a, now);
}

/* Loads the library that is missing, and sends the request again. Somebody ran FUNCTION FLUSH or
 * SCRIPT FLUSH, or the server was replaced. */
static void load_and_resend(struct redis *r, const struct request *request,
                            const struct resp_reply *error, nanos now)
{
    redis_load(r, redis_op_connection(r, request->op, request->verb), error, now);
    resend(r, request, "the server lost our library, and the request could not be sent again", now);
}

static void on_error_reply(struct redis *r, const struct request *request,
                           const struct resp_reply *resp, nanos now)
{
    struct redis_connection *connection = redis_op_connection(r, request->op, request->verb);
    assert(resp->type == RESP_ERROR);
    if (redis_load_is_needed(resp)) {
        load_and_resend(r, request, resp, now);
        return;
    }

    if (redis_cluster_on_error(r, request, resp, now))
        return;

    struct error_reply error_reply = redis_error_reply(r, resp);
    /* the request only raises the token, so the grant itself stands */
    error_reply.outcome_unknown |= request->raises;
    /* The next op first asks whether the user has the right again. */
    if (error_reply.status == HF_DENIED && error_reply.outcome_unknown)
        redis_acl_missing(r, resp->text, r->lacking);
    redis_op_refuse(r, request->op, request->sent_at, &error_reply);
    if (error_reply.leave)
        redis_connection_drop(r, connection, error_reply.status, now, "%s", error_reply.text);
}

/* Sends the full verb, because a plain request got nil. ACQUIRE: the lock is not free. EXTEND: it
 * is not a plain hold. */
static void resend_with_script(struct redis *r, const struct request *request, nanos now)
{
    assert(request->plain);
    request->op->needs_all_keys = true;
    resend(r, request, "the lock is not free, and the request could not be sent again", now);
}

/* Returns true if the script stopped at its limit, with dead waiters left at the head of the
 * queue (admit.lua). Until a client asks again, a free lock may be withheld from the first living
 * waiter. */
static bool is_unfinished(const struct redis_op *a, const struct request *request,
                          const struct resp_reply *resp)
{
    const struct resp_reply *first = resp_item(resp, 0);
    if (request->verb == OP_ACQUIRE)
        return first && resp->len == 1 && first->type == RESP_NUMBER && first->number == -6;

    bool releases = request->verb == OP_RELEASE || request->verb == OP_LEAVE;
    bool is_last = !redis_op_is_in_flight(a) && a->sent_op.verb == request->verb;
    return releases && is_last && resp->type == RESP_NUMBER && resp->number & 2;
}

static void go_on(struct redis *r, const struct request *request, const struct resp_reply *resp,
                  nanos now)
{
    if (request->verb == OP_RELEASE)
        request->op->released |= resp->number & 1;
    resend(r, request, "dead waiters are ahead, and the request could not be sent again", now);
}

/* Returns true if a grant that answers a poll might end before an extend reaches the server. Then
 * the waiter sends one more request, which says that it knows of the grant and so gets the whole
 * ttl. */
static bool is_too_brief(struct redis *r, const struct redis_op *a, const struct request *request,
                         const struct engine_reply *reply, nanos now)
{
    bool is_last = !redis_op_is_in_flight(a) && a->sent_op.verb == OP_ACQUIRE;
    bool is_of_poll = request->verb == OP_ACQUIRE && reply->kind == REPLY_GRANTED && reply->brief;
    return is_of_poll && is_last && !a->knows_grant &&
           !redis_notify_leaves_time(r, a, reply->asked_at, reply->good, now);
}

/* Returns true if the token is not above those that this client had before, because the server
 * lost its counter and its clock was set back. The guarded resource would refuse such a token. If
 * the op has sent another request meanwhile, that request decides. */
static bool is_too_low(const struct redis_op *a, const struct request *request,
                       const struct engine_reply *reply)
{
    bool gets_new = request->verb == OP_ACQUIRE || request->verb == OP_UPGRADE;
    bool is_last = !request->raises && a->sent_op.verb == request->verb;

    return gets_new && is_last && reply->token > NO_TOKEN && reply->token <= a->floor;
}

/* Returns true for a grant or extension that must not be reported yet: its token must be raised,
 * or replicas must acknowledge it first. If so, starts that. */
static inline bool is_held_back(struct redis *r, const struct request *request,
                                const struct engine_reply *reply, nanos now)
{
    struct redis_op *a = request->op;
    enum op_verb verb = (enum op_verb)request->verb;

    if (is_too_low(a, request, reply)) {
        if (!redis_op_raise(r, a, verb, now))
            redis_op_reply(r, a,
                           &(struct engine_reply){.kind = REPLY_UNKNOWN,
                                                  .asked_at = reply->asked_at,
                                                  .retry_at = TIME_NEVER});
        return true;
    }
    if (redis_op_connection(r, a, verb)->number != CONNECTION_DURABLE)
        return false;
    redis_durable_wait(r, a, verb, reply, now);
    return true;
}

static void drop_not_understood(struct redis *r, const struct request *request,
                                struct engine_reply *reply, nanos now)
{
    struct redis_connection *connection = redis_op_connection(r, request->op, request->verb);

    redis_connection_drop(r, connection, HF_UNAVAILABLE, now,
                          "a reply that does not fit the request");
    *reply = reply_of(request, REPLY_UNKNOWN);
    reply->text = connection->why;
}

void redis_op_on_resp(struct redis *r, const struct request *request, const struct resp_reply *resp,
                      nanos now)
{
    struct redis_op *a = request->op;
    assert(a && request->kind == REQ_VERB);
    a->acquiring -= request->verb == OP_ACQUIRE;
    if (resp->type == RESP_ERROR) {
        on_error_reply(r, request, resp, now);
        return;
    }
    a->redirects = a->refusals = 0;
    a->refused_at = 0;
    if (request->plain && resp->type == RESP_NIL) {
        resend_with_script(r, request, now);
        return;
    }
    if (is_unfinished(a, request, resp)) {
        go_on(r, request, resp, now);
        return;
    }

    struct engine_reply reply = reply_of(request, REPLY_UNKNOWN);
    bool understood = read_answer(r, request, resp, &reply, now);
    bool is_held = reply.kind == REPLY_GRANTED || reply.kind == REPLY_EXTENDED;
    if (!understood)
        drop_not_understood(r, request, &reply, now);
    else if (is_too_brief(r, a, request, &reply, now)) {
        a->knows_grant = true;
        redis_op_send(r, a, now);
        return;
    } else if (is_held && is_held_back(r, request, &reply, now))
        return;
    else if (is_held)
        redis_durable_limit(a, &reply);

    redis_op_reply(r, a, &reply);
    if (a->queued && a->notification.set)
        redis_notify_consider(r, a, now);
}
