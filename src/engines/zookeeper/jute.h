/* jute.h - jute, the encoding of ZooKeeper's messages: numbers are big-endian, and bytes follow
 * their length. A message on the wire is a frame: its length, then its bytes. Nothing here does
 * I/O. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of a message; valid as long as the message. */
struct jute_bytes {
    const char *at;
    size_t len;
};

/* ---- Writing ---- */

/* Writes a message; zero: empty. `failed`: an allocation failed, and the bytes must not be used. */
struct jute_writer {
    char *bytes;
    size_t len, room;
    bool failed;
};

void jute_put_int(struct jute_writer *w, int32_t value);
void jute_put_long(struct jute_writer *w, int64_t value);
void jute_put_bool(struct jute_writer *w, bool value);
void jute_put_bytes(struct jute_writer *w, const void *bytes, size_t len);
void jute_put_text(struct jute_writer *w, const char *text);
/* Begins a frame. Pass the result to jute_end_frame(), which writes the length. */
size_t jute_begin_frame(struct jute_writer *w);
void jute_end_frame(struct jute_writer *w, size_t begin);
void jute_clear(struct jute_writer *w);
void jute_free(struct jute_writer *w);

/* ---- Reading ---- */

/* Reads a message. `failed`: the message ended too early, or a length was impossible; later
 * reads return zeros. */
struct jute_reader {
    const char *at, *end;
    bool failed;
};

int32_t jute_get_int(struct jute_reader *r);
int64_t jute_get_long(struct jute_reader *r);
bool jute_get_bool(struct jute_reader *r);
/* Reads bytes. A length of -1 means "none" and is read as empty. */
struct jute_bytes jute_get_bytes(struct jute_reader *r);

/* ---- Frames ---- */

#define JUTE_FRAME_MAX (16u << 20)

/* Received bytes that were not read yet; zero: empty. */
struct jute_inbox {
    char *bytes;
    size_t begin, end, room;
};

enum jute_frame { JUTE_FRAME_NONE, JUTE_FRAME_WHOLE, JUTE_FRAME_BAD };

/* Appends bytes. Returns false without memory. Frames that were returned before become invalid. */
bool jute_inbox_add(struct jute_inbox *inbox, const char *bytes, size_t len);
/* Returns the next complete frame; valid until bytes are added. */
enum jute_frame jute_inbox_next(struct jute_inbox *inbox, struct jute_reader *frame);
void jute_inbox_free(struct jute_inbox *inbox);
