/* connection.h - what http.c (accepting), connection.c (reading, leaving) and exchange.c (answering) share. */
#pragma once
#include "http.h"
#include <event2/bufferevent.h>
#include <event2/listener.h>

#define PIPELINED_MAX 65536 /* bytes that a client may send ahead while it waits for an answer */
#define LISTENERS_MAX 16

struct address {
    uint8_t bytes[16];
    size_t count;
};

struct connection {
    struct http *http;
    struct connection *next, *prev;
    struct bufferevent *bev;
    struct address *address; /* NULL: a unix socket, or one that is refused */
    struct exchange *exchange;
    bool tls, half_closed, lingers, continued;
    size_t scanned;                /* bytes that were searched for the end of a head */
    size_t needed;                 /* of the request; 0: not known yet */
    struct event *timer, *written; /* written: runs when an answer went out as a whole */
};

struct http {
    struct http_options o;
    struct evconnlistener *listeners[LISTENERS_MAX];
    bool listener_tls[LISTENERS_MAX];
    size_t listener_count;
    struct connection *connections;
    size_t count;
    void *addresses;
    bool draining;
    struct event *resume; /* when to accept again */
    bool pauses;          /* nobody could be accepted since the last one was */
};

/* ---- connection.c ---- */

struct connection *connection_new(struct http *http, int fd, bool tls); /* NULL: no memory; fd is closed */
void connection_free(struct connection *c);
void connection_set_timer(struct connection *c, int64_t ms);
/* The client cannot be answered any more. */
void connection_lose(struct connection *c);
/* Answers a request that was not understood, and closes: where the next one begins is not known. */
void connection_refuse(struct connection *c, int status, const char *why);
/* Sends what is to be sent, at once as far as the socket takes it. */
void connection_flush(struct connection *c);

/* ---- exchange.c ---- */

struct exchange *exchange_new(struct connection *c, size_t bytes); /* NULL: no memory */
/* The last that is heard of an exchange. */
void exchange_settle(struct http *http, struct exchange *x, bool delivered);
