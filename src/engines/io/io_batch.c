/* io_batch.c - policy: callers that were woken together send their requests together.
 *
 * Why. One receive often brings replies for many parked callers. Each wakes, submits its next
 * request and parks again. One send() for all of these requests costs far less than one for each.
 *
 * How. A caller that is about to sleep, or returns from its park, leaves the flush to a caller that
 * was woken and is not yet back. So the last one to return flushes. A caller flushes at once
 * - if fewer than BATCH_CALLERS_MIN callers are parked;
 * - if the batch is large enough: a third of all parked callers. Smaller batches mean more sends;
 *   with larger ones the server idles while the batch gathers. The third was found by trying sizes
 *   from 2 to 100 with 4 to 200 threads;
 * - if the last receive is more than BATCH_WITHIN ago: the missing callers get no CPU;
 * - after it has slept for DEFER_MAX with a deferred request.
 *
 * Cost. A deferred request waits up to half a millisecond, in the worst case 5 ms. A caller that
 * drives a connection never defers, so a single caller is not delayed. */
#include "io_internal.h"

#define BATCH_WITHIN (NANOS_OF_MS(1) / 2)

/* Longer than most replies take. A reply wakes the caller that deferred. */
#define DEFER_MAX NANOS_OF_MS(5)

/* With 4 callers, batching saved a seventh of the sends and made turns 10 to 30 % slower. With 8
 * callers it saved 10 % of the CPU and made turns 8 % slower. With 16 callers turns become
 * faster. */
enum { BATCH_CALLERS_MIN = 8 };

static bool is_batch_full(const struct io *io)
{
    return io->unsent >= 2 && io->unsent >= io->parked / 3;
}

void io_flush_or_defer(struct io *io)
{
    if (!io->dirty)
        return;

    assert(io->unsent);
    bool others_come = io->waking && io->asked_at - io->read_at < BATCH_WITHIN;
    bool gathers = io->parked >= BATCH_CALLERS_MIN && !is_batch_full(io);
    bool defers = io->policy.batch && others_come && gathers;
    if (!defers)
        io_flush_connections(io);
}

nanos io_sleep_limit(const struct io *io, nanos now, nanos until)
{
    if (io->dirty && now + DEFER_MAX < until)
        return now + DEFER_MAX;
    return until;
}
