/* protobuf.h - the part of protobuf's wire format that etcd's messages use: numbers and bytes.
 *
 * The writer appends to a buffer that grows. The reader never reads beyond its end, allocates
 * nothing, and skips fields that the caller does not know. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed writer is empty. */
struct pb_writer {
    char *bytes;
    size_t len, room;
    bool failed; /* an allocation failed: the message is incomplete */
};

void pb_clear(struct pb_writer *writer); /* Empties the writer and keeps its memory. */
void pb_free(struct pb_writer *writer);
/* Writes a number; 0 is left out. */
void pb_put_number(struct pb_writer *writer, unsigned field, uint64_t value);
/* Writes a number even if it is 0. */
void pb_put_zero(struct pb_writer *writer, unsigned field);
void pb_put_bytes(struct pb_writer *writer, unsigned field, const void *bytes, size_t len);
/* Write a message inside a message: pass the result of pb_begin() to pb_end(). */
size_t pb_begin(struct pb_writer *writer, unsigned field);
void pb_end(struct pb_writer *writer, size_t begin);

/* A message that is being read, or the bytes of a field. */
struct pb_reader {
    const char *at, *end;
    bool bad; /* the bytes are not a message */
};

struct pb_field {
    unsigned number;
    uint64_t value;          /* value of a number field */
    struct pb_reader inside; /* content of a bytes field, or of a message inside */
};

static inline struct pb_reader pb_read(const char *bytes, size_t len)
{
    return (struct pb_reader){.at = bytes, .end = bytes + len};
}

static inline size_t pb_len(const struct pb_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

/* Returns false at the end of the message, or if the bytes are not a message; then it sets
 * `bad`. */
bool pb_next(struct pb_reader *reader, struct pb_field *field);
