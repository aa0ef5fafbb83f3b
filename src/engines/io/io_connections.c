/* io_connections.c - the connections: the engine dials, writes and hangs up; drivers read. */
#include "io_internal.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define IDLE_AFTER NANOS_OF_MS(1000)

/* ---- For the engine ---- */

static struct io_row *row_make(unsigned first)
{
    struct io_row *row = calloc(1, sizeof *row);
    for (unsigned i = 0; row && i < CONNECTION_GROUPS; i++) {
        row->connection[i].number = first + i;
        row->connection[i].adopted_fd = -1;
    }
    return row;
}

bool io_reserve(void *ctx, unsigned count)
{
    struct io *io = ctx;
    while (io->rows * CONNECTION_GROUPS < count) {
        struct io_row **row = realloc(io->row, (io->rows + 1) * sizeof(struct io_row *));
        if (!row)
            return false;
        io->row = row;
        row[io->rows] = row_make(io->rows * CONNECTION_GROUPS);
        if (!row[io->rows])
            return false;
        io->rows++;
    }
    return true;
}

/* Wakes the driver of a group: if it polls other connections of the group, it must poll this one,
 * too. */
static void wake_driver(struct io *io, const struct io_group *group)
{
    if (group->driver && group->driver->state == IO_POLLING)
        io_wake_waiter(io, group->driver);
}

/* Returns false if there is no descriptor with which its driver could be woken. */
static bool set_open(struct io *io, struct io_connection *connection)
{
    struct io_group *group = io_group_of(io, connection);
    group->open_count += !connection->is_open;
    connection->is_open = true;
    io->open |= connection_set_of(connection->number);
    io->dialled |= connection_set_of(connection->number);
    if (group->wake_fd < 0)
        group->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return group->wake_fd >= 0;
}

static void set_closed(struct io *io, struct io_connection *connection)
{
    struct io_group *group = io_group_of(io, connection);
    group->open_count -= connection->is_open;
    connection->is_open = connection->dial_failed = false;
    if (!group->open_count)
        io->open &= ~connection_set_of(connection->number);
}

void io_dial(void *ctx, unsigned number, const struct endpoint *to)
{
    struct io *io = ctx;
    struct io_connection *connection = io_connection_at(io, number);
    assert(!connection->conn);

    if (set_open(io, connection))
        connection->conn = conn_dial(to);
    connection->dial_failed = !connection->conn;
    connection->up = false;
    connection->failed_dials++; /* counts as failed until it is up */
    wake_driver(io, io_group_of(io, connection));
}

bool io_send(void *ctx, unsigned number, const void *bytes, size_t len)
{
    struct io *io = ctx;
    struct io_connection *connection = io_connection_at(io, number);
    if (!connection->conn || !conn_send(connection->conn, bytes, len))
        return false;

    io->dirty |= connection_set_of(number);
    io->unsent++;
    return true;
}

/* The next driver of the connection notices a failure. */
void io_start_tls(void *ctx, unsigned number)
{
    struct io *io = ctx;
    struct io_connection *connection = io_connection_at(io, number);
    assert(connection->conn && connection->up);
    connection->up = false;
    io_loop_unwatch(io, connection);
    conn_start_tls(connection->conn);
}

/* Returns true if the driver waits on this connection. If a socket is still `closing`, the driver
 * waits on that socket. */
static bool is_waited_on(const struct io_connection *connection)
{
    return connection->is_waited_on && !connection->closing;
}

/* The library may close the descriptor next. A driver that polls it would keep the file open. */
static void abandon(struct io *io, struct io_connection *connection)
{
    connection->adopted_fd = -1;
    if (is_waited_on(connection))
        wake_driver(io, io_group_of(io, connection));
}

void io_hang_up(void *ctx, unsigned number)
{
    struct io *io = ctx;
    struct io_connection *connection = io_connection_at(io, number);
    set_closed(io, connection);
    if (connection->adopted_fd >= 0)
        abandon(io, connection);
    if (!connection->conn)
        return;

    io_loop_unwatch(io, connection);
    if (is_waited_on(connection)) {
        conn_shut(connection->conn);
        connection->closing = connection->conn;
        wake_driver(io, io_group_of(io, connection));
    } else {
        conn_free(connection->conn);
    }
    connection->conn = NULL;
}

/* A driver that is already in poll() must poll anew. A driver that is awake sees the change when it
 * polls. */
void io_adopt(void *ctx, unsigned number, int fd, unsigned interest)
{
    struct io *io = ctx;
    struct io_connection *connection = io_connection_at(io, number);
    assert(fd >= 0 && !connection->conn && io->type->connection_ready);

    short events =
        (short)((interest & WIRE_READABLE ? POLLIN : 0) | (interest & WIRE_WRITABLE ? POLLOUT : 0));
    bool changes = connection->adopted_fd != fd || connection->wanted != events;
    connection->adopted_fd = fd;
    connection->wanted = events;
    connection->dial_failed = !set_open(io, connection);
    if (changes)
        wake_driver(io, io_group_of(io, connection));
}

/* ---- For the drivers ---- */

bool io_end_wait(struct io_connection *connection)
{
    assert(connection->is_waited_on);
    connection->is_waited_on = false;
    if (!connection->closing)
        return true;
    conn_free(connection->closing);
    connection->closing = NULL;
    return false;
}

void io_flush_dirty(struct io *io)
{
    connection_set dirty = io->dirty;
    unsigned row = 0;
    assert(dirty && io->unsent);
    io->dirty = io->unsent = 0;
    for (struct io_connection *connection; (connection = io_next_open(io, &dirty, &row));) {
        if (!connection->conn)
            continue;

        conn_flush(connection->conn);
        if (is_waited_on(connection) && conn_events(connection->conn) & ~connection->polled)
            /* the driver must also poll for room in the socket */
            wake_driver(io, io_group_of(io, connection));
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

static void lose(struct io *io, const struct io_connection *connection, hf_status status,
                 const char *text, nanos now)
{
    char why[ERROR_TEXT_MAX]; /* a copy, because `text` is freed with the connection */
    snprintf(why, sizeof why, "%s", text);
    /* The connection is closed first, because the engine may dial again when it is notified. */
    io_hang_up(io, connection->number);
    io->type->connection_down(io->engine, connection->number, status, why, now);
    io_settle(io);
}

static void lose_conn(struct io *io, const struct io_connection *connection, nanos now)
{
    const struct conn *conn = connection->conn;
    lose(io, connection, conn_status(conn), conn_error_text(conn), now);
}

static void continue_dial(struct io *io, struct io_connection *connection, nanos now)
{
    assert(connection->conn && !connection->up);
    enum conn_state state = conn_continue(connection->conn);
    if (state == CONN_FAILED) {
        lose_conn(io, connection, now);
    } else if (state == CONN_UP) {
        connection->up = true;
        connection->failed_dials = 0;
        io_loop_watch(io, connection);
        io->type->connection_up(io->engine, connection->number, now);
        io_settle(io);
    }
}

/* Returns true if there were bytes, or the connection failed. */
static bool read_connection(struct io *io, struct io_connection *connection, nanos now)
{
    struct conn *conn = connection->conn;
    assert(conn && connection->up);
    bool more = true, any = false;
    connection->read_at = io->read_at = now;

    /* The loop ends if the engine hangs up because it cannot decode the bytes, or if it begins TLS.
     */
    while (more && connection->conn == conn && connection->up) {
        size_t got;
        if (!conn_read(conn, io->bytes, sizeof io->bytes, &got, &more)) {
            lose_conn(io, connection, now);
            return true;
        }
        if (!got)
            continue;

        any = true;
        io->type->connection_bytes(io->engine, connection->number, io->bytes, got, now);
        io_settle(io);
    }
    return any;
}

/* Reads nothing and returns false while another thread is in recv() on the connection: that thread
 * may already have bytes, which must be handled before any that would be read now. */
bool io_read_now(struct io *io, struct io_connection *connection, nanos now)
{
    bool is_read_by_caller =
        connection->is_waited_on && io_group_of(io, connection)->driver->state == IO_RECEIVING;
    if (!connection->conn || !connection->up || is_read_by_caller)
        return false;
    return read_connection(io, connection, now);
}

void io_take_bytes(struct io *io, struct io_connection *connection, const char *bytes, size_t room,
                   ssize_t got, nanos now)
{
    if (!io_end_wait(connection))
        return;

    struct conn *conn = connection->conn;
    size_t len;
    bool more;
    connection->read_at = io->read_at = now;
    if (!conn_recv_waited(conn, got, room, &len, &more)) {
        lose_conn(io, connection, now);
        return;
    }

    if (len) {
        io->type->connection_bytes(io->engine, connection->number, bytes, len, now);
        io_settle(io);
    }
    if (more && connection->conn == conn && connection->up)
        read_connection(io, connection, now);
}

/* The library finds an error or the end of the file when it reads. */
static void serve_adopted(struct io *io, struct io_connection *connection, nanos now)
{
    bool writable = connection->happened & POLLOUT, readable = connection->happened & ~POLLOUT;
    unsigned events = (readable ? WIRE_READABLE : 0u) | (writable ? WIRE_WRITABLE : 0u);
    connection->read_at = io->read_at = now;
    io->type->connection_ready(io->engine, connection->number, events, now);
    io_settle(io);
}

void io_serve(struct io *io, struct io_connection *connection, nanos now)
{
    if (connection->dial_failed) {
        lose(io, connection, HF_UNAVAILABLE, "no memory or descriptor for a connection", now);
    } else if (connection->adopted_fd >= 0) {
        serve_adopted(io, connection, now);
    } else if (!connection->conn) {
        /* The engine hung up while another connection was served. */
    } else if (!connection->up) {
        continue_dial(io, connection, now);
    } else {
        if (connection->polled & POLLOUT)
            conn_flush(connection->conn);
        read_connection(io, connection, now);
    }
}

/* A server closes connections that were idle for long. Find out now: otherwise the next op would
 * lose its request. */
void io_read_idle(struct io *io, nanos now)
{
    connection_set idle = io->open & ~io->driven;
    unsigned row = 0;
    for (struct io_connection *connection; (connection = io_next_open(io, &idle, &row));) {
        bool readable = connection->conn && connection->up;
        if (readable && now - connection->read_at > IDLE_AFTER)
            read_connection(io, connection, now);
    }
}

void io_connections_close(struct io *io)
{
    assert(!io->driven);
    for (unsigned i = 0; i < io->rows * CONNECTION_GROUPS; i++)
        io_hang_up(io, i);
    for (unsigned i = 0; i < io->rows; i++)
        free(io->row[i]);
    free(io->row);
    for (unsigned i = 0; i < CONNECTION_GROUPS; i++)
        if (io->group[i].wake_fd >= 0)
            close(io->group[i].wake_fd);
}
