/* model_server.c - commands on the server and the connection, and publishing. */
#include "model_internal.h"

#include <stdio.h>
#include <string.h>

void cmd_ok(struct call *call)
{
    reply_status(call, "OK");
}

void cmd_second_word(struct call *call)
{
    char name[COMMAND_NAME];
    size_t i = 0;
    for (; i < call->words[0].len; i++)
        name[i] = (char)(call->words[0].bytes[i] & ~0x20);
    name[i] = 0;
    int shown = call->words[1].len < 128 ? (int)call->words[1].len : 128;
    reply_errorf(call, "ERR unknown subcommand '%.*s'. Try %s HELP.", shown, call->words[1].bytes,
                 name);
}

void cmd_select(struct call *call)
{
    int64_t db;
    if (!word_integer(call, 1, &db))
        return;
    if (db < 0 || db > 15) {
        reply_error(call, "ERR DB index is out of range");
        return;
    }
    *call->db = (unsigned)db;
    reply_status(call, "OK");
}

void cmd_client_setname(struct call *call)
{
    for (size_t i = 0; i < call->words[2].len; i++) {
        if (call->words[2].bytes[i] < '!' || call->words[2].bytes[i] > '~') {
            reply_error(call,
                        "ERR Client names cannot contain spaces, newlines or special characters.");
            return;
        }
    }
    reply_status(call, "OK");
}

void cmd_client_id(struct call *call)
{
    reply_integer(call, (int64_t)call->connection->id);
}

void cmd_ping(struct call *call)
{
    if (call->count > 2) {
        reply_error(call, "ERR wrong number of arguments for 'ping' command");
    } else if (is_subscribed(call->connection)) {
        reply_array(call, 2);
        reply_word(call, "pong");
        reply_bulk(call, call->count == 2 ? call->words[1] : (struct slice){"", 0});
    } else if (call->count == 2) {
        reply_bulk(call, call->words[1]);
    } else {
        reply_status(call, "PONG");
    }
}

void cmd_echo(struct call *call)
{
    reply_bulk(call, call->words[1]);
}

void cmd_role(struct call *call)
{
    reply_array(call, 3);
    reply_word(call, "master");
    reply_integer(call, 0);
    reply_array(call, 0);
}

void cmd_time(struct call *call)
{
    char digits[21];
    reply_array(call, 2);
    reply_bulk(call, (struct slice){digits, integer_print(digits, call->model->now_us / 1000000)});
    reply_bulk(call, (struct slice){digits, integer_print(digits, call->model->now_us % 1000000)});
}

void cmd_wait(struct call *call)
{
    int64_t count, timeout;
    if (!word_integer(call, 1, &count))
        return;
    if (!slice_integer(call->words[2], &timeout))
        reply_error(call, "ERR timeout is not an integer or out of range");
    else if (timeout < 0)
        reply_error(call, "ERR timeout is negative");
    else if (count <= call->model->replicas)
        reply_integer(call, call->model->replicas);
    else
        command_block(call, timeout ? now_ms(call->model) + timeout : 0);
}

void cmd_flushall(struct call *call)
{
    bool right = call->count == 1 || (call->count == 2 && (slice_is(call->words[1], "sync") ||
                                                           slice_is(call->words[1], "async")));
    if (!right) {
        reply_error(call, SYNTAX_ERROR);
        return;
    }
    store_empty(&call->model->store);
    reply_status(call, "OK");
}

/* ---- INFO ---- */

static bool info_wants(const struct call *call, const char *section)
{
    bool wanted = call->count == 1;
    for (unsigned i = 1; i < call->count; i++)
        wanted |= slice_is(call->words[i], section) || slice_is(call->words[i], "all") ||
                  slice_is(call->words[i], "default") || slice_is(call->words[i], "everything");
    return wanted;
}

void cmd_info(struct call *call)
{
    const struct redis_model *model = call->model;
    char text[1024];
    size_t len = 0;
    int64_t uptime = (model->now_us - model->started_us) / 1000000;
    if (info_wants(call, "server"))
        len += (size_t)snprintf(text + len, sizeof text - len,
                                "# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\n"
                                "uptime_in_seconds:%lld\r\n%s",
                                model->run_id, (long long)uptime,
                                model->cluster ? "redis_mode:cluster\r\n" : "");
    if (info_wants(call, "memory"))
        len += (size_t)snprintf(text + len, sizeof text - len, "%s# Memory\r\nmaxmemory:%d\r\n%s",
                                len ? "\r\n" : "", model->full, "maxmemory_policy:noeviction\r\n");
    if (info_wants(call, "replication"))
        len += (size_t)snprintf(
            text + len, sizeof text - len, "%s# Replication\r\nrole:%s\r\nconnected_slaves:%u\r\n",
            len ? "\r\n" : "", model->is_replica ? "slave" : "master", model->replicas);
    reply_bulk(call, (struct slice){text, len});
}

/* ---- Channels ---- */

/* Where this channel stands among those; their length if it is not there. */
static size_t channel_find(const struct channels *channels, struct slice name)
{
    const struct buffer *names = &channels->names;
    size_t at = 0;
    while (at < names->len) {
        uint32_t len;
        memcpy(&len, names->bytes + at, sizeof len);
        if (slice_equal((struct slice){names->bytes + at + sizeof len, len}, name))
            return at;
        at += sizeof len + len;
    }
    return at;
}

static void reply_subscription(struct call *call, const struct channels *channels, const char *what,
                               const struct slice *name)
{
    reply_array(call, 3);
    reply_word(call, what);
    if (name)
        reply_bulk(call, *name);
    else
        reply_null(call);
    reply_integer(call, channels->count);
}

static void subscribe(struct call *call, struct channels *channels, const char *what)
{
    for (unsigned i = 1; i < call->count; i++) {
        struct slice name = call->words[i];
        uint32_t len = (uint32_t)name.len;
        if (channel_find(channels, name) == channels->names.len) {
            buffer_add(&channels->names, &len, sizeof len);
            buffer_add(&channels->names, name.bytes, name.len);
            channels->count++;
        }
        reply_subscription(call, channels, what, &name);
    }
}

static void unsubscribe(struct call *call, struct channels *channels, const char *what,
                        struct slice name)
{
    struct buffer *names = &channels->names;
    size_t at = channel_find(channels, name), size = sizeof(uint32_t) + name.len;
    if (at < names->len) {
        memmove(names->bytes + at, names->bytes + at + size, names->len - at - size);
        names->len -= size;
        channels->count--;
    }
    reply_subscription(call, channels, what, &name);
}

/* The channel that stands at `at`; good until another one is taken. */
static struct slice channel_at(struct redis_model *model, const struct channels *channels,
                               size_t at)
{
    struct buffer *name = &model->scratch;
    uint32_t len;
    memcpy(&len, channels->names.bytes + at, sizeof len);
    name->len = 0;
    buffer_add(name, channels->names.bytes + at + sizeof len, len);
    return slice_of(name);
}

static void unsubscribe_words(struct call *call, struct channels *channels, const char *what)
{
    if (call->count == 1 && !channels->count)
        reply_subscription(call, channels, what, NULL);
    for (unsigned i = 1; i < call->count; i++)
        unsubscribe(call, channels, what, call->words[i]);
    while (call->count == 1 && channels->count)
        unsubscribe(call, channels, what, channel_at(call->model, channels, 0));
}

void cmd_subscribe(struct call *call)
{
    subscribe(call, &call->connection->channels, "subscribe");
}

void cmd_unsubscribe(struct call *call)
{
    unsubscribe_words(call, &call->connection->channels, "unsubscribe");
}

void cmd_ssubscribe(struct call *call)
{
    subscribe(call, &call->connection->shard_channels, "ssubscribe");
}

void cmd_sunsubscribe(struct call *call)
{
    unsubscribe_words(call, &call->connection->shard_channels, "sunsubscribe");
}

void channels_end_slot(struct redis_model *model, struct connection *c, unsigned slot)
{
    struct call push = {.model = model, .connection = c, .out = &c->out};
    struct channels *channels = &c->shard_channels;
    for (size_t at = 0; at < channels->names.len;) {
        struct slice name = channel_at(model, channels, at);
        if (model->cluster->slot_of(name.bytes, name.len) == slot)
            unsubscribe(&push, channels, "sunsubscribe", name);
        else
            at += sizeof(uint32_t) + name.len;
    }
}

static void push_message(struct call *call, struct connection *c, const char *what)
{
    struct call push = {.model = call->model, .connection = c, .out = &c->out};
    reply_array(&push, 3);
    reply_word(&push, what);
    reply_bulk(&push, call->words[1]);
    reply_bulk(&push, call->words[2]);
}

static void publish(struct call *call, bool is_shard, const char *what)
{
    struct redis_model *model = call->model;
    int64_t receivers = 0;
    for (unsigned i = 0; i < model->connection_count; i++) {
        struct connection *c = &model->connections[i];
        const struct channels *channels = is_shard ? &c->shard_channels : &c->channels;
        if (!c->connected || channel_find(channels, call->words[1]) == channels->names.len)
            continue;
        push_message(call, c, what);
        receivers++;
    }
    reply_integer(call, receivers);
}

void cmd_publish(struct call *call)
{
    publish(call, false, "message");
}

void cmd_spublish(struct call *call)
{
    publish(call, true, "smessage");
}
