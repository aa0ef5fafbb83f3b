/* buffer.h - bytes that wait to be sent: appended at the end, taken from the front. It grows when it must, up to a
 * bound, and keeps its memory. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define HF_BUFFER_MAX ((size_t)64 << 20) /* a server that reads nothing must not take our memory */

/* Zero is an empty buffer. */
struct hf_buffer {
    char *bytes;
    size_t from, to, room;
};

/* Room for `len` more bytes behind the last one; NULL: no memory, or beyond the bound, and nothing changed. */
char *hf_buffer_reserve(struct hf_buffer *buffer, size_t len);
bool hf_buffer_append(struct hf_buffer *buffer, const void *bytes, size_t len); /* all or nothing */
void hf_buffer_take(struct hf_buffer *buffer, size_t len);                      /* they are dealt with */
void hf_buffer_free(struct hf_buffer *buffer);                                  /* it is empty then */

static inline size_t hf_buffer_len(const struct hf_buffer *buffer)
{
    return buffer->to - buffer->from;
}
