/* request_parser.h - a strict parser of the head of an HTTP/1.1 request. Heads that two parsers
 * could read differently are refused, so that no proxy in front can see other requests than this
 * service does. Pure: bytes in, a head or a status out. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum {
    HEAD_FIELDS_MAX = 64,  /* number of header fields */
    HEAD_TARGET_MAX = 8000 /* bytes of the target */
};

/* A part of the parsed text; not ended by a NUL. */
struct piece {
    const char *at;
    size_t len;
};

struct request_field {
    struct piece name, value;
};

struct request_head {
    /* Path begins with a slash; query is what follows the ?, or empty. */
    struct piece method, path, query;
    struct piece host;
    struct request_field fields[HEAD_FIELDS_MAX];
    size_t field_count;
    size_t body_len;       /* bytes of the body that follows the head */
    bool is_http10;        /* HTTP/1.0 */
    bool keep_alive;       /* another request may follow on the connection */
    bool expects_continue; /* Expect: 100-continue */
};

/* Returns the length of the head with its empty line; 0 if its end has not arrived. A bare line
 * feed ends a head, too, so that its error is reported at once. */
size_t request_head_end(const char *text, size_t len);

/* Parses a head of `len` bytes, the empty line included. Returns 0, or the HTTP status of the
 * refusal with the reason in *why. The pieces point into `text`. */
int request_head_read(struct request_head *head, const char *text, size_t len, const char **why);

/* Copies a head whose text is at `from` and will be at `to`. The text at `from` is still there. */
void request_head_copy(struct request_head *copy, const struct request_head *head, const char *from,
                       const char *to);

/* Returns the value of a field by its name in lower case, or NULL. If the field is repeated, the
 * first one. */
const struct piece *request_head_field(const struct request_head *head, const char *name);
bool piece_is(struct piece piece, const char *text);
bool piece_is_caseless(struct piece piece, const char *text);

/* Decodes %XX once. Returns false for a bad escape, a NUL, or too little room. `out` is ended by
 * a NUL. */
bool piece_decode(struct piece piece, char *out, size_t size, size_t *len);
