/* command_encode.c - turns an op into a command, and reports replies to the client. */
#include "redis.h"

#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- Replies to the client ---- */

/* Returns the connection for the verb. If replicas must acknowledge writes, two kinds of requests
 * have a connection of their own, so that a release never waits behind a WAIT: those that lengthen
 * a hold, and the check of a hold that another client made. */
struct redis_connection *redis_op_connection(struct redis *r, const struct redis_op *a,
                                             enum op_verb verb)
{
    bool adopts = verb == OP_CHECK && !a->acknowledged;
    bool durable =
        r->durable && (verb == OP_ACQUIRE || verb == OP_EXTEND || verb == OP_UPGRADE || adopts);
    return &r->connection[durable ? CONNECTION_DURABLE : CONNECTION_COMMANDS];
}

bool redis_op_is_in_flight(const struct redis_op *a)
{
    for (unsigned i = 0; i < CONNECTIONS; i++)
        if (a->in_flight[i])
            return true;
    return a->awaits_replicas;
}

void redis_op_set_connections(struct redis *r, struct redis_op *a)
{
    bool listens = (a->queued && !redis_polls_only(r)) || a->listens;
    connection_set bits = listens ? 1u << CONNECTION_NOTIFY : 0;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        bits |= a->in_flight[i] ? 1u << i : 0;
    if (a->awaits_replicas)
        bits |= 1u << CONNECTION_DURABLE;
    if (a->unsent)
        bits |= 1u << redis_op_connection(r, a, a->sent_op.verb)->number;
    a->op->connections = connection_set_raised(bits, r->cluster.place.first_connection);
    if (a->unsent)
        a->op->connections |= r->follow.seek_connections;
}

/* Returns true if the server says that the op holds, and the previous reply that said so came from
 * another server, with another clock. */
static bool is_confirmed_elsewhere(struct redis *r, struct redis_op *a, uint64_t token)
{
    uint8_t before = a->confirmed_by;
    assert(r->server_number > 0);
    a->confirmed_by = r->server_number;
    r->highest = token > r->highest ? token : r->highest;
    return before && before != r->server_number;
}

/* Returns true if no ACQUIRE of the op can arrive after this grant. Computed for detached holds
 * only, because their exported text passes the answer on to other processes. Members of a quorum do
 * not know about each other, so there the answer is false. */
static bool is_settled(const struct redis *r, const struct redis_op *a)
{
    bool is_alone = !a->cut && !a->acquiring && !a->unsent;
    return a->sent_op.detached && is_alone && !r->durable && !r->is_quorum_member;
}

static void pass_on(struct redis *r, struct redis_op *a, const struct engine_reply *reply)
{
    bool is_grant = reply->kind == REPLY_GRANTED;
    bool is_held = is_grant || reply->kind == REPLY_EXTENDED;
    bool is_elsewhere = is_held && is_confirmed_elsewhere(r, a, reply->token);
    bool settles = is_grant && is_settled(r, a);
    if (!is_elsewhere && !settles) {
        r->host->on_reply(r->host->ctx, a->op, reply);
        return;
    }

    struct engine_reply said = *reply;
    said.is_elsewhere = is_elsewhere;
    said.is_settled = settles;
    r->host->on_reply(r->host->ctx, a->op, &said);
}

void redis_op_reply(struct redis *r, struct redis_op *a, const struct engine_reply *reply)
{
    redis_op_set_connections(r, a);
    if (a->is_ahead) {
        redis_joint_keep(r, a, reply);
        return;
    }
    if (!a->replied) {
        a->replied = true;
        a->next_replied = r->replied;
        r->replied = a;
    }
    pass_on(r, a, reply);
}

static void fail(struct redis *r, struct redis_op *a, const struct engine_reply *reply)
{
    redis_admin_free(a);
    redis_joint_part(a);
    redis_op_reply(r, a, reply);
}

void redis_op_fail(struct redis *r, struct redis_op *a, nanos asked_at, hf_status status,
                   const char *text)
{
    assert(status != HF_OK && text);
    fail(r, a,
         &(struct engine_reply){.kind = REPLY_FAILED,
                                .asked_at = asked_at,
                                .retry_at = TIME_NEVER,
                                .status = status,
                                .text = text});
}

void redis_op_refuse(struct redis *r, struct redis_op *a, nanos asked_at,
                     const struct error_reply *error_reply)
{
    assert(error_reply->status != HF_OK);
    fail(r, a,
         &(struct engine_reply){.kind = REPLY_FAILED,
                                .asked_at = asked_at,
                                .retry_at = TIME_NEVER,
                                .outcome_unknown = error_reply->outcome_unknown,
                                .status = error_reply->status,
                                .text = error_reply->text});
}

void redis_op_fail_with(struct redis *r, struct redis_op *a,
                        const struct redis_connection *connection, nanos now)
{
    fail(r, a,
         &(struct engine_reply){
             .kind = REPLY_FAILED,
             .asked_at = now,
             .retry_at =
                 connection->state == CONNECTION_DOWN ? connection->redial.dial_at : TIME_NEVER,
             .status = connection->last_status == HF_OK ? HF_UNAVAILABLE : connection->last_status,
             .text = connection->why});
}

void redis_op_set_queued(struct redis *r, struct redis_op *a, bool queued)
{
    if (queued && !a->queued)
        r->queued++;
    else if (!queued && a->queued)
        r->queued--;
    a->queued = queued;
    if (queued)
        return;
    a->arrival_number = 0;
    redis_channel_leave(r, a);
    redis_poll_leave(r, a, r->last_now);
}

/* ---- Commands ---- */

static void write_pace(struct redis *r)
{
    const struct timing *t = &r->timing;
    /* If waiters are not notified, poll_schedule.c decides which of them poll often. */
    nanos often = redis_polls_only(r) ? t->refresh : t->refresh_first;
    char prefix[24] = "---"; /* in a cluster there is no index of names */
    if (!r->cluster.is_on)
        snprintf(prefix, sizeof prefix, "%03zu", strlen(r->prefix));
    snprintf(r->pace, sizeof r->pace, "%lld %lld %lld %lld %lld %d %s",
             (long long)(often / NANOS_OF_MS(1)), (long long)(t->refresh / NANOS_OF_MS(1)),
             (long long)(t->handoff_grace / NANOS_OF_MS(1)),
             (long long)(t->margin / NANOS_OF_MS(1)), (long long)(t->stagger / NANOS_OF_MS(1)),
             REDIS_WAITERS_MAX, prefix);
}

const struct timing *redis_op_timing(struct redis *r, const struct redis_op *a)
{
    if (r->timing_ttl_ms != a->first_ttl_ms) {
        timing_fill(&r->timing, a->first_ttl_ms, &r->limits, &r->overrides);
        r->timing_ttl_ms = a->first_ttl_ms;
        write_pace(r);
    }
    return &r->timing;
}

enum { META_MAX = sizeof((struct redis *)0)->about + HF_LABEL_MAX + 48 };

static const struct queue_place *place_of(const struct redis *r, const struct redis_op *a)
{
    return r->is_quorum_member ? quorum_member_op_of(a->op)->place : NULL;
}

/* Writes "ticket flags pid host label" and returns its length. If the op waits at this server
 * alone, the server writes the ticket. */
static size_t put_meta(const struct redis *r, const struct redis_op *a, char meta[META_MAX])
{
    char *at = meta;
    const struct engine_op *op = &a->sent_op;
    const struct queue_place *place = place_of(r, a);
    at = resp_put_number(at, place ? place->ticket : 0);
    *at++ = ' ';
    *at++ = op->detached ? 'd' : 'b';
    if (r->round) /* the round of the request: see wait_replicas.c */
        at = resp_put_number(at, r->round);
    memcpy(at, r->about, r->about_len);
    at += r->about_len;
    if (op->label_len)
        memcpy(at, op->label, op->label_len);
    return (size_t)(at - meta) + op->label_len;
}

static bool has_owner(const struct engine_op *op)
{
    return op->named && memcmp(&op->owner, &op->attempt, sizeof op->owner) != 0;
}

/* Returns true if an extend may be sent with one key, which is enough for a plain hold. In a
 * cluster that works while the slot is being moved, when calls with several keys are refused. */
static bool may_have_one_key(const struct redis *r, const struct redis_op *a)
{
    const struct engine_op *op = &a->sent_op;
    bool extends = op->verb == OP_EXTEND || op->verb == OP_CHECK;
    bool simple = op->kind == HF_EXCLUSIVE && !has_owner(op) && !r->history && !r->durable;
    return r->cluster.is_on && extends && simple && !a->needs_all_keys;
}

/* Returns true if the op may first try a cheaper command. A tokenless acquire tries a plain SET,
 * without function and counter, if the name is in the index already. */
static bool may_be_plain(const struct redis *r, const struct redis_op *a, nanos now)
{
    const struct engine_op *op = &a->sent_op;
    if (op->verb == OP_EXTEND || op->verb == OP_CHECK)
        return may_have_one_key(r, a);
    bool simple = op->tokenless && op->kind == HF_EXCLUSIVE && !has_owner(op) && !r->history &&
                  !r->durable && !r->is_quorum_member;
    return op->verb == OP_ACQUIRE && simple && !a->sent &&
           (r->cluster.is_on || redis_key_cache_is_listed(r, op->name, op->name_len, now));
}

/* Writes the SET of a tokenless acquire. Its value is the record that the verb acquire would
 * write. */
static void write_plain_acquire(struct redis *r, struct redis_op *a,
                                const struct cached_keys *cached)
{
    struct resp_command *c = &r->command;
    char record[META_MAX + REDIS_ID_TEXT + 48], *at = record;
    at = (char *)mempcpy(at, a->id, REDIS_ID_TEXT);
    *at++ = ' ';
    at = resp_put_number(at, NO_TOKEN);
    *at++ = ' ';
    at = resp_put_number(at, (uint64_t)a->sent_op.ttl_ms);
    *at++ = ' ';
    at += put_meta(r, a, at);
    resp_command_begin(c, 6);
    resp_command_word(c, "SET", 3);
    resp_command_words(c, cached->words.bytes, cached->lock_len);
    resp_command_word(c, record, (size_t)(at - record));
    resp_command_word(c, "NX", 2);
    resp_command_word(c, "PX", 2);
    resp_command_number(c, a->sent_op.ttl_ms);
}

static char *add_number(char *to, uint64_t number)
{
    *to++ = ' ';
    return resp_put_number(to, number);
}

static char *add_text(char *to, const char *text)
{
    *to++ = ' ';
    return stpcpy(to, text);
}

/* Returns true if the request asks for a grant that the client does not know of. A grant that
 * replicas must acknowledge takes several round trips, so it gets its whole ttl at once. */
static bool is_poll(const struct redis *r, const struct redis_op *a)
{
    return a->arrival_number && !a->knows_grant && !r->durable;
}

/* Writes "kind owner history token units capacity", and "p" behind it if the request is a poll: the
 * argument of acquire that says what is wanted. Returns its length. */
static size_t put_wish(const struct redis *r, const struct redis_op *a, char *wish)
{
    const struct engine_op *op = &a->sent_op;
    static const char kinds[] = {
        [HF_EXCLUSIVE] = 'e', [HF_SEMAPHORE] = 's', [HF_READ] = 'r', [HF_WRITE] = 'w'};
    char owner[REDIS_ID_TEXT + 1] = "-", *at = wish;
    if (has_owner(op))
        redis_id_text(&op->owner, owner);
    *at++ = kinds[op->kind];
    at = add_text(at, owner);
    at = add_number(at, (uint64_t)r->history);
    at = add_number(at, r->is_quorum_member ? op->token : 0);
    at = add_number(at, op->units);
    at = add_number(at, op->capacity);
    at = is_poll(r, a) ? add_text(at, "p") : at;
    return (size_t)(at - wish);
}

/* Writes "age wait queued barging box" and the pace: the argument of acquire that says how to wait.
 * Returns its length. */
static size_t put_manner(const struct redis *r, const struct redis_op *a, char *manner)
{
    char *at = resp_put_number(manner, (uint64_t)r->history_age_ms);
    at = add_number(at, a->sent_op.queue);
    at = add_number(at, a->arrival_number ? (uint64_t)a->arrival_number : a->sent);
    at = add_number(at, a->sent_op.barging);
    /* "-" asks for the holder in the reply */
    at = add_text(at, a->sent_op.queue ? r->box : "-");
    at = add_text(at, r->pace);
    return (size_t)(at - manner);
}

/* Writes arguments 2 to 5 of the verb acquire. Together they are its terms: what is wanted, and how
 * to wait. */
static void write_terms(struct redis *r, const struct redis_op *a)
{
    const struct engine_op *op = &a->sent_op;
    char meta[META_MAX], wish[REDIS_ID_TEXT + 96], manner[sizeof r->box + sizeof r->pace + 48];
    redis_op_timing(r, a); /* fills r->pace for this op's timing */
    resp_command_number(&r->command, op->ttl_ms);
    resp_command_word(&r->command, meta, put_meta(r, a, meta));
    resp_command_word(&r->command, wish, put_wish(r, a, wish));
    resp_command_word(&r->command, manner, put_manner(r, a, manner));
}

static struct terms terms_of(const struct redis *r, const struct redis_op *a)
{
    const struct engine_op *op = &a->sent_op;
    return (struct terms){
        .ttl_ms = op->ttl_ms,
        .first_ttl_ms = a->first_ttl_ms,
        .round = r->round,
        .token = r->is_quorum_member ? op->token : 0,
        .arrival_number = a->arrival_number,
        .units = op->units,
        .capacity = op->capacity,
        .flags = (uint32_t)op->kind | (uint32_t)op->queue << 8 | (uint32_t)a->sent << 9 |
                 (uint32_t)op->detached << 10 | (uint32_t)op->barging << 11 |
                 (uint32_t)is_poll(r, a) << 12,
    };
}

/* Adds the terms. Most requests of a client have the same terms, so the terms written last are kept
 * and copied. An op with a label or an owner has terms of its own. */
__attribute__((always_inline)) static inline void add_terms(struct redis *r,
                                                            const struct redis_op *a)
{
    struct form *form = &r->form;
    struct resp_command *c = &r->command;
    struct terms terms = terms_of(r, a);
    const struct queue_place *place = place_of(r, a);
    bool own = a->sent_op.label_len || has_owner(&a->sent_op) || (place && place->ticket);
    if (!own && form->len && memcmp(&form->terms, &terms, sizeof terms) == 0) {
        resp_command_words(c, form->bytes, form->len);
        return;
    }
    size_t from = c->len;
    write_terms(r, a);
    if (own || c->failed || c->len - from > sizeof form->bytes)
        return;
    form->terms = terms;
    form->len = c->len - from;
    memcpy(form->bytes, c->bytes + from, form->len);
}

void redis_op_add_terms(struct redis *r, const struct redis_op *a)
{
    add_terms(r, a);
}

/* Adds the argument "place ticket alive grace". */
static void add_place(struct redis *r, const struct queue_place *place)
{
    char text[REDIS_ID_TEXT + 64], id[REDIS_ID_TEXT + 1] = "-";
    if (place->waits)
        redis_id_text(&place->id, id);
    snprintf(text, sizeof text, "%s %llu %u %u", id, (unsigned long long)place->ticket,
             place->alive_ms, place->grace_ms);
    resp_command_text(&r->command, text);
}

static void write_acquire(struct redis *r, struct redis_op *a, const struct cached_keys *cached)
{
    const struct queue_place *place = place_of(r, a);
    redis_script_begin(r, SCRIPT_ACQUIRE, cached, place ? 6 : 5);
    resp_command_word(&r->command, a->id, REDIS_ID_TEXT);
    add_terms(r, a);
    if (place)
        add_place(r, place);
}

/* Writes an extend. Terms with their default values are left out. */
static void write_extend(struct redis *r, struct redis_op *a, const struct cached_keys *cached,
                         bool plain)
{
    bool vouched = redis_op_connection(r, a, a->sent_op.verb)->number == CONNECTION_DURABLE;
    uint64_t token = r->is_quorum_member ? a->sent_op.token : 0;
    bool usual = !r->history && !vouched && !token;
    char terms[80];
    if (plain)
        redis_script_begin_one_key(r, SCRIPT_EXTEND, cached, 2);
    else
        redis_script_begin(r, SCRIPT_EXTEND, cached, usual ? 2 : 3);
    resp_command_word(&r->command, a->id, REDIS_ID_TEXT);
    resp_command_number(&r->command, a->sent_op.verb == OP_EXTEND ? a->sent_op.ttl_ms : 0);
    if (usual)
        return;
    snprintf(terms, sizeof terms, "%lld %lld %d %llu", (long long)r->history,
             (long long)r->history_age_ms, vouched, (unsigned long long)token);
    resp_command_text(&r->command, terms);
}

void redis_op_write_release(struct redis *r, const char *id, const struct cached_keys *cached,
                            const char *channel, const char *terms)
{
    unsigned arguments = channel ? 2 : 1;
    redis_script_begin(r, SCRIPT_RELEASE, cached, terms ? 3 : arguments);
    resp_command_word(&r->command, id, REDIS_ID_TEXT);
    if (channel || terms)
        resp_command_text(&r->command, channel ? channel : "-");
    if (terms)
        resp_command_text(&r->command, terms);
}

/* Writes the verb quorum_release. `terms` is its last argument; NULL: left out. */
static void write_quorum_release(struct redis *r, const struct redis_op *a,
                                 const struct cached_keys *cached, const char *channel,
                                 const char *terms)
{
    const struct queue_place *place = place_of(r, a);
    char id[REDIS_ID_TEXT + 1] = "-";
    if (place && place->waits)
        redis_id_text(&place->id, id);
    redis_script_begin(r, SCRIPT_RELEASE, cached, terms ? 4 : 3);
    resp_command_word(&r->command, a->id, REDIS_ID_TEXT);
    resp_command_text(&r->command, channel ? channel : "-");
    resp_command_text(&r->command, id);
    if (terms)
        resp_command_text(&r->command, terms);
}

/* Returns the channel on which members of a quorum announce that the lock is free. NULL: none. */
static const char *channel_of(const struct redis *r, const struct redis_op *a,
                              char channel[REDIS_KEY_MAX])
{
    struct redis_keys keys;
    bool says = r->is_quorum_member && !quorum_member_op_of(a->op)->quiet &&
                redis_keys_here(r, &keys, a->sent_op.name, a->sent_op.name_len) == HF_OK;
    return says ? redis_keys_channel(&keys, channel) : NULL;
}

static void write_release(struct redis *r, struct redis_op *a, const struct cached_keys *cached)
{
    /* A release must leave a tombstone if an acquire may arrive after it. Such an acquire was cut
     * off with its connection, which the client does not know, or it awaits replicas on another
     * connection. If grants must be durable, LEAVE releases any grant that it finds: replicas have
     * not acknowledged it. */
    bool may_be_in_flight = a->sent_op.may_be_in_flight || a->cut ||
                            a->in_flight[CONNECTION_DURABLE] || a->awaits_replicas;
    bool leaves = a->sent_op.verb == OP_LEAVE && !r->durable;
    bool usual = !may_be_in_flight && !leaves && !a->sent_op.lost && !r->history;
    int64_t tombstone_ms =
        may_be_in_flight ? redis_op_timing(r, a)->release_for / NANOS_OF_MS(1) : 0;
    char channel[REDIS_KEY_MAX], terms[80], ends = a->sent_op.lost ? 'x' : 'r';
    if (!usual)
        snprintf(terms, sizeof terms, "%c %lld %lld %lld -", leaves ? 'l' : ends,
                 (long long)tombstone_ms, (long long)r->history, (long long)r->history_age_ms);
    if (r->is_quorum_member)
        write_quorum_release(r, a, cached, channel_of(r, a, channel), usual ? NULL : terms);
    else
        redis_op_write_release(r, a->id, cached, NULL, usual ? NULL : terms);
}

static void write_convert(struct redis *r, struct redis_op *a, const struct cached_keys *cached)
{
    bool vouched = redis_op_connection(r, a, a->sent_op.verb)->number == CONNECTION_DURABLE;
    redis_script_begin(r, SCRIPT_CONVERT, cached, vouched ? 6 : 4);
    resp_command_word(&r->command, a->id, REDIS_ID_TEXT);
    resp_command_char(&r->command, a->sent_op.verb == OP_UPGRADE ? 'u' : 'd');
    resp_command_add(&r->command, &r->past);
    if (vouched) {
        resp_command_word(&r->command, r->self, REDIS_ID_TEXT);
        resp_command_number(&r->command, (int64_t)r->round);
    }
}

/* Sets the token that a new grant must exceed: the highest that this client has seen. The rule
 * does not apply if the grant may be an older one, because an owner enters again or the attempt was
 * perhaps granted before. */
static inline void set_floor(const struct redis *r, struct redis_op *a)
{
    bool gets_new = (a->sent_op.verb == OP_ACQUIRE && !a->sent) || a->sent_op.verb == OP_UPGRADE;
    if (gets_new)
        a->floor = a->sent_op.named || r->is_quorum_member ? 0 : r->highest;
}

void redis_op_set_floor(const struct redis *r, struct redis_op *a)
{
    set_floor(r, a);
}

bool redis_op_raise(struct redis *r, struct redis_op *a, enum op_verb verb, nanos now)
{
    assert(verb == OP_ACQUIRE || verb == OP_UPGRADE || verb == OP_EXTEND || verb == OP_CHECK);
    const struct cached_keys *cached;
    char terms[80];
    struct redis_connection *connection = redis_op_connection(r, a, verb);
    if (connection->state != CONNECTION_UP ||
        redis_key_cache_find(r, a->sent_op.name, a->sent_op.name_len, &cached) != HF_OK)
        return false;
    snprintf(terms, sizeof terms, "%lld %lld 2 %llu", (long long)r->history,
             (long long)r->history_age_ms, (unsigned long long)a->floor);
    redis_script_begin(r, SCRIPT_EXTEND, cached, 3);
    resp_command_word(&r->command, a->id, REDIS_ID_TEXT);
    resp_command_number(&r->command, a->sent_op.ttl_ms);
    resp_command_text(&r->command, terms);
    struct request request = {.kind = REQ_VERB,
                              .verb = (uint8_t)verb,
                              .op = a,
                              .patience = redis_op_timing(r, a)->op_timeout,
                              .ttl_ms = a->sent_op.ttl_ms,
                              .raises = true};
    a->acquiring += verb == OP_ACQUIRE;
    a->op->connections |= redis_connection_bit(r, connection->number);
    if (redis_connection_send(r, connection, request, now))
        return true;
    a->acquiring -= verb == OP_ACQUIRE;
    return false;
}

void redis_op_send(struct redis *r, struct redis_op *a, nanos now)
{
    const struct cached_keys *cached;
    enum op_verb verb = a->sent_op.verb;
    struct redis_connection *connection = redis_op_connection(r, a, verb);
    a->resend_at = 0;
    if (a->asking && !redis_cluster_send_asking(r, a, connection, now))
        return;
    hf_status status = redis_key_cache_find(r, a->sent_op.name, a->sent_op.name_len, &cached);
    if (status != HF_OK) {
        redis_op_fail(r, a, now, status, error_text());
        return;
    }
    if (a->is_joined) {
        redis_joint_send(r, a, connection, now);
        return;
    }
    bool plain = may_be_plain(r, a, now);
    switch (verb) {
    case OP_ACQUIRE:
        (plain ? write_plain_acquire : write_acquire)(r, a, cached);
        break;
    case OP_EXTEND:
    case OP_CHECK:
        write_extend(r, a, cached, plain);
        break;
    case OP_UPGRADE:
    case OP_DOWNGRADE:
        write_convert(r, a, cached);
        break;
    default:
        write_release(r, a, cached);
    }
    set_floor(r, a);
    a->sent = true;
    a->unsent = false;
    a->left_unacknowledged = verb == OP_LEAVE && a->awaits_replicas;
    a->acquiring += verb == OP_ACQUIRE;
    struct request request = {.kind = REQ_VERB,
                              .verb = (uint8_t)verb,
                              .op = a,
                              .patience = redis_op_timing(r, a)->op_timeout,
                              .ttl_ms = a->sent_op.ttl_ms,
                              .plain = plain};
    if (redis_connection_send(r, connection, request, now)) {
        redis_op_set_connections(r, a);
        return;
    }
    a->acquiring -= verb == OP_ACQUIRE;
    redis_op_fail_with(r, a, connection, now);
}

static void begin_admin(struct redis *r, struct redis_op *a, nanos now)
{
    enum admin_verb verb = admin_op_of(a->op)->verb;
    if (verb == ADMIN_DIAGNOSE)
        redis_diagnose_begin(r, a, now);
    else if (admin_is_for_servers(verb))
        redis_library_begin(r, a, now);
    else
        redis_admin_begin(r, a, now);
}

static void send_or_begin(struct redis *r, struct redis_op *a, nanos now)
{
    if (a->sent_op.verb == OP_ADMIN) {
        a->unsent = false;
        begin_admin(r, a, now);
    } else {
        redis_op_send(r, a, now);
    }
}

/* Returns true if the user lacks a right, so that this op could stop half-way. Ops that end or
 * keep a hold are tried in any case. */
static bool is_barred(const struct redis *r, const struct redis_op *a)
{
    if (!r->lacking[0])
        return false;
    switch (a->sent_op.verb) {
    case OP_ACQUIRE:
    case OP_UPGRADE:
    case OP_DOWNGRADE:
        return true;
    case OP_ADMIN:
        return admin_op_of(a->op)->verb == ADMIN_BREAK || admin_op_of(a->op)->verb == ADMIN_RESIZE;
    default:
        return false;
    }
}

static void bar(struct redis *r, struct redis_op *a, nanos now)
{
    assert(a->unsent && r->lacking[0]);
    char text[sizeof r->lacking + sizeof r->where + 40];
    snprintf(text, sizeof text, "the user lacks a right: %s (%s)", r->lacking, r->where);
    a->unsent = false;
    redis_op_fail(r, a, now, HF_DENIED, text);
}

/* Replies to an op that was never sent, and says why. */
static void end_unheard(struct redis *r, struct redis_op *a, nanos now)
{
    const struct redis_connection *connection = redis_op_connection(r, a, OP_ACQUIRE);
    char text[sizeof connection->why];
    if (connection->state == CONNECTION_DOWN || connection->redial.failures)
        snprintf(text, sizeof text, "%s", connection->why);
    else
        snprintf(text, sizeof text, "%.100s: no connection within %lld ms%s", r->where,
                 (long long)((now - connection->since) / NANOS_OF_MS(1)),
                 redis_connection_advice(r, connection));
    a->unsent = false;
    redis_op_reply(r, a,
                   &(struct engine_reply){.kind = REPLY_RELEASED,
                                          .asked_at = now,
                                          .retry_at = TIME_NEVER,
                                          .status = HF_UNAVAILABLE,
                                          .text = text});
}

/* Returns true if a request can be sent on this connection now. The release of a quorum's op does
 * not wait for the reply to the greeting, because a server that hangs would never get it: the
 * client may close meanwhile. The server reads both when it goes on. */
static bool can_be_sent(const struct redis *r, const struct redis_connection *connection,
                        enum op_verb verb)
{
    bool has_library = r->is_quorum_member && connection->ups;
    bool is_greeting = connection->state == CONNECTION_GREETING;

    return connection->state == CONNECTION_UP || (is_greeting && has_library && verb == OP_RELEASE);
}

void redis_op_submit(struct redis *r, struct redis_op *a, nanos now)
{
    enum op_verb verb = a->sent_op.verb;
    struct redis_connection *connection = redis_op_connection(r, a, verb);
    a->notified = false;
    bool ends = verb == OP_LEAVE || (verb == OP_RELEASE && !place_of(r, a));
    /* Another client may have made the hold. A hold from an exported text has a token; in a quorum,
     * a detached hold may be on any server. So the release is sent even to a server that has never
     * greeted this client. */
    bool is_of_another = r->is_quorum_member ? a->sent_op.detached : a->sent_op.token != 0;
    bool may_be_there = a->sent_op.may_be_in_flight || is_of_another;
    if (ends && !a->sent && !may_be_there) {
        end_unheard(r, a, now);
        return;
    }
    if (!redis_connection_need(r, connection, now)) {
        a->unsent = redis_follow_is_patient(r, a, connection->last_status, now);
        if (a->unsent) {
            redis_op_set_connections(r, a);
            return;
        }
        redis_op_fail_with(r, a, connection, now);
        return;
    }
    a->unsent = true;
    bool awaits_check = connection->state == CONNECTION_UP && is_barred(r, a) &&
                        /* the user may have got the missing right meanwhile */
                        redis_greeting_check_rights(r, connection, now);
    if (!a->unsent)
        return; /* the connection broke while it asked for the rights */
    bool may_send = !awaits_check && !redis_is_held_back(r, a, now);
    if (can_be_sent(r, connection, verb) && may_send)
        send_or_begin(r, a, now);
    else
        redis_op_set_connections(r, a);
}

void redis_op_send_unsent(struct redis *r, const struct redis_connection *connection, nanos now)
{
    assert(connection->number < CONNECTIONS);
    struct redis_op *last = r->ops;
    while (last && last->next)
        last = last->next;
    /* Sends them in the order in which they were submitted; the newest op is first in the list. */
    for (struct redis_op *a = last, *before; a && connection->state != CONNECTION_DOWN;
         a = before) {
        before = a->prev;
        bool is_other = redis_op_connection(r, a, a->sent_op.verb) != connection;
        bool can_go = a->unsent && can_be_sent(r, connection, a->sent_op.verb);
        if (!can_go || a->stray_to || is_other || redis_is_held_back(r, a, now))
            continue;
        if (is_barred(r, a))
            bar(r, a, now);
        else
            send_or_begin(r, a, now);
    }
}

void redis_op_undo(struct redis *r, const char *id, const char *key, size_t key_len, nanos now)
{
    assert(id && key);
    const struct cached_keys *cached;
    char terms[80];
    const char *name = redis_keys_name(r->prefix, key, key_len);
    struct redis_connection *connection = &r->connection[CONNECTION_COMMANDS];
    if (!name || connection->state != CONNECTION_UP)
        return;
    if (redis_key_cache_find(r, name, key_len - (size_t)(name - key), &cached) != HF_OK)
        return;
    /* No tombstone: an op with unknown outcome left one before it was forgotten. */
    snprintf(terms, sizeof terms, "u 0 %lld %lld -", (long long)r->history,
             (long long)r->history_age_ms);
    redis_op_write_release(r, id, cached, NULL, terms);
    redis_connection_send(r, connection,
                          (struct request){.kind = REQ_UNDO, .patience = r->connect_timeout}, now);
}
