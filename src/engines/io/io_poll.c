/* io_poll.c - driving connections: a thread takes connections, waits until something arrives, and
 * handles it. */
#include "io_internal.h"

#include "sys/clock.h"

#include <stdlib.h>
#include <unistd.h>

/* Longest poll of a thread that lacks the memory to poll all its connections. */
#define SHORT_LIST_MAX NANOS_OF_MS(10)

/* ---- Taking connections ---- */

static void take_connections(struct io *io, struct io_waiter *me, connection_set connections)
{
    assert((connections & io->driven) == 0);
    me->connections |= connections;
    io->driven |= connections;
    while (connections)
        io->group[io_pop(&connections)].driver = me;
}

void io_choose_connections(struct io *io, struct io_waiter *me, connection_set wanted)
{
    assert(me->state == IO_AWAKE);
    wanted &= io->open;
    take_connections(io, me, wanted & ~io->driven);
    if (me->connections & ~wanted)
        io_give_up(io, me, me->connections & ~wanted);

    /* The background thread has an eventfd of its own; a caller borrows that of a group. */
    if (me->mailbox && me->connections)
        me->wake_fd = io->group[io_lowest(me->connections)].wake_fd;
}

/* ---- What a thread waits for ---- */

/* The eventfd of the thread, and connections. */
struct wait_list {
    struct pollfd few[CONNECTION_GROUPS + 1], *fds;
    struct io_connection *first[CONNECTION_GROUPS], **connection; /* connection of fds[i + 1] */
    unsigned count;                                               /* number of connections */
    bool is_short; /* some connections are missing, because there is no memory */
};

static unsigned count_open(const struct io *io, connection_set set)
{
    unsigned count = 0;
    while (set)
        count += io->group[io_pop(&set)].open_count;
    return count;
}

/* Without memory only the first connections are polled, and only for a short time. */
static void make_room(struct wait_list *list, unsigned count)
{
    list->fds = list->few;
    list->connection = list->first;
    list->count = 0;
    list->is_short = false;
    if (count <= CONNECTION_GROUPS)
        return;

    struct pollfd *fds = malloc((count + 1) * sizeof *fds);
    struct io_connection **connection = malloc(count * sizeof(struct io_connection *));
    list->is_short = !fds || !connection;
    if (list->is_short) {
        free(fds);
        free(connection);
        return;
    }
    list->fds = fds;
    list->connection = connection;
}

static void gather(const struct io *io, const struct io_waiter *me, struct wait_list *list)
{
    connection_set left = me->connections;
    unsigned row = 0;
    make_room(list, count_open(io, left));
    for (struct io_connection *connection; (connection = io_next_open(io, &left, &row));) {
        if (list->is_short && list->count == CONNECTION_GROUPS)
            break;
        list->connection[list->count++] = connection;
    }
}

static void free_list(struct wait_list *list)
{
    if (list->fds == list->few)
        return;
    free(list->fds);
    free(list->connection);
}

/* Keeps the connections on which there is work that poll() would not show. Returns false, and keeps
 * all, if there is none. */
static bool keep_ready(struct wait_list *list)
{
    unsigned ready = 0;
    for (unsigned i = 0; i < list->count; i++)
        if (io_connection_ready(list->connection[i]))
            list->connection[ready++] = list->connection[i];
    list->count = ready ? ready : list->count;
    return ready;
}

/* ---- Polling ---- */

/* Returns the time limit for poll(2) in ms, rounded up. */
static int poll_limit(nanos until)
{
    if (until == TIME_NEVER)
        return -1;

    nanos ms = (until - clock_boot() + NANOS_OF_MS(1) - 1) / NANOS_OF_MS(1);
    if (ms <= 0)
        return 0;
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

/* Signals may end the poll early. Not ppoll(2), which does not count the time for which the process
 * is stopped: a lease that expired meanwhile would be noticed late. */
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
        /* Another thread has already emptied the eventfd. */
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
        io_spin_learn(&io->group[io_lowest(me->connections)].spin, hit);
    empty_wake_fd(me, fds[0].revents);
}

/* Polls the connections of the list, and keeps those with events. */
static void poll_list(struct io *io, struct io_waiter *me, struct wait_list *list, nanos until)
{
    list->fds[0] = (struct pollfd){.fd = me->wake_fd, .events = POLLIN};
    for (unsigned i = 0; i < list->count; i++) {
        list->connection[i]->is_waited_on = true;
        list->fds[i + 1] = io_connection_pollfd(list->connection[i]);
    }
    nanos soon = clock_boot() + SHORT_LIST_MAX;
    if (list->is_short && soon < until)
        until = soon;

    poll_unlocked(io, me, list->fds, list->count + 1, until);

    unsigned happened = 0;
    for (unsigned i = 0; i < list->count; i++) {
        struct io_connection *connection = list->connection[i];
        connection->happened = list->fds[i + 1].revents;
        if (io_end_wait(connection) && connection->happened)
            list->connection[happened++] = connection;
    }
    list->count = happened;
}

nanos io_drive(struct io *io, struct io_waiter *me, nanos now, nanos until)
{
    struct io_connection *only = io_recv_wait_on(io, me, now, until);
    if (only)
        return io_recv_wait(io, me, only);

    struct wait_list list;
    gather(io, me, &list);
    if (!keep_ready(&list))
        poll_list(io, me, &list, until);
    if (list.count)
        me->recv_waited = false;

    now = clock_boot();
    for (unsigned i = 0; i < list.count; i++)
        io_serve(io, list.connection[i], now);
    free_list(&list);
    return now;
}
