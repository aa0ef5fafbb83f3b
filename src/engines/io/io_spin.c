/* io_spin.c - policy: check for the reply for a moment before sleeping.
 *
 * Why. Waking a sleeping thread takes longer than a server on the same machine needs to reply. A
 * caller that keeps checking its connection for `spin=` microseconds (default 50) gets most replies
 * of a near server without a sleep.
 *
 * When. A caller spins only if no other caller is parked: several would need the CPU for their
 * work. The background thread never spins, because nobody waits for its replies. If the process may
 * use only one CPU, nobody spins: the server needs that CPU (io_open).
 *
 * Cost. A spin that ends without a reply has wasted its time. So each group counts hits and
 * misses and spins less and less where it does not pay (io_spin.h).
 *
 * `spin=0` in the URL has the same effect as the switch. */
#include "io_internal.h"

#include "sys/clock.h"

#include <errno.h>

bool io_may_spin(struct io *io, const struct io_waiter *me)
{
    assert(io->spin && me->connections);
    bool alone = io->waiters == me && !me->next;
    return alone && io_spin_pays(&io->group[io_lowest(me->connections)].spin);
}

bool io_spin_poll(struct pollfd *fds, nfds_t count, nanos until)
{
    do {
        if (poll(fds, count, 0) > 0)
            return true;
    } while (clock_boot() < until);
    return false;
}

ssize_t io_spin_recv(int fd, char *bytes, size_t size, nanos until)
{
    ssize_t got;
    do
        got = conn_recv_now(fd, bytes, size);
    while (got == -EAGAIN && clock_boot() < until);
    return got;
}
