/* io_park.c - callers that park: each drives its connections until its reply is there, or sleeps
 * while other threads drive them. Also how threads are woken. */
#include "io_internal.h"

#include "sys/clock.h"

#include <unistd.h>

/* ---- Waking ---- */

void io_write_wake_fd(int fd)
{
    static const uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) {
        /* A write to an eventfd fails only if the eventfd is full, and then it is already readable.
         */
    }
}

/* A thread that is IO_AWAKE sees the change when it takes the lock. A thread that is IO_RECEIVING
 * cannot be woken and sees the change when its recv() ends (io_recv_wait.c). */
void io_wake_waiter(struct io *io, struct io_waiter *waiter)
{
    assert(waiter->state != IO_POLLING || waiter->wake_fd >= 0);
    if (waiter->state == IO_POLLING && !waiter->wake_fd_written) {
        waiter->wake_fd_written = true;
        io_write_wake_fd(waiter->wake_fd);
    } else if (waiter->state == IO_SLEEPING && !atomic_load(&waiter->word)) {
        atomic_store(&waiter->word, 1);
        waiter->waking = true;
        io->waking++;
        if (io->wakes < IO_WAKES_MAX)
            io->wake[io->wakes++] = &waiter->word;
        else
            futex_wake_here(&waiter->word, 1);
    }
}

/* A sleeper may have returned by itself meanwhile, and its futex word may be gone with its stack.
 * The wake only uses the address, so that is harmless. */
void io_unlock_and_wake(struct io *io)
{
    futex_word *wake[IO_WAKES_MAX];
    uint32_t wakes = io->wakes;
    assert(wakes <= IO_WAKES_MAX);

    for (uint32_t i = 0; i < wakes; i++)
        wake[i] = io->wake[i];
    io->wakes = 0;
    small_mutex_unlock(&io->lock);

    for (uint32_t i = 0; i < wakes; i++)
        futex_wake_here(wake[i], 1);
}

/* ---- Sleeping ---- */

/* Releases the lock while it sleeps. Returns false if nobody woke the caller before `until`. */
static bool sleep_unlocked(struct io *io, struct io_waiter *me, nanos until)
{
    assert(!me->connections && !me->waking);
    me->state = IO_SLEEPING;
    atomic_store(&me->word, 0);
    io_unlock(io);
    futex_wait_here(&me->word, 0, until);
    small_mutex_lock(&io->lock);
    me->state = IO_AWAKE;

    io->waking -= me->waking;
    me->waking = false;
    return atomic_load(&me->word);
}

/* Sleeps: all connections of the op have drivers, or are down. */
static void sleep_until_woken(struct io *io, struct io_waiter *me, nanos now, nanos until)
{
    io_flush_or_defer(io);
    if (!sleep_unlocked(io, me, io_sleep_limit(io, now, until)))
        io_flush_connections(io); /* the thread that should have flushed has got no CPU so far */
}

/* ---- Parking ---- */

static void enter_park(struct io *io, struct io_waiter *me)
{
    struct io_mailbox *mailbox = me->mailbox;
    assert(mailbox->op && me->state == IO_AWAKE);
    me->woken = mailbox->woken;
    mailbox->woken = false;
    me->beside = mailbox->parked;
    mailbox->parked = me;

    me->next = io->waiters;
    if (me->next)
        me->next->prev = me;
    io->waiters = me;
    io->parked++;
}

static void leave_park(struct io *io, struct io_waiter *me)
{
    assert(me->state == IO_AWAKE && io->parked);
    struct io_waiter **at = &me->mailbox->parked;
    while (*at && *at != me)
        at = &(*at)->beside;
    if (*at) /* NULL: the op was forgotten meanwhile */
        *at = me->beside;

    *(me->prev ? &me->prev->next : &io->waiters) = me->next;
    if (me->next)
        me->next->prev = me->prev;
    io->parked--;

    /* Offer all connections: one of them may have been offered to this thread while it was
     * leaving. */
    io_leave_connections(io, me, me->connections);
    io_offer(io, io->open);
}

/* Returns the time if this thread read the clock just now. Returns 0 if another thread brought the
 * reply, perhaps long ago. */
static nanos wait_for_reply(struct io *io, struct io_waiter *me, uint64_t slot, uint32_t seen,
                            nanos until)
{
    nanos now = slot == io->asked_slot ? io->asked_at : 0;
    io->asked_slot = 0;

    while (io_mailbox_at(io, slot) == me->mailbox && me->mailbox->reply_count == seen &&
           !me->woken) {
        now = now ? now : clock_boot();
        nanos again = io_tick(io, now);
        if (me->mailbox->reply_count != seen || now >= until)
            break;

        io_choose_connections(io, me, me->mailbox->op->connections);
        nanos wake = again < until ? again : until;
        if (me->connections) {
            io_flush_connections(io);
            now = io_drive(io, me, now, wake);
        } else {
            sleep_until_woken(io, me, now, wake);
            now = 0;
        }
    }

    return now;
}

nanos io_park(void *self, uint64_t slot, uint32_t seen, nanos until)
{
    struct io *io = self;
    nanos now = 0;

    small_mutex_lock(&io->lock);
    struct io_mailbox *mailbox = io_mailbox_at(io, slot);
    if (mailbox) {
        struct io_waiter me = {.mailbox = mailbox, .wake_fd = -1};
        enter_park(io, &me);
        now = wait_for_reply(io, &me, slot, seen, until);
        leave_park(io, &me);
    }

    io_flush_or_defer(io);
    io_unlock(io);

    return now;
}

void io_wake(void *self, uint64_t slot)
{
    struct io *io = self;
    small_mutex_lock(&io->lock);
    struct io_mailbox *mailbox = io_mailbox_at(io, slot);
    if (mailbox && !mailbox->parked)
        mailbox->woken = true; /* the caller is about to park */

    for (struct io_waiter *waiter = mailbox ? mailbox->parked : NULL; waiter;
         waiter = waiter->beside) {
        waiter->woken = true;
        io_wake_waiter(io, waiter);
    }

    io_unlock(io);
}
