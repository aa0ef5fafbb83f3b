/* http.h - connections, and exchanges of a request and its answer, on libevent's loop.
 * Everything here runs on the loop's thread.
 *
 * An exchange begins when its request is complete and is passed to `handle`. The handler owes
 * exactly one answer, now or later, even if the client disconnects meanwhile: `disconnected`
 * reports that, and `settled` says whether the answer reached the client's kernel. The exchange
 * is freed after `settled`. */
#pragma once
#include "request_parser.h"
#include <event2/buffer.h>
#include <event2/event.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <sys/socket.h>

struct http;
struct connection;
struct caller;

struct exchange {
    struct http *http;
    struct connection *connection; /* NULL: the client has disconnected */
    struct request_head head;      /* points into `text` */
    char *text;
    const char *body; /* followed by a NUL that is not counted */
    size_t body_len;
    char id[33];      /* id of the request, for logs and answers */
    char address[48]; /* the client's address; "unix" for a unix socket */
    char network[48]; /* key by which failed logins are counted: the address, or for IPv6 its
                         network */
    char client[128]; /* common name in the client's certificate; empty without one */
    int64_t began_ms;
    int status; /* status of the answer; 0 until it is answered */
    bool streams, closes;
    char *fields; /* further header fields of the answer; NULL: none */
    size_t fields_len;

    const struct route *route; /* route of the request; NULL until it is found */
    struct piece arguments[2]; /* parts of the path that match {...} of the route, not decoded */
    /* caller that the token identifies; NULL if no token is required */
    const struct caller *caller;
    /* The client disconnected before the answer; may be NULL. */
    void (*disconnected)(struct exchange *x);
    void (*settled)(struct exchange *x, bool delivered); /* may be NULL */
    void *work;                                          /* data of the handler */
};

struct http_limits {
    size_t head_bytes, body_bytes;
    size_t connections, connections_per_address;
    int64_t request_ms; /* longest time until a request is complete */
    int64_t idle_ms;    /* longest time between two requests */
    bool half_close_leaves;
};

struct http_options {
    struct event_base *base;
    struct http_limits limits;
    SSL_CTX *tls; /* context for TLS; NULL: none; not owned */
    void (*handle)(void *arg, struct exchange *x);
    /* Answers a request that could not be read. */
    void (*refuse)(void *arg, struct exchange *x, int status, const char *why);
    /* After every answer, for log and counters. */
    void (*ended)(void *arg, const struct exchange *x, bool delivered);
    /* Called when accept() begins to fail, and not again until it has succeeded. */
    void (*accept_failed)(void *arg, const char *why);
    void *arg;
};

struct http *http_new(const struct http_options *options);
/* Closes all connections; their exchanges are told that the client disconnected. */
void http_free(struct http *http);

/* Sets the TLS context for connections that are accepted from now on; not owned. */
void http_set_tls(struct http *http, SSL_CTX *tls);

/* Accepts connections on a listening socket and takes it over. Returns false with errno. */
bool http_listen(struct http *http, int fd, bool tls);
void http_stop_listening(struct http *http);
/* Returns the i-th listening socket, or -1 after the last. */
int http_listening(const struct http *http, size_t i);
/* Closes idle connections at once, and the others after their answer. */
void http_drain(struct http *http);
size_t http_connections(const struct http *http);
void *http_arg(const struct http *http); /* Returns `arg` of the options. */

/* Adds a header field to an answer, which is any number of fields and then the body. */
void exchange_field(struct exchange *x, const char *name, const char *value);
void exchange_answer(struct exchange *x, int status, const char *type, const void *body,
                     size_t len);

/* Begins an answer without an end. exchange_push sends a text at once. It returns false if the
 * client does not keep up; the caller then ends the stream. */
void exchange_stream(struct exchange *x, const char *type);
bool exchange_push(struct exchange *x, const char *text, size_t len);
/* Ends a stream, also if its client has disconnected. */
void exchange_end(struct exchange *x);

const char *http_reason(int status);
int64_t clock_ms(void); /* goes on while the machine is suspended; for durations */
int64_t wall_ms(void);  /* milliseconds since 1970 */
