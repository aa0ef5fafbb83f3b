/* proxy.h - a TCP proxy between a client and a server; the test says what to spoil. It is a process
 * of its own, so that the test stays free of threads, and ends with the test.
 *
 * What a call asks for is in force when the call returns. Every fault says whether it happened: a
 * test that planted one must check that, or it may have tested nothing. */
#pragma once
#include "sentence.h"

#include <stdbool.h>
#include <stdint.h>

struct proxy;

enum proxy_way { PROXY_REQUESTS, PROXY_REPLIES };

/* Starts a proxy on 127.0.0.1, in front of that port of 127.0.0.1, which need not be served yet. */
struct proxy *proxy_start(uint16_t server_port);
uint16_t proxy_port(const struct proxy *p);
void proxy_end(struct proxy *p);

/* ---- Faults at a byte of a connection ---- */

enum proxy_fault_kind {
    PROXY_CUT,   /* both sides are closed */
    PROXY_RESET, /* both sides are reset */
    PROXY_STALL, /* nothing more is passed on in either direction, and nobody is told; what the
                    client sends is kept */
    PROXY_DROP,  /* nothing more is passed on in this direction; the other one goes on */
    PROXY_LATE,  /* the client's side is closed; what it sent is kept. Only for requests */
    /* the receiver in this direction is told that nothing more comes; the other direction goes
     * on */
    PROXY_HALF,
    PROXY_BEHIND, /* nothing more passes until other connections have overtaken this one, then it
                     goes on. Only for requests */
};

/* The fault happens when byte `after` + 1 of the stream comes to the proxy: the bytes before it are
 * passed on, that one is not. So a cut of the replies after 0 bytes is a request that was carried
 * out and not answered. */
struct proxy_fault {
    enum proxy_fault_kind kind;
    enum proxy_way way;
    /* counted from 1, in the order of coming; 0: the first one that gets there */
    uint32_t connection;
    uint64_t after;
};

/* Plants a fault, which happens once; returns its number. */
int proxy_plant(struct proxy *p, const struct proxy_fault *fault);
bool proxy_happened(const struct proxy *p, int fault);
/* the test fails if the fault does not happen */
void proxy_await(const struct proxy *p, int fault);
/* Sends what a PROXY_STALL or PROXY_LATE kept back to the server, and after it the end of the
 * stream. When this returns the server has closed the connection, so it has read all of it. Returns
 * the number of bytes. */
uint64_t proxy_deliver(struct proxy *p, int fault);

/* ---- Connections that change places ----
 *
 * What a PROXY_BEHIND holds back arrives behind requests that came later on other connections:
 * behind those that the server has answered meanwhile, so it has carried them out. If the client
 * has closed by then, what it had sent reaches the server all the same, and after it the end of the
 * stream. */

/* Plants a fault that ends by itself, behind so many bytes of others; the faults of proxy_plant()
 * wait for proxy_go_on(). */
int proxy_plant_behind(struct proxy *p, uint32_t connection, uint64_t after, uint64_t others);
/* Ends the fault now. Returns the number of bytes that had been held back. They have left the
 * proxy; if the client is gone, the server has read them. */
uint64_t proxy_go_on(struct proxy *p, int fault);
/* returns true if it has ended, by itself or by proxy_go_on() */
bool proxy_went_on(const struct proxy *p, int fault);
uint64_t proxy_overtaken(const struct proxy *p,
                         int fault); /* number of bytes of others that were answered meanwhile */

/* ---- Faults of all connections, until they are taken back ---- */

void proxy_delay(struct proxy *p, enum proxy_way way,
                 int64_t ms); /* each byte passes that much later; 0: no more */
void proxy_dribble(struct proxy *p, enum proxy_way way, bool on); /* byte by byte */
void proxy_dribble_every(struct proxy *p, enum proxy_way way,
                         int64_t ms); /* a byte each that many ms; 0: no more */
/* New connections are refused; those that are there go on. Returns when one was refused. */
void proxy_refuse(struct proxy *p, bool on);
void proxy_freeze(struct proxy *p, bool on); /* nothing passes, nobody is told */
/* closes what is open now; returns how many connections that were */
uint32_t proxy_cut_all(struct proxy *p);

/* Return how often connections were spoiled that way so far: pieces that were delayed, bytes that
 * were sent alone, bytes and connections that waited in the freeze. */
uint64_t proxy_delayed(const struct proxy *p);
uint64_t proxy_dribbled(const struct proxy *p);
uint64_t proxy_frozen(const struct proxy *p);

/* ---- Counting ---- */

uint32_t proxy_connections(const struct proxy *p); /* number of connections so far */
uint32_t proxy_open(const struct proxy *p);        /* number of connections that are open now */
/* Returns the number of bytes that came to the proxy on that connection; 0: on all of them. */
uint64_t proxy_bytes(const struct proxy *p, uint32_t connection, enum proxy_way way);
