/* io_hand_on.c - policy: a driver that leaves a connection hands it on to a parked caller.
 *
 * Why. A driver leaves when it has its own reply, and replies for other ops may still be due on the
 * connection. Some thread must read them: a caller that sleeps while its connection has no driver
 * would sleep for ever. If the next driver is a parked caller, its own reply comes to it directly.
 *
 * How. io_offer() wakes one thread that is interested. The woken thread takes the connection when
 * it has the lock. If another thread came first, that thread drives, and hands on in turn. Callers
 * come before the background thread, which gets the connection if only ops without a caller are
 * interested, or if replies that nobody waits for have been unread for a while (io_is_neglected).
 *
 * Off. The background thread comes before callers, and drives the connection as long as a caller
 * sleeps for it: each reply then passes through a second thread. While the background thread runs
 * callbacks, which may take long, callers are offered the connection even so. */
#include "io_internal.h"

#include "sys/clock.h"

static bool is_interested(const struct io_waiter *waiter, unsigned group)
{
    const struct engine_op *op = waiter->mailbox->op;
    return op && op->connections & connection_set_of(group);
}

/* Returns NULL if no caller that sleeps or polls is interested. */
static struct io_waiter *interested_caller(const struct io *io, unsigned group)
{
    for (struct io_waiter *waiter = io->waiters; waiter; waiter = waiter->next)
        if (waiter->state != IO_AWAKE && is_interested(waiter, group))
            return waiter;
    return NULL;
}

static bool is_for_background(const struct io *io, unsigned group)
{
    connection_set set = connection_set_of(group);
    if (io->listening & set)
        return true;
    if (io->group[group].interest_count && !(io_left_to_loop(io, clock_boot()) & set))
        return true;
    return io->unclaimed & set && io_is_neglected(io, group, clock_boot());
}

static void offer_group(struct io *io, unsigned group)
{
    struct io_waiter *caller = interested_caller(io, group);
    bool prefers_background = !io->policy.hand_on && io->background.state != IO_AWAKE;

    if (caller && !prefers_background)
        io_wake_waiter(io, caller);
    else if (caller || is_for_background(io, group))
        io_wake_waiter(io, &io->background);
}

void io_offer(struct io *io, connection_set connections)
{
    for (connections &= io->open & ~io->driven; connections;)
        offer_group(io, io_pop(&connections));
}

connection_set io_background_share(const struct io *io)
{
    connection_set connections = 0;
    for (struct io_waiter *waiter = io->policy.hand_on ? NULL : io->waiters; waiter;
         waiter = waiter->next)
        if (waiter->state == IO_SLEEPING && waiter->mailbox->op)
            connections |= waiter->mailbox->op->connections;
    return connections;
}

void io_leave_connections(struct io *io, struct io_waiter *me, connection_set connections)
{
    assert((connections & ~me->connections) == 0);
    me->connections &= ~connections;
    io->driven &= ~connections;
    while (connections)
        io->group[io_pop(&connections)].driver = NULL;
}

void io_give_up(struct io *io, struct io_waiter *me, connection_set connections)
{
    io_leave_connections(io, me, connections);
    io_offer(io, connections);
}
