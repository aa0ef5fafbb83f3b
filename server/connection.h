/* connection.h - what http.c (accepting), connection.c (reading, leaving) and exchange.c
 * (answering) share. */
#pragma once
#include "http.h"
#include <event2/bufferevent.h>
#include <event2/listener.h>

#define PIPELINED_MAX 65536 /* bytes that a client may send ahead of an answer */
#define LISTENERS_MAX 16

struct address {
    uint8_t bytes[16];
    size_t count;
};

struct connection {
    struct http *http;
    struct connection *next, *prev;
    struct bufferevent *bev;
    char peer[48];    /* address of the client as text; "unix" for a unix socket */
    char network[48]; /* for IPv6 the client's network as text; otherwise the same as `peer` */
    struct address *address; /* NULL: a unix socket, or out of memory */
    struct exchange *exchange;
    bool tls, half_closed, lingers, continued;
    size_t scanned;                /* number of bytes that were searched for the end of the head */
    size_t needed;                 /* bytes of the whole request; 0 until the head is parsed */
    struct event *timer, *written; /* written: runs when the whole answer went out */
    struct event *readable;        /* NULL: TLS, which the bufferevent reads */
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
    struct event *resume; /* timer: accept again */
    bool accept_paused;   /* accepting has failed since the last success */
};

/* ---- http.c ---- */

/* Removes one connection from an address; the last one frees the address. */
void http_leave_address(struct http *http, struct address *address);

/* ---- connection.c ---- */

/* Makes the connection of a socket. NULL if out of memory; fd is closed then. */
struct connection *connection_new(struct http *http, int fd, bool tls);
void connection_free(struct connection *c);
void connection_set_timer(struct connection *c, int64_t ms);
/* The client cannot be answered any more: reports that to its exchange, and frees the
 * connection. */
void connection_lose(struct connection *c);
void connection_start(struct connection *c); /* Begins to read. */
/* Answers a request that was not understood, and closes: the start of the next request is
 * unknown. */
void connection_refuse(struct connection *c, int status, const char *why);
/* Writes the output at once, as far as the socket takes it. */
void connection_flush(struct connection *c);

/* ---- exchange.c ---- */

struct exchange *exchange_new(struct connection *c, size_t bytes); /* NULL if out of memory */
/* Reports the end of an exchange and frees it. */
void exchange_settle(struct http *http, struct exchange *x, bool delivered);
