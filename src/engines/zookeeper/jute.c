/* jute.c - jute, the encoding of ZooKeeper's messages. */
#include "jute.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* ---- Writing ---- */

static char *extend(struct jute_writer *w, size_t more)
{
    assert(w->len <= w->room);
    if (w->failed)
        return NULL;
    if (w->len + more > w->room) {
        size_t room = w->room ? w->room : 256;
        while (room < w->len + more)
            room *= 2;
        char *bytes = realloc(w->bytes, room);
        if (!bytes) {
            w->failed = true;
            return NULL;
        }
        w->bytes = bytes;
        w->room = room;
    }

    w->len += more;
    return w->bytes + w->len - more;
}

void jute_put_int(struct jute_writer *w, int32_t value)
{
    uint32_t big = htobe32((uint32_t)value);
    char *to = extend(w, sizeof big);
    if (to)
        memcpy(to, &big, sizeof big);
}

void jute_put_long(struct jute_writer *w, int64_t value)
{
    uint64_t big = htobe64((uint64_t)value);
    char *to = extend(w, sizeof big);
    if (to)
        memcpy(to, &big, sizeof big);
}

void jute_put_bool(struct jute_writer *w, bool value)
{
    char *to = extend(w, 1);
    if (to)
        *to = value;
}

void jute_put_bytes(struct jute_writer *w, const void *bytes, size_t len)
{
    assert(len <= JUTE_FRAME_MAX);
    jute_put_int(w, (int32_t)len);
    char *to = extend(w, len);
    if (to && len)
        memcpy(to, bytes, len);
}

void jute_put_text(struct jute_writer *w, const char *text)
{
    jute_put_bytes(w, text, strlen(text));
}

size_t jute_begin_frame(struct jute_writer *w)
{
    size_t begin = w->len;
    jute_put_int(w, 0);
    return begin;
}

void jute_end_frame(struct jute_writer *w, size_t begin)
{
    if (w->failed)
        return;
    assert(w->len >= begin + 4);
    uint32_t big = htobe32((uint32_t)(w->len - begin - 4));
    memcpy(w->bytes + begin, &big, sizeof big);
}

void jute_clear(struct jute_writer *w)
{
    w->len = 0;
    w->failed = false;
}

void jute_free(struct jute_writer *w)
{
    free(w->bytes);
    *w = (struct jute_writer){0};
}

/* ---- Reading ---- */

static const char *take(struct jute_reader *r, size_t len)
{
    assert(r->at <= r->end);
    if (r->failed || (size_t)(r->end - r->at) < len) {
        r->failed = true;
        return NULL;
    }

    r->at += len;
    return r->at - len;
}

int32_t jute_get_int(struct jute_reader *r)
{
    assert(r->at <= r->end);
    uint32_t big;
    const char *from = take(r, sizeof big);
    if (!from)
        return 0;

    memcpy(&big, from, sizeof big);
    return (int32_t)be32toh(big);
}

int64_t jute_get_long(struct jute_reader *r)
{
    assert(r->at <= r->end);
    uint64_t big;
    const char *from = take(r, sizeof big);
    if (!from)
        return 0;

    memcpy(&big, from, sizeof big);
    return (int64_t)be64toh(big);
}

bool jute_get_bool(struct jute_reader *r)
{
    const char *from = take(r, 1);
    return from && *from;
}

struct jute_bytes jute_get_bytes(struct jute_reader *r)
{
    assert(r->at <= r->end);
    int32_t len = jute_get_int(r);
    if (len < -1)
        r->failed = true;
    const char *from = len > 0 ? take(r, (size_t)len) : NULL;
    return (struct jute_bytes){from, from ? (size_t)len : 0};
}

/* ---- Frames ---- */

bool jute_inbox_add(struct jute_inbox *inbox, const char *bytes, size_t len)
{
    assert(inbox->begin <= inbox->end && inbox->end <= inbox->room);
    size_t unread = inbox->end - inbox->begin;
    if (inbox->begin && unread)
        memmove(inbox->bytes, inbox->bytes + inbox->begin, unread);
    inbox->begin = 0;
    inbox->end = unread;

    if (unread + len > inbox->room) {
        size_t room = inbox->room ? inbox->room : 4096;
        while (room < unread + len)
            room *= 2;
        char *grown = realloc(inbox->bytes, room);
        if (!grown)
            return false;
        inbox->bytes = grown;
        inbox->room = room;
    }

    if (len)
        memcpy(inbox->bytes + unread, bytes, len);
    inbox->end += len;
    return true;
}

enum jute_frame jute_inbox_next(struct jute_inbox *inbox, struct jute_reader *frame)
{
    size_t unread = inbox->end - inbox->begin;
    if (unread < 4)
        return JUTE_FRAME_NONE;

    struct jute_reader head = {.at = inbox->bytes + inbox->begin, .end = inbox->bytes + inbox->end};
    int32_t len = jute_get_int(&head);
    if (len < 0 || (uint32_t)len > JUTE_FRAME_MAX)
        return JUTE_FRAME_BAD;
    if (unread - 4 < (size_t)len)
        return JUTE_FRAME_NONE;

    *frame = (struct jute_reader){.at = head.at, .end = head.at + len};
    inbox->begin += 4 + (size_t)len;
    return JUTE_FRAME_WHOLE;
}

void jute_inbox_free(struct jute_inbox *inbox)
{
    free(inbox->bytes);
    *inbox = (struct jute_inbox){0};
}
