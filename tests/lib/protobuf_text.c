/* protobuf_text.c - messages of protobuf as text, without their schema.
 *
 * Bytes with a length may be text or a message: if all can be printed they are text, otherwise a
 * message if they can be read as one. */
#include "protobuf_text.h"
#include "transcript_dialect.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, SIZED = 2 };

/* ---- Printing ---- */

static bool read_varint(const unsigned char **at, const unsigned char *end, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        unsigned char byte = *(*at)++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* Reads the head of a field, and `len` of one with a length. */
static bool read_head(const unsigned char **at, const unsigned char *end, uint64_t *tag,
                      uint64_t *value)
{
    if (!read_varint(at, end, tag) || *tag >> 3 == 0 || !read_varint(at, end, value))
        return false;
    unsigned type = *tag & 7;
    return type == VARINT || (type == SIZED && *value <= (uint64_t)(end - *at));
}

static bool is_message(const unsigned char *at, size_t len)
{
    const unsigned char *end = at + len;
    uint64_t tag, value;
    while (at < end) {
        if (!read_head(&at, end, &tag, &value))
            return false;
        at += (tag & 7) == SIZED ? value : 0;
    }
    return len > 0;
}

static bool is_text(const unsigned char *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isprint(at[i]))
            return false;
    return true;
}

static void print_sized(const unsigned char *bytes, size_t len)
{
    if (!is_text(bytes, len) && is_message(bytes, len)) {
        note("{");
        protobuf_print(bytes, len);
        note("}");
        return;
    }
    note("\"");
    print_word((const char *)bytes, len);
    note("\"");
}

void protobuf_print(const unsigned char *bytes, size_t len)
{
    const unsigned char *at = bytes, *end = bytes + len;
    uint64_t tag, value;
    while (at < end && read_head(&at, end, &tag, &value)) {
        note("%s%" PRIu64 ":", at - bytes > 2 || tag > 127 ? " " : "", tag >> 3);
        if ((tag & 7) == VARINT) {
            note("%" PRId64, (int64_t)value);
            continue;
        }
        print_sized(at, value);
        at += value;
    }
    if (at < end)
        note(" ?");
}

/* ---- Making ---- */

static size_t put_varint(char *to, uint64_t value)
{
    size_t len = 0;
    for (; value >= 0x80; value >>= 7)
        to[len++] = (char)(value | 0x80);
    to[len++] = (char)value;
    return len;
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " ");
}

/* Reads fields up to a brace or the end of the text. Returns the length, and where it stopped. */
static long make_fields(const char **text, char *bytes, size_t size)
{
    size_t len = 0;
    for (*text = skip_blanks(*text); **text && **text != '}'; *text = skip_blanks(*text)) {
        char *at, inside[TRANSCRIPT_BYTES];
        uint64_t field = strtoull(*text, &at, 10);
        if (field == 0 || *at != ':' || len + sizeof inside / 2 > size)
            return -1;

        *text = at + 1;
        bool is_sized = **text == '{' || **text == '"';
        len += put_varint(bytes + len, field << 3 | (is_sized ? SIZED : VARINT));
        if (!is_sized) {
            len += put_varint(bytes + len, (uint64_t)strtoll(*text, &at, 10));
            if (at == *text)
                return -1;
            *text = at;
            continue;
        }

        long part;
        if (*(*text)++ == '{') {
            part = make_fields(text, inside, sizeof inside);
        } else {
            size_t raw = strcspn(*text, "\"");
            part = (long)unescape(*text, raw, inside);
            *text += raw;
        }
        if (part < 0 || !**text)
            return -1;
        ++*text; /* the closing brace or quote */
        len += put_varint(bytes + len, (uint64_t)part);
        memcpy(bytes + len, inside, (size_t)part);
        len += (size_t)part;
    }
    return (long)len;
}

long protobuf_make(const char *text, char *bytes, size_t size)
{
    long len = make_fields(&text, bytes, size);
    return *text ? -1 : len;
}
