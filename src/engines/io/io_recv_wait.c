/* io_recv_wait.c - policy: sleep in recv() instead of poll().
 *
 * Why. A recv() that sleeps is one system call. A poll() with a time limit and the recv() after it
 * are two, and take twice as long.
 *
 * When. The caller drives exactly one connection, the only one of its group, and its op is
 * interested in no other. The connection is up without TLS, and nothing is due before the recv()
 * would end. So times stay exact.
 *
 * Cost. Nobody can wake a thread in recv(). The socket has a time limit of CONN_RECV_WAIT_MS (20
 * ms), after which recv() returns. The caller then takes the lock, sees whatever happened
 * meanwhile, and polls from then on, where it can be woken. So a cancel that meets a thread in
 * recv() takes effect up to 20 ms late. */
#include "io_internal.h"

#include "sys/clock.h"

#include <errno.h>

/* The kernel may round its time limit up by one or two ticks of its clock. */
#define RECV_WAIT_MAX NANOS_OF_MS(CONN_RECV_WAIT_MS + 20)

enum { RECV_SIZE = 4096 };

/* Returns the only open connection of a group. */
static struct io_connection *only_open(const struct io *io, unsigned group)
{
    assert(io->group[group].open_count == 1);
    unsigned row = 0;
    while (!io->row[row]->connection[group].is_open)
        row++;
    return &io->row[row]->connection[group];
}

struct io_connection *io_recv_wait_on(const struct io *io, const struct io_waiter *me, nanos now,
                                      nanos until)
{
    if (!io->policy.recv_wait || me->recv_waited || !me->mailbox)
        return NULL;

    bool drives_one = io_is_single(me->connections);
    if (!drives_one || me->mailbox->op->connections != me->connections)
        return NULL;

    unsigned group = io_lowest(me->connections);
    bool has_time = until - now > RECV_WAIT_MAX;
    if (!has_time || io->group[group].open_count != 1)
        return NULL;

    struct io_connection *connection = only_open(io, group);
    bool can_wait = connection->up && conn_can_recv_wait(connection->conn);
    return can_wait && !io_connection_ready(connection) ? connection : NULL;
}

nanos io_recv_wait(struct io *io, struct io_waiter *me, struct io_connection *connection)
{
    struct io_group *group = io_group_of(io, connection);
    assert(group->driver == me);
    int fd = conn_fd(connection->conn);
    bool spins = io->spin && io_may_spin(io, me);
    ssize_t got = -EAGAIN;
    char bytes[RECV_SIZE];

    connection->is_waited_on = true;
    me->state = IO_RECEIVING;
    io_unlock(io);
    if (spins)
        got = io_spin_recv(fd, bytes, sizeof bytes, clock_boot() + io->spin);
    bool hit = got != -EAGAIN;
    if (!hit)
        got = conn_recv_wait(fd, bytes, sizeof bytes);
    small_mutex_lock(&io->lock);
    me->state = IO_AWAKE;

    me->recv_waited = got < 0;
    nanos now = clock_boot();
    if (spins)
        io_spin_learn(&group->spin, hit);
    io_take_bytes(io, connection, bytes, sizeof bytes, got, now);
    return now;
}
