/* proxy_forward.c - inside the proxy: the bytes of a connection, passed on, delayed, dribbled, cut,
 * kept back. */
#include "proxy_internal.h"

#include "actors.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Passing on ---- */

static void close_side(struct connection *c, int side)
{
    if (c->fd[side] >= 0)
        close(c->fd[side]);
    c->fd[side] = -1;
}

void proxy_close_connection(struct proxy *p, struct connection *c)
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
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                   sizeof(struct linger));
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

/* Sends what is due; at most one byte if the proxy dribbles. Returns false if the receiver is
 * gone. */
static bool send_due(struct proxy *p, struct connection *c, enum proxy_way way, int64_t now)
{
    struct stream *s = &c->stream[way];
    uint32_t due = 0;
    for (uint32_t i = 0; i < s->pieces && s->piece[i].due_ns <= now; i++)
        due += s->piece[i].size;
    bool alone = p->overrides.dribble[way] && due;
    if (alone)
        atomic_fetch_add(&p->shared->dribbled, 1);
    ssize_t sent =
        due ? send(c->fd[!way], s->bytes, alone ? 1 : due, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent > 0)
        drop_front(s, (uint32_t)sent);
    if (sent > 0 && alone && s->pieces && s->piece[0].due_ns < now + p->overrides.every_ns[way])
        s->piece[0].due_ns = now + p->overrides.every_ns[way];
    if (sent > 0 && way == PROXY_REQUESTS)
        c->unanswered += (uint64_t)sent;
    if (sent <= 0 && alone)
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
    while (s->held && poll(&to, 1, SEND_WITHIN_MS) == 1) {
        ssize_t sent = send(to.fd, s->bytes, s->held, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            return;
        drop_front(s, (uint32_t)sent);
    }
}

/* ---- Faults ---- */

/* Returns the planted fault that the bytes [from, to) of this stream bring about; -1: none. */
static int fault_in(const struct proxy *p, const struct connection *c, enum proxy_way way,
                    uint64_t from, uint64_t to)
{
    int first = -1;
    for (int i = 0; i < p->overrides.faults; i++) {
        const struct proxy_fault *f = &p->overrides.fault[i];
        bool here = f->way == way && (f->connection == 0 || f->connection == c->number);
        if (here && f->after >= from && f->after < to && !atomic_load(&p->shared->happened[i]) &&
            (first < 0 || f->after < p->overrides.fault[first].after))
            first = i;
    }
    return first;
}

/* Reads and drops what a side has sent: if the socket were closed with that unread, it would reset
 * the other end. */
static void read_away(int fd)
{
    uint8_t waste[4096];
    while (recv(fd, waste, sizeof waste, MSG_DONTWAIT) > 0)
        ;
}

/* From now on, connections that are answered overtake what is held back. */
static void begin_overtaking(struct proxy *p)
{
    for (int i = 0; i < CONNECTIONS; i++)
        p->shared->connection[i].unanswered = 0;
}

/* The server answers on this connection: what had been passed on there has overtaken all that is
 * held back. */
static void count_overtaking(struct proxy *p, struct connection *c)
{
    for (int i = 0; i < CONNECTIONS && c->unanswered; i++) {
        const struct connection *held = &p->shared->connection[i];
        if (!held->number || !held->behind || held == c)
            continue;
        int fault = held->behind - 1;
        uint64_t others = p->overrides.others[fault];
        if (atomic_fetch_add(&p->shared->overtaken[fault], c->unanswered) + c->unanswered >=
                others &&
            others)
            proxy_let_go(p, fault);
    }
    c->unanswered = 0;
}

static void happen(struct proxy *p, struct connection *c, enum proxy_way way, int fault)
{
    atomic_store(&p->shared->happened[fault], true); /* before anybody can notice */
    switch (p->overrides.fault[fault].kind) {
    case PROXY_CUT:
        read_away(c->fd[0]);
        read_away(c->fd[1]);
        proxy_close_connection(p, c);
        break;
    case PROXY_RESET:
        reset_on_close(c->fd[0]);
        reset_on_close(c->fd[1]);
        proxy_close_connection(p, c);
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
    case PROXY_BEHIND:
        c->behind = 1 + fault;
        begin_overtaking(p);
        break;
    }
}

/* ---- Reading ---- */

static void hold(struct proxy *p, struct stream *s, enum proxy_way way, const uint8_t *bytes,
                 uint32_t size)
{
    if (size == 0)
        return;
    memcpy(s->bytes + s->held, bytes, size);
    s->held += size;
    int64_t delay_ns = p->overrides.delay_ns[way];
    s->piece[s->pieces++] = (struct piece){size, delay_ns ? now_ns() + delay_ns : 0};
    if (delay_ns)
        atomic_fetch_add(&p->shared->delayed, 1);
}

static void count_bytes(struct proxy *p, const struct connection *c, enum proxy_way way,
                        uint64_t size)
{
    atomic_fetch_add(&p->shared->bytes[0][way], size);
    if (c->number <= COUNTED)
        atomic_fetch_add(&p->shared->bytes[c->number][way], size);
}

static bool keeps(const struct connection *c, enum proxy_way way)
{
    return c->stalled_by || (c->behind && way == PROXY_REQUESTS);
}

/* Handles bytes that came. Those behind a fault are kept by a stall or a PROXY_BEHIND, and lost
 * otherwise. */
static void take(struct proxy *p, struct connection *c, enum proxy_way way, const uint8_t *bytes,
                 uint32_t size)
{
    struct stream *s = &c->stream[way];
    uint64_t from = s->come;
    s->come += size;
    count_bytes(p, c, way, size);
    if (way == PROXY_REPLIES)
        count_overtaking(p, c);
    if (keeps(c, way)) {
        hold(p, s, way, bytes, size);
        return;
    }
    int fault = fault_in(p, c, way, from, s->come);
    uint32_t before = fault < 0 ? size : (uint32_t)(p->overrides.fault[fault].after - from);
    if (!s->dropping)
        hold(p, s, way, bytes, before);
    if (fault < 0)
        return;
    send_all(c, way);
    happen(p, c, way, fault);
    if (c->number && keeps(c, way)) {
        s->held = s->pieces = 0;
        hold(p, s, way, bytes + before, size - before);
    }
}

static bool has_room(const struct stream *s)
{
    return s->held < HELD && s->pieces < PIECES;
}

/* Reads once. Returns false if the connection is over. */
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

/* ---- One turn of a connection ---- */

bool proxy_may_read(const struct connection *c, enum proxy_way way)
{
    return c->fd[way] >= 0 && !c->stream[way].ended && has_room(&c->stream[way]);
}

/* Passes bytes on. Returns false if the connection is over. */
static bool pass(struct proxy *p, struct connection *c, enum proxy_way way, int64_t now)
{
    if (proxy_may_read(c, way) && !read_side(p, c, way))
        return false;
    return !c->number || keeps(c, way) || send_due(p, c, way, now);
}

static void turn_passing(struct proxy *p, struct connection *c, int64_t now)
{
    for (enum proxy_way way = PROXY_REQUESTS; way <= PROXY_REPLIES; way++) {
        if (!pass(p, c, way, now))
            proxy_close_connection(p, c);
        if (!c->number || c->stalled_by)
            return;
    }
    if (c->stream[0].told && c->stream[1].told)
        proxy_close_connection(p, c);
}

/* Keeps all that the client has sent up to now, be it the end of the stream. */
static void keep_requests(struct proxy *p, struct connection *c)
{
    while (proxy_may_read(c, PROXY_REQUESTS)) {
        uint32_t held = c->stream[0].held;
        if (!read_side(p, c, PROXY_REQUESTS))
            c->stream[0].ended = true;
        if (c->stream[0].held == held)
            break;
    }
}

/* Closes the client's side of a PROXY_LATE as soon as the client sends nothing for now. */
static void turn_stalled(struct proxy *p, struct connection *c)
{
    keep_requests(p, c);
    if (p->overrides.fault[c->stalled_by - 1].kind == PROXY_LATE)
        close_side(c, 0);
}

/* Sends what was kept, and the end of the stream. When the server closes, it has read all of it. */
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
        proxy_close_connection(p, c);
}

/* Requests are held back, replies go on. The requests outlive their client. */
static void turn_behind(struct proxy *p, struct connection *c, int64_t now)
{
    keep_requests(p, c);
    c->stream[0].ended |= !c->stream[0].ended && !pass(p, c, PROXY_REPLIES, now);
}

static void go_on(struct proxy *p, struct connection *c, int fault)
{
    c->behind = 0;
    if (c->stream[0].ended) {
        c->stalled_by = 1 + fault;
        c->delivering = true;
        close_side(c, 0);
        return;
    }
    send_all(c, PROXY_REQUESTS);
    atomic_store(&p->shared->delivered[fault], true);
}

/* Lets go what was kept. If the client is gone, the end of the stream follows. */
void proxy_let_go(struct proxy *p, int fault)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &p->shared->connection[i];
        bool behind = c->behind == 1 + fault;
        if (c->number == 0 || (c->stalled_by != 1 + fault && !behind))
            continue;
        keep_requests(p, c); /* the client may have closed since the last check */
        atomic_store(&p->shared->delivered_bytes[fault], c->stream[0].held);
        c->stream[0].ended |= !behind;
        go_on(p, c, fault);
    }
}

void proxy_turn(struct proxy *p, struct connection *c, int64_t now)
{
    if (c->behind)
        turn_behind(p, c, now);
    else if (!c->stalled_by)
        turn_passing(p, c, now);
    if (c->number && c->stalled_by && !c->delivering)
        turn_stalled(p, c);
    if (c->number && c->delivering)
        turn_delivering(p, c);
}
