/* io_poll.c - driving connections: a thread takes connections, waits until something arrives, and
 * handles it. */
#include "io_internal.h"

#include "sys/clock.h"

#include <unistd.h>

/* ---- Taking connections ---- */

static void take_connections(struct io *io, struct io_waiter *me, uint32_t connections)
{
    assert((connections & io->driven) == 0);
    me->connections |= connections;
    io->driven |= connections;
    while (connections)
        io->connection[io_pop(&connections)].driver = me;
}

void io_choose_connections(struct io *io, struct io_waiter *me, uint32_t wanted)
{
    assert(me->state == IO_AWAKE);
    wanted &= io->open;
    take_connections(io, me, wanted & ~io->driven);
    if (me->connections & ~wanted)
        io_give_up(io, me, me->connections & ~wanted);

    /* The background thread has an eventfd of its own; a caller borrows that of a connection. */
    if (me->mailbox && me->connections)
        me->wake_fd = io->connection[io_lowest(me->connections)].wake_fd;
}

/* ---- Polling ---- */

static uint32_t ready_connections(const struct io *io, uint32_t connections)
{
    uint32_t ready = 0;
    while (connections) {
        unsigned number = io_pop(&connections);
        if (io_connection_ready(&io->connection[number]))
            ready |= io_bit(number);
    }

    return ready;
}

/* The limit of poll(2) in ms, rounded up. */
static int poll_limit(nanos until)
{
    if (until == TIME_NEVER)
        return -1;

    nanos ms = (until - clock_boot() + NANOS_OF_MS(1) - 1) / NANOS_OF_MS(1);
    if (ms <= 0)
        return 0;
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

/* Signals may end it early. It is not ppoll(2): that one does not count the time for which the
 * process is stopped, so a lease that expired meanwhile would be noticed late. */
static void poll_until(struct pollfd *fds, nfds_t count, nanos until)
{
    int limit = poll_limit(until);
    for (nfds_t i = 0; i < count; i++)
        fds[i].revents = 0;
    poll(fds, count, limit);
}

/* Resets the eventfd if somebody wrote to it. */
static void empty_wake_fd(struct io_waiter *me, bool readable)
{
    uint64_t writes;
    bool full = me->wake_fd_written || readable;
    if (full && read(me->wake_fd, &writes, sizeof writes) < 0) {
        /* Somebody else emptied it. */
    }
    me->wake_fd_written = false;
}

/* Releases the lock while it polls. fds[0] is the eventfd. */
static void poll_unlocked(struct io *io, struct io_waiter *me, struct pollfd *fds, nfds_t count,
                          nanos until)
{
    bool spins = io->spin && me->mailbox && io_may_spin(io, me), hit = false;

    me->state = IO_POLLING;
    io_unlock(io);
    if (spins) {
        nanos limit = clock_boot() + io->spin;
        hit = io_spin_poll(fds, count, limit < until ? limit : until);
    }
    if (!hit)
        poll_until(fds, count, until);
    small_mutex_lock(&io->lock);
    me->state = IO_AWAKE;

    if (spins)
        io_spin_learn(&io->connection[io_lowest(me->connections)].spin, hit);
    empty_wake_fd(me, fds[0].revents);
}

/* Polls the connections that we drive. Returns those on which something happened. */
static uint32_t poll_connections(struct io *io, struct io_waiter *me, nanos until)
{
    struct pollfd fds[WIRE_CONNECTIONS_MAX + 1] = {{.fd = me->wake_fd, .events = POLLIN}};
    nfds_t count = 1;
    for (uint32_t connections = me->connections; connections;) {
        struct io_connection *connection = &io->connection[io_pop(&connections)];
        fds[count++] = io_connection_pollfd(connection);
    }

    poll_unlocked(io, me, fds, count, until);

    uint32_t happened = 0;
    count = 1;
    for (uint32_t connections = me->connections; connections; count++) {
        unsigned number = io_pop(&connections);
        if (io->connection[number].closing)
            io_free_closing(&io->connection[number]); /* the event was on the old connection */
        else if (fds[count].revents)
            happened |= io_bit(number);
        io->connection[number].happened = fds[count].revents;
    }
    return happened;
}

nanos io_drive(struct io *io, struct io_waiter *me, nanos now, nanos until)
{
    uint32_t happened = ready_connections(io, me->connections);
    if (!happened && io_may_recv_wait(io, me, now, until))
        return io_recv_wait(io, me);

    if (!happened)
        happened = poll_connections(io, me, until);
    if (happened)
        me->recv_waited = false;

    now = clock_boot();
    while (happened)
        io_serve(io, io_pop(&happened), now);
    return now;
}
