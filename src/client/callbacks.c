/* callbacks.c - the callbacks of leases: lent from a pool, because most leases need none, queued
 * when they are due, and run one at a time with no lock held. */
#include "client.h"

#include "base/error.h"
#include "sys/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define BATCH_TIME 100000 /* nanoseconds after which a batch of callbacks is flushed */

enum { BATCH = 256 };

/* ---- The pool ---- */

hf_status callbacks_ensure(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    if (lease->callbacks)
        return HF_OK;

    small_mutex_lock(&client->lock);
    struct callbacks *callbacks = client->unused_callbacks;
    if (callbacks)
        client->unused_callbacks = callbacks->next;
    small_mutex_unlock(&client->lock);

    if (!callbacks && !(callbacks = malloc(sizeof *callbacks)))
        return error_set(HF_NO_MEMORY, "%s: no memory for a lease", lease->op.name);
    *callbacks = (struct callbacks){0};
    lease->callbacks = callbacks;
    return HF_OK;
}

void callbacks_return(struct hf_lease *lease)
{
    assert(lease->callbacks);

    lease_group_leave(lease);
    lease->callbacks->next = lease->client->unused_callbacks;
    lease->client->unused_callbacks = lease->callbacks;
    lease->callbacks = NULL;
}

/* Returns the callbacks to the pool. A lease in the queue of due callbacks keeps them: the
 * function that is due is not NULL. */
static void return_if_unused(struct hf_lease *lease)
{
    const struct callbacks *c = lease->callbacks;
    bool has_call = c->done.fn || c->extended.fn || c->released.fn;
    if (has_call || c->on_lost || c->group || c->has_outcome_fd)
        return;

    small_mutex_lock(&lease->client->lock);
    callbacks_return(lease);
    small_mutex_unlock(&lease->client->lock);
}

void callbacks_free(struct hf_client *client)
{
    for (struct callbacks *callbacks = client->unused_callbacks, *next; callbacks;
         callbacks = next) {
        next = callbacks->next;
        free(callbacks);
    }
}

/* ---- The queue ---- */

/* Puts a callback into the queue. With own_callbacks only the first entry of an empty queue wakes
 * the caller's loop. The loop empties the queue, or wakes itself again if it stops before. */
void callbacks_due(struct hf_lease *lease, enum callback_kind callback)
{
    assert(lease->callbacks && callback);

    struct hf_client *client = lease->client;
    small_mutex_lock(&client->lock);
    bool was_empty = !client->call.first;
    lease->due_callbacks |= (uint8_t)callback;
    if (!lease->in_call) {
        lease->in_call = true;
        lease_ref(lease);
        lease->callbacks->call_next = NULL;
        *(was_empty ? &client->call.first : &client->call.last->callbacks->call_next) = lease;
        client->call.last = lease;
    }

    bool is_awake = client->armed_at == BACKGROUND_AWAKE;
    small_mutex_unlock(&client->lock);
    if (client->own_callbacks && was_empty && !callbacks_run_here(client))
        background_wake_loop(client);
    else if (!client->own_callbacks && !is_awake)
        background_wake(client);
}

bool callbacks_are_due(struct hf_client *client)
{
    small_mutex_lock(&client->lock);
    bool are_due = client->call.first || client->ended_first;
    small_mutex_unlock(&client->lock);
    return are_due;
}

/* What call_back() needs of a lease, copied under the lease's lock. */
struct due_calls {
    struct callbacks callbacks;
    hf_status outcome, lost;
    struct lease_failure failure;
    char failure_text[ERROR_TEXT_MAX];
};

/* Takes the calls that are due, each exactly once. A lease that was freed is not reported as
 * granted any more. */
static void take_calls(struct hf_lease *lease, unsigned due, struct due_calls *calls)
{
    struct callbacks *c = lease->callbacks;
    calls->callbacks = *c;
    calls->outcome = lease->freed && lease->outcome == HF_OK ? HF_CANCELLED : lease->outcome;
    calls->lost = lease->lost_status;
    calls->failure = *lease_failure(lease);
    snprintf(calls->failure_text, sizeof calls->failure_text, "%s", calls->failure.text);
    calls->failure.text = calls->failure_text;

    if (due & CALLBACK_DONE)
        c->done.fn = NULL;
    if (due & CALLBACK_EXTENDED)
        c->extended.fn = NULL;
    if (due & CALLBACK_RELEASED)
        c->released.fn = NULL;
    return_if_unused(lease);
}

static void call_done(struct hf_lease *lease, const struct due_calls *calls, struct done_call done,
                      hf_status status)
{
    assert(done.fn);

    client_explain(lease, &calls->failure, status);
    done.fn(lease, status, done.arg);
}

/* Calls on_lost, unless an earlier callback has freed the handle: after that on_lost must not
 * begin. */
static void call_lost(struct hf_lease *lease, const struct due_calls *calls)
{
    const struct callbacks *c = &calls->callbacks;
    small_mutex_lock(&lease->lock);
    bool is_freed = lease->freed;
    small_mutex_unlock(&lease->lock);
    if (is_freed || !c->on_lost)
        return;

    client_explain(lease, &calls->failure, calls->lost);
    c->on_lost(lease, calls->lost, c->lost_arg);
}

/* Calls back in the order in which the events can have happened. */
static void call_back(struct hf_lease *lease, unsigned due)
{
    assert(due && lease->callbacks);

    struct due_calls calls;
    small_mutex_lock(&lease->lock);
    take_calls(lease, due, &calls);
    small_mutex_unlock(&lease->lock);

    const struct callbacks *c = &calls.callbacks;
    if (due & CALLBACK_DONE)
        call_done(lease, &calls, c->done, calls.outcome);
    if (due & CALLBACK_EXTENDED)
        call_done(lease, &calls, c->extended, c->extended_status);
    if (due & CALLBACK_LOST)
        call_lost(lease, &calls);
    if (due & CALLBACK_RELEASED)
        call_done(lease, &calls, c->released, c->released_status);
}

static bool run_callback(struct hf_client *client)
{
    small_mutex_lock(&client->lock);
    struct hf_lease *lease = client->call.first;
    unsigned due = 0;
    if (lease) {
        client->call.first = lease->callbacks->call_next;
        lease->in_call = false;
        due = lease->due_callbacks;
        lease->due_callbacks = 0;
    }
    small_mutex_unlock(&client->lock);
    if (!lease)
        return false;

    call_back(lease, due);
    lease_unref(lease);
    return true;
}

/* Requests that quick callbacks make are flushed together. A slow callback ends the batch, so it
 * delays only the requests of the callbacks before it. */
bool callbacks_run(struct hf_client *client)
{
    int calls = 0;
    client_flush(client);
    nanos begun = clock_boot();

    /* Run at least one that is due, whatever the clock says: if a round ran none, hf_close takes
     * that for the end of all callbacks. */
    while (calls < BATCH && (calls == 0 || clock_boot() - begun < BATCH_TIME) &&
           (run_callback(client) || started_calls_run(client)))
        calls++;

    client_flush(client);
    return calls > 0;
}
