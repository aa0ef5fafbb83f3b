/* background.c - the background thread: renews leases, notices their loss, takes replies that the
 * engine notified it of, and runs callbacks. Callbacks run here alone, one at a time, with no lock
 * held. They never run inside another thread's blocking call, which may hold a mutex of the
 * application.
 *
 * With no_thread the caller does all of this in hf_process; with own_callbacks only the callbacks.
 */
#include "client.h"

#include "base/error.h"
#include "base/status.h"
#include "sys/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Pause before a lease whose lock is taken is tried again. It is a constant, because the lease's
 * timing sheet may be replaced while another thread has the lock. */
#define RETRY_AFTER NANOS_OF_MS(5)

enum { BATCH = 256, ROUNDS = 4 };

/* ---- From other threads ---- */

void background_wake_loop(struct hf_client *client)
{
    static const uint64_t one = 1;
    if (write(client->fd, &one, sizeof one) < 0) {
        /* The write fails only if the counter is at its maximum; the eventfd is readable then. */
    }
    atomic_fetch_add(&client->loop_writes, 1); /* after the write: see empty_loop_fd() */
}

/* Wakes the thread that does the work: the background thread, or the caller's own loop. */
void background_wake(struct hf_client *client)
{
    if (client->no_thread)
        background_wake_loop(client);
    else
        client->type->background_wake(client->engine);
}

void background_flush(struct hf_client *client)
{
    if (!background_is_me(client) && !client_batches(client))
        client_flush(client);
}

/* Sets a timer. If the lease's timer is set for an earlier time, that time stays: the background
 * thread then finds nothing due and sets the timer again. So many short holds with the same handle
 * rarely touch the heap. */
void background_timer(struct hf_lease *lease, nanos when)
{
    struct hf_client *client = lease->client;
    if (when >= atomic_load_explicit(&lease->timer.key, memory_order_relaxed))
        return;

    small_mutex_lock(&client->lock);
    heap_put(&client->timers, &lease->timer, when);
    bool wake = when < client->armed_at;
    if (wake)
        client->armed_at = when;

    small_mutex_unlock(&client->lock);
    if (wake)
        background_wake(client);
}

/* The engine makes background_park() return after this, so no wake is needed. */
void background_notify(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    small_mutex_lock(&client->lock);
    if (!lease->is_notified) {
        lease->is_notified = true;
        lease_ref(lease);
        lease->notified_next = NULL;
        *(client->notified.first ? &client->notified.last->notified_next
                                 : &client->notified.first) = lease;
        client->notified.last = lease;
    }
    small_mutex_unlock(&client->lock);
}

/* The background thread finds the flag when it handles the notification. */
void background_lose_group(struct hf_lease *lease)
{
    assert(lease_group_of(lease));

    struct hf_client *client = lease->client;
    lease->callbacks->group_lost = true;
    background_notify(lease);
    small_mutex_lock(&client->lock);
    bool is_awake = client->armed_at == BACKGROUND_AWAKE;
    small_mutex_unlock(&client->lock);
    if (!is_awake)
        background_wake(client);
}

/* ---- The thread's own work ---- */

static bool run_due_timer(struct hf_client *client)
{
    nanos now = clock_boot();
    small_mutex_lock(&client->lock);
    /* Returns no timer once the client stops. While slow retries run, other retries come due again,
     * and hf_close would wait for all of them. */
    struct heap_node *node = client->stop ? NULL : heap_first(&client->timers);
    struct hf_lease *lease = NULL;

    if (node && node->key <= now) {
        lease = (struct hf_lease *)(void *)((char *)node - offsetof(struct hf_lease, timer));
        /* Remove the timer before locking the lease. If another thread holds the lease's lock now,
         * it plans a new wake_at, and then sets a new timer. */
        heap_remove(&client->timers, node);
        if (!lease_ref_listed(lease)) {
            small_mutex_unlock(&client->lock);
            return true;
        }
    }

    small_mutex_unlock(&client->lock);
    if (!lease)
        return false;

    /* the thread that has the lock may be inside the engine for long */
    if (!small_mutex_try(&lease->lock)) {
        background_timer(lease, now + RETRY_AFTER);
        lease_unref(lease);
        return true;
    }

    lease->claim.is_stalled = client_is_stalled(client, now);
    if (lease->wake_at <= now && !lease->caller_drives)
        claim_driver_input(lease, INPUT_TIMER, HF_OK);
    else if (!lease->caller_drives)
        background_timer(lease, lease->wake_at);
    small_mutex_unlock(&lease->lock);
    lease_unref(lease);
    return true;
}

static bool run_notified(struct hf_client *client)
{
    small_mutex_lock(&client->lock);
    struct hf_lease *lease = client->notified.first;
    if (lease) {
        client->notified.first = lease->notified_next;
        lease->is_notified = false;
    }

    small_mutex_unlock(&client->lock);
    if (!lease)
        return false;

    small_mutex_lock(&lease->lock);
    claim_driver_take_replies(lease, clock_boot());
    bool loses_group = lease_group_of(lease) && lease->callbacks->group_lost;
    if (loses_group)
        lease->callbacks->group_lost = false;
    small_mutex_unlock(&lease->lock);

    if (loses_group)
        lease_group_lose(lease);
    lease_unref(lease);
    return true;
}

/* A change that concerns all leases. */
struct sweep {
    enum sweep_kind what;
    hf_status status;
    char text[sizeof((struct hf_client *)0)->lost_text];
};

static void sweep_one(struct hf_lease *lease, const struct sweep *sweep)
{
    assert(sweep->what != SWEEP_NONE);

    small_mutex_lock(&lease->lock);
    if (sweep->what == SWEEP_LOST) {
        lease_set_error(lease, sweep->text);
        claim_driver_input(lease, INPUT_LOST_ALL, lease->decided ? sweep->status : HF_UNAVAILABLE);
    } else if (lease_is_held(lease)) {
        struct engine_reply notify = {.kind = REPLY_NOTIFY};
        struct claim_event event = {.in = INPUT_NOTIFY, .now = clock_boot(), .reply = &notify};
        claim_driver_step(lease, &event);
    }
    small_mutex_unlock(&lease->lock);
}

/* Tells every lease either that the engine lost its state, or that some hold may have been
 * revoked. */
static void run_sweep(struct hf_client *client)
{
    small_mutex_lock(&client->lock);
    struct sweep sweep = {.what = client->sweep, .status = client->lost_status};
    memcpy(sweep.text, client->lost_text, sizeof sweep.text);
    client->sweep = SWEEP_NONE;
    small_mutex_unlock(&client->lock);
    struct lease_walk walk = {0};
    for (struct hf_lease *l; sweep.what && (l = lease_walk(client, &walk)) != NULL;)
        sweep_one(l, &sweep);
}

void background_recheck(struct hf_client *client)
{
    small_mutex_lock(&client->lock);
    if (client->sweep == SWEEP_NONE)
        client->sweep = SWEEP_CHECK;
    bool wake = client->armed_at != BACKGROUND_AWAKE && !background_is_me(client);

    small_mutex_unlock(&client->lock);
    if (wake)
        background_wake(client);
}

/* Flushes once for all timers, and before the callbacks, which may be slow. */
static bool run_due_timers(struct hf_client *client)
{
    bool any = false;
    while (run_due_timer(client))
        any = true;
    if (any)
        client_flush(client);
    return any;
}

static bool run_all_notified(struct hf_client *client)
{
    int polls = 0;
    while (polls < BATCH && run_notified(client))
        polls++;
    return polls > 0;
}

/* Returns true if anything was done; then more may be due. */
static bool run_what_is_due(struct hf_client *client)
{
    run_sweep(client);
    bool more = run_due_timers(client);
    more = run_all_notified(client) || more;
    if (client->own_callbacks) {
        client_flush(client);
        return more;
    }
    more = callbacks_run(client) || more;
    event_log_deliver(client);
    return more;
}

/* Finds out when to wake next. Returns false when the thread must stop. From here on armed_at makes
 * other threads wake this one. */
static bool plan(struct hf_client *client, nanos *until)
{
    small_mutex_lock(&client->lock);
    struct heap_node *first = heap_first(&client->timers);
    *until = first ? first->key : TIME_NEVER;
    bool is_due = client->call.first || client->log_first || client->ended_first;
    bool has_calls = !client->own_callbacks && is_due;
    if (client->notified.first || client->sweep || has_calls)
        *until = 0;

    client->armed_at = *until;
    bool stop = client->stop && *until != 0;
    small_mutex_unlock(&client->lock);
    return !stop;
}

static void report_started(struct hf_client *client, hf_status status)
{
    assert(!atomic_load(&client->background_up));

    client->background_status = status;
    snprintf(client->background_text, sizeof client->background_text, "%s",
             status == HF_OK ? "" : error_text());
    atomic_store(&client->background_up, 1);
    futex_wake(&client->background_up, 1);
}

static void set_awake(struct hf_client *client)
{
    clock_tune();
    small_mutex_lock(&client->lock);
    client->armed_at = BACKGROUND_AWAKE;
    small_mutex_unlock(&client->lock);
}

static void run_until_stopped(struct hf_client *client)
{
    assert(!client->no_thread);

    for (nanos until;;) {
        while (run_what_is_due(client))
            ;
        if (!plan(client, &until))
            return;
        client->type->background_park(client->engine, until);
        set_awake(client);
    }
}

/* With no_thread this thread only proves that the process is alive, and wakes the caller's loop. */
static void park_only(struct hf_client *client)
{
    assert(client->no_thread && client->fd >= 0);

    for (;;) {
        client->type->background_park(client->engine, TIME_NEVER);
        small_mutex_lock(&client->lock);
        bool stop = client->stop, due = client->notified.first || client->sweep;
        small_mutex_unlock(&client->lock);
        if (stop)
            return;
        if (due)
            background_wake(client);
    }
}

void *background_main(void *arg)
{
    struct hf_client *client = arg;
    pthread_setname_np(pthread_self(), "holdfast"); /* the name in top and debuggers */
    hf_status status = client->type->enter(client->engine);
    report_started(client, status);
    if (status != HF_OK)
        return NULL;

    if (client->no_thread)
        park_only(client);
    else
        run_until_stopped(client);
    client->type->leave(client->engine);
    return NULL;
}

/* ---- The caller's own loop ---- */

int64_t background_timeout(struct hf_client *client)
{
    assert(client->no_thread || client->own_callbacks);

    nanos until;
    if (client->own_callbacks)
        return -1;
    plan(client, &until);
    if (until == TIME_NEVER)
        return -1;

    nanos left = until - clock_boot();
    return left > 0 ? (left + NANOS_OF_MS(1) - 1) / NANOS_OF_MS(1) : 0;
}

/* Does the work of the background thread, with no_thread. */
static void process_all(struct hf_client *client)
{
    nanos until;
    set_awake(client);
    /* The number of rounds is bounded: callbacks that make new requests each time must not keep the
     * caller's loop. */
    for (int rounds = 0; rounds < ROUNDS && run_what_is_due(client); rounds++)
        ;
    plan(client, &until);
    if (until == 0)
        background_wake(client);
}

/* Lets the thread of the loop read its own replies and pass them to their claims, so that no other
 * thread must be woken. */
static void read_replies(struct hf_client *client)
{
    if (!client->type->loop_read)
        return;

    client->type->loop_read(client->engine);
    (void)run_all_notified(client);
    small_mutex_lock(&client->lock);
    bool more = client->notified.first;
    small_mutex_unlock(&client->lock);
    if (more)
        background_wake(client);
}

/* Runs one batch, with own_callbacks. The queue was empty before the descriptor became readable, so
 * the descriptor must be set again if the queue is not empty at the end. */
static void process_callbacks(struct hf_client *client)
{
    read_replies(client);
    callbacks_run(client);
    event_log_deliver(client);
    if (callbacks_are_due(client))
        background_wake_loop(client);
}

/* Returns the engine's descriptor for a loop, which is also readable when replies arrive. If the
 * engine has none, returns the client's own. */
int background_loop_fd(struct hf_client *client)
{
    int fd = -1;
    if (client->own_callbacks && client->type->loop_begin)
        fd = client->type->loop_begin(client->engine, client->fd);
    return fd >= 0 ? fd : client->fd;
}

/* With own_callbacks most calls of hf_process come because of a reply, and find the eventfd empty:
 * then it is not read. A thread may have written to the eventfd without having counted that yet.
 * Then the descriptor stays readable, and the loop calls once more. */
static void empty_loop_fd(struct hf_client *client)
{
    uint64_t woken;
    uint32_t writes = atomic_load(&client->loop_writes);
    if (client->own_callbacks && writes == client->loop_seen)
        return;

    client->loop_seen = writes;
    if (read(client->fd, &woken, sizeof woken) < 0) {
        /* The eventfd was empty: a timer is due, or the call came without a reason. */
    }
}

hf_status background_process(struct hf_client *client)
{
    assert((client->no_thread || client->own_callbacks) && client->fd >= 0);

    pthread_t nobody = 0;
    client_note_alive(client);
    if (!atomic_compare_exchange_strong(&client->processor, &nobody, pthread_self()))
        return error_set(HF_INVALID, "%s: hf_process is already running", client->url);
    empty_loop_fd(client);

    if (client->own_callbacks)
        process_callbacks(client);
    else
        process_all(client);
    atomic_store(&client->processor, 0);
    return HF_OK;
}
