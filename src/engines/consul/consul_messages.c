/* consul_messages.c - requests to Consul as text, and its replies as pairs of key and value. */
#include "consul_messages.h"
#include "json_library.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Text ---- */

void text_clear(struct consul_text *text)
{
    text->len = 0;
    text->failed = false;
}

void text_free(struct consul_text *text)
{
    free(text->at);
    *text = (struct consul_text){0};
}

static bool make_room(struct consul_text *text, size_t more)
{
    size_t room = text->room ? text->room : 512;
    if (text->failed)
        return false;
    if (text->len + more <= text->room)
        return true;

    while (room < text->len + more)
        room *= 2;
    char *at = realloc(text->at, room);
    text->failed = !at;
    if (!at)
        return false;

    text->at = at;
    text->room = room;
    return true;
}

void text_bytes(struct consul_text *text, const char *bytes, size_t len)
{
    if (len == 0 || !make_room(text, len))
        return;
    memcpy(text->at + text->len, bytes, len);
    text->len += len;
}

void text_print(struct consul_text *text, const char *format, ...)
{
    char part[512];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(part, sizeof part, format, args);
    va_end(args);
    assert(len >= 0 && len < (int)sizeof part);
    text_bytes(text, part, (size_t)len);
}

void text_path(struct consul_text *text, struct slice key)
{
    assert(key.at || !key.len);
    for (size_t i = 0; i < key.len; i++) {
        unsigned char byte = (unsigned char)key.at[i];
        if (isalnum(byte) || (byte && strchr("-._~/", byte)))
            text_bytes(text, &key.at[i], 1);
        else
            text_print(text, "%%%02X", byte);
    }
}

static void add_string(struct consul_text *text, struct slice value)
{
    text_bytes(text, "\"", 1);
    for (size_t i = 0; i < value.len; i++) {
        bool escaped = value.at[i] == '"' || value.at[i] == '\\';
        if (escaped)
            text_bytes(text, "\\", 1);
        text_bytes(text, &value.at[i], 1);
    }

    text_bytes(text, "\"", 1);
}

/* ---- Base 64 ---- */

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void add_base64(struct consul_text *text, struct slice value)
{
    text_bytes(text, "\"", 1);
    for (size_t i = 0; i < value.len; i += 3) {
        unsigned char byte[3] = {0};
        size_t part = value.len - i < 3 ? value.len - i : 3;
        memcpy(byte, value.at + i, part);
        uint32_t bits = (uint32_t)byte[0] << 16 | (uint32_t)byte[1] << 8 | byte[2];
        char out[4] = {digits64[bits >> 18], digits64[bits >> 12 & 63],
                       part > 1 ? digits64[bits >> 6 & 63] : '=',
                       part > 2 ? digits64[bits & 63] : '='};
        text_bytes(text, out, sizeof out);
    }

    text_bytes(text, "\"", 1);
}

/* Decodes until the first byte that is not base64. Returns the length. */
static size_t read_base64(const char *from, char *out, size_t size)
{
    assert(size > 0);
    uint32_t bits = 0;
    unsigned count = 0;
    size_t len = 0;

    for (const char *digit; *from && (digit = strchr(digits64, *from)) && len < size; from++) {
        bits = bits << 6 | (uint32_t)(digit - digits64);
        if (++count % 4 != 1)
            out[len++] = (char)(bits >> (2 * (3 - (count - 1) % 4)) & 0xff);
    }

    return len;
}

/* ---- Transactions ---- */

void txn_begin(struct consul_text *text)
{
    text_clear(text);
    text_bytes(text, "[", 1);
}

void txn_add(struct consul_text *text, const struct txn_op *op)
{
    text_print(text, "%s{\"KV\":{\"Verb\":\"%s\",\"Key\":", text->len > 1 ? "," : "", op->verb);
    add_string(text, op->key);
    if (op->session)
        text_print(text, ",\"Session\":\"%s\"", op->session);
    if (op->index)
        text_print(text, ",\"Index\":%" PRIu64, op->index);
    if (op->flags)
        text_print(text, ",\"Flags\":%" PRIu64, op->flags);

    if (op->value.len) {
        text_print(text, ",\"Value\":");
        add_base64(text, op->value);
    }

    text_bytes(text, "}}", 2);
}

void txn_end(struct consul_text *text)
{
    text_bytes(text, "]", 1);
}

/* ---- Replies ---- */

static json_t *pairs_of(const struct consul_reply *reply)
{
    return json_is_array(reply->json) ? reply->json : json_object_get(reply->json, "Results");
}

size_t reply_pairs(const struct consul_reply *reply)
{
    /* jansson returns 0 for a value that is not an array. */
    return json_array_size(pairs_of(reply));
}

static uint64_t number_of(const json_t *pair, const char *name)
{
    json_int_t number = json_integer_value(json_object_get(pair, name));
    return number > 0 ? (uint64_t)number : 0;
}

static json_t *item_of(const struct consul_reply *reply, size_t i)
{
    json_t *item = json_array_get(pairs_of(reply), i), *inner = json_object_get(item, "KV");
    return inner ? inner : item;
}

bool reply_key(const struct consul_reply *reply, size_t i, struct consul_pair *pair)
{
    const json_t *key = json_object_get(item_of(reply, i), "Key");
    pair->key = json_string_value(key);
    pair->key_len = json_string_length(key);
    return pair->key;
}

bool reply_pair(const struct consul_reply *reply, size_t i, struct consul_pair *pair)
{
    const json_t *from = item_of(reply, i);
    const char *value = json_string_value(json_object_get(from, "Value"));
    const char *session = json_string_value(json_object_get(from, "Session"));
    if (!reply_key(reply, i, pair))
        return false;

    pair->session = session && strlen(session) == CONSUL_SESSION_TEXT ? session : "";
    pair->created = number_of(from, "CreateIndex");
    pair->changed = number_of(from, "ModifyIndex");
    pair->flags = number_of(from, "Flags");
    pair->value_len = value ? read_base64(value, pair->value, CONSUL_VALUE_MAX) : 0;
    pair->value[pair->value_len] = '\0';
    return true;
}

bool reply_find(const struct consul_reply *reply, struct slice key, struct consul_pair *pair)
{
    assert(key.at || !key.len);
    for (size_t i = reply_pairs(reply); i > 0; i--)
        if (reply_key(reply, i - 1, pair) && pair->key_len == key.len &&
            memcmp(pair->key, key.at, key.len) == 0)
            return reply_pair(reply, i - 1, pair);

    return false;
}

int reply_failed_op(const struct consul_reply *reply, const char **why)
{
    const json_t *error = json_array_get(json_object_get(reply->json, "Errors"), 0);
    const json_t *op = json_object_get(error, "OpIndex");
    const char *what = json_string_value(json_object_get(error, "What"));
    *why = what ? what : reply->text;
    return json_is_integer(op) ? (int)json_integer_value(op) : -1;
}

const char *reply_session(const struct consul_reply *reply)
{
    const char *id = json_string_value(json_object_get(reply->json, "ID"));
    return id && strlen(id) == CONSUL_SESSION_TEXT ? id : NULL;
}
