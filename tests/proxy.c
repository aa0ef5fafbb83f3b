/* proxy.c - a TCP proxy that spoils what it passes on.
 *
 * The proxy is a forked process that shares one map with the test. The test writes its wishes there, counts `wanted` up
 * and waits until the proxy has counted `applied` up to it, so neither reads what the other one is writing; what the
 * proxy counts is atomic. The proxy allocates nothing: it may have been forked from a process with threads. */
#include "proxy.h"

#include "actors.h"
#include "servers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CONNECTIONS = 256, /* at a time; more are left waiting */
    COUNTED = 4096,    /* connections whose bytes are counted apart */
    FAULTS = 64,
    HELD = 65536, /* bytes of one direction on their way through */
    PIECES = 64,  /* of them that were read at different times */
    PATIENCE_MS = 10000,
    FREEZE_LOOK_MS = 2,
};

/* What the test wants. */
struct wishes {
    int64_t delay_ns[2];
    bool dribble[2], refuse, freeze;
    uint32_t cuts; /* how often everything was to be cut so far */
    struct proxy_fault fault[FAULTS];
    bool deliver[FAULTS];
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
    int fd[2];       /* of the client, of the server: stream w goes from fd[w] to fd[!w]; -1: closed */
    int stalled_by;  /* 1 + the fault; 0: none */
    bool delivering;
    struct stream stream[2];
};

struct shared {
    _Atomic uint32_t wanted, applied;
    struct wishes wishes;
    _Atomic uint32_t connections, open, cut;
    _Atomic uint64_t bytes[COUNTED + 1][2]; /* [0]: of all */
    _Atomic uint64_t delayed, dribbled, frozen;
    _Atomic bool happened[FAULTS], delivered[FAULTS];
    _Atomic uint64_t delivered_bytes[FAULTS];
    struct connection connection[CONNECTIONS]; /* the proxy's own */
};

struct proxy {
    struct shared *shared;
    pid_t pid;
    uint16_t port, server_port;
    int listener, bell;
    struct wishes wishes; /* in the proxy: those in force. In the test: those made so far */
};

/* ---- Inside the proxy: passing on ---- */

static void close_side(struct connection *c, int side)
{
    if (c->fd[side] >= 0)
        close(c->fd[side]);
    c->fd[side] = -1;
}

static void close_connection(struct proxy *p, struct connection *c)
{
    close_side(c, 0);
    close_side(c, 1);
    c->number = 0;
    atomic_fetch_sub(&p->shared->open, 1);
    if (c->stalled_by)
        atomic_store(&p->shared->delivered[c->stalled_by - 1], true);
}

static void reset_on_close(int fd)
{
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
}

/* Takes the first bytes away, after they were sent. */
static void drop_front(struct stream *s, uint32_t size)
{
    s->held -= size;
    memmove(s->bytes, s->bytes + size, s->held);
    while (size) {
        uint32_t part = size < s->piece[0].size ? size : s->piece[0].size;
        size -= part;
        s->piece[0].size -= part;
        if (s->piece[0].size == 0)
            memmove(s->piece, s->piece + 1, --s->pieces * sizeof *s->piece);
    }
}

/* Sends what is due; at most one byte where they dribble. False: the receiver is gone. */
static bool send_due(struct proxy *p, struct connection *c, enum proxy_way way, int64_t now)
{
    struct stream *s = &c->stream[way];
    uint32_t due = 0;
    for (uint32_t i = 0; i < s->pieces && s->piece[i].due_ns <= now; i++)
        due += s->piece[i].size;
    bool alone = p->wishes.dribble[way] && due;
    if (alone)
        atomic_fetch_add(&p->shared->dribbled, 1);
    ssize_t sent = due ? send(c->fd[!way], s->bytes, alone ? 1 : due, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent > 0)
        drop_front(s, (uint32_t)sent);
    else if (alone)
        atomic_fetch_sub(&p->shared->dribbled, 1);
    if (s->ended && s->held == 0 && !s->told) {
        s->told = true;
        shutdown(c->fd[!way], SHUT_WR);
    }
    return sent >= 0 || errno == EAGAIN;
}

/* Sends all that is held, due or not: a fault is about to happen behind it. */
static void send_all(struct connection *c, enum proxy_way way)
{
    struct stream *s = &c->stream[way];
    struct pollfd to = {.fd = c->fd[!way], .events = POLLOUT};
    while (s->held && poll(&to, 1, 1000) == 1) {
        ssize_t sent = send(to.fd, s->bytes, s->held, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            return;
        drop_front(s, (uint32_t)sent);
    }
}

/* ---- Inside the proxy: faults ---- */

/* The planted fault that the bytes [from, to) of this stream bring about; -1: none. */
static int fault_in(const struct proxy *p, const struct connection *c, enum proxy_way way, uint64_t from, uint64_t to)
{
    int first = -1;
    for (int i = 0; i < p->wishes.faults; i++) {
        const struct proxy_fault *f = &p->wishes.fault[i];
        bool here = f->way == way && (f->connection == 0 || f->connection == c->number);
        if (here && f->after >= from && f->after < to && !atomic_load(&p->shared->happened[i]) &&
            (first < 0 || f->after < p->wishes.fault[first].after))
            first = i;
    }
    return first;
}

/* Reads what a side has sent and nobody wants: closed with that unread, a socket would reset the other end. */
static void read_away(int fd)
{
    uint8_t waste[4096];
    while (recv(fd, waste, sizeof waste, MSG_DONTWAIT) > 0)
        ;
}

static void happen(struct proxy *p, struct connection *c, enum proxy_way way, int fault)
{
    atomic_store(&p->shared->happened[fault], true); /* before anybody can notice */
    switch (p->wishes.fault[fault].kind) {
    case PROXY_CUT:
        read_away(c->fd[0]);
        read_away(c->fd[1]);
        close_connection(p, c);
        break;
    case PROXY_RESET:
        reset_on_close(c->fd[0]);
        reset_on_close(c->fd[1]);
        close_connection(p, c);
        break;
    case PROXY_HALF:
        c->stream[way].told = true;
        shutdown(c->fd[!way], SHUT_WR);
        c->stream[way].dropping = true;
        break;
    case PROXY_DROP:
        c->stream[way].dropping = true;
        break;
    case PROXY_STALL:
    case PROXY_LATE:
        c->stalled_by = 1 + fault;
        break;
    }
}

/* ---- Inside the proxy: reading ---- */

static void hold(struct proxy *p, struct stream *s, enum proxy_way way, const uint8_t *bytes, uint32_t size)
{
    if (size == 0)
        return;
    memcpy(s->bytes + s->held, bytes, size);
    s->held += size;
    int64_t delay_ns = p->wishes.delay_ns[way];
    s->piece[s->pieces++] = (struct piece){size, delay_ns ? now_ns() + delay_ns : 0};
    if (delay_ns)
        atomic_fetch_add(&p->shared->delayed, 1);
}

static void count_bytes(struct proxy *p, const struct connection *c, enum proxy_way way, uint64_t size)
{
    atomic_fetch_add(&p->shared->bytes[0][way], size);
    if (c->number <= COUNTED)
        atomic_fetch_add(&p->shared->bytes[c->number][way], size);
}

/* Bytes came. Those behind a fault are kept by a stall and lost otherwise. */
static void take(struct proxy *p, struct connection *c, enum proxy_way way, const uint8_t *bytes, uint32_t size)
{
    struct stream *s = &c->stream[way];
    uint64_t from = s->come;
    s->come += size;
    count_bytes(p, c, way, size);
    if (c->stalled_by) {
        hold(p, s, way, bytes, size);
        return;
    }
    int fault = fault_in(p, c, way, from, s->come);
    uint32_t before = fault < 0 ? size : (uint32_t)(p->wishes.fault[fault].after - from);
    if (!s->dropping)
        hold(p, s, way, bytes, before);
    if (fault < 0)
        return;
    send_all(c, way);
    happen(p, c, way, fault);
    if (c->number && c->stalled_by) {
        s->held = s->pieces = 0;
        hold(p, s, way, bytes + before, size - before);
    }
}

static bool has_room(const struct stream *s)
{
    return s->held < HELD && s->pieces < PIECES;
}

/* Reads once. False: the connection is over. */
static bool read_side(struct proxy *p, struct connection *c, enum proxy_way way)
{
    uint8_t bytes[HELD];
    struct stream *s = &c->stream[way];
    ssize_t got = recv(c->fd[way], bytes, HELD - s->held, MSG_DONTWAIT);
    if (got > 0)
        take(p, c, way, bytes, (uint32_t)got);
    else if (got == 0)
        s->ended = true;
    else if (errno != EAGAIN)
        return false;
    return true;
}

/* ---- Inside the proxy: one turn of a connection ---- */

static bool may_read(const struct connection *c, enum proxy_way way)
{
    return c->fd[way] >= 0 && !c->stream[way].ended && has_room(&c->stream[way]);
}

static void turn_passing(struct proxy *p, struct connection *c, int64_t now)
{
    for (enum proxy_way way = PROXY_REQUESTS; way <= PROXY_REPLIES; way++) {
        if (may_read(c, way) && !read_side(p, c, way)) {
            close_connection(p, c);
            return;
        }
        if (!c->number || c->stalled_by)
            return;
        if (!send_due(p, c, way, now)) {
            close_connection(p, c);
            return;
        }
    }
    if (c->stream[0].told && c->stream[1].told)
        close_connection(p, c);
}

/* A stalled one keeps what its client sends. A late one's client is sent away as soon as it says nothing for now. */
static void turn_stalled(struct proxy *p, struct connection *c)
{
    while (may_read(c, PROXY_REQUESTS)) {
        uint32_t held = c->stream[0].held;
        if (!read_side(p, c, PROXY_REQUESTS))
            c->stream[0].ended = true;
        if (c->stream[0].held == held)
            break;
    }
    if (p->wishes.fault[c->stalled_by - 1].kind == PROXY_LATE)
        close_side(c, 0);
}

/* Sends what was kept, and its end; the server's own end says that it has dealt with it. */
static void turn_delivering(struct proxy *p, struct connection *c)
{
    if (!c->stream[0].told) {
        send_all(c, PROXY_REQUESTS);
        shutdown(c->fd[1], SHUT_WR);
        c->stream[0].told = true;
    }
    uint8_t waste[4096];
    ssize_t got = recv(c->fd[1], waste, sizeof waste, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        close_connection(p, c);
}

static void turn(struct proxy *p, struct connection *c, int64_t now)
{
    if (!c->stalled_by)
        turn_passing(p, c, now);
    if (c->number && c->stalled_by && !c->delivering)
        turn_stalled(p, c);
    if (c->number && c->delivering)
        turn_delivering(p, c);
}

/* ---- Inside the proxy: connections come ---- */

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in at = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static struct connection *free_place(struct proxy *p)
{
    for (int i = 0; i < CONNECTIONS; i++)
        if (p->shared->connection[i].number == 0)
            return &p->shared->connection[i];
    return NULL;
}

static void begin(struct connection *c, uint32_t number, int client, int server)
{
    c->number = number;
    c->fd[0] = client;
    c->fd[1] = server;
    c->stalled_by = 0;
    c->delivering = false;
    for (int way = 0; way < 2; way++) {
        struct stream *s = &c->stream[way];
        s->held = s->pieces = 0;
        s->come = 0;
        s->ended = s->told = s->dropping = false;
        setsockopt(c->fd[way], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    }
}

/* One that the server does not take is counted and closed. */
static void let_in(struct proxy *p, struct connection *place)
{
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0)
        return;
    uint32_t number = 1 + atomic_fetch_add(&p->shared->connections, 1);
    int server = connect_to(p->server_port);
    if (server < 0) {
        close(client);
        return;
    }
    atomic_fetch_add(&p->shared->open, 1);
    begin(place, number, client, server);
}

/* ---- Inside the proxy: wishes ---- */

static void cut_everything(struct proxy *p)
{
    for (int i = 0; i < CONNECTIONS; i++)
        if (p->shared->connection[i].number) {
            close_connection(p, &p->shared->connection[i]);
            atomic_fetch_add(&p->shared->cut, 1);
        }
}

static void deliver(struct proxy *p, int fault)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &p->shared->connection[i];
        if (c->number == 0 || c->stalled_by != 1 + fault)
            continue;
        turn_stalled(p, c);
        close_side(c, 0);
        c->delivering = true;
        atomic_store(&p->shared->delivered_bytes[fault], c->stream[0].held);
    }
}

/* A socket that was shut down listens no more and keeps its port. */
static void listen_or_not(const struct proxy *p, bool refuse)
{
    if ((refuse ? shutdown(p->listener, SHUT_RDWR) : listen(p->listener, CONNECTIONS)) != 0)
        _exit(70);
}

static void apply(struct proxy *p)
{
    uint32_t wanted = atomic_load(&p->shared->wanted);
    if (wanted == atomic_load(&p->shared->applied))
        return;
    struct wishes before = p->wishes;
    p->wishes = p->shared->wishes;
    if (p->wishes.refuse != before.refuse)
        listen_or_not(p, p->wishes.refuse);
    if (p->wishes.cuts != before.cuts)
        cut_everything(p);
    for (int i = 0; i < p->wishes.faults; i++)
        if (p->wishes.deliver[i] && !before.deliver[i])
            deliver(p, i);
    atomic_store(&p->shared->applied, wanted);
}

/* ---- Inside the proxy: waiting ---- */

static short events_of(const struct connection *c, int side, int64_t now, int64_t *wake)
{
    if (c->delivering)
        return side == 1 ? POLLIN : 0;
    short events = may_read(c, (enum proxy_way)side) && !(c->stalled_by && side == 1) ? POLLIN : 0;
    const struct stream *to = &c->stream[!side];
    if (c->stalled_by || !to->pieces)
        return events;
    if (to->piece[0].due_ns > now)
        *wake = to->piece[0].due_ns < *wake ? to->piece[0].due_ns : *wake;
    else
        events |= POLLOUT;
    return events;
}

/* Sleeps until something can be read or sent or is due, or the test rings. */
static void await_work(struct proxy *p)
{
    struct pollfd fds[2 * CONNECTIONS + 2];
    nfds_t count = 0;
    int64_t now = now_ns(), wake = INT64_MAX;
    fds[count++] = (struct pollfd){.fd = p->bell, .events = POLLIN};
    if (!p->wishes.refuse && free_place(p))
        fds[count++] = (struct pollfd){.fd = p->listener, .events = POLLIN};
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &p->shared->connection[i];
        for (int side = 0; c->number && side < 2; side++) {
            short events = events_of(c, side, now, &wake);
            if (events) /* without, poll would still tell of a hang-up, for ever */
                fds[count++] = (struct pollfd){.fd = c->fd[side], .events = events};
        }
    }
    struct timespec left = {.tv_sec = (wake - now) / 1000000000, .tv_nsec = (wake - now) % 1000000000};
    ppoll(fds, count, wake == INT64_MAX ? NULL : &left, NULL);
}

/* In the freeze: how much stands before the door. Looked at, and slept between. */
static void look_at_the_frozen(struct proxy *p)
{
    uint64_t waiting = 0;
    struct pollfd door = {.fd = p->listener, .events = POLLIN};
    waiting += !p->wishes.refuse && poll(&door, 1, 0) == 1;
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &p->shared->connection[i];
        for (int side = 0; c->number && side < 2; side++) {
            int unread = 0;
            if (c->fd[side] >= 0 && ioctl(c->fd[side], FIONREAD, &unread) == 0)
                waiting += (uint64_t)unread + c->stream[side].held;
        }
    }
    if (waiting > atomic_load(&p->shared->frozen))
        atomic_store(&p->shared->frozen, waiting);
    struct pollfd bell = {.fd = p->bell, .events = POLLIN};
    poll(&bell, 1, FREEZE_LOOK_MS);
}

static void pass_on(struct proxy *p)
{
    struct pollfd door = {.fd = p->listener, .events = POLLIN};
    struct connection *place;
    while (!p->wishes.refuse && (place = free_place(p)) && poll(&door, 1, 0) == 1)
        let_in(p, place);
    int64_t now = now_ns();
    for (int i = 0; i < CONNECTIONS; i++)
        if (p->shared->connection[i].number)
            turn(p, &p->shared->connection[i], now);
    await_work(p);
}

_Noreturn static void be_proxy(struct proxy *p)
{
    for (int i = 1; i < NSIG; i++) /* cmocka's own handlers would go on with the test here */
        signal(i, SIG_DFL);
    for (;;) {
        uint64_t rings;
        while (read(p->bell, &rings, sizeof rings) > 0)
            ;
        apply(p);
        if (p->wishes.freeze)
            look_at_the_frozen(p);
        else
            pass_on(p);
    }
}

/* ---- In the test ---- */

static void open_door(struct proxy *p)
{
    for (int i = 0; i < 20; i++) {
        p->port = free_port();
        struct sockaddr_in at = loopback(p->port);
        p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(p->listener >= 0);
        /* Or it could not listen again while a connection is there. */
        setsockopt(p->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        if (bind(p->listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(p->listener, CONNECTIONS) == 0)
            return;
        close(p->listener);
    }
    fail_msg("no port for a proxy");
}

struct proxy *proxy_start(uint16_t server_port)
{
    struct proxy *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->server_port = server_port;
    p->shared =
        mmap(NULL, sizeof *p->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p->shared != MAP_FAILED);
    p->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(p->bell >= 0);
    open_door(p);
    pid_t parent = getpid();
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        be_proxy(p);
    }
    close(p->listener); /* the proxy's alone: it must be able to refuse */
    return p;
}

uint16_t proxy_port(const struct proxy *p)
{
    return p->port;
}

void proxy_end(struct proxy *p)
{
    int status;
    kill(p->pid, SIGKILL);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    close(p->bell);
    munmap(p->shared, sizeof *p->shared);
    free(p);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* not before, by itself */
}

/* Waits until `condition` is true, which the proxy makes true. */
#define await_proxy(condition, ...)                                                                                    \
    for (int64_t end = now_ns() + (int64_t)PATIENCE_MS * 1000000; !(condition);) {                                     \
        if (now_ns() > end)                                                                                            \
            fail_msg(__VA_ARGS__);                                                                                     \
        nap_us(50);                                                                                                    \
    }

static void want(struct proxy *p)
{
    p->shared->wishes = p->wishes;
    uint32_t wanted = 1 + atomic_fetch_add(&p->shared->wanted, 1);
    assert_int_equal(write(p->bell, &(uint64_t){1}, sizeof(uint64_t)), sizeof(uint64_t));
    await_proxy(atomic_load(&p->shared->applied) == wanted, "the proxy does not react");
}

int proxy_plant(struct proxy *p, const struct proxy_fault *fault)
{
    assert_true(p->wishes.faults < FAULTS);
    assert_true(fault->kind != PROXY_LATE || fault->way == PROXY_REQUESTS);
    p->wishes.fault[p->wishes.faults++] = *fault;
    want(p);
    return p->wishes.faults - 1;
}

bool proxy_happened(const struct proxy *p, int fault)
{
    return atomic_load(&p->shared->happened[fault]);
}

void proxy_await(const struct proxy *p, int fault)
{
    await_proxy(proxy_happened(p, fault), "fault %d did not happen: %ju bytes of requests and %ju of replies came",
                fault, (uintmax_t)proxy_bytes(p, 0, PROXY_REQUESTS), (uintmax_t)proxy_bytes(p, 0, PROXY_REPLIES));
}

uint64_t proxy_deliver(struct proxy *p, int fault)
{
    assert_true(proxy_happened(p, fault));
    p->wishes.deliver[fault] = true;
    want(p);
    await_proxy(atomic_load(&p->shared->delivered[fault]), "the server does not take what came late");
    return atomic_load(&p->shared->delivered_bytes[fault]);
}

void proxy_delay(struct proxy *p, enum proxy_way way, int64_t ms)
{
    p->wishes.delay_ns[way] = ms * 1000000;
    want(p);
}

void proxy_dribble(struct proxy *p, enum proxy_way way, bool on)
{
    p->wishes.dribble[way] = on;
    want(p);
}

void proxy_refuse(struct proxy *p, bool on)
{
    p->wishes.refuse = on;
    want(p);
    if (!on)
        return;
    assert_int_equal(connect_to(p->port), -1);
    assert_int_equal(errno, ECONNREFUSED);
}

void proxy_freeze(struct proxy *p, bool on)
{
    p->wishes.freeze = on;
    want(p);
}

uint32_t proxy_cut_all(struct proxy *p)
{
    uint32_t before = atomic_load(&p->shared->cut);
    p->wishes.cuts++;
    want(p);
    return atomic_load(&p->shared->cut) - before;
}

uint64_t proxy_delayed(const struct proxy *p)
{
    return atomic_load(&p->shared->delayed);
}

uint64_t proxy_dribbled(const struct proxy *p)
{
    return atomic_load(&p->shared->dribbled);
}

uint64_t proxy_frozen(const struct proxy *p)
{
    return atomic_load(&p->shared->frozen);
}

uint32_t proxy_connections(const struct proxy *p)
{
    return atomic_load(&p->shared->connections);
}

uint32_t proxy_open(const struct proxy *p)
{
    return atomic_load(&p->shared->open);
}

uint64_t proxy_bytes(const struct proxy *p, uint32_t connection, enum proxy_way way)
{
    assert_true(connection <= COUNTED);
    return atomic_load(&p->shared->bytes[connection][way]);
}
