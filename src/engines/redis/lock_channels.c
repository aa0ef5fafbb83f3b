/* lock_channels.c - in a cluster: the channel of each lock that this client waits for.
 *
 * A message must be published in the slot of the lock, so each lock has a channel of its own: the
 * name of its queue and the id of this client. The client subscribes when the server has queued its
 * first waiter for the lock. Earlier messages are lost, so the waiters ask once more when the
 * subscription is confirmed. The subscription is kept for a while, because the same lock is often
 * waited for again.
 *
 * When a slot moves away, the server ends its subscriptions and says so. Then the waiters ask
 * again, and are redirected to the server that has the slot now. */
#include "redis.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS_FIRST = 64 };
#define KEPT_FOR NANOS_OF_MS(60000) /* time for which an unused subscription is kept */

enum channel_state { CHANNEL_NEW, CHANNEL_REQUESTED, CHANNEL_CONFIRMED };

struct lock_channel {
    struct lock_channel *next; /* next channel in its bucket */
    uint64_t id;               /* number that is never used again */
    enum channel_state state;
    uint32_t hash;
    uint32_t waiters;
    nanos unused_since; /* time when its last waiter left; unused while it has waiters */
    size_t len;
    char name[];
};

/* ---- The table ---- */

static struct lock_channel **place_of(const struct redis *r, const char *name, size_t len)
{
    uint32_t hash = redis_name_hash(name, len);
    struct lock_channel **at = &r->channels.bucket[hash & (r->channels.buckets - 1)];
    while (*at && ((*at)->len != len || memcmp((*at)->name, name, len) != 0))
        at = &(*at)->next;
    return at;
}

static bool grow(struct lock_channels *t)
{
    uint32_t buckets = t->buckets ? t->buckets * 2 : BUCKETS_FIRST;
    struct lock_channel **bucket = calloc(buckets, sizeof *bucket);
    if (!bucket)
        return t->buckets > 0; /* without memory for more buckets the chains grow */

    for (uint32_t i = 0; i < t->buckets; i++)
        for (struct lock_channel *c = t->bucket[i], *next; c; c = next) {
            next = c->next;
            c->next = bucket[c->hash & (buckets - 1)];
            bucket[c->hash & (buckets - 1)] = c;
        }
    free(t->bucket);
    t->bucket = bucket;
    t->buckets = buckets;
    return true;
}

static struct lock_channel *find_or_add(struct redis *r, const char *name, size_t len)
{
    struct lock_channels *t = &r->channels;
    if (t->count >= t->buckets && !grow(t))
        return NULL;

    struct lock_channel **at = place_of(r, name, len);
    if (*at)
        return *at;

    struct lock_channel *c = malloc(sizeof *c + len + 1);
    if (!c)
        return NULL;

    *c = (struct lock_channel){.id = ++t->last_id, .hash = redis_name_hash(name, len), .len = len};
    memcpy(c->name, name, len);
    c->name[len] = 0;
    *at = c;
    t->count++;
    return c;
}

static void drop(struct redis *r, struct lock_channel *c)
{
    struct lock_channel **at = place_of(r, c->name, c->len);
    assert(*at == c && c->waiters == 0);
    *at = c->next;
    r->channels.count--;
    free(c);
}

/* Returns the channel with that number. An error does not name the channel, so the request carries
 * its number. */
static struct lock_channel *channel_of_id(const struct redis *r, uint64_t id)
{
    for (uint32_t i = 0; i < r->channels.buckets; i++)
        for (struct lock_channel *c = r->channels.bucket[i]; c; c = c->next)
            if (c->id == id)
                return c;
    return NULL;
}

void redis_channels_free(struct redis *r)
{
    for (uint32_t i = 0; i < r->channels.buckets; i++)
        for (struct lock_channel *c = r->channels.bucket[i], *next; c; c = next) {
            next = c->next;
            free(c);
        }
    free(r->channels.bucket);
    r->channels = (struct lock_channels){0};
    for (struct redis_op *a = r->ops; a; a = a->next)
        a->channel = NULL;
}

/* ---- Waiters ---- */

/* Names the channel as scripts/straight.lua does. */
static size_t name_channel(const struct redis *r, const struct redis_op *a, char *name)
{
    struct redis_keys keys;
    if (redis_keys_here(r, &keys, a->sent_op.name, a->sent_op.name_len) != HF_OK)
        return 0;

    memcpy(name, keys.companion, keys.companion_len);
    name[keys.letter] = 'q';
    memcpy(name + keys.companion_len, r->self, REDIS_ID_TEXT);
    return keys.companion_len + REDIS_ID_TEXT;
}

/* Sends the subscription. Returns false if the connection broke. */
static bool subscribe(struct redis *r, struct lock_channel *c, nanos now)
{
    resp_command_begin(&r->command, 2);
    resp_command_text(&r->command, "SSUBSCRIBE");
    resp_command_word(&r->command, c->name, c->len);
    c->state = CHANNEL_REQUESTED;
    r->subscribed = true;
    struct request request = {.kind = REQ_LISTEN, .patience = NANOS_OF_MS(1000), .from = c->id};
    return redis_connection_send(r, &r->connection[CONNECTION_NOTIFY], request, now);
}

/* Without memory for the channel the op gets no messages, and relies on polling. */
void redis_channel_join(struct redis *r, struct redis_op *a, nanos now)
{
    char name[REDIS_KEY_MAX + REDIS_ID_TEXT];
    if (a->channel)
        return;

    size_t len = name_channel(r, a, name);
    a->channel = len ? find_or_add(r, name, len) : NULL;
    if (!a->channel)
        return;

    a->channel->waiters++;
    if (a->channel->state != CHANNEL_NEW)
        return;

    struct redis_connection *connection = &r->connection[CONNECTION_NOTIFY];
    if (connection->state == CONNECTION_UP)
        subscribe(r, a->channel, now);
    else
        r->channels.has_new = true;
}

void redis_channel_leave(struct redis *r, struct redis_op *a)
{
    if (!a->channel)
        return;

    assert(a->channel->waiters > 0);
    if (--a->channel->waiters == 0)
        a->channel->unused_since = r->last_now;
    a->channel = NULL;
}

/* Makes all waiters for that lock ask again. */
static void notify_waiters(struct redis *r, const struct lock_channel *c)
{
    for (struct redis_op *a = r->ops; a; a = a->next) {
        bool will_request = redis_op_is_in_flight(a) || a->unsent;
        bool waits_here = a->queued && a->channel == c;
        if (waits_here && !will_request)
            redis_op_reply(r, a,
                           &(struct engine_reply){.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER});
    }
}

/* Handles the end of a subscription, or its refusal. */
static void end_channel(struct redis *r, struct lock_channel *c)
{
    notify_waiters(r, c);
    for (struct redis_op *a = r->ops; a; a = a->next)
        if (a->channel == c)
            redis_channel_leave(r, a);
    drop(r, c);
}

/* ---- Subscriptions ---- */

/* Unsubscribes. The server's answer is handled like the end of a subscription by the server: no
 * request waits for it. */
static void unsubscribe(struct redis *r, struct lock_channel *c)
{
    struct resp_command *command = &r->command;
    if (c->state == CHANNEL_CONFIRMED) {
        resp_command_begin(command, 2);
        resp_command_text(command, "SUNSUBSCRIBE");
        resp_command_word(command, c->name, c->len);
        if (!command->failed)
            r->host->send(r->host->ctx, CONNECTION_NOTIFY, command->bytes, command->len);
        command->len = 0;
        command->failed = false;
    }

    drop(r, c);
}

static void drop_unused(struct redis *r, nanos now)
{
    struct lock_channels *t = &r->channels;
    if (now < t->sweep_at)
        return;

    t->sweep_at = now + KEPT_FOR / 2;
    for (uint32_t i = 0; i < t->buckets; i++)
        for (struct lock_channel *c = t->bucket[i], *next; c; c = next) {
            next = c->next;
            bool is_unused = !c->waiters && now - c->unused_since >= KEPT_FOR;
            if (is_unused && c->state != CHANNEL_REQUESTED)
                unsubscribe(r, c);
        }
}

/* Returns false if the connection broke: redis_channels_cut() was called. */
static bool subscribe_all(struct redis *r, nanos now)
{
    r->channels.has_new = false;
    for (uint32_t i = 0; i < r->channels.buckets; i++)
        for (struct lock_channel *c = r->channels.bucket[i]; c; c = c->next)
            if (c->state == CHANNEL_NEW && c->waiters && !subscribe(r, c, now))
                return false;

    return true;
}

void redis_channels_listen(struct redis *r, nanos now)
{
    struct redis_connection *connection = &r->connection[CONNECTION_NOTIFY];
    bool is_needed = redis_connection_need(r, connection, now);
    if (!is_needed || connection->state != CONNECTION_UP)
        return;

    drop_unused(r, now);
    if (r->channels.has_new && !subscribe_all(r, now))
        return;

    if (!connection->queue.count && r->subscribed && !redis_notify_is_proved(r, now))
        redis_notify_ping(r, now);
}

void redis_channels_cut(struct redis *r)
{
    for (uint32_t i = 0; i < r->channels.buckets; i++)
        for (struct lock_channel *c = r->channels.bucket[i]; c; c = c->next)
            c->state = CHANNEL_NEW;
    r->channels.has_new = r->channels.count > 0;
}

void redis_channels_on_reply(struct redis *r, const struct request *request,
                             const struct resp_reply *resp, nanos now)
{
    const struct resp_reply *name = resp_item(resp, 1);
    bool is_error = resp->type == RESP_ERROR, has_name = name && name->type == RESP_TEXT;
    struct lock_channel *c = NULL;
    r->listened_at = now;

    if (request->from && is_error)
        c = channel_of_id(r, request->from);
    else if (request->from && has_name && r->channels.buckets)
        c = *place_of(r, name->text, name->len);

    if (!c || c->id != request->from)
        return;
    if (is_error) {
        end_channel(r, c);
        return;
    }

    c->state = CHANNEL_CONFIRMED;
    notify_waiters(r, c);
}

/* Handles {smessage, channel, text} and {sunsubscribe, channel, count}. */
bool redis_channels_on_push(struct redis *r, const struct resp_reply *resp, nanos now)
{
    const struct resp_reply *what = resp_item(resp, 0), *channel = resp_item(resp, 1);
    const struct resp_reply *text = resp_item(resp, 2);
    bool are_texts = text && what->type == RESP_TEXT && channel->type == RESP_TEXT;
    if (!are_texts)
        return false;

    if (strcmp(what->text, "smessage") == 0) {
        r->listened_at = now;
        redis_notify_on_text(r, text, now);
        return true;
    }
    if (strcmp(what->text, "sunsubscribe") != 0)
        return false;

    struct lock_channel *c = r->channels.buckets ? *place_of(r, channel->text, channel->len) : NULL;
    if (c && c->state == CHANNEL_CONFIRMED)
        end_channel(r, c);
    return true;
}
