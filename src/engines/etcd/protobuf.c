/* protobuf.c - the part of protobuf's wire format that etcd's messages use. */
#include "protobuf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

enum { VARINT_MAX = 10 };

/* ---- Writing ---- */

void pb_clear(struct pb_writer *writer)
{
    writer->len = 0;
    writer->failed = false;
}

void pb_free(struct pb_writer *writer)
{
    free(writer->bytes);
    *writer = (struct pb_writer){0};
}

static bool reserve(struct pb_writer *writer, size_t len)
{
    assert(writer->len <= writer->room);
    if (writer->failed)
        return false;
    if (writer->room - writer->len >= len)
        return true;

    size_t room = writer->room ? writer->room : 256;
    while (room - writer->len < len)
        room *= 2;
    char *bytes = realloc(writer->bytes, room);
    if (!bytes) {
        writer->failed = true;
        return false;
    }

    writer->bytes = bytes;
    writer->room = room;
    return true;
}

static size_t encode(char out[VARINT_MAX], uint64_t value)
{
    size_t len = 0;
    while (value >= 0x80) {
        out[len++] = (char)(value | 0x80);
        value >>= 7;
    }

    out[len++] = (char)value;
    return len;
}

static void append(struct pb_writer *writer, const void *bytes, size_t len)
{
    assert(bytes || !len);
    if (len == 0 || !reserve(writer, len))
        return;
    memcpy(writer->bytes + writer->len, bytes, len);
    writer->len += len;
}

static void append_varint(struct pb_writer *writer, uint64_t value)
{
    char bytes[VARINT_MAX];
    append(writer, bytes, encode(bytes, value));
}

static void append_tag(struct pb_writer *writer, unsigned field, enum wire_type type)
{
    assert(field > 0);
    append_varint(writer, (uint64_t)field << 3 | type);
}

void pb_put_number(struct pb_writer *writer, unsigned field, uint64_t value)
{
    if (value == 0)
        return;
    append_tag(writer, field, WIRE_VARINT);
    append_varint(writer, value);
}

void pb_put_zero(struct pb_writer *writer, unsigned field)
{
    append_tag(writer, field, WIRE_VARINT);
    append_varint(writer, 0);
}

void pb_put_bytes(struct pb_writer *writer, unsigned field, const void *bytes, size_t len)
{
    append_tag(writer, field, WIRE_BYTES);
    append_varint(writer, len);
    append(writer, bytes, len);
}

size_t pb_begin(struct pb_writer *writer, unsigned field)
{
    append_tag(writer, field, WIRE_BYTES);
    return writer->len;
}

/* Inserts the length, known only now, in front of the bytes. */
void pb_end(struct pb_writer *writer, size_t begin)
{
    assert(writer->failed || begin <= writer->len);
    size_t len = writer->len - begin;
    char length[VARINT_MAX];
    size_t size = encode(length, len);
    if (!reserve(writer, size))
        return;

    memmove(writer->bytes + begin + size, writer->bytes + begin, len);
    memcpy(writer->bytes + begin, length, size);
    writer->len += size;
}

/* ---- Reading ---- */

static bool fail(struct pb_reader *reader)
{
    reader->bad = true;
    reader->at = reader->end;
    return false;
}

static bool read_varint(struct pb_reader *reader, uint64_t *value)
{
    assert(reader->at <= reader->end);
    *value = 0;
    for (unsigned shift = 0; shift < 7 * VARINT_MAX; shift += 7) {
        if (reader->at == reader->end)
            return fail(reader);
        uint64_t byte = (unsigned char)*reader->at++;
        *value |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }

    return fail(reader);
}

static bool read_bytes(struct pb_reader *reader, uint64_t len, struct pb_reader *inside)
{
    if (len > pb_len(reader))
        return fail(reader);
    *inside = pb_read(reader->at, (size_t)len);
    reader->at += len;
    return true;
}

bool pb_next(struct pb_reader *reader, struct pb_field *field)
{
    assert(reader->at <= reader->end);
    uint64_t tag, len;
    *field = (struct pb_field){0};
    if (reader->bad || reader->at == reader->end || !read_varint(reader, &tag))
        return false;

    field->number = (unsigned)(tag >> 3);
    if (field->number == 0 || tag >> 3 > UINT32_MAX)
        return fail(reader);

    switch (tag & 7) {
    case WIRE_VARINT:
        return read_varint(reader, &field->value);
    case WIRE_BYTES:
        return read_varint(reader, &len) && read_bytes(reader, len, &field->inside);
    case WIRE_FIXED64:
        return read_bytes(reader, 8, &field->inside);
    case WIRE_FIXED32:
        return read_bytes(reader, 4, &field->inside);
    default:
        return fail(reader);
    }
}
