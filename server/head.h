/* head.h - the head of an HTTP/1.1 request, read strictly: what two readers could understand differently is refused,
 * so that no proxy in front of us can be made to see other requests than we do. Pure: bytes in, a head or a status out.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum {
    HEAD_FIELDS_MAX = 64,  /* header fields */
    HEAD_TARGET_MAX = 8000 /* bytes of the target */
};

/* A piece of the text that was read; not ended by a NUL. */
struct piece {
    const char *at;
    size_t len;
};

struct head_field {
    struct piece name, value;
};

struct head {
    struct piece method, path, query; /* path begins with a slash; query is empty, or what follows the ? */
    struct piece host;
    struct head_field fields[HEAD_FIELDS_MAX];
    size_t field_count;
    size_t body_len; /* that follows the head */
    bool old;        /* HTTP/1.0 */
    bool keep_alive; /* may another request follow? */
    bool expects;    /* Expect: 100-continue */
};

/* Where a head ends: the number of bytes up to and with its empty line, or 0: there is more to come. A bare line feed
 * ends a head too, so that what is wrong with it is found at once. */
size_t head_end(const char *text, size_t len);

/* Reads a head of `len` bytes, the empty line included. 0, or the HTTP status of the refusal; *why then says what was
 * wrong. The pieces point into the text. */
int head_read(struct head *head, const char *text, size_t len, const char **why);

/* A field by its name in small letters; NULL: not there. Of several the first. */
const struct piece *head_field(const struct head *head, const char *name);
bool piece_is(struct piece piece, const char *text);
bool piece_is_caseless(struct piece piece, const char *text);

/* Decodes %XX, once. False: a bad escape, a NUL, or no room. `out` is ended by a NUL. */
bool piece_decode(struct piece piece, char *out, size_t size, size_t *len);
