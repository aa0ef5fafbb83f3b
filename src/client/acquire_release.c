/* acquire_release.c - the calls on a client and on a lease: those that block and those that only
 * start an operation. api.c has checked the arguments. */
#include "client.h"

#include "base/error.h"
#include "base/status.h"
#include "sys/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- Entering and leaving the client ---- */

hf_status client_refuse(const struct hf_client *client)
{
    if (!fork_guard_ours(&client->mark))
        return error_set(HF_FORKED,
                         "%s: the client belongs to the parent process; open one of your own",
                         client->url);
    return error_set(HF_CLOSED, "%s: the client is being closed", client->url);
}

hf_status client_enter(struct hf_client *client)
{
    if (!fork_guard_ours(&client->mark))
        return client_refuse(client);
    if (!(atomic_fetch_add(&client->active_calls, 1) & CLIENT_CLOSING))
        return HF_OK;

    client_refuse(client);
    client_exit(client);
    return HF_CLOSED;
}

/* The last thread to leave wakes hf_close. hf_close may free the client before the wake is made;
 * the wake uses the address only. */
void client_exit(struct hf_client *client)
{
    if (atomic_fetch_sub(&client->active_calls, 1) == (CLIENT_CLOSING | 1))
        futex_wake(&client->active_calls, INT32_MAX);
}

static hf_status explain_text(const struct hf_lease *lease, const char *failure_text,
                              hf_status status)
{
    const struct claim *claim = &lease->claim;
    const char *cause = *failure_text ? failure_text : status_row(status)->text;
    if (status == HF_TIMEOUT)
        return error_set(status, "%s: not free within %lld ms%s%s", lease->op.name,
                         (long long)((claim->deadline - claim->started_at) / NANOS_OF_MS(1)),
                         *failure_text ? "; " : "", failure_text);
    if (status == HF_IN_DOUBT && !*failure_text)
        return error_set(status, "%s: %s (%s)", lease->op.name, cause, lease->client->url);
    return error_set(status, "%s: %s", lease->op.name, cause);
}

/* Keeps the hold that the engine named when it refused, for hf_error_holder(). */
static void explain_holder(const struct hf_lease *lease, const struct lease_failure *failure)
{
    const struct reply_holder *holder = &failure->holder;
    nanos left = failure->until - clock_boot();
    struct hf_row row = {.size = sizeof row,
                         .name = lease->op.name,
                         .kind = holder->kind,
                         .units = holder->units,
                         .token = holder->token,
                         .left_ms = -1,
                         .pid = holder->pid,
                         .host = holder->host,
                         .label = holder->label,
                         .detached = holder->detached};
    if (failure->until != TIME_NEVER)
        row.left_ms = left > 0 ? left / NANOS_OF_MS(1) : 0;
    error_set_holder(&row);
}

hf_status client_explain(const struct hf_lease *lease, const struct lease_failure *failure,
                         hf_status status)
{
    if (status == HF_OK)
        return HF_OK;

    explain_text(lease, failure->text, status);
    bool is_refused = status == HF_BUSY || status == HF_TIMEOUT;
    if (is_refused && failure->has_holder)
        explain_holder(lease, failure);
    return status;
}

static hf_status explain(const struct hf_lease *lease, hf_status status)
{
    return client_explain(lease, lease_failure(lease), status);
}

/* ---- Acquiring ---- */

/* Begins an acquire. `now` is the time from which the wait counts. If the client is being
 * closed, nothing is begun: hf_close may have passed this lease already. */
static inline hf_status begin(struct hf_lease *lease, nanos now)
{
    struct claim_event event = {.in = INPUT_START, .now = now};
    if (client_closing(lease->client))
        return error_set(HF_CLOSED, "%s: the client is being closed", lease->op.name);
    if (lease_group_of(lease)) {
        if (lease_group_lost(lease))
            return error_set(HF_LOST, "%s: a lock of the same group was lost", lease->op.name);
        if (lease->claim.state != CLAIM_NEW) /* it was ahead, and was cancelled */
            return error_set(HF_CANCELLED, "%s: was cancelled", lease->op.name);
    }

    atomic_fetch_add_explicit(&lease->client->count[COUNT_ASKED], 1, memory_order_relaxed);
    claim_driver_step(lease, &event);
    return HF_OK;
}

/* Waits for a reply. The caller itself also sends TIMER to the claim: if this runs in a callback,
 * the caller is the background thread, so no other thread would send it. A second TIMER does no
 * harm. */
static void wait_once(struct hf_lease *lease)
{
    nanos now = claim_driver_park(lease, TIME_NEVER);
    claim_driver_take_replies(lease, now);
    if (now >= lease->wake_at)
        claim_driver_input(lease, INPUT_TIMER, HF_OK);
}

static void wait_until(struct hf_lease *lease, const bool *over)
{
    while (!*over)
        wait_once(lease);
}

static inline hf_status begin_here(struct hf_lease *lease, nanos now)
{
    lease->caller_drives = true;
    claim_driver_wait_begin(lease);
    return begin(lease, now);
}

static inline hf_status finish(struct hf_lease *lease, hf_status status)
{
    if (status == HF_OK) {
        wait_until(lease, &lease->decided);
        status = lease->outcome == HF_OK ? HF_OK : explain(lease, lease->outcome);
    }

    claim_driver_wait_end(lease);
    return status;
}

static inline hf_status begin_and_wait(struct hf_lease *lease, nanos now)
{
    return finish(lease, begin_here(lease, now));
}

hf_status client_acquire_begin(struct hf_lease *lease, nanos now)
{
    return begin(lease, now);
}

hf_status client_explain_outcome(const struct hf_lease *lease)
{
    assert(lease->decided);
    return explain(lease, lease->outcome);
}

hf_status client_acquire_begin_here(struct hf_lease *lease, nanos now)
{
    return begin_here(lease, now);
}

hf_status client_acquire_finish(struct hf_lease *lease, hf_status status)
{
    return finish(lease, status);
}

hf_status client_acquire(struct hf_client *client, const struct hf_request *request,
                         struct hf_lease **out)
{
    struct hf_lease *lease;
    nanos now = clock_boot();
    hf_status status =
        lease_make(client, request, now, client_deadline(now, request->wait_ms), &lease);
    if (status != HF_OK)
        return status;

    status = begin_and_wait(lease, now);
    if (status == HF_OK) {
        *out = lease;
        small_mutex_unlock(&lease->lock);
    } else {
        lease_drop(lease);
    }

    return status;
}

hf_status client_acquire_start(struct hf_client *client, const struct hf_request *request,
                               struct done_call done, struct hf_lease **out)
{
    assert(done.fn);

    struct hf_lease *lease;
    nanos now = clock_boot();
    hf_status status =
        lease_make(client, request, now, client_deadline(now, request->wait_ms), &lease);
    if (status != HF_OK)
        return status;

    *out = lease; /* set before the callback can run */
    status = callbacks_ensure(lease);
    if (status == HF_OK) {
        lease->callbacks->done = done;
        status = begin(lease, now);
    }

    small_mutex_unlock(&lease->lock);
    background_flush(client);
    if (status == HF_OK)
        return HF_OK;

    *out = NULL;
    lease_unref(lease);
    return status;
}

hf_status client_cancel(struct hf_lease *lease)
{
    small_mutex_lock(&lease->lock);
    bool waits = !lease->decided;
    if (waits)
        claim_driver_input(lease, INPUT_CANCEL, HF_CANCELLED);
    small_mutex_unlock(&lease->lock);
    background_flush(lease->client);
    return waits ? HF_OK : error_set(HF_NOT_HELD, "%s: does not wait any more", lease->op.name);
}

/* ---- What the holder does ---- */

/* Sets the error text to why a lease is not held. */
static hf_status explain_unheld(struct hf_lease *lease)
{
    assert(!lease_is_held(lease));
    return explain(lease, lease->lost_status != HF_OK ? HF_LOST : HF_NOT_HELD);
}

/* Starts an extend or a conversion and waits for its outcome. Only one runs at a time, because
 * the claim reports the end of all open ones together. */
static hf_status finish_change(struct hf_lease *lease, struct claim_event *event)
{
    assert(lease->callers > 0);

    while (lease->change.open && lease_is_held(lease))
        wait_once(lease);
    if (!lease_is_held(lease))
        return explain_unheld(lease);

    lease->change = (struct pending_call){.open = true};
    event->now = clock_boot();
    claim_driver_step(lease, event);
    wait_until(lease, &lease->change.over);
    lease->change.open = false;
    if (lease->change.status == HF_NOT_HELD)
        return error_set(HF_NOT_HELD, "%s: released meanwhile", lease->op.name);
    return explain(lease, lease->change.status);
}

static hf_status change(struct hf_lease *lease, struct claim_event *event)
{
    if (!lease_is_held(lease))
        return explain_unheld(lease);
    claim_driver_wait_begin(lease);
    hf_status status = finish_change(lease, event);
    claim_driver_wait_end(lease);
    return status;
}

hf_status client_extend(struct hf_lease *lease, int64_t ttl_ms)
{
    small_mutex_lock(&lease->lock);
    struct claim_event event = {.in = INPUT_EXTEND, .ttl_ms = ttl_ms};
    hf_status status = change(lease, &event);
    small_mutex_unlock(&lease->lock);
    return status;
}

/* Switches the renewal. A renewal is due at once, because the lease may be close to its end. */
hf_status client_set_renewal(struct hf_lease *lease, bool on)
{
    small_mutex_lock(&lease->lock);
    hf_status status = lease_is_held(lease) ? HF_OK : explain_unheld(lease);
    if (status == HF_OK) {
        claim_set_renewal(&lease->claim, on, clock_boot());
        claim_driver_input(lease, INPUT_TIMER, HF_OK);
    }
    small_mutex_unlock(&lease->lock);
    background_flush(lease->client);
    return status;
}

/* Starts a change. Only one runs at a time, as for blocked callers; a second one is refused,
 * because it could not wait. */
static hf_status start_change(struct hf_lease *lease, struct done_call done,
                              const struct claim_event *event)
{
    if (!lease_is_held(lease))
        return explain_unheld(lease);
    if (lease->change.open)
        return error_set(HF_BUSY, "%s: another extend or conversion is in flight", lease->op.name);
    hf_status status = callbacks_ensure(lease);
    if (status != HF_OK)
        return status;

    lease->callbacks->extended = done;
    lease->callbacks->change_calls_back = true;
    lease->change = (struct pending_call){.open = true};
    claim_driver_step(lease, event);
    return HF_OK;
}

/* Starts a change, unless the callback of an earlier change is still due: that may be so although
 * the change itself has ended. */
static hf_status start_next_change(struct hf_lease *lease, struct done_call done,
                                   const struct claim_event *event)
{
    bool is_due = lease->callbacks && lease->callbacks->extended.fn;
    return is_due
               ? error_set(HF_BUSY, "%s: another extend or conversion is in flight", lease->op.name)
               : start_change(lease, done, event);
}

hf_status client_extend_start(struct hf_lease *lease, int64_t ttl_ms, struct done_call done)
{
    assert(done.fn);

    small_mutex_lock(&lease->lock);
    struct claim_event event = {.in = INPUT_EXTEND, .now = clock_boot(), .ttl_ms = ttl_ms};
    hf_status status = start_next_change(lease, done, &event);
    small_mutex_unlock(&lease->lock);
    background_flush(lease->client);
    return status;
}

static hf_kind kind_after(enum op_verb verb)
{
    assert(verb == OP_UPGRADE || verb == OP_DOWNGRADE);
    return verb == OP_UPGRADE ? HF_WRITE : HF_READ;
}

static hf_status check_convertible(const struct hf_lease *lease)
{
    bool is_readwrite = lease->op.kind == HF_READ || lease->op.kind == HF_WRITE;
    return is_readwrite ? HF_OK
                        : error_set(HF_INVALID, "%s: is not a read-write lock", lease->op.name);
}

/* The reply may arrive inside start_change(). So the call is noted as a conversion before that. */
hf_status client_convert_start(struct hf_lease *lease, enum op_verb verb, struct done_call done)
{
    assert(done.fn);

    small_mutex_lock(&lease->lock);
    struct claim_event event = {.in = INPUT_CONVERT, .now = clock_boot(), .verb = verb};
    hf_status status = check_convertible(lease);
    if (status == HF_OK)
        status = callbacks_ensure(lease);
    bool is_free = status == HF_OK && !lease->change.open && !lease->callbacks->extended.fn;
    if (is_free) {
        lease->callbacks->converts = true;
        lease->callbacks->converted_kind = kind_after(verb);
    }
    if (status == HF_OK)
        status = start_next_change(lease, done, &event);
    if (is_free && status != HF_OK && lease->callbacks)
        lease->callbacks->converts = false;
    small_mutex_unlock(&lease->lock);
    background_flush(lease->client);
    return status;
}

hf_status client_convert(struct hf_lease *lease, enum op_verb verb)
{
    assert(verb == OP_UPGRADE || verb == OP_DOWNGRADE);

    small_mutex_lock(&lease->lock);
    struct claim_event event = {.in = INPUT_CONVERT, .verb = verb};
    hf_status status = check_convertible(lease);

    if (status == HF_OK)
        status = change(lease, &event);
    if (status == HF_OK)
        lease->op.kind = kind_after(verb);

    small_mutex_unlock(&lease->lock);
    return status;
}

static hf_status explain_ended(const struct hf_lease *lease, nanos ended_at, nanos now)
{
    const char *failure_text = lease_failure(lease)->text;
    return error_set(HF_NOT_HELD, "%s: the lease ended %lld ms ago%s%s", lease->op.name,
                     (long long)((now - ended_at) / NANOS_OF_MS(1)), *failure_text ? "; " : "",
                     failure_text);
}

/* Returns the time of a release. The clock's last tick is good enough unless a log shows the
 * time: a table in shared memory uses it only to tell whether the hold has expired, and no other
 * client gets the lock before the table says so. */
static inline nanos release_time(const struct hf_lease *lease)
{
    if (client_replies_later(lease->client) || lease->client->on_log)
        return clock_boot();
    nanos tick = clock_boot_lately(), asked = lease->claim.asked_at;
    return tick > asked ? tick : asked;
}

static hf_status finish_release(struct hf_lease *lease, nanos now)
{
    struct claim_event event = {.in = INPUT_RELEASE, .now = now};
    nanos believed = lease->claim.valid_until;
    lease->release = (struct pending_call){.open = true};
    claim_driver_step(lease, &event);
    wait_until(lease, &lease->release.over);
    lease->release.open = false;
    if (lease->release.status == HF_OK)
        return HF_OK;
    if (lease->release.status == HF_NOT_HELD && believed <= now)
        return explain_ended(lease, believed, now);
    return explain(lease, lease->release.status);
}

static hf_status explain_unreleased(const struct hf_lease *lease, nanos now)
{
    assert(!lease_is_held(lease));

    if (lease->lost_status != HF_OK)
        return explain_ended(lease, lease->claim.ended_at, now);
    return error_set(HF_NOT_HELD, lease->release.open ? "%s: is being released" : "%s: not held",
                     lease->op.name);
}

hf_status client_release(struct hf_lease *lease)
{
    hf_status status;
    small_mutex_lock(&lease->lock);
    if (client_closing(lease->client)) {
        status = client_refuse(lease->client);
    } else if (lease_is_held(lease)) {
        claim_driver_wait_begin(lease);
        status = finish_release(lease, release_time(lease));
        claim_driver_wait_end(lease);
    } else {
        status = explain_unreleased(lease, clock_boot());
    }

    small_mutex_unlock(&lease->lock);
    return status;
}

hf_status client_release_start(struct hf_lease *lease, struct done_call done)
{
    assert(done.fn);

    small_mutex_lock(&lease->lock);
    hf_status status = HF_OK;
    if (!lease_is_held(lease))
        status = explain_unreleased(lease, clock_boot());
    else
        status = callbacks_ensure(lease);
    if (status == HF_OK) {
        lease->callbacks->released = done;
        lease->callbacks->release_calls_back = true;
        lease->release = (struct pending_call){.open = true};
        claim_driver_step(lease,
                          &(struct claim_event){.in = INPUT_RELEASE, .now = release_time(lease)});
    }

    small_mutex_unlock(&lease->lock);
    background_flush(lease->client);
    return status;
}

/* With keep_handles: frees a handle while hf_close runs, or after it. The memory of the client is
 * freed with its last handle. The client's lock is released last, because another thread may free
 * the memory after that. */
static void free_kept(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    small_mutex_lock(&lease->lock);
    small_mutex_lock(&client->lock);
    assert(!client->closed || client->handles > 0);
    lease->freed = true;
    bool is_last = client->closed && --client->handles == 0;
    small_mutex_unlock(&lease->lock);
    small_mutex_unlock(&client->lock);

    if (is_last)
        client_free_memory(client);
}

/* If the claim is over, the handle holds the last reference and goes straight to the pool. With
 * keep_handles hf_close may run at the same time, so the call must be counted first. */
void client_lease_free(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    if (!client->keep_handles && lease_pool_last(lease))
        return;
    if (client_enter(client) != HF_OK) {
        if (client->keep_handles)
            free_kept(lease);
        return;
    }

    small_mutex_lock(&lease->lock);
    lease->freed = true;
    if (lease_is_held(lease) && lease->exported)
        claim_driver_disown(lease);
    else if (lease_is_held(lease))
        claim_driver_step(lease,
                          &(struct claim_event){.in = INPUT_RELEASE, .now = release_time(lease)});
    else if (!lease->decided)
        claim_driver_cancel(lease, HF_CANCELLED);

    small_mutex_unlock(&lease->lock);
    lease_unref(lease);
    background_flush(client);
    client_exit(client);
}

int client_lost_fd(struct hf_lease *lease)
{
    small_mutex_lock(&lease->lock);
    int fd = atomic_load(&lease->lost_fd);
    if (fd < 0) {
        fd = eventfd(lease->lost_status != HF_OK, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0)
            error_set(HF_NO_MEMORY, "%s: cannot make a descriptor for its loss: %s", lease->op.name,
                      strerror(errno));
        else
            atomic_store(&lease->lost_fd, fd);
    }

    small_mutex_unlock(&lease->lock);
    return fd;
}
