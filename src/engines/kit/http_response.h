/* http_response.h - reads HTTP/1.1 responses: bytes go in, in pieces of any size, and whole
 * responses come out.
 *
 * Strict. Lines end with CR LF, the version is HTTP/1.1, a body has a Content-Length or is chunked
 * without extensions and trailers, and never both. A response without either, an interim response
 * and a folded field are refused: no server that these engines talk to sends them. To guess where a
 * response ends could give the next reply to the wrong request. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_TEXT_MAX = 4096, /* longest status line, field, or line with a chunk's length */
    HTTP_FIELDS_MAX = 64
};

enum http_stage {
    HTTP_STATUS,
    HTTP_FIELD,
    HTTP_BODY,
    HTTP_CHUNK_LENGTH,
    HTTP_CHUNK,
    HTTP_CHUNK_END,
    HTTP_TRAILER,
    HTTP_WHOLE, /* the response is complete; http_response_next() begins the next one */
    HTTP_BAD    /* `flaw` says why; further bytes are ignored */
};

/* Reports a field of the head. Both texts end with NUL and are valid during the call. */
typedef void http_field_fn(void *ctx, const char *name, const char *value);

/* State of a reader. Set body_max, on_field and ctx, and the rest to zero. */
struct http_response {
    size_t body_max;         /* longest body that is accepted */
    http_field_fn *on_field; /* called for each field; NULL: fields are skipped */
    void *ctx;

    enum http_stage stage;
    unsigned status; /* 200 to 599 */
    bool closes;     /* the server will close the connection after this response */
    char *body;      /* ends with NUL; NULL: empty. Valid until http_response_next() */
    size_t body_len;
    const char *flaw; /* HTTP_BAD: reason in words */

    /* The fields below belong to the reader. */
    char text[HTTP_TEXT_MAX];
    size_t text_len, body_room;
    uint64_t left; /* bytes of the body or chunk that are still missing */
    unsigned fields;
    bool has_length, is_chunked;
};

/* Takes bytes up to the end of one response. Returns their number; it is below `len` only if the
 * stage is HTTP_WHOLE or HTTP_BAD. */
size_t http_response_take(struct http_response *response, const char *bytes, size_t len);
/* Prepares for the next response of this connection, or of a new one. */
void http_response_next(struct http_response *response);
void http_response_free(struct http_response *response);
