/* jute.h - jute, the encoding of ZooKeeper's messages: big-endian numbers, and bytes behind their
 * length. A message on the wire is a frame: its length, then its bytes. Nothing here does I/O. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of a message; valid as long as the message is. */
struct jute_bytes {
    const char *at;
    size_t len;
};

/* ---- Writing ---- */

/* A zeroed one is empty. `failed`: there was no memory, and the bytes are of no use. */
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
/* Begins a frame; jute_end_frame() with the result writes its length. */
size_t jute_begin_frame(struct jute_writer *w);
void jute_end_frame(struct jute_writer *w, size_t begin);
void jute_clear(struct jute_writer *w);
void jute_free(struct jute_writer *w);

/* ---- Reading ---- */

/* `failed`: the message ended too early, or a length made no sense. All later reads give zeros. */
struct jute_reader {
    const char *at, *end;
    bool failed;
};

int32_t jute_get_int(struct jute_reader *r);
int64_t jute_get_long(struct jute_reader *r);
bool jute_get_bool(struct jute_reader *r);
/* A length of -1 is "none", and read as empty. */
struct jute_bytes jute_get_bytes(struct jute_reader *r);

/* ---- Frames ---- */

#define JUTE_FRAME_MAX (16u << 20)

/* Bytes that were received and not read yet. A zeroed one is empty. */
struct jute_inbox {
    char *bytes;
    size_t begin, end, room;
};

enum jute_frame { JUTE_FRAME_NONE, JUTE_FRAME_WHOLE, JUTE_FRAME_BAD };

/* Returns false without memory. Frames that were taken out before are gone. */
bool jute_inbox_add(struct jute_inbox *inbox, const char *bytes, size_t len);
/* The next whole frame; valid until bytes are added. */
enum jute_frame jute_inbox_next(struct jute_inbox *inbox, struct jute_reader *frame);
void jute_inbox_free(struct jute_inbox *inbox);
