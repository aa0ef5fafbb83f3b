/* http.h - connections, and exchanges of a request and its answer, on libevent's loop. Everything here happens on the
 * thread of the loop.
 *
 * An exchange begins when its request is complete and is handed to `handle`. The handler owes it exactly one answer,
 * now or later, also when the client has left meanwhile: `gone` tells of that, and `settled` says whether the answer
 * reached the client's kernel. After `settled` the exchange is freed. */
#pragma once
#include "head.h"
#include <event2/buffer.h>
#include <event2/event.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <sys/socket.h>

struct http;
struct connection;
struct right_holder;

struct exchange {
    struct http *http;
    struct connection *connection; /* NULL: the client is gone */
    struct head head;              /* points into `text` */
    char *text;
    const char *body; /* ended by a NUL that is not counted */
    size_t body_len;
    char id[33];      /* of the request, for logs and answers */
    char client[128]; /* the subject of the client's certificate; empty: it has none */
    int64_t began_ms;
    int status; /* of the answer; 0: none yet */
    bool streams, closes;
    struct evbuffer *extra; /* header fields of the answer */

    const struct route *route;                           /* for the handler: NULL until it is found */
    struct piece arguments[2];                           /* what stands in the target for {...} of the route */
    const struct right_holder *caller;                   /* who asks; NULL: nobody needs to say */
    void (*gone)(struct exchange *x);                    /* the client left before the answer; NULL: does not matter */
    void (*settled)(struct exchange *x, bool delivered); /* NULL: does not matter */
    void *work;                                          /* the handler's own */
};

struct http_limits {
    size_t head_bytes, body_bytes;
    size_t connections, connections_per_address;
    int64_t request_ms; /* a request must be complete within */
    int64_t idle_ms;    /* between requests */
    bool half_close_leaves;
};

struct http_options {
    struct event_base *base;
    struct http_limits limits;
    SSL_CTX *tls; /* NULL: none; not owned */
    void (*handle)(void *arg, struct exchange *x);
    void (*refuse)(void *arg, struct exchange *x, int status, const char *why); /* answers what could not be read */
    void (*ended)(void *arg, const struct exchange *x, bool delivered);         /* for log and counters */
    void (*stuck)(void *arg, const char *why); /* nobody can be accepted for now; told once until somebody is */
    void *arg;
};

struct http *http_new(const struct http_options *options);
void http_free(struct http *http); /* closes all connections: their exchanges are told that the client is gone */

/* Accepts connections on a listening socket, which is taken over. False: errno. */
bool http_listen(struct http *http, int fd, bool tls);
void http_stop_listening(struct http *http);
int http_listening(const struct http *http, size_t i); /* the i-th socket; -1: there are no more */
/* Closes connections without a request, and the others after their answer. */
void http_drain(struct http *http);
size_t http_connections(const struct http *http);
void *http_arg(const struct http *http); /* that of its options */

/* The answer: any number of header fields, then the body. */
__attribute__((format(printf, 3, 4))) void exchange_field(struct exchange *x, const char *name, const char *format,
                                                          ...);
void exchange_answer(struct exchange *x, int status, const char *type, const void *body, size_t len);

/* An answer without an end: what is pushed goes out at once. False: the client does not keep up; end it. */
void exchange_stream(struct exchange *x, const char *type);
bool exchange_push(struct exchange *x, const char *text, size_t len);
/* Ends a stream, also one whose client is gone. */
void exchange_end(struct exchange *x);

const char *http_reason(int status);
int64_t clock_ms(void); /* for durations */
