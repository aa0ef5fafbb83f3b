/* transcript_jute.c - ZooKeeper's frames: numbers and texts.
 *
 *     EXPECT N ITEM...     the engine sends a frame
 *     SEND N ITEM...       the server's frame; its length is put in front
 *
 * An item is a number of four bytes (7), one of eight (7L), one of one byte (7B), or a text with
 * its length ("/x"). What the engine sends is shown without a schema: four bytes that are the
 * length of a text behind them are that text, all others are numbers of four bytes. The first frame
 * of a connection has no number of a call and no kind. */
#include "transcript_dialect.h"

#include <assert.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    unsigned char in[TRANSCRIPT_BYTES]; /* an incomplete frame */
    size_t len;
} frames[TRANSCRIPT_CONNECTIONS];

static void reset(unsigned connection)
{
    assert(connection < TRANSCRIPT_CONNECTIONS);
    frames[connection].len = 0;
}

static uint32_t number_at(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is_text(const unsigned char *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isprint(at[i]))
            return false;
    return len > 0;
}

static void print_frame(const unsigned char *at, const unsigned char *end)
{
    while (end - at >= 4) {
        uint32_t number = number_at(at);
        at += 4;
        if (number <= (size_t)(end - at) && is_text(at, number)) {
            note(" \"%.*s\"", (int)number, (const char *)at);
            at += number;
        } else {
            note(" %d", (int32_t)number);
        }
    }
    for (; at < end; at++)
        note(" %uB", *at);
}

static void sent(unsigned connection, const char *bytes, size_t len)
{
    unsigned char *in = frames[connection].in;
    size_t had = frames[connection].len;
    assert(had + len <= TRANSCRIPT_BYTES);
    memcpy(in + had, bytes, len);
    had += len;
    for (size_t whole; had >= 4 && (whole = 4 + (size_t)number_at(in)) <= had;) {
        note("EXPECT %u", connection);
        print_frame(in + 4, in + whole);
        note("\n");
        had -= whole;
        memmove(in, in + whole, had);
    }
    frames[connection].len = had;
}

static char *put(char *to, uint64_t number, unsigned len)
{
    for (unsigned i = 0; i < len; i++)
        to[i] = (char)(number >> 8 * (len - 1 - i));
    return to + len;
}

/* Makes an item. Returns NULL if the text makes no sense. */
static char *make_item(const char **text, char *to)
{
    if (**text == '"') {
        size_t raw = strcspn(*text + 1, "\"");
        size_t len = unescape(*text + 1, raw, to + 4);
        bool is_closed = (*text)[1 + raw] == '"';
        *text += raw + 2;
        put(to, len, 4);
        return is_closed ? to + 4 + len : NULL;
    }

    char *end;
    int64_t number = strtoll(*text, &end, 10);
    unsigned len = *end == 'L' ? 8 : *end == 'B' ? 1 : 4;
    if (end == *text)
        return NULL;
    *text = end + (len != 4);
    return put(to, (uint64_t)number, len);
}

static long make(const char *step, unsigned connection, const char *text,
                 char bytes[TRANSCRIPT_BYTES])
{
    char *to = bytes + 4;
    (void)connection;
    if (strcmp(step, "SEND") != 0)
        return -1;
    for (text += strspn(text, " "); to && *text; text += strspn(text, " "))
        to = make_item(&text, to);
    if (!to)
        return -2;
    put(bytes, (uint64_t)(to - bytes - 4), 4);
    return to - bytes;
}

const struct dialect jute_dialect = {.reset = reset, .sent = sent, .make = make};
