/* io_background.c - the background thread: it reads replies to ops without a caller, messages that
 * a server sends unasked, and replies that nobody waits for. Also the last reading before the
 * engine closes.
 *
 * A reply that nobody waits for is *unclaimed*: its op was forgotten, or never had a caller (a
 * release whose handle was freed). The next driver of the connection reads such replies. If nobody
 * drives the connection for IO_UNCLAIMED_AFTER, it is *neglected* and the background thread reads
 * it. The delay leaves the connection free for a caller that comes back soon. */
#include "io_internal.h"

#include "sys/clock.h"

/* Longest wait for a request while the engine closes; a hung server does not make closing
 * longer. */
#define FINISH_MAX NANOS_OF_MS(500)
/* Shortest time for which closing waits for a near server, even if the caller gave no time. It
 * begins anew with each reply, but all of it ends after FINISH_ANSWERING. */
#define FINISH_MIN NANOS_OF_MS(50)
#define FINISH_ANSWERING NANOS_OF_MS(1000)
/* Shortest wait for an engine that ends its session only after the reply to an earlier request. */
#define FAREWELL_MIN NANOS_OF_MS(1000)
/* Interval of the checks whether servers still answer. */
#define FINISH_STEP NANOS_OF_MS(10)
/* Time to wait for a server that could not be dialled, or stopped answering. */
#define REDIAL_MAX NANOS_OF_MS(50)

/* ---- Waking the background thread ---- */

void io_notify_background(struct io *io)
{
    io->has_background_work = true;
    io_wake_waiter(io, &io->background);
}

/* Takes no lock: the client calls it while it holds its own. */
void io_background_wake(void *self)
{
    struct io *io = self;
    assert(io->background.wake_fd >= 0);
    if (!atomic_exchange(&io->background_woken, true))
        io_write_wake_fd(io->background.wake_fd);
}

/* Clears the two flags that tell this thread to return to the client's own work. Returns true if
 * one of them was set. */
static bool take_background_work(struct io *io)
{
    bool has_work = io->has_background_work;
    bool woken = atomic_exchange(&io->background_woken, false);
    io->has_background_work = false;
    return has_work || woken;
}

/* ---- Replies that nobody waits for ---- */

bool io_is_neglected(const struct io *io, unsigned group, nanos now)
{
    connection_set set = connection_set_of(group);
    unsigned row = 0;
    if (now < io->group[group].unclaimed_at + IO_UNCLAIMED_AFTER)
        return false;
    for (const struct io_connection *connection; (connection = io_next_open(io, &set, &row));)
        if (now >= connection->read_at + IO_UNCLAIMED_AFTER)
            return true;
    return false;
}

static connection_set neglected_connections(const struct io *io, nanos now)
{
    connection_set neglected = 0;
    for (connection_set connections = io->unclaimed; connections;) {
        unsigned group = io_pop(&connections);
        if (io_is_neglected(io, group, now))
            neglected |= connection_set_of(group);
    }

    return neglected;
}

/* ---- Parking ---- */

/* Chooses the connections to drive, and drives them until `bound` at the latest. */
static void drive_in_background(struct io *io, nanos now, nanos bound)
{
    struct io_waiter *me = &io->background;
    connection_set adopted = neglected_connections(io, now) | (io->unclaimed & me->connections);
    bool adopts_later = io->unclaimed & ~adopted;
    if (adopts_later && now + IO_UNCLAIMED_AFTER < bound)
        bound = now + IO_UNCLAIMED_AFTER;
    bound = io_loop_limit(io, now, bound);

    connection_set interest = io->interest_set & ~io_left_to_loop(io, now);
    io_choose_connections(io, me, interest | io->listening | adopted | io_background_share(io));
    io->background_until = bound;
    io_drive(io, me, now, bound);
    io->background_until = 0;
}

void io_background_park(void *self, nanos until)
{
    struct io *io = self;
    struct io_waiter *me = &io->background;
    small_mutex_lock(&io->lock);
    assert(me->state == IO_AWAKE && !me->connections);

    for (;;) {
        nanos now = clock_boot(), again = io_tick(io, now);
        io_flush_connections(io);
        if (take_background_work(io) || now >= until)
            break;
        drive_in_background(io, now, again < until ? again : until);
    }

    /* The callbacks that run next may take long. So offer to callers also the connections that were
     * offered to this thread and that it has not taken. */
    io_leave_connections(io, me, me->connections);
    io_offer(io, io->open);
    io_unlock(io);
}

/* ---- Closing ---- */

/* Returns the unclaimed connections on which a reply may matter. */
static connection_set used_connections(const struct io *io)
{
    connection_set unused =
        io->type->unused_connections ? io->type->unused_connections(io->engine) : 0;

    return io->unclaimed & ~unused;
}

/* Returns the unclaimed connections on which a reply is likely. */
static connection_set awaited_connections(const struct io *io, connection_set used, nanos now)
{
    connection_set silent =
        io->type->silent_connections ? io->type->silent_connections(io->engine, now) : 0;

    return used & ~silent;
}

/* Returns true if one of these connections was cut and not dialled since: its server is probably
 * up. */
static bool may_come_back(const struct io *io, connection_set awaited)
{
    for (connection_set connections = awaited & ~io->open; connections;) {
        unsigned group = io_pop(&connections);
        for (unsigned i = 0; i < io->rows; i++)
            if (io->row[i]->connection[group].failed_dials == 0)
                return true;
    }
    return false;
}

static nanos earlier(nanos a, nanos b)
{
    return a < b ? a : b;
}

static nanos later(nanos a, nanos b)
{
    return a > b ? a : b;
}

/* Many waits mean many requests, and a server answers them one by one: wait as long as answers
 * come. Closing the connection earlier would make it drop the requests that it has not read. */
static nanos while_answering(const struct io *io, nanos begin, nanos bound)
{
    return later(bound, earlier(io->read_at + FINISH_MIN, begin + FINISH_ANSWERING));
}

/* Called when no other thread is left. */
void io_finish(void *self, nanos until)
{
    struct io *io = self;
    struct io_waiter *me = &io->background;
    nanos begin = clock_boot(), bound = earlier(begin + FINISH_MAX, until);
    bound = later(bound, begin + (io->type->farewell ? FAREWELL_MIN : FINISH_MIN));
    nanos redial_bound = earlier(begin + REDIAL_MAX, bound);

    small_mutex_lock(&io->lock);
    assert(!io->waiters && !io->entered);
    for (;;) {
        nanos now = clock_boot(), again = io_tick(io, now);
        if (io->type->farewell) {
            io->type->farewell(io->engine, until <= begin, now);
            again = io_tick(io, now);
        }
        io_flush_connections(io);
        connection_set used = used_connections(io);
        connection_set awaited = awaited_connections(io, used, now);
        io_choose_connections(io, me, io->unclaimed);
        bool may_answer = me->connections & awaited || may_come_back(io, awaited);
        nanos end = may_answer ? while_answering(io, begin, bound) : redial_bound;
        if (!used || now >= end)
            break;
        io_drive(io, me, now, earlier(earlier(again, end), now + FINISH_STEP));
    }
    io_leave_connections(io, me, me->connections);
    io_unlock(io);
}
