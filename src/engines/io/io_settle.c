/* io_settle.c - after each call of the engine: delivers replies, and tells threads which
 * connections they must read.
 *
 * Each op that got a reply or changed its connections stands in io->touched until it is settled. */
#include "io_internal.h"

#include "sys/clock.h"

/* Updates io->interest_count: the connections in which ops without a caller are interested. */
static void update_interest(struct io *io, struct io_mailbox *mailbox)
{
    connection_set now = mailbox->has_caller ? 0 : mailbox->op->connections;
    for (connection_set changed = now ^ mailbox->interest; changed;) {
        struct io_group *group = &io->group[io_lowest(changed)];
        connection_set bit = connection_set_of(io_pop(&changed));
        bool added = now & bit;
        assert(added || group->interest_count);

        if (added && !group->interest_count)
            io_loop_expect(io, group);
        group->interest_count += added ? 1 : UINT32_MAX;
        if (group->interest_count)
            io->interest_set |= bit;
        else
            io->interest_set &= ~bit;
    }
    mailbox->interest = now;
}

/* Tells about unread replies: notifies the client, or wakes the callers that park for them. The
 * caller's loop takes the replies that it read itself, so the background thread sleeps on. */
static void announce(struct io *io, struct io_mailbox *mailbox)
{
    if (!mailbox->has_caller) {
        io->host->notify(io->host->ctx, mailbox->op);
        if (!io->loop_reads)
            io_notify_background(io);
    }
    for (struct io_waiter *waiter = mailbox->parked; waiter; waiter = waiter->beside)
        io_wake_waiter(io, waiter);
}

static void settle_touched(struct io *io)
{
    while (io->touched) {
        struct io_mailbox *mailbox = io->touched;
        assert(mailbox->touched && mailbox->op);
        io->touched = mailbox->next;
        mailbox->touched = false;
        update_interest(io, mailbox);
        if (mailbox->count)
            announce(io, mailbox);
    }
}

/* Notes connections on which a reply is due that no op waits for. The background thread reads
 * connections that are new in this set after IO_UNCLAIMED_AFTER. */
static void note_unclaimed(struct io *io, connection_set unclaimed)
{
    connection_set added = unclaimed & ~io->unclaimed;
    assert(io->unclaimed != unclaimed);
    io->unclaimed = unclaimed;
    if (!added)
        return;

    nanos now = clock_boot();
    while (added)
        io->group[io_pop(&added)].unclaimed_at = now;
    if (io->background_until > now + IO_UNCLAIMED_AFTER)
        io_wake_waiter(io, &io->background);
}

/* Notes the connections on which servers speak unasked. A thread must begin to read those that are
 * new in the set. */
static void note_listening(struct io *io, connection_set listening)
{
    connection_set added = listening & ~io->listening;
    io->listening = listening;
    io_offer(io, added);
}

static void offer_dialled(struct io *io)
{
    connection_set dialled = io->dialled;
    io->dialled = 0;
    io_offer(io, dialled);
}

void io_settle(struct io *io)
{
    if (io->touched)
        settle_touched(io);

    connection_set unclaimed = io->type->connections ? io->type->connections(io->engine) : 0;
    if (unclaimed != io->unclaimed)
        note_unclaimed(io, unclaimed);
    if (io->type->listening_connections) {
        connection_set listening = io->type->listening_connections(io->engine);
        if (listening != io->listening)
            note_listening(io, listening);
    }
    if (io->dialled)
        offer_dialled(io);
}

void io_drop_waiters(struct io *io, struct io_mailbox *mailbox)
{
    io_settle(io);
    mailbox->has_caller = true; /* makes update_interest() remove its connections */
    update_interest(io, mailbox);
    assert(!mailbox->interest && !mailbox->touched);

    for (struct io_waiter *waiter = mailbox->parked; waiter; waiter = waiter->beside)
        io_wake_waiter(io, waiter);
    mailbox->parked = NULL;
    io_mailbox_drop(io, mailbox);
}

nanos io_tick(struct io *io, nanos now)
{
    nanos again = io->type->tick(io->engine, now);
    io_settle(io);
    return again;
}
