/* guard_ask.c - the guard before CMD: which times are in force, the request, the wait. */
#include "guard.h"
#include "text.h"
#include "verbs.h"
#include "waiting.h"
#include <unistd.h>

#define GRACE_PART 6     /* the default grace is this part of the ttl */
#define KILL_PART 10     /* SIGKILL comes this part of the grace before the end of the validity, */
#define KILL_MOST_MS 500 /* but not earlier than this */
#define KILL_LEAST_MS 1

static void on_lost(hf_lease *lease, hf_status why, void *arg)
{
    struct guard *guard = arg;
    uint64_t one = 1;
    (void)lease;
    (void)why;
    atomic_store(&guard->lost, true);
    (void)!write(guard->asking.bell, &one, sizeof one);
}

/* ttl and grace in force; 0, or an exit code after a message. */
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
    if (!given && !asking_setting(guard->client, "grace", &guard->grace_ms))
        guard->grace_ms = guard->ttl_ms / GRACE_PART;
    if (guard->grace_ms * 2 >= guard->ttl_ms) {
        complain("%s of %lld ms is not below half of the ttl of %lld ms", given ? "--grace" : "the setting grace",
                 (long long)guard->grace_ms, (long long)guard->ttl_ms);
        return given ? EXIT_USAGE : hf_status_exit_code(HF_CONFIG);
    }
    guard->kill_ms = guard->grace_ms / KILL_PART;
    if (guard->kill_ms > KILL_MOST_MS)
        guard->kill_ms = KILL_MOST_MS;
    if (guard->kill_ms < KILL_LEAST_MS)
        guard->kill_ms = KILL_LEAST_MS;
    return 0;
}

static int ask(struct guard *guard)
{
    struct hf_request request = guard->order->request;
    request.ttl_ms = guard->ttl_ms;
    request.on_lost = on_lost;
    request.lost_arg = guard;
    request.wait_ms = asking_wait(guard->client, request.wait_ms);
    hf_status status = hf_acquire_start(guard->client, &request, asking_done, &guard->asking, &guard->lease);
    return status == HF_OK ? 0 : fail_with(status);
}

/* True when granted, else *code is the exit code. A signal that came is honoured even if the grant came too. */
static bool wait_for_grant(struct guard *guard, int *code)
{
    struct waiting waiting;
    waiting_begin(&waiting, guard->order->request.name, &guard->terminal, guard->client, guard->asking.bell);
    for (;;) {
        guard_hear(guard);
        if (atomic_exchange(&guard->queued, false))
            status_tell(&guard->status, "waiting", "\"ttl_ms\":%lld", (long long)guard->ttl_ms);
        if (guard->front_gone || guard->signal || atomic_load(&guard->asking.outcome) != UNDECIDED)
            break;
        waiting_tell(&waiting);
        guard_nap(guard, waiting_pause(&waiting));
    }
    waiting_end(&waiting);
    if (guard->front_gone || guard->signal) {
        hf_cancel(guard->lease);
        *code = guard->front_gone ? EXIT_INTERNAL : 128 + guard->signal;
        return false;
    }
    if (atomic_load(&guard->asking.outcome) == HF_OK)
        return true;
    *code = asking_refused(&guard->asking, guard->client, guard->order->request.name, guard->order->busy_code);
    return false;
}

/* What was handed over may last only briefly at first, and the library gets the rest of the ttl at its next renewal.
 * CMD, which is stopped one grace before the end, needs it now; that it cannot be had is noticed by the watch. */
static void have_whole_ttl(struct guard *guard)
{
    if (hf_lease_left_ms(guard->lease) <= 2 * guard->grace_ms)
        (void)!hf_extend(guard->lease, 0);
}

bool guard_ask(struct guard *guard, int *code)
{
    *code = fix_times(guard);
    if (*code == 0)
        *code = ask(guard);
    if (*code != 0 || !wait_for_grant(guard, code))
        return false;
    have_whole_ttl(guard);
    return true;
}
