/* buffer.c - bytes that wait to be sent. */
#include "buffer.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 4096 };

static void move_to_front(struct buffer *buffer)
{
    size_t len = buffer_len(buffer);
    if (buffer->from && len)
        memmove(buffer->bytes, buffer->bytes + buffer->from, len);
    buffer->from = 0, buffer->to = len;
}

static bool grow(struct buffer *buffer, size_t wanted)
{
    size_t room = buffer->room ? buffer->room : FIRST_ROOM;
    while (room < wanted)
        room *= 2;
    char *bytes = realloc(buffer->bytes, room);
    if (!bytes)
        return false;

    buffer->bytes = bytes;
    buffer->room = room;
    return true;
}

char *buffer_reserve(struct buffer *buffer, size_t len)
{
    size_t used = buffer_len(buffer);
    if (len > BUFFER_MAX || used + len > BUFFER_MAX)
        return NULL;

    if (buffer->room - buffer->to < len) {
        move_to_front(buffer);
        if (buffer->room < used + len && !grow(buffer, used + len))
            return NULL;
    }
    return buffer->bytes + buffer->to;
}

bool buffer_append(struct buffer *buffer, const void *bytes, size_t len)
{
    char *end = buffer_reserve(buffer, len);
    if (!end)
        return false;
    memcpy(end, bytes, len);
    buffer->to += len;
    return true;
}

void buffer_take(struct buffer *buffer, size_t len)
{
    buffer->from += len;
    if (buffer->from == buffer->to)
        buffer->from = buffer->to = 0;
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct buffer){0};
}
