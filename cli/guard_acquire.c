/* guard_acquire.c - the guard before CMD is started: the times in force, the request, the wait. */
#include "guard.h"
#include "output.h"
#include "verbs.h"
#include "wait_display.h"
#include <unistd.h>

#define GRACE_PART 6     /* default grace: 1/GRACE_PART of the ttl */
#define KILL_PART 10     /* SIGKILL is sent 1/KILL_PART of the grace before the lease ends */
#define KILL_MOST_MS 500 /* and at most this long before the end */
#define KILL_LEAST_MS 1

static void on_lost(hf_lease *lease, hf_status why, void *arg)
{
    struct guard *guard = arg;
    uint64_t one = 1;
    size_t none = 0;

    (void)why;
    /* Locks that were taken together are lost together; the first loss is the reason of the
     * others. */
    atomic_compare_exchange_strong(&guard->lost, &none,
                                   lock_set_find(&guard->locks, hf_lease_name(lease)) + 1);
    (void)!write(guard->lock_request.wake_fd, &one, sizeof one);
}

/* Computes the ttl and grace in force. Returns 0, or an exit code after a message. */
static int fix_times(struct guard *guard)
{
    const char *source;
    bool given = guard->order->grace_ms >= 0;

    guard->ttl_ms = guard->order->request.ttl_ms;
    if (guard->ttl_ms == 0) {
        hf_status status = hf_client_setting(guard->client, "ttl", &guard->ttl_ms, &source);
        if (status != HF_OK)
            return fail_with(status);
    }

    guard->grace_ms = guard->order->grace_ms;
    if (!given && !lock_request_setting(guard->client, "grace", &guard->grace_ms))
        guard->grace_ms = guard->ttl_ms / GRACE_PART;
    if (guard->grace_ms * 2 >= guard->ttl_ms) {
        complain("%s of %lld ms is not below half of the ttl of %lld ms",
                 given ? "--grace" : "the setting grace", (long long)guard->grace_ms,
                 (long long)guard->ttl_ms);
        return given ? EXIT_USAGE : hf_status_exit_code(HF_CONFIG);
    }

    guard->kill_ms = guard->grace_ms / KILL_PART;
    if (guard->kill_ms > KILL_MOST_MS)
        guard->kill_ms = KILL_MOST_MS;
    if (guard->kill_ms < KILL_LEAST_MS)
        guard->kill_ms = KILL_LEAST_MS;

    return 0;
}

static int start_request(struct guard *guard)
{
    struct hf_request request = guard->order->request;

    request.ttl_ms = guard->ttl_ms;
    request.on_lost = on_lost;
    request.lost_arg = guard;
    request.wait_ms = lock_request_wait(guard->client, request.wait_ms);
    guard->lock_request.connect_wait_ms = guard->order->connect_wait_ms;
    lock_request_prepare(&guard->lock_request, guard->order->busy_code, guard->order->quiet,
                         &request);
    return lock_set_acquire(&guard->locks, guard->client, &request, &guard->lock_request);
}

static void report_queued(struct guard *guard)
{
    size_t which = atomic_exchange(&guard->queued, 0);
    if (which == 0)
        return;
    guard->status.name = guard->locks.names[which - 1];
    status_fd_write(&guard->status, "waiting", "\"ttlMs\":%lld", (long long)guard->ttl_ms);
    guard->status.name = guard->locks.names[0];
}

/* Returns true when all locks are granted, otherwise false with the exit code in *code. A signal
 * ends the run even if the grant came at the same time. */
static bool wait_for_grant(struct guard *guard, int *code)
{
    struct wait_display waiting;

    wait_display_begin(&waiting, guard->locks.names[lock_set_next(&guard->locks)], &guard->terminal,
                       guard->client, &guard->lock_request);

    for (;;) {
        guard_receive(guard);
        report_queued(guard);
        bool decided = atomic_load(&guard->lock_request.outcome) != UNDECIDED;
        bool ended = guard->front_gone || guard->signal;
        if (decided || ended)
            break;
        waiting.name = guard->locks.names[lock_set_next(&guard->locks)];
        wait_display_update(&waiting);
        if (waiting.ours || waiting.gave_up)
            break;
        guard_sleep(guard, wait_display_pause(&waiting));
    }

    wait_display_end(&waiting);
    if (guard->front_gone || guard->signal) {
        lock_set_cancel(&guard->locks);
        *code = guard->front_gone ? EXIT_INTERNAL : 128 + guard->signal;
        return false;
    }

    int outcome = atomic_load(&guard->lock_request.outcome);
    if (outcome == HF_OK)
        return true;
    if (outcome == UNDECIDED) {
        lock_set_cancel(&guard->locks);
        if (waiting.gave_up)
            *code = lock_request_unreachable(waiting.failure, waiting.timed_out);
        else
            *code = lock_request_held_already(&guard->lock_request, waiting.name, waiting.ours);
        return false;
    }

    const char *refused = guard->locks.names[guard->locks.refused];
    *code = lock_request_refused(&guard->lock_request, guard->client, refused);

    return false;
}

/* After a handoff a lease may be short until the library's next renewal. CMD would be stopped one
 * grace before the end of the short lease, perhaps at once. So such a lease is extended to its
 * whole ttl before CMD starts. If the extension fails, guard_watch.c notices the short lease. */
static void extend_short_leases(struct guard *guard)
{
    for (size_t i = 0; i < guard->locks.count; i++)
        if (hf_lease_left_ms(guard->locks.leases[i]) <= 2 * guard->grace_ms)
            (void)!hf_extend(guard->locks.leases[i], 0);
}

bool guard_acquire(struct guard *guard, int *code)
{
    *code = fix_times(guard);
    if (*code == 0)
        *code = start_request(guard);
    if (*code != 0 || !wait_for_grant(guard, code))
        return false;
    extend_short_leases(guard);
    return true;
}
