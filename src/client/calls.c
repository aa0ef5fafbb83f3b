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

hf_status hf_client_enter(struct hf_client *client)
{
    if (!hf_forkmark_ours(&client->mark))
        return hf_why(HF_FORKED, "%s: the client belongs to the parent process; open one of your own", client->url);
    if (!(atomic_fetch_add(&client->inside, 1) & HF_CLOSING))
        return HF_OK;
    hf_why(HF_CLOSED, "%s: the client is being closed", client->url);
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
        return hf_why(status, "%s: not free within %lld ms%s%s", lease->name,
                      (long long)((claim->deadline - claim->started_at) / HF_MS(1)), *words ? "; " : "", words);
    return hf_why(status, "%s: %s", lease->name, *words ? words : hf_status_row(status)->text);
}

/* ---- Acquiring ---- */

/* `now` is the time from which the wait was counted. A client that is being closed begins nothing: hf_close may have
 * been at this lease already, when there was nothing to end. */
static hf_status begin(struct hf_lease *lease, hf_nanos now)
{
    struct hf_event event = {.in = HF_I_START, .now = now};
    if (atomic_load(&lease->client->inside) & HF_CLOSING)
        return hf_why(HF_CLOSED, "%s: the client is being closed", lease->name);
    if (lease->group && hf_group_lost(lease))
        return hf_why(HF_LOST, "%s: a lock that was taken together with it is lost", lease->name);
    atomic_fetch_add_explicit(&lease->client->count[COUNT_ASKED], 1, memory_order_relaxed);
    hf_drive(lease, &event);
    return HF_OK;
}

/* Sleeps until the lease has news or its timer is due. The lock is given up meanwhile. */
static void sleep_once(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    uint64_t slot = lease->claim.state == HF_S_QUEUED ? lease->ask.slot : 0;
    uint32_t seen = slot ? lease->ask.seen : atomic_load(&lease->news);
    hf_nanos until = lease->wake_at;
    lease->parked = slot;
    lease->sleepers += !slot;
    pthread_mutex_unlock(&lease->lock);
    if (slot)
        client->type->park(client->engine, slot, seen, until);
    else
        hf_futex_wait(&lease->news, seen, until);
    pthread_mutex_lock(&lease->lock);
    lease->parked = 0;
    lease->sleepers -= !slot;
}

static void wait_for_outcome(struct hf_lease *lease)
{
    while (!lease->decided) {
        sleep_once(lease);
        hf_drive_peek(lease);
        if (!lease->decided && hf_clock_boot() >= lease->wake_at)
            hf_drive_input(lease, HF_I_TIMER, HF_OK);
    }
}

hf_status hf_call_wait(struct hf_lease *lease, hf_nanos now)
{
    pthread_mutex_lock(&lease->lock);
    lease->caller_drives = true;
    hf_status status = begin(lease, now);
    if (status == HF_OK) {
        wait_for_outcome(lease);
        status = explain(lease, lease->outcome);
    }
    pthread_mutex_unlock(&lease->lock);
    return status;
}

hf_status hf_call_acquire(struct hf_client *client, const struct hf_request *request, struct hf_lease **out)
{
    struct hf_lease *lease;
    hf_nanos now = hf_clock_boot();
    hf_status status = hf_lease_make(client, request, now, hf_deadline(now, request->wait_ms), &lease);
    if (status != HF_OK)
        return status;
    status = hf_call_wait(lease, now);
    if (status == HF_OK)
        *out = lease;
    else
        hf_lease_unref(lease);
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
    pthread_mutex_lock(&lease->lock);
    lease->done = done;
    lease->done_arg = arg;
    lease->ask.bell = true;
    *out = lease; /* before the callback can run */
    status = begin(lease, now);
    pthread_mutex_unlock(&lease->lock);
    if (status == HF_OK)
        return HF_OK;
    *out = NULL;
    hf_lease_unref(lease);
    return status;
}

hf_status hf_call_cancel(struct hf_lease *lease)
{
    pthread_mutex_lock(&lease->lock);
    bool waits = !lease->decided;
    if (waits)
        hf_drive_input(lease, HF_I_CANCEL, HF_CANCELLED);
    pthread_mutex_unlock(&lease->lock);
    return waits ? HF_OK : hf_why(HF_NOT_HELD, "%s: does not wait any more", lease->name);
}

/* ---- What the holder does ---- */

static bool is_held(const struct hf_lease *lease)
{
    return lease->claim.state == HF_S_HELD || lease->claim.state == HF_S_EXTENDING;
}

/* What there is to say to somebody who thought it was held. */
static hf_status explain_unheld(struct hf_lease *lease)
{
    return explain(lease, lease->lost_status != HF_OK ? HF_LOST : HF_NOT_HELD);
}

/* Waits for the answer to an extend or release. An engine that answers at once never lets it sleep. */
static hf_status finish_call(struct hf_lease *lease, const struct hf_event *event)
{
    lease->call_over = false;
    hf_drive(lease, event);
    while (!lease->call_over) {
        uint32_t seen = atomic_load(&lease->news);
        lease->sleepers++;
        pthread_mutex_unlock(&lease->lock);
        hf_futex_wait(&lease->news, seen, HF_NEVER);
        pthread_mutex_lock(&lease->lock);
        lease->sleepers--;
    }
    return explain(lease, lease->call_status);
}

hf_status hf_call_extend(struct hf_lease *lease, int64_t ttl_ms)
{
    pthread_mutex_lock(&lease->lock);
    hf_status status;
    struct hf_event event = {.in = HF_I_EXTEND, .now = hf_clock_boot(), .ttl_ms = ttl_ms};
    if (is_held(lease))
        status = finish_call(lease, &event);
    else
        status = explain_unheld(lease);
    pthread_mutex_unlock(&lease->lock);
    return status;
}

hf_status hf_call_convert(struct hf_lease *lease, enum hf_verb verb)
{
    pthread_mutex_lock(&lease->lock);
    hf_status status;
    struct hf_event event = {.in = HF_I_CONVERT, .now = hf_clock_boot(), .verb = verb};
    if (lease->ask.kind != HF_READ && lease->ask.kind != HF_WRITE)
        status = hf_why(HF_INVALID, "%s: is not a read-write lock", lease->name);
    else if (is_held(lease))
        status = finish_call(lease, &event);
    else
        status = explain_unheld(lease);
    if (status == HF_OK)
        lease->ask.kind = verb == HF_V_UPGRADE ? HF_WRITE : HF_READ;
    pthread_mutex_unlock(&lease->lock);
    return status;
}

hf_status hf_call_release(struct hf_lease *lease)
{
    pthread_mutex_lock(&lease->lock);
    hf_status status;
    struct hf_event event = {.in = HF_I_RELEASE, .now = hf_clock_boot()};
    if (is_held(lease))
        status = finish_call(lease, &event);
    else
        status =
            hf_why(HF_NOT_HELD, lease->lost_status ? "%s: the lease had ended before" : "%s: not held", lease->name);
    pthread_mutex_unlock(&lease->lock);
    return status;
}

void hf_call_free(struct hf_lease *lease)
{
    pthread_mutex_lock(&lease->lock);
    lease->freed = true;
    if (is_held(lease) && lease->exported)
        hf_drive_disown(lease);
    else if (is_held(lease))
        hf_drive_input(lease, HF_I_RELEASE, HF_OK);
    else if (!lease->decided)
        hf_drive_input(lease, HF_I_CANCEL, HF_CANCELLED);
    pthread_mutex_unlock(&lease->lock);
    hf_lease_unref(lease);
}

int hf_call_lost_fd(struct hf_lease *lease)
{
    pthread_mutex_lock(&lease->lock);
    int fd = atomic_load(&lease->lost_fd);
    if (fd < 0) {
        fd = eventfd(lease->lost_status != HF_OK, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0)
            hf_why(HF_NO_MEMORY, "%s: no descriptor to tell of a loss: %s", lease->name, strerror(errno));
        else
            atomic_store(&lease->lost_fd, fd);
    }
    pthread_mutex_unlock(&lease->lock);
    return fd;
}
