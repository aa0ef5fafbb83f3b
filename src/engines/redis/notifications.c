/* notifications.c - how waiters are notified of a handoff: by an inbox (a list) or by a channel, on
 * a connection of its own.
 *
 * The message is only a notification; the record in the server decides. A hold that begins with a
 * message is counted from a request that we timed ourselves. Let s be the time when our last
 * request was sent, T the server's time in the reply to it, and E the end of the hold in the
 * message: the hold is good for E - T from s on, and at most for the time that the handoff gave,
 * counted from now. If that cannot be trusted (no reply yet, another server, a poll overdue), the
 * waiter asks the server first. */
#include "redis.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTEN_S 5 /* seconds between two PINGs that test a subscription */
/* seconds that one BLMPOP waits in the server; long, so that waiting costs the server little */
#define POP_S 15
#define POP_PATIENCE NANOS_OF_MS(POP_S * 1000 + 1000)
enum { POP_MOST = 1000 };

static void pop(struct redis *r, nanos now)
{
    struct resp_command *c = &r->command;
    assert(r->box[0] == 'i');

    resp_command_begin(c, 7);
    resp_command_text(c, "BLMPOP");
    resp_command_number(c, POP_S);
    resp_command_text(c, "1");
    resp_command_text(c, r->box + 1);
    resp_command_text(c, "LEFT");
    resp_command_text(c, "COUNT");
    resp_command_number(c, POP_MOST);
    redis_connection_send(r, &r->connection[CONNECTION_NOTIFY],
                          (struct request){.kind = REQ_POP, .patience = POP_PATIENCE}, now);
}

static void send_listen(struct redis *r, nanos now)
{
    redis_connection_send(r, &r->connection[CONNECTION_NOTIFY],
                          (struct request){.kind = REQ_LISTEN, .patience = NANOS_OF_MS(1000)}, now);
}

bool redis_notify_is_proved(const struct redis *r, nanos now)
{
    return r->subscribed && now < r->listened_at + NANOS_OF_MS(LISTEN_S * 1000);
}

void redis_notify_ping(struct redis *r, nanos now)
{
    resp_command_begin(&r->command, 1);
    resp_command_text(&r->command, "PING");
    send_listen(r, now);
}

static void subscribe_or_ping(struct redis *r, nanos now)
{
    struct resp_command *c = &r->command;
    assert(r->box[0] == 'p');
    if (redis_notify_is_proved(r, now))
        return;

    resp_command_begin(c, r->subscribed ? 1 : 2);
    resp_command_text(c, r->subscribed ? "PING" : "SUBSCRIBE");
    if (!r->subscribed)
        resp_command_text(c, r->box + 1);
    send_listen(r, now);
}

/* Member of a quorum: subscribes to the channel of one lock, or unsubscribes. */
static void send_channel(struct redis *r, const struct redis_op *a, const char *verb, nanos now)
{
    struct redis_keys keys;
    char channel[REDIS_KEY_MAX];
    assert(r->is_quorum_member);
    if (redis_keys_here(r, &keys, a->sent_op.name, a->sent_op.name_len) != HF_OK)
        return;

    resp_command_begin(&r->command, 2);
    resp_command_text(&r->command, verb);
    resp_command_text(&r->command, redis_keys_channel(&keys, channel));
    send_listen(r, now);
}

/* Member of a quorum: the connection has come up, or the subscriptions must be tested. */
static void subscribe_to_all(struct redis *r, nanos now)
{
    assert(r->is_quorum_member);
    if (redis_notify_is_proved(r, now))
        return;
    if (r->subscribed) {
        redis_notify_ping(r, now);
        return;
    }

    /* A message may be published before the subscription works. So on_subscribed() makes the
     * waiters ask once more. */
    r->subscribed = true;

    for (struct redis_op *a = r->ops; a && r->connection[CONNECTION_NOTIFY].state == CONNECTION_UP;
         a = a->next)
        if (a->listens) {
            a->unheard = true;
            send_channel(r, a, "SUBSCRIBE", now);
        }
}

static bool is_alone(const struct redis *r, const struct redis_op *a)
{
    for (const struct redis_op *other = r->ops; other; other = other->next)
        if (other != a && other->listens && redis_op_same_name(other, a))
            return false;
    return true;
}

void redis_notify_set_listener(struct redis *r, struct redis_op *a, bool listens, nanos now)
{
    if (a->listens == listens)
        return;

    assert(listens || r->listeners > 0);
    a->listens = a->unheard = listens;
    r->listeners += listens ? 1 : (uint32_t)-1;

    /* If the channel is subscribed already, a later listener subscribes to it again: the reply
     * shows that the subscription works. */
    bool up = r->connection[CONNECTION_NOTIFY].state == CONNECTION_UP && r->subscribed;
    if (up && (listens || is_alone(r, a)))
        send_channel(r, a, listens ? "SUBSCRIBE" : "UNSUBSCRIBE", now);
    a->op->connections = listens ? redis_connection_bit(r, CONNECTION_NOTIFY) : 0;
    if (listens && !up)
        redis_notify_listen(r, now);
}

/* Returns true if some local waiter wants notifications. */
static bool is_wanted(const struct redis *r)
{
    return r->is_quorum_member ? r->listeners > 0 : !redis_polls_only(r) && r->queued > 0;
}

void redis_notify_listen(struct redis *r, nanos now)
{
    struct redis_connection *connection = &r->connection[CONNECTION_NOTIFY];
    if (!is_wanted(r) || !redis_connection_need(r, connection, now))
        return;
    if (connection->state == CONNECTION_UP && redis_has_channels(r)) {
        redis_channels_listen(r, now);
        return;
    }
    if (connection->state != CONNECTION_UP || connection->queue.count)
        return;

    if (r->is_quorum_member)
        subscribe_to_all(r, now);
    else if (r->box[0] == 'i')
        pop(r, now);
    else
        subscribe_or_ping(r, now);
}

/* Makes the engine listen while ops wait. */
nanos redis_notify_tick(struct redis *r, nanos now)
{
    const struct redis_connection *connection = &r->connection[CONNECTION_NOTIFY];
    if (!is_wanted(r))
        return TIME_NEVER;

    redis_notify_listen(r, now);
    if (connection->state == CONNECTION_DOWN)
        return connection->redial.dial_at > now ? connection->redial.dial_at : now + NANOS_OF_MS(1);
    if (connection->state != CONNECTION_UP)
        return connection->since + r->connect_timeout;
    if (connection->queue.count)
        return now + redis_connection_first(connection)->patience;
    return r->listened_at + NANOS_OF_MS(LISTEN_S * 1000);
}

static bool listens_on(const struct redis *r, const struct redis_op *a, const char *channel)
{
    struct redis_keys keys;
    char own[REDIS_KEY_MAX];
    if (!a->listens || redis_keys_here(r, &keys, a->sent_op.name, a->sent_op.name_len) != HF_OK)
        return false;
    return strcmp(redis_keys_channel(&keys, own), channel) == 0;
}

static void notify(struct redis *r, struct redis_op *a, enum quorum_turn turn)
{
    assert(r->is_quorum_member);
    quorum_member_op_of(a->op)->answer.turn = turn;
    redis_op_reply(r, a, &(struct engine_reply){.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER});
}

/* Member of a quorum: the subscription works from now on. Earlier messages are lost, so the
 * waiters ask once more. */
static void on_subscribed(struct redis *r, const struct resp_reply *resp)
{
    const struct resp_reply *what = resp_item(resp, 0), *channel = resp_item(resp, 1);
    assert(r->is_quorum_member);
    bool are_texts = channel && channel->type == RESP_TEXT && what->type == RESP_TEXT;
    if (!are_texts || strcmp(what->text, "subscribe") != 0)
        return;

    for (struct redis_op *a = r->ops; a; a = a->next)
        if (a->unheard && listens_on(r, a, channel->text)) {
            a->unheard = false;
            notify(r, a, QUORUM_TURN_UNKNOWN);
        }
}

/* Handles {subscribe, channel, 1}, or {pong, ""}. Messages published before the subscription are
 * lost, so all waiters ask once more. */
void redis_notify_on_listen(struct redis *r, const struct resp_reply *resp, nanos now)
{
    r->listened_at = now;
    if (r->is_quorum_member) {
        on_subscribed(r, resp);
    } else if (!r->subscribed) {
        r->subscribed = true;
        redis_connection_notify_all(r);
    }
}

/* Returns whose turn it is. `first`: place of the first waiter in the queue of that server; "-":
 * none. */
static enum quorum_turn turn_of(const struct redis_op *a, const char *first)
{
    char id[REDIS_ID_TEXT + 1];
    const struct queue_place *place = quorum_member_op_of(a->op)->place;
    if (!place || strcmp(first, "-") == 0)
        return QUORUM_TURN_UNKNOWN;

    redis_id_text(&place->id, id);
    return strcmp(first, id) == 0 ? QUORUM_TURN_OWN : QUORUM_TURN_ANOTHERS;
}

/* Notifies every local waiter for a lock that is free, and says whose turn it is. */
static void on_free(struct redis *r, const struct resp_reply *channel,
                    const struct resp_reply *first)
{
    for (struct redis_op *a = r->ops; a; a = a->next)
        if (listens_on(r, a, channel->text))
            notify(r, a, turn_of(a, first->type == RESP_TEXT ? first->text : "-"));
}

/* ---- Messages ---- */

struct message {
    char id[REDIS_ID_TEXT + 1];
    struct notification notification;
    const char *key;
    size_t key_len;
};

/* Reads "id token end now key". */
static bool read_message(const char *text, size_t len, struct message *m)
{
    const char *end = text + len, *at = text + REDIS_ID_TEXT;
    int64_t numbers[3];
    if (len <= REDIS_ID_TEXT || *at != ' ')
        return false;
    memcpy(m->id, text, REDIS_ID_TEXT);
    m->id[REDIS_ID_TEXT] = 0;

    for (int i = 0; i < 3; i++) {
        struct resp_reply word = {.type = RESP_TEXT, .text = ++at};
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        if (!blank)
            return false;

        word.len = (size_t)(blank - at);
        numbers[i] = resp_count(&word);
        if (numbers[i] < 0)
            return false;
        at = blank;
    }

    m->notification = (struct notification){
        .set = true, .token = numbers[0], .till = numbers[1], .at = numbers[2]};
    m->key = at + 1;
    m->key_len = (size_t)(end - m->key);
    return true;
}

/* Converts microseconds, bounded so that the result can be added to a time: a server may send
 * any number. */
static nanos microseconds(int64_t us)
{
    static const int64_t most = TIME_NEVER / 8 / 1000;
    if (us > most)
        us = most;
    return (us < -most ? -most : us) * 1000;
}

/* Returns true if all times that good_for() uses come from one clock: from the same run of the same
 * server. */
static bool same_server(const struct redis *r)
{
    const char *one = r->connection[CONNECTION_COMMANDS].run_id,
               *other = r->connection[CONNECTION_NOTIFY].run_id;
    return one[0] && strcmp(one, other) == 0;
}

/* Returns how long the hold in a message is good, counted from our last request. */
static nanos good_for(const struct redis_op *a, const struct notification *notification, nanos now)
{
    nanos from_request = microseconds(notification->till - a->queued_reply.at);
    nanos from_now =
        now - a->queued_reply.asked_at + microseconds(notification->till - notification->at);

    return from_request < from_now ? from_request : from_now;
}

bool redis_notify_leaves_time(struct redis *r, const struct redis_op *a, nanos asked_at, nanos good,
                              nanos now)
{
    nanos until = asked_at + good - timing_drift(&r->limits, good);
    return until - now > redis_op_timing(r, a)->op_timeout;
}

/* Returns true if the message alone proves the hold; otherwise the server is asked. */
static bool can_be_trusted(struct redis *r, const struct redis_op *a,
                           const struct notification *notification, nanos good, nanos now)
{
    const struct timing *t = redis_op_timing(r, a);

    /* A handoff lasts until the waiter's next poll plus the grace. A message that promises more
     * is not believed. */
    bool is_plausible = good <= t->refresh + t->handoff_grace;
    /* The server must first raise a token that is not higher. */
    bool is_higher = (uint64_t)notification->token > a->floor;
    bool is_in_time = redis_notify_leaves_time(r, a, a->queued_reply.asked_at, good, now) &&
                      now < a->queued_reply.due;
    bool is_measured = a->queued_reply.set && same_server(r);

    return is_plausible && is_higher && is_in_time && is_measured && !r->durable;
}

void redis_notify_consider(struct redis *r, struct redis_op *a, nanos now)
{
    struct notification notification = a->notification;
    assert(notification.set);
    a->notification.set = false;
    if (a->queued_reply.set && notification.token <= a->queued_reply.number)
        return; /* the reply is newer than the message */

    struct engine_reply reply = {.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER};
    nanos good = good_for(a, &notification, now);
    if (can_be_trusted(r, a, &notification, good, now)) {
        reply.kind = REPLY_GRANTED;
        reply.asked_at = a->queued_reply.asked_at;
        reply.good = good;
        reply.token = (uint64_t)notification.token;
        reply.brief = true;
        redis_op_set_queued(r, a, false);
    } else {
        a->knows_grant = true;
    }
    redis_op_reply(r, a, &reply);
}

static void notify_waiter(struct redis *r, struct redis_op *a, const struct message *m, nanos now)
{
    assert(a->queued || a->acquiring);
    if (m->notification.token == 0) {
        redis_op_set_queued(r, a, false);
        redis_op_fail(r, a, now, HF_TOO_BIG, "more units than its capacity, which was changed");
        return;
    }

    if (!a->notification.set || m->notification.token > a->notification.token)
        a->notification = m->notification;
    if (!a->acquiring && !a->unsent)
        redis_notify_consider(r, a, now);
}

/* Handles a message for ops of that id. Returns true if there are any. If an op does not wait
 * any more, its last request decides, sent or unsent. */
static bool on_message(struct redis *r, const struct message *m, nanos now)
{
    bool known = false;

    for (struct resting_op *resting = redis_resting_op_of(r, m->id); resting;
         resting = redis_resting_op_next(resting)) {
        struct redis_op *a = resting->known.active;
        bool waits = a && (a->queued || a->acquiring) && a->sent_op.verb == OP_ACQUIRE;
        known = true;
        if (waits)
            notify_waiter(r, a, m, now);
    }
    return known;
}

/* Handles a message. If no op has its id any more, releases the hold that it announces. */
void redis_notify_on_text(struct redis *r, const struct resp_reply *text, nanos now)
{
    struct message m;
    if (text->type == RESP_TEXT && read_message(text->text, text->len, &m) &&
        !on_message(r, &m, now))
        redis_op_undo(r, m.id, m.key, m.key_len, now);
}

void redis_notify_on_pop(struct redis *r, const struct resp_reply *resp, nanos now)
{
    const struct resp_reply *messages = resp_item(resp, 1);
    if (resp->type != RESP_NIL && (!messages || messages->type != RESP_LIST)) {
        redis_connection_drop(r, &r->connection[CONNECTION_NOTIFY], HF_UNAVAILABLE, now,
                              "a reply that does not fit the request");
        return;
    }

    for (const struct resp_reply *text = messages ? messages->first : NULL; text; text = text->next)
        redis_notify_on_text(r, text, now);
    redis_notify_listen(r, now);
}

bool redis_notify_on_publish(struct redis *r, const struct resp_reply *resp, nanos now)
{
    const struct resp_reply *what = resp_item(resp, 0), *channel = resp_item(resp, 1);
    const struct resp_reply *text = resp_item(resp, 2);
    if (redis_has_channels(r))
        return redis_channels_on_push(r, resp, now);
    bool is_message = text && what->type == RESP_TEXT && strcmp(what->text, "message") == 0;
    if (!r->subscribed || !is_message || channel->type != RESP_TEXT)
        return false;

    r->listened_at = now;
    if (r->is_quorum_member)
        on_free(r, channel, text);
    else
        redis_notify_on_text(r, text, now);
    return true;
}
