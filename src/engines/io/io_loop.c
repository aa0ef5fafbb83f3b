/* io_loop.c - the caller's own event loop reads replies while it is awake.
 *
 * Why. A reply that the background thread reads wakes two threads: the background thread, and then
 * the loop for the callback. A loop that polls the sockets reads its reply itself, with one system
 * call.
 *
 * How. The loop polls an epoll descriptor that holds the connections, and reads whatever has come
 * when it calls hf_process. It never drives: it does not sleep here, and another thread may poll
 * the same connection. An op without a caller leaves its connections to the loop for
 * IO_LOOP_PATIENCE after the loop read last, or after the first such op was submitted. Then the
 * background thread drives them, so a blocked loop does not cost leases.
 *
 * Cost. A reply that arrives while the loop is blocked is read up to 20 ms later, or 40 ms if the
 * loop submits meanwhile. While the loop is awake the background thread checks every 20 ms.
 * tests/models/loop.pml is the model. */
#include "io_internal.h"

#include "sys/clock.h"

#include <sys/epoll.h>

#define IO_LOOP_PATIENCE NANOS_OF_MS(20)

enum { READ_AT_ONCE = 64 };

static nanos later(nanos a, nanos b)
{
    return a > b ? a : b;
}

/* ---- The connections that the loop polls ---- */

/* Without memory the loop does not poll this connection, and the background thread reads it. */
void io_loop_watch(struct io *io, struct io_connection *connection)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (io->loop_fd < 0 || io->loop_ended)
        return;

    assert(connection->conn && !connection->in_loop);
    if (epoll_ctl(io->loop_fd, EPOLL_CTL_ADD, conn_fd(connection->conn), &event) < 0)
        return;
    connection->in_loop = true;
    io->loop_set |= connection_set_of(connection->number);
}

void io_loop_unwatch(struct io *io, struct io_connection *connection)
{
    if (!connection->in_loop)
        return;

    struct epoll_event ignored = {0};
    connection->in_loop = false;
    epoll_ctl(io->loop_fd, EPOLL_CTL_DEL, conn_fd(connection->conn), &ignored);

    connection_set set = connection_set_of(connection->number);
    unsigned row = 0;
    io->loop_set &= ~set;
    for (const struct io_connection *other; (other = io_next_open(io, &set, &row));)
        io->loop_set |= other->in_loop ? connection_set_of(other->number) : 0;
}

static void watch_all(struct io *io)
{
    connection_set open = io->open;
    unsigned row = 0;
    for (struct io_connection *connection; (connection = io_next_open(io, &open, &row));)
        if (connection->conn && connection->up)
            io_loop_watch(io, connection);
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
    connection_set watched = io->loop_set;
    unsigned row = 0;
    for (struct io_connection *connection; (connection = io_next_open(io, &watched, &row));)
        io_loop_unwatch(io, connection);
    io_offer(io, io->open);
    io_unlock(io);
}

/* ---- Loop or background thread ---- */

/* Returns true if the group is left to the loop. That is so only if the loop polls all its
 * connections. */
static bool is_left_to_loop(const struct io *io, unsigned group, nanos now)
{
    connection_set set = connection_set_of(group);
    bool is_dirty = io->dirty & set;
    unsigned row = 0;
    for (const struct io_connection *connection; (connection = io_next_open(io, &set, &row));) {
        const struct conn *conn = connection->conn;
        if (!connection->in_loop)
            return false;

        /* A socket that waits to write is not left to the loop, unless its bytes are those that
         * hf_flush will send. */
        bool writes = conn_events(conn) != POLLIN && !is_dirty;
        if (writes || conn_ready(conn))
            return false;
    }
    return now < later(io->group[group].interest_at, io->loop_read_at) + IO_LOOP_PATIENCE;
}

connection_set io_left_to_loop(const struct io *io, nanos now)
{
    connection_set left = 0;
    for (connection_set connections = io->loop_set & io->interest_set; connections;) {
        unsigned group = io_pop(&connections);
        if (is_left_to_loop(io, group, now))
            left |= connection_set_of(group);
    }
    return left;
}

/* Bounds the sleep of the background thread while the loop is awake, even if nothing is due now:
 * then the loop's next request need not wake that thread. */
nanos io_loop_limit(const struct io *io, nanos now, nanos until)
{
    nanos limit = io->loop_at + IO_LOOP_PATIENCE;
    bool is_awake = io->loop_set && now < limit;
    return is_awake && limit < until ? limit : until;
}

void io_loop_expect(struct io *io, struct io_group *group)
{
    group->interest_at = io->asked_at;
    io->loop_at = later(io->loop_at, io->asked_at);
}

void io_loop_announce(struct io *io, connection_set connections)
{
    bool has_no_driver = connections & io->loop_set & ~io->driven;
    if (has_no_driver && io->background_until > io->asked_at + IO_LOOP_PATIENCE)
        io_wake_waiter(io, &io->background);
}

/* ---- Reading ---- */

/* Reads the watched connections that are readable. If there are more than READ_AT_ONCE, the loop
 * finds its descriptor readable again. */
static void read_readable(struct io *io, nanos now)
{
    struct epoll_event event[READ_AT_ONCE];
    int count = epoll_wait(io->loop_fd, event, READ_AT_ONCE, 0);
    for (int i = 0; i < count; i++)
        if (event[i].data.ptr) /* NULL: the eventfd of the client */
            io_read_now(io, event[i].data.ptr, now);
}

/* Usually replies are due on one connection only: then no epoll_wait() is needed to find it. */
static void read_what_came(struct io *io, nanos now)
{
    connection_set due = io->interest_set & io->loop_set;
    bool is_one = io_is_single(due) && io->group[io_lowest(due)].open_count == 1;
    unsigned row = 0;
    if (is_one && io_read_now(io, io_next_open(io, &due, &row), now))
        return;
    if (io->loop_set)
        read_readable(io, now);
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
