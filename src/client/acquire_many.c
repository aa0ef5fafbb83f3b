/* acquire_many.c - several names at once: taken in byte order, all or nothing, lost together.
 *
 * The caller waits for one name after the other. It tells the engine which come next, and an engine
 * may ask its server for all of them in one request (engines/redis/joint_acquire.c). Then a name's
 * reply is there when the caller asks for it. */
#include "client.h"

#include "base/error.h"
#include "sys/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Leases that were taken together. All fields are under the client's lock. */
struct lease_group {
    uint32_t refs; /* one for each lease in the group, one for the call that takes them */
    size_t count;
    bool lost; /* a lease of the group was lost, so the call stops waiting for the others */
    struct hf_lease *lease[]; /* NULL: not acquired yet, or freed */
};

static void unref_group(struct lease_group *group)
{
    assert(group->refs > 0);
    if (--group->refs == 0)
        free(group);
}

void lease_group_leave(struct hf_lease *lease)
{
    struct lease_group *group = lease_group_of(lease);
    if (!group)
        return;

    for (size_t i = 0; i < group->count; i++)
        if (group->lease[i] == lease)
            group->lease[i] = NULL;
    lease->callbacks->group = NULL;
    unref_group(group);
}

/* Cancels a lease that waits, releases one that is held. */
static void give_up(struct hf_lease *lease)
{
    small_mutex_lock(&lease->lock);
    if (!lease->decided)
        claim_driver_cancel(lease, HF_LOST);
    else if (lease_is_held(lease))
        claim_driver_input(lease, INPUT_FORFEIT, HF_LOST);
    small_mutex_unlock(&lease->lock);
}

void lease_group_lose(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    small_mutex_lock(&client->lock);
    struct lease_group *group = lease_group_of(lease);
    if (group) {
        group->refs++;
        group->lost = true;
    }

    for (size_t i = 0; group && i < group->count; i++) {
        struct hf_lease *other = group->lease[i];
        bool is_other = other && other != lease;
        if (!is_other || !lease_ref_listed(other))
            continue;
        small_mutex_unlock(&client->lock);
        give_up(other);
        lease_unref(other);
        small_mutex_lock(&client->lock);
    }

    if (group)
        unref_group(group);
    small_mutex_unlock(&client->lock);
}

bool lease_group_lost(struct hf_lease *lease)
{
    small_mutex_lock(&lease->client->lock);
    const struct lease_group *group = lease_group_of(lease);
    bool lost = group && group->lost;
    small_mutex_unlock(&lease->client->lock);
    return lost;
}

/* ---- Taking ---- */

static int by_name(const void *a, const void *b, void *requests)
{
    const struct hf_request *x = (const struct hf_request *)requests + *(const size_t *)a;
    const struct hf_request *y = (const struct hf_request *)requests + *(const size_t *)b;
    size_t shorter = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(x->name, y->name, shorter);
    return order ? order : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

/* Finds the order in which to take the names. HF_INVALID: a name occurs twice. */
static hf_status sort_names(const struct hf_request *requests, size_t count, size_t *order)
{
    assert(count > 0);

    for (size_t i = 0; i < count; i++)
        order[i] = i;
    qsort_r(order, count, sizeof *order, by_name, (void *)(uintptr_t)requests);
    for (size_t i = 1; i < count; i++)
        if (by_name(&order[i - 1], &order[i], (void *)(uintptr_t)requests) == 0)
            return error_set(HF_INVALID, "requests[%zu].name: %.*s is asked for twice", order[i],
                             (int)requests[order[i]].name_len, requests[order[i]].name);

    return HF_OK;
}

/* Makes a lease with renewal on, whatever its request says, because waiting for the other names may
 * take long. Its on_lost must not run before the caller has the handle. */
static hf_status make_one(struct hf_client *client, const struct hf_request *request,
                          nanos deadline, struct lease_group *group, size_t place)
{
    assert(place < group->count && !group->lease[place]);

    struct hf_lease *lease;
    hf_status status = lease_make(client, request, clock_boot(), deadline, &lease);
    if (status != HF_OK)
        return status;

    status = callbacks_ensure(lease);
    if (status != HF_OK) {
        lease_drop(lease);
        return status;
    }

    small_mutex_lock(&client->lock);
    group->lease[place] = lease;
    group->refs++;
    lease->callbacks->group = group;
    small_mutex_unlock(&client->lock);
    lease->muted = true;
    lease->claim.auto_renew = true;
    lease->op.of_several = client->limits.offers & ENGINE_JOINS;
    small_mutex_unlock(&lease->lock);
    return HF_OK;
}

/* Waits for the i-th name. The engine learns which names come next, so it may ask for them, too:
 * their leases are locked while it reads their ops. Other threads lock one lease at a time. */
static hf_status take_one(struct lease_group *group, const size_t *order, size_t i)
{
    struct hf_lease *lease = group->lease[order[i]], *last = lease;
    bool joins = lease->op.of_several;
    size_t end = joins ? group->count : i + 1;
    small_mutex_lock(&lease->lock);
    for (size_t k = i + 1; k < end; k++) {
        struct hf_lease *next = group->lease[order[k]];
        small_mutex_lock(&next->lock);
        last->op.next = &next->op;
        last = next;
    }

    hf_status status = client_acquire_begin_here(lease, clock_boot());
    if (joins)
        lease->op.next = NULL;
    for (size_t k = i + 1; k < end; k++) {
        group->lease[order[k]]->op.next = NULL;
        small_mutex_unlock(&group->lease[order[k]]->lock);
    }

    status = client_acquire_finish(lease, status);
    small_mutex_unlock(&lease->lock);
    return status;
}

/* All names are held: restores the renewal that the request asked for, and extends to the whole
 * ttl. If nearly all of the ttl is left, because the other names took almost no time, no request is
 * sent. */
static hf_status refill(struct hf_lease *lease, const struct hf_request *request)
{
    small_mutex_lock(&lease->lock);
    lease->claim.auto_renew = request->flags & HF_AUTO_RENEW;
    nanos left = lease->claim.valid_until - clock_boot();
    bool is_fresh = lease_is_held(lease) && left >= lease->claim.sheet->t.ttl / 10 * 9;
    small_mutex_unlock(&lease->lock);
    return is_fresh ? HF_OK : client_extend(lease, 0);
}

/* Gives the handle to the caller: nothing can fail any more. From here on on_lost may run, also for
 * a loss that happened before. */
static struct hf_lease *hand_out(struct hf_lease *lease)
{
    assert(lease && lease->muted);
    small_mutex_lock(&lease->lock);
    lease->muted = false;
    if (lease->lost_status != HF_OK && lease->callbacks->on_lost)
        callbacks_due(lease, CALLBACK_LOST);

    small_mutex_unlock(&lease->lock);
    return lease;
}

static hf_status take_all(struct hf_client *client, const struct hf_request *requests,
                          const size_t *order, nanos deadline, struct lease_group *group)
{
    assert(group->count > 0);

    hf_status status = HF_OK;
    for (size_t i = 0; i < group->count && status == HF_OK; i++)
        status = make_one(client, &requests[order[i]], deadline, group, order[i]);
    for (size_t i = 0; i < group->count && status == HF_OK; i++)
        status = take_one(group, order, i);
    for (size_t i = 0; i < group->count && status == HF_OK; i++)
        status = refill(group->lease[i], &requests[i]);
    return status;
}

/* The engine may have asked for a lease whose turn never came; so it is cancelled like one that
 * waits. */
static void give_back(struct hf_lease *lease)
{
    small_mutex_lock(&lease->lock);
    if (!lease->decided)
        claim_driver_cancel(lease, HF_CANCELLED);
    small_mutex_unlock(&lease->lock);
    client_lease_free(lease);
}

hf_status client_acquire_many(struct hf_client *client, const struct hf_request *requests,
                              size_t count, int64_t wait_ms, struct hf_lease **leases)
{
    assert(count > 0);

    size_t *order = calloc(count, sizeof *order);
    struct lease_group *group = calloc(1, sizeof *group + count * sizeof *group->lease);
    hf_status status = order && group
                           ? sort_names(requests, count, order)
                           : error_set(HF_NO_MEMORY, "no memory to take %zu names at once", count);

    if (group) {
        group->refs = 1;
        group->count = count;
    }
    if (status == HF_OK)
        status = take_all(client, requests, order, client_deadline(clock_boot(), wait_ms), group);

    struct error_state failure;
    error_save(&failure);
    for (size_t i = 0; group && i < count; i++) {
        struct hf_lease *lease = group->lease[i];
        if (status == HF_OK)
            leases[i] = hand_out(lease);
        else if (lease)
            give_back(lease);
    }

    small_mutex_lock(&client->lock);
    if (group)
        unref_group(group);
    small_mutex_unlock(&client->lock);
    free(order);
    if (status != HF_OK)
        /* releasing the others may have failed and replaced the error */
        error_restore(&failure);
    return status;
}
