/* proxy_internal.h - what the files of the proxy share: the map between the test and the proxy's
 * process, and the process's functions. proxy_forward.c moves and spoils the bytes of a connection,
 * proxy_process.c lets connections in and carries out wishes, proxy.c is the test's side.
 *
 * The test writes its wishes into the map, counts `wanted` up and waits until the proxy has counted
 * `applied` up to it, so neither reads what the other one is writing; what the proxy counts is
 * atomic. The proxy allocates nothing: it may have been forked from a process with threads. */
#pragma once
#include "proxy.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <sys/types.h>

enum {
    CONNECTIONS = 256, /* at a time; more are left waiting */
    COUNTED = 4096,    /* connections whose bytes are counted apart */
    FAULTS = 64,
    HELD = 65536, /* bytes of one direction on their way through */
    PIECES = 64,  /* of them that were read at different times */
    PATIENCE_MS = 10000,
    FREEZE_LOOK_MS = 2,
    SEND_WITHIN_MS = 1000,
};

/* What the test wants. */
struct overrides {
    int64_t delay_ns[2];
    int64_t every_ns[2]; /* between two bytes that dribble */
    bool dribble[2], refuse, freeze;
    uint32_t cuts; /* how often everything was to be cut so far */
    struct proxy_fault fault[FAULTS];
    bool deliver[FAULTS];
    uint64_t others[FAULTS]; /* PROXY_BEHIND: so many of their bytes are to overtake it; 0: until it
                                is told */
    int faults;
};

/* One direction of a connection. The bytes held are at [0, held). */
struct stream {
    uint8_t bytes[HELD];
    uint32_t held;
    struct piece {
        uint32_t size;
        int64_t due_ns;
    } piece[PIECES];
    uint32_t pieces;
    uint64_t come; /* bytes that came so far */
    bool ended;    /* the sender said so */
    bool told;     /* and so did we */
    bool dropping;
};

struct connection {
    uint32_t number; /* 0: this place is free */
    int fd[2]; /* of the client, of the server: stream w goes from fd[w] to fd[!w]; -1: closed */
    int stalled_by; /* 1 + the fault; 0: none */
    int behind;     /* the same: its requests wait until others have overtaken them */
    bool delivering;
    uint64_t unanswered; /* bytes of requests that were passed on since something was held back or
                            answered */
    struct stream stream[2];
};

struct shared {
    _Atomic uint32_t wanted, applied;
    struct overrides overrides;
    _Atomic uint32_t connections, open, cut;
    _Atomic uint64_t bytes[COUNTED + 1][2]; /* [0]: of all */
    _Atomic uint64_t delayed, dribbled, frozen;
    _Atomic bool happened[FAULTS], delivered[FAULTS];
    _Atomic uint64_t delivered_bytes[FAULTS], overtaken[FAULTS];
    struct connection connection[CONNECTIONS]; /* the proxy's own */
};

struct proxy {
    struct shared *shared;
    pid_t pid;
    uint16_t port, server_port;
    int listener, bell;
    struct overrides overrides; /* in the proxy: those in force. In the test: those made so far */
};

/* ---- proxy_forward.c ---- */

void proxy_turn(struct proxy *p, struct connection *c,
                int64_t now); /* reads, spoils and sends what can be now */
bool proxy_may_read(const struct connection *c, enum proxy_way way);
void proxy_let_go(struct proxy *p, int fault); /* what it kept back goes to the server */
void proxy_close_connection(struct proxy *p, struct connection *c);

/* ---- proxy_process.c ---- */

_Noreturn void proxy_run(struct proxy *p);
struct sockaddr_in proxy_loopback(uint16_t port);
int proxy_connect_to(uint16_t port); /* -1: nobody is there */
