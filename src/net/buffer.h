/* buffer.h - bytes that wait to be sent: appended at the end, taken from the front. It grows as
 * needed, up to a bound, and keeps its memory. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define BUFFER_MAX ((size_t)64 << 20) /* bound, for a server that does not read */

/* A zeroed buffer is empty. */
struct buffer {
    char *bytes;
    size_t from, to, room;
};

/* Makes room for `len` more bytes and returns it. NULL: no memory, or above the bound; nothing
 * changed. */
char *buffer_reserve(struct buffer *buffer, size_t len);
/* Appends all bytes or none. */
bool buffer_append(struct buffer *buffer, const void *bytes, size_t len);
void buffer_take(struct buffer *buffer, size_t len); /* removes bytes from the front */
void buffer_free(struct buffer *buffer);             /* Removes all bytes and frees the memory. */

static inline size_t buffer_len(const struct buffer *buffer)
{
    return buffer->to - buffer->from;
}
