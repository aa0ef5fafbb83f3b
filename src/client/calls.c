/* calls.c - the calls on a client and on a lease, blocking and starting ones. The arguments have been checked by api.c.
 */
#include "client.h"

#include "base/status.h"
#include "base/why.h"
#include "sys/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- In and out ---- */

hf_status hf_client_refuse(const struct hf_client *client)
{
    if (!hf_forkmark_ours(&client->mark))
        return hf_why(HF_FORKED, "%s: the client belongs to the parent process; open one of your own", client->url);
    return hf_why(HF_CLOSED, "%s: the client is being closed", client->url);
}

hf_status hf_client_enter(struct hf_client *client)
{
    if (!hf_forkmark_ours(&client->mark))
        return hf_client_refuse(client);
    if (!(atomic_fetch_add(&client->inside, 1) & HF_CLOSING))
        return HF_OK;
    hf_client_refuse(client);
    hf_client_exit(client);
    return HF_CLOSED;
}

/* The last one out wakes hf_close, which may free the client before the wake is made: it goes to the address alone. */
void hf_client_exit(struct hf_client *client)
{
    if (atomic_fetch_sub(&client->inside, 1) == (HF_CLOSING | 1))
        hf_futex_wake(&client->inside, INT32_MAX);
}

/* The words for an outcome that is not HF_OK. */
static hf_status explain(struct hf_lease *lease, hf_status status)
{
    const struct hf_claim *claim = &lease->claim;
    const char *words = lease->words ? lease->words : "";
    if (status == HF_OK)
        return HF_OK;
    if (status == HF_TIMEOUT)
        return hf_why(status, "%s: not free within %lld ms%s%s", lease->ask.name,
                      (long long)((claim->deadline - claim->started_at) / HF_MS(1)), *words ? "; " : "", words);
    if (status == HF_IN_DOUBT && !*words)
        return hf_why(status, "%s: %s (%s)", lease->ask.name, hf_status_row(status)->text, lease->client->url);
    return hf_why(status, "%s: %s", lease->ask.name, *words ? words : hf_status_row(status)->text);
}

/* ---- Acquiring ---- */

/* `now` is the time from which the wait was counted. A client that is being closed begins nothing: hf_close may have
 * been at this lease already, when there was nothing to end. */
static inline hf_status begin(struct hf_lease *lease, hf_nanos now)
{
    struct hf_event event = {.in = HF_I_START, .now = now};
    if (hf_client_closing(lease->client))
        return hf_why(HF_CLOSED, "%s: the client is being closed", lease->ask.name);
    if (hf_lease_group(lease) && hf_group_lost(lease))
        return hf_why(HF_LOST, "%s: a lock that was taken together with it is lost", lease->ask.name);
    atomic_fetch_add_explicit(&lease->client->count[COUNT_ASKED], 1, memory_order_relaxed);
    hf_drive(lease, &event);
    return HF_OK;
}

/* Waits for an answer. The caller brings the timer events as well: the keeper may not be able to, for one in a callback
 * it is this very thread. Twice does no harm. */
static void wait_once(struct hf_lease *lease)
{
    hf_nanos now = hf_drive_sleep(lease, HF_NEVER);
    hf_drive_peek(lease, now);
    if (now >= lease->wake_at)
        hf_drive_input(lease, HF_I_TIMER, HF_OK);
}

static void wait_until(struct hf_lease *lease, const bool *over)
{
    while (!*over)
        wait_once(lease);
}

static inline hf_status begin_and_wait(struct hf_lease *lease, hf_nanos now)
{
    lease->caller_drives = true;
    hf_drive_attend(lease);
    hf_status status = begin(lease, now);
    if (status == HF_OK) {
        wait_until(lease, &lease->decided);
        status = lease->outcome == HF_OK ? HF_OK : explain(lease, lease->outcome);
    }
    hf_drive_unattend(lease);
    return status;
}

hf_status hf_call_wait(struct hf_lease *lease, hf_nanos now)
{
    return begin_and_wait(lease, now);
}

hf_status hf_call_acquire(struct hf_client *client, const struct hf_request *request, struct hf_lease **out)
{
    struct hf_lease *lease;
    hf_nanos now = hf_clock_boot();
    hf_status status = hf_lease_make(client, request, now, hf_deadline(now, request->wait_ms), &lease);
    if (status != HF_OK)
        return status;
    status = begin_and_wait(lease, now);
    if (status == HF_OK) {
        *out = lease;
        hf_latch_unlock(&lease->lock);
    } else {
        hf_lease_drop(lease);
    }
    return status;
}

hf_status hf_call_start(struct hf_client *client, const struct hf_request *request, hf_done_fn *done, void *arg,
                        struct hf_lease **out)
{
    struct hf_lease *lease;
    hf_nanos now = hf_clock_boot();
    hf_status status = hf_lease_make(client, request, now, hf_deadline(now, request->wait_ms), &lease);
    if (status != HF_OK)
        return status;
    *out = lease; /* before the callback can run */
    status = hf_hooks_need(lease);
    if (status == HF_OK) {
        lease->hooks->done = done;
        lease->hooks->done_arg = arg;
        status = begin(lease, now);
    }
    hf_latch_unlock(&lease->lock);
    hf_keeper_flush(client);
    if (status == HF_OK)
        return HF_OK;
    *out = NULL;
    hf_lease_unref(lease);
    return status;
}

hf_status hf_call_cancel(struct hf_lease *lease)
{
    hf_latch_lock(&lease->lock);
    bool waits = !lease->decided;
    if (waits)
        hf_drive_input(lease, HF_I_CANCEL, HF_CANCELLED);
    hf_latch_unlock(&lease->lock);
    hf_keeper_flush(lease->client);
    return waits ? HF_OK : hf_why(HF_NOT_HELD, "%s: does not wait any more", lease->ask.name);
}

/* ---- What the holder does ---- */

/* What there is to say to somebody who thought it was held. */
static hf_status explain_unheld(struct hf_lease *lease)
{
    return explain(lease, lease->lost_status != HF_OK ? HF_LOST : HF_NOT_HELD);
}

/* Asks for an extend or a conversion, and waits for the answer. The claim has one report for all that were asked for,
 * so there is one at a time. */
static hf_status finish_change(struct hf_lease *lease, struct hf_event *event)
{
    while (lease->change.open && hf_lease_held(lease))
        wait_once(lease);
    if (!hf_lease_held(lease))
        return explain_unheld(lease);
    lease->change = (struct hf_pending_call){.open = true};
    event->now = hf_clock_boot();
    hf_drive(lease, event);
    wait_until(lease, &lease->change.over);
    lease->change.open = false;
    if (lease->change.status == HF_NOT_HELD)
        return hf_why(HF_NOT_HELD, "%s: released meanwhile", lease->ask.name);
    return explain(lease, lease->change.status);
}

static hf_status change(struct hf_lease *lease, struct hf_event *event)
{
    if (!hf_lease_held(lease))
        return explain_unheld(lease);
    hf_drive_attend(lease);
    hf_status status = finish_change(lease, event);
    hf_drive_unattend(lease);
    return status;
}

hf_status hf_call_extend(struct hf_lease *lease, int64_t ttl_ms)
{
    hf_latch_lock(&lease->lock);
    struct hf_event event = {.in = HF_I_EXTEND, .ttl_ms = ttl_ms};
    hf_status status = change(lease, &event);
    hf_latch_unlock(&lease->lock);
    return status;
}

hf_status hf_call_convert(struct hf_lease *lease, enum hf_verb verb)
{
    hf_latch_lock(&lease->lock);
    hf_status status;
    struct hf_event event = {.in = HF_I_CONVERT, .verb = verb};
    if (lease->ask.kind != HF_READ && lease->ask.kind != HF_WRITE)
        status = hf_why(HF_INVALID, "%s: is not a read-write lock", lease->ask.name);
    else
        status = change(lease, &event);
    if (status == HF_OK)
        lease->ask.kind = verb == HF_V_UPGRADE ? HF_WRITE : HF_READ;
    hf_latch_unlock(&lease->lock);
    return status;
}

static hf_status explain_ended(const struct hf_lease *lease, hf_nanos ended_at, hf_nanos now)
{
    const char *words = lease->words ? lease->words : "";
    return hf_why(HF_NOT_HELD, "%s: the lease ended %lld ms ago%s%s", lease->ask.name,
                  (long long)((now - ended_at) / HF_MS(1)), *words ? "; " : "", words);
}

/* When it is given back. To a table that only says whether its time is over, and until that is seen there nobody else
 * can have it: the last tick of the clock will do, unless somebody wants to read of it. */
static inline hf_nanos release_time(const struct hf_lease *lease)
{
    if (hf_client_hears_later(lease->client) || lease->client->on_log)
        return hf_clock_boot();
    hf_nanos lately = hf_clock_boot_lately(), asked = lease->claim.asked_at;
    return lately > asked ? lately : asked;
}

static hf_status finish_release(struct hf_lease *lease, hf_nanos now)
{
    struct hf_event event = {.in = HF_I_RELEASE, .now = now};
    hf_nanos believed = lease->claim.valid_until;
    lease->release = (struct hf_pending_call){.open = true};
    hf_drive(lease, &event);
    wait_until(lease, &lease->release.over);
    lease->release.open = false;
    if (lease->release.status == HF_OK)
        return HF_OK;
    if (lease->release.status == HF_NOT_HELD && believed <= now)
        return explain_ended(lease, believed, now);
    return explain(lease, lease->release.status);
}

static hf_status explain_unreleased(const struct hf_lease *lease, hf_nanos now)
{
    if (lease->lost_status != HF_OK)
        return explain_ended(lease, lease->claim.ended_at, now);
    return hf_why(HF_NOT_HELD, lease->release.open ? "%s: is being released" : "%s: not held", lease->ask.name);
}

hf_status hf_call_release(struct hf_lease *lease)
{
    hf_status status;
    hf_latch_lock(&lease->lock);
    if (hf_client_closing(lease->client)) {
        status = hf_client_refuse(lease->client);
    } else if (hf_lease_held(lease)) {
        hf_drive_attend(lease);
        status = finish_release(lease, release_time(lease));
        hf_drive_unattend(lease);
    } else {
        status = explain_unreleased(lease, hf_clock_boot());
    }
    hf_latch_unlock(&lease->lock);
    return status;
}

/* Of what is over only the handle is left. */
void hf_call_free(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    if (hf_lease_pool_last(lease) || hf_client_enter(client) != HF_OK)
        return;
    hf_latch_lock(&lease->lock);
    lease->freed = true;
    if (hf_lease_held(lease) && lease->exported)
        hf_drive_disown(lease);
    else if (hf_lease_held(lease))
        hf_drive(lease, &(struct hf_event){.in = HF_I_RELEASE, .now = release_time(lease)});
    else if (!lease->decided)
        hf_drive_input(lease, HF_I_CANCEL, HF_CANCELLED);
    hf_latch_unlock(&lease->lock);
    hf_lease_unref(lease);
    hf_keeper_flush(client);
    hf_client_exit(client);
}

int hf_call_lost_fd(struct hf_lease *lease)
{
    hf_latch_lock(&lease->lock);
    int fd = atomic_load(&lease->lost_fd);
    if (fd < 0) {
        fd = eventfd(lease->lost_status != HF_OK, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0)
            hf_why(HF_NO_MEMORY, "%s: no descriptor to tell of a loss: %s", lease->ask.name, strerror(errno));
        else
            atomic_store(&lease->lost_fd, fd);
    }
    hf_latch_unlock(&lease->lock);
    return fd;
}
