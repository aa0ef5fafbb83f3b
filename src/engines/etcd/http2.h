/* http2.h - gRPC calls over one HTTP/2 connection. No I/O: bytes go in and come out. This is the
 * only room of the engine that knows libnghttp2.
 *
 * A call is one stream. Each message of the server is passed to on_message(); on_end() follows
 * once, unless the call was reset. Neither may free the connection. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http2;

/* The end of a call. */
struct http2_end {
    int code;           /* gRPC status; -1: the server sent none */
    const char *text;   /* text of the status; valid during the call */
    bool not_processed; /* the server guarantees that it did nothing */
    bool not_grpc;      /* the reply was not gRPC */
};

struct http2_events {
    void (*send)(void *ctx, const void *bytes, size_t len);
    void (*on_message)(void *ctx, void *call, const char *bytes, size_t len);
    void (*on_end)(void *ctx, void *call, const struct http2_end *end);
};

/* Returns NULL without memory. `host` and `token` are sent with every call: the server's name and
 * the token of the user ("": none); both must outlive the connection. */
struct http2 *http2_open(const struct http2_events *events, void *ctx, const char *host,
                         const char *token);
void http2_close(struct http2 *connection); /* Frees the connection; no on_end() follows. */

/* Starts a call with one message. `call` is passed to the events. `stays_open`: more messages
 * follow. Returns the number of its stream; -1 without memory. */
int32_t http2_call(struct http2 *connection, const char *path, const void *message, size_t len,
                   bool stays_open, void *call);
/* Sends another message of a call that stays open. Returns false without memory. */
bool http2_message(struct http2 *connection, int32_t stream, const void *message, size_t len);
/* Ends a call without on_message() or on_end(). */
void http2_reset(struct http2 *connection, int32_t stream);

/* Takes received bytes. Returns false if they are not HTTP/2; `text` then says what is wrong. */
bool http2_receive(struct http2 *connection, const char *bytes, size_t len, const char **text);
/* Passes everything that is to be sent to events->send(). Returns false if the connection cannot
 * be used any more. */
bool http2_flush(struct http2 *connection);
/* Returns true if http2_flush() has more to send than acknowledgements: a message, a reset, or the
 * end of the connection. */
bool http2_must_flush(const struct http2 *connection);
/* Returns true once the server has sent its SETTINGS, so it speaks HTTP/2. */
bool http2_greeted(const struct http2 *connection);
/* Returns true once the server has announced that it closes the connection. */
bool http2_closing(const struct http2 *connection);
