/* io_connections.c - the connections: the engine dials, writes and hangs up; drivers read. */
#include "io_internal.h"

#include "base/error.h"

#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define IDLE_AFTER NANOS_OF_MS(1000)

/* ---- For the engine ---- */

void io_dial(void *ctx, unsigned number, const struct endpoint *to)
{
    struct io *io = ctx;
    struct io_connection *connection = &io->connection[number];
    assert(number < WIRE_CONNECTIONS_MAX && !connection->conn);

    if (connection->wake_fd < 0)
        connection->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (connection->wake_fd >= 0)
        connection->conn = conn_dial(to);
    connection->dial_failed = !connection->conn;
    connection->up = false;
    connection->failed_dials++; /* counts as failed until it is up */
    io->open |= io_bit(number);
    io->dialled |= io_bit(number);
}

bool io_send(void *ctx, unsigned number, const void *bytes, size_t len)
{
    struct io *io = ctx;
    assert(number < WIRE_CONNECTIONS_MAX);
    struct io_connection *connection = &io->connection[number];
    if (!connection->conn || !conn_send(connection->conn, bytes, len))
        return false;

    io->dirty |= io_bit(number);
    io->unsent++;
    return true;
}

/* A failure shows when the connection is driven next. */
void io_start_tls(void *ctx, unsigned number)
{
    struct io *io = ctx;
    struct io_connection *connection = &io->connection[number];
    assert(number < WIRE_CONNECTIONS_MAX && connection->conn && connection->up);
    connection->up = false;
    io_loop_unwatch(io, number);
    conn_start_tls(connection->conn);
}

/* True if the driver waits in poll() or recv() on this connection. If there is a closing one, the
 * driver waits on that one. */
static bool is_waited_on(const struct io_connection *connection)
{
    const struct io_waiter *driver = connection->driver;
    bool waits = driver && (driver->state == IO_POLLING || driver->state == IO_RECEIVING);
    return waits && !connection->closing;
}

/* The library may close the descriptor next. A driver that polls it would keep the file open. */
static void abandon(struct io *io, struct io_connection *connection)
{
    connection->adopted_fd = -1;
    if (is_waited_on(connection))
        io_wake_waiter(io, connection->driver);
}

void io_hang_up(void *ctx, unsigned number)
{
    struct io *io = ctx;
    struct io_connection *connection = &io->connection[number];
    assert(number < WIRE_CONNECTIONS_MAX);
    io->open &= ~io_bit(number);
    connection->dial_failed = false;
    if (connection->adopted_fd >= 0)
        abandon(io, connection);
    if (!connection->conn)
        return;

    io_loop_unwatch(io, number);
    if (is_waited_on(connection)) {
        conn_shut(connection->conn);
        connection->closing = connection->conn;
        io_wake_waiter(io, connection->driver);
    } else {
        conn_free(connection->conn);
    }
    connection->conn = NULL;
}

/* A driver that polls already must poll anew. One that is awake sees the change when it polls. */
void io_adopt(void *ctx, unsigned number, int fd, unsigned interest)
{
    struct io *io = ctx;
    struct io_connection *connection = &io->connection[number];
    assert(number < WIRE_CONNECTIONS_MAX && fd >= 0);
    assert(!connection->conn && io->type->connection_ready);

    short events =
        (short)((interest & WIRE_READABLE ? POLLIN : 0) | (interest & WIRE_WRITABLE ? POLLOUT : 0));
    bool changes = connection->adopted_fd != fd || connection->wanted != events;
    connection->adopted_fd = fd;
    connection->wanted = events;
    if (changes && is_waited_on(connection))
        io_wake_waiter(io, connection->driver);
    if (connection->wake_fd < 0)
        connection->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    connection->dial_failed = connection->wake_fd < 0;
    io->open |= io_bit(number);
    io->dialled |= io_bit(number);
}

/* ---- For the drivers ---- */

void io_free_closing(struct io_connection *connection)
{
    assert(connection->closing);
    conn_free(connection->closing);
    connection->closing = NULL;
}

void io_flush_dirty(struct io *io)
{
    uint32_t dirty = io->dirty;
    assert(dirty && io->unsent);
    io->dirty = io->unsent = 0;
    while (dirty) {
        struct io_connection *connection = &io->connection[io_pop(&dirty)];
        if (!connection->conn)
            continue;

        conn_flush(connection->conn);
        if (is_waited_on(connection) && conn_events(connection->conn) & ~connection->polled)
            /* the driver must also poll for room in the socket */
            io_wake_waiter(io, connection->driver);
    }
}

struct pollfd io_connection_pollfd(struct io_connection *connection)
{
    bool adopted = connection->adopted_fd >= 0;
    assert(adopted || connection->conn);
    connection->polled = adopted ? connection->wanted : conn_events(connection->conn);
    return (struct pollfd){.fd = adopted ? connection->adopted_fd : conn_fd(connection->conn),
                           .events = connection->polled};
}

bool io_connection_ready(const struct io_connection *connection)
{
    if (connection->adopted_fd >= 0)
        return connection->dial_failed;
    if (connection->dial_failed || conn_ready(connection->conn))
        return true;
    return !connection->up && conn_state(connection->conn) == CONN_UP;
}

static void lose(struct io *io, unsigned number, hf_status status, const char *text, nanos now)
{
    char why[ERROR_TEXT_MAX]; /* copied, because `text` is freed with the connection */
    snprintf(why, sizeof why, "%s", text);
    io_hang_up(io, number); /* first, because the engine may dial again */
    io->type->connection_down(io->engine, number, status, why, now);
    io_settle(io);
}

static void lose_conn(struct io *io, unsigned number, nanos now)
{
    const struct conn *conn = io->connection[number].conn;
    lose(io, number, conn_status(conn), conn_error_text(conn), now);
}

static void continue_dial(struct io *io, unsigned number, nanos now)
{
    struct io_connection *connection = &io->connection[number];
    assert(connection->conn && !connection->up);
    enum conn_state state = conn_continue(connection->conn);
    if (state == CONN_FAILED) {
        lose_conn(io, number, now);
    } else if (state == CONN_UP) {
        connection->up = true;
        connection->failed_dials = 0;
        io_loop_watch(io, number);
        io->type->connection_up(io->engine, number, now);
        io_settle(io);
    }
}

/* Returns true if there were bytes, or the connection failed. */
static bool read_connection(struct io *io, unsigned number, nanos now)
{
    struct io_connection *connection = &io->connection[number];
    struct conn *conn = connection->conn;
    assert(conn && connection->up);
    bool more = true, any = false;
    connection->read_at = io->read_at = now;

    /* It ends if the engine hangs up because it cannot decode the bytes, or begins TLS. */
    while (more && connection->conn == conn && connection->up) {
        size_t got;
        if (!conn_read(conn, io->bytes, sizeof io->bytes, &got, &more)) {
            lose_conn(io, number, now);
            return true;
        }
        if (!got)
            continue;

        any = true;
        io->type->connection_bytes(io->engine, number, io->bytes, got, now);
        io_settle(io);
    }
    return any;
}

/* A thread in recv() may have taken bytes that must be handled before these. */
bool io_read_now(struct io *io, unsigned number, nanos now)
{
    struct io_connection *connection = &io->connection[number];
    bool is_read_by_caller = connection->driver && connection->driver->state == IO_RECEIVING;
    if (!connection->conn || !connection->up || is_read_by_caller)
        return false;
    return read_connection(io, number, now);
}

void io_take_bytes(struct io *io, unsigned number, const char *bytes, size_t room, ssize_t got,
                   nanos now)
{
    struct io_connection *connection = &io->connection[number];
    struct conn *conn = connection->conn;
    assert(connection->driver);
    if (connection->closing) {
        io_free_closing(connection); /* the bytes came on the old connection */
        return;
    }

    size_t len;
    bool more;
    connection->read_at = io->read_at = now;
    if (!conn_recv_waited(conn, got, room, &len, &more)) {
        lose_conn(io, number, now);
        return;
    }

    if (len) {
        io->type->connection_bytes(io->engine, number, bytes, len, now);
        io_settle(io);
    }
    if (more && connection->conn == conn && connection->up)
        read_connection(io, number, now);
}

/* An error or the end of the file is for the library to find by reading. */
static void serve_adopted(struct io *io, unsigned number, nanos now)
{
    struct io_connection *connection = &io->connection[number];
    bool writable = connection->happened & POLLOUT, readable = connection->happened & ~POLLOUT;
    unsigned events = (readable ? WIRE_READABLE : 0u) | (writable ? WIRE_WRITABLE : 0u);
    connection->read_at = io->read_at = now;
    io->type->connection_ready(io->engine, number, events, now);
    io_settle(io);
}

void io_serve(struct io *io, unsigned number, nanos now)
{
    struct io_connection *connection = &io->connection[number];
    if (connection->dial_failed) {
        lose(io, number, HF_UNAVAILABLE, "no memory or descriptor for a connection", now);
    } else if (connection->adopted_fd >= 0) {
        serve_adopted(io, number, now);
    } else if (!connection->conn) {
        /* The engine hung up while another connection was served. */
    } else if (!connection->up) {
        continue_dial(io, number, now);
    } else {
        if (connection->polled & POLLOUT)
            conn_flush(connection->conn);
        read_connection(io, number, now);
    }
}

/* A server closes connections that were idle for long. The next op must not find out by losing its
 * request. */
void io_read_idle(struct io *io, nanos now)
{
    for (uint32_t connections = io->open & ~io->driven; connections;) {
        unsigned number = io_pop(&connections);
        const struct io_connection *connection = &io->connection[number];
        bool readable = connection->conn && connection->up;
        if (readable && now - connection->read_at > IDLE_AFTER)
            read_connection(io, number, now);
    }
}

void io_connections_close(struct io *io)
{
    assert(!io->driven);
    for (unsigned i = 0; i < WIRE_CONNECTIONS_MAX; i++) {
        io_hang_up(io, i);
        if (io->connection[i].wake_fd >= 0)
            close(io->connection[i].wake_fd);
    }
}
