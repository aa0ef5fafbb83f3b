/* io_loop.c - the caller's own event loop reads replies while it is awake.
 *
 * Why. A reply that the background thread reads wakes two threads: that one, and then the loop for
 * the callback. A loop that polls the sockets reads its reply itself, with one system call.
 *
 * How. The loop polls an epoll descriptor that holds the connections, and reads whatever has come
 * when it calls hf_process. It never drives: it does not sleep here, and another thread may poll
 * the same connection. An op without a caller leaves its connections to the loop for
 * IO_LOOP_PATIENCE after the loop read last, or after the first such op was submitted. Then the
 * background thread drives them, so a loop that is blocked keeps its leases.
 *
 * Cost. A reply that meets a blocked loop is read up to 20 ms later, or 40 ms if the loop submits
 * meanwhile. While the loop is awake the background thread looks every 20 ms. tests/models/loop.pml
 * is the model. */
#include "io_internal.h"

#include "sys/clock.h"

#include <sys/epoll.h>

#define IO_LOOP_PATIENCE NANOS_OF_MS(20)

static nanos later(nanos a, nanos b)
{
    return a > b ? a : b;
}

/* ---- The connections that the loop polls ---- */

/* Without memory for it the loop does without this connection, and the background thread reads. */
void io_loop_watch(struct io *io, unsigned number)
{
    const struct io_connection *connection = &io->connection[number];
    struct epoll_event event = {.events = EPOLLIN};
    if (io->loop_fd < 0 || io->loop_ended)
        return;

    assert(connection->conn && !(io->loop_set & io_bit(number)));
    if (epoll_ctl(io->loop_fd, EPOLL_CTL_ADD, conn_fd(connection->conn), &event) == 0)
        io->loop_set |= io_bit(number);
}

void io_loop_unwatch(struct io *io, unsigned number)
{
    if (!(io->loop_set & io_bit(number)))
        return;

    struct epoll_event ignored = {0};
    io->loop_set &= ~io_bit(number);
    epoll_ctl(io->loop_fd, EPOLL_CTL_DEL, conn_fd(io->connection[number].conn), &ignored);
}

static void watch_all(struct io *io)
{
    for (uint32_t connections = io->open; connections;) {
        unsigned number = io_pop(&connections);
        if (io->connection[number].conn && io->connection[number].up)
            io_loop_watch(io, number);
    }
}

int io_loop_begin(void *self, int wake_fd)
{
    struct io *io = self;
    struct epoll_event event = {.events = EPOLLIN};
    small_mutex_lock(&io->lock);
    if (io->loop_fd < 0 && (io->loop_fd = epoll_create1(EPOLL_CLOEXEC)) >= 0) {
        if (epoll_ctl(io->loop_fd, EPOLL_CTL_ADD, wake_fd, &event) == 0)
            watch_all(io);
    }
    int fd = io->loop_fd;
    io_unlock(io);
    return fd;
}

void io_loop_end(void *self)
{
    struct io *io = self;
    small_mutex_lock(&io->lock);
    io->loop_ended = true;
    for (uint32_t connections = io->loop_set; connections;)
        io_loop_unwatch(io, io_pop(&connections));
    io_offer(io, io->open);
    io_unlock(io);
}

/* ---- Whose turn it is ---- */

static bool is_left_to_loop(const struct io *io, unsigned number, nanos now)
{
    const struct io_connection *connection = &io->connection[number];
    /* Bytes that hf_flush will send do not count; a socket that took too few of them does. */
    bool writes = conn_events(connection->conn) != POLLIN && !(io->dirty & io_bit(number));
    bool reads_only = !writes && !conn_ready(connection->conn);
    nanos since = later(connection->interest_at, io->loop_read_at);
    return reads_only && now < since + IO_LOOP_PATIENCE;
}

uint32_t io_left_to_loop(const struct io *io, nanos now)
{
    uint32_t left = 0;
    for (uint32_t connections = io->loop_set & io->interest_set; connections;) {
        unsigned number = io_pop(&connections);
        if (is_left_to_loop(io, number, now))
            left |= io_bit(number);
    }
    return left;
}

/* Also if nothing is due now: the next request need not wake the background thread. */
nanos io_loop_limit(const struct io *io, nanos now, nanos until)
{
    nanos limit = io->loop_at + IO_LOOP_PATIENCE;
    bool is_awake = io->loop_set && now < limit;
    return is_awake && limit < until ? limit : until;
}

void io_loop_expect(struct io *io, unsigned number)
{
    io->connection[number].interest_at = io->asked_at;
    io->loop_at = later(io->loop_at, io->asked_at);
}

void io_loop_announce(struct io *io, uint32_t connections)
{
    bool has_no_driver = connections & io->loop_set & ~io->driven;
    if (has_no_driver && io->background_until > io->asked_at + IO_LOOP_PATIENCE)
        io_wake_waiter(io, &io->background);
}

/* ---- Reading ---- */

/* The watched connections that are readable. */
static uint32_t readable_connections(const struct io *io)
{
    struct pollfd fds[WIRE_CONNECTIONS_MAX];
    nfds_t count = 0;
    for (uint32_t connections = io->loop_set; connections;) {
        int fd = conn_fd(io->connection[io_pop(&connections)].conn);
        fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }

    uint32_t readable = 0;
    bool any = count && poll(fds, count, 0) > 0;
    count = 0;
    for (uint32_t connections = any ? io->loop_set : 0; connections;) {
        unsigned number = io_pop(&connections);
        if (fds[count++].revents)
            readable |= io_bit(number);
    }
    return readable;
}

/* Mostly replies are due by one connection alone: then no poll() is needed to find it. */
static void read_what_came(struct io *io, nanos now)
{
    uint32_t due = io->interest_set & io->loop_set;
    if (io_is_single(due) && io_read_now(io, io_lowest(due), now))
        return;

    for (uint32_t readable = readable_connections(io); readable;)
        io_read_now(io, io_pop(&readable), now);
}

void io_loop_read(void *self)
{
    struct io *io = self;
    nanos now = clock_boot();
    small_mutex_lock(&io->lock);
    io->loop_reads = true;
    io->loop_read_at = io->loop_at = now;
    read_what_came(io, now);

    nanos again = io_tick(io, now);
    if (again < io->background_until)
        io_wake_waiter(io, &io->background);
    io->loop_reads = false;
    io_flush_connections(io);
    io_unlock(io);
}
