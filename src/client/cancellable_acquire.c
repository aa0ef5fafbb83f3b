/* cancellable_acquire.c - a blocking acquire that a descriptor can end. The background thread
 * drives it as it drives one that was only started; the caller polls two descriptors: its own, and
 * one that becomes readable with the outcome. */
#include "client.h"

#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Sleeps until there is an outcome, or until the caller's descriptor is readable. Returns true if
 * the descriptor is. A descriptor that cannot be polled counts as readable: otherwise a mistake
 * there would make the caller wait without a way to end it. */
static bool wait_for_either(int outcome_fd, int cancel_fd)
{
    struct pollfd fds[] = {{.fd = outcome_fd, .events = POLLIN},
                           {.fd = cancel_fd, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return fds[1].revents != 0;
}

/* Waits for the outcome. The lease's lock is released meanwhile; the client stays open. */
static void wait_for_outcome(struct hf_lease *lease, int cancel_fd)
{
    struct hf_client *client = lease->client;
    int outcome_fd = lease->callbacks->outcome_fd;
    client_stay_open(client); /* counted before hf_close can get the lease's lock */

    while (!lease->decided) {
        small_mutex_unlock(&lease->lock);
        background_flush(client);
        bool is_cancelled = wait_for_either(outcome_fd, cancel_fd);
        small_mutex_lock(&lease->lock);
        if (is_cancelled && !lease->decided) {
            claim_driver_input(lease, INPUT_CANCEL, HF_CANCELLED);
            cancel_fd = -1; /* the reply to the cancel is awaited */
        }
    }
    client_exit(client);
}

static hf_status begin_and_poll(struct hf_lease *lease, nanos now, int cancel_fd)
{
    struct callbacks *callbacks = lease->callbacks;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return error_set(HF_NO_MEMORY, "%s: cannot make a descriptor to wait with: %s",
                         lease->op.name, strerror(errno));

    callbacks->outcome_fd = fd;
    callbacks->has_outcome_fd = true;
    hf_status status = client_acquire_begin(lease, now);
    if (status == HF_OK)
        wait_for_outcome(lease, cancel_fd);
    callbacks->has_outcome_fd = false;
    close(fd);
    if (status == HF_OK && lease->outcome != HF_OK)
        status = client_explain_outcome(lease);
    return status;
}

static hf_status acquire_in_background(struct hf_client *client, const struct hf_request *request,
                                       struct hf_lease **out)
{
    struct hf_lease *lease;
    nanos now = clock_boot();
    hf_status status =
        lease_make(client, request, now, client_deadline(now, request->wait_ms), &lease);
    if (status != HF_OK)
        return status;

    status = callbacks_ensure(lease);
    if (status == HF_OK)
        status = begin_and_poll(lease, now, request->cancel_fd);
    if (status == HF_OK) {
        *out = lease;
        small_mutex_unlock(&lease->lock);
    } else {
        lease_drop(lease);
    }
    return status;
}

/* Acquires. An engine that replies at once is first asked without waiting, so that a free lock
 * needs no other thread. A server is not asked that way, because even such a request may take long
 * if the server hangs. */
hf_status client_acquire_cancellable(struct hf_client *client, const struct hf_request *request,
                                     struct hf_lease **lease)
{
    assert(request->cancel_fd > 0);

    if (client->no_thread)
        return error_set(HF_INVALID,
                         "cancel_fd: needs the background thread; use hf_acquire_start");
    if (client_replies_later(client))
        return acquire_in_background(client, request, lease);

    struct hf_request at_once = *request;
    at_once.wait_ms = 0;
    hf_status status = client_acquire(client, &at_once, lease);
    bool may_wait = status == HF_BUSY && request->wait_ms != 0;
    return may_wait ? acquire_in_background(client, request, lease) : status;
}
