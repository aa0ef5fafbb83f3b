/* many.c - several names at once: taken in byte order, all or nothing, lost together. */
#include "client.h"

#include "base/why.h"
#include "sys/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Those that were taken together. Each member counts; a place is empty before its lease is made and after it is freed.
 */
struct hf_group {
    uint32_t refs; /* under the client's lock, as is the rest */
    size_t count;
    bool lost; /* one of them: nothing more is waited for */
    struct hf_lease *lease[];
};

static void unref_group(struct hf_group *group)
{
    if (--group->refs == 0)
        free(group);
}

void hf_group_leave(struct hf_lease *lease)
{
    struct hf_group *group = hf_lease_group(lease);
    if (!group)
        return;
    for (size_t i = 0; i < group->count; i++)
        if (group->lease[i] == lease)
            group->lease[i] = NULL;
    lease->hooks->group = NULL;
    unref_group(group);
}

/* A lease that waits stops waiting, one that is held is given up. */
static void give_up(struct hf_lease *lease)
{
    hf_latch_lock(&lease->lock);
    if (!lease->decided)
        hf_drive_input(lease, HF_I_CANCEL, HF_LOST);
    else if (hf_lease_held(lease))
        hf_drive_input(lease, HF_I_FORFEIT, HF_LOST);
    hf_latch_unlock(&lease->lock);
}

void hf_group_lose(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    hf_latch_lock(&client->lock);
    struct hf_group *group = hf_lease_group(lease);
    if (group) {
        group->refs++;
        group->lost = true;
    }
    for (size_t i = 0; group && i < group->count; i++) {
        struct hf_lease *other = group->lease[i];
        if (!other || other == lease || !hf_lease_ref_listed(other)) /* it may be on its way to the pool */
            continue;
        hf_latch_unlock(&client->lock);
        give_up(other);
        hf_lease_unref(other);
        hf_latch_lock(&client->lock);
    }
    if (group)
        unref_group(group);
    hf_latch_unlock(&client->lock);
}

bool hf_group_lost(struct hf_lease *lease)
{
    hf_latch_lock(&lease->client->lock);
    const struct hf_group *group = hf_lease_group(lease);
    bool lost = group && group->lost;
    hf_latch_unlock(&lease->client->lock);
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

/* The order in which to take them. HF_INVALID: a name stands there twice. */
static hf_status sort_names(const struct hf_request *requests, size_t count, size_t *order)
{
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    qsort_r(order, count, sizeof *order, by_name, (void *)(uintptr_t)requests);
    for (size_t i = 1; i < count; i++)
        if (by_name(&order[i - 1], &order[i], (void *)(uintptr_t)requests) == 0)
            return hf_why(HF_INVALID, "requests[%zu].name: %.*s is asked for twice", order[i],
                          (int)requests[order[i]].name_len, requests[order[i]].name);
    return HF_OK;
}

/* Takes one and renews it from then on, whatever its request says: the next one may take long. Its on_lost waits until
 * the caller has the handle. */
static hf_status take_one(struct hf_client *client, const struct hf_request *request, hf_nanos deadline,
                          struct hf_group *group, size_t place)
{
    struct hf_lease *lease;
    hf_nanos now = hf_clock_boot();
    hf_status status = hf_lease_make(client, request, now, deadline, &lease);
    if (status != HF_OK)
        return status;
    status = hf_hooks_need(lease);
    if (status != HF_OK) {
        hf_lease_drop(lease);
        return status;
    }
    hf_latch_lock(&client->lock);
    group->lease[place] = lease;
    group->refs++;
    lease->hooks->group = group;
    hf_latch_unlock(&client->lock);
    lease->muted = true;
    lease->claim.auto_renew = true;
    status = hf_call_wait(lease, now);
    hf_latch_unlock(&lease->lock);
    return status;
}

/* All are held: from now on each lives as its request said, with its whole ttl. */
static hf_status refill(struct hf_lease *lease, const struct hf_request *request)
{
    hf_latch_lock(&lease->lock);
    lease->claim.auto_renew = request->flags & HF_AUTO_RENEW;
    hf_latch_unlock(&lease->lock);
    return hf_call_extend(lease, 0);
}

/* Nothing can fail any more: the caller gets the handle, and hears of its loss, also of one that has just happened. */
static struct hf_lease *hand_out(struct hf_lease *lease)
{
    hf_latch_lock(&lease->lock);
    lease->muted = false;
    if (lease->lost_status != HF_OK && lease->hooks->on_lost)
        hf_keeper_call(lease, HF_CB_LOST);
    hf_latch_unlock(&lease->lock);
    return lease;
}

static hf_status take_all(struct hf_client *client, const struct hf_request *requests, const size_t *order,
                          hf_nanos deadline, struct hf_group *group)
{
    hf_status status = HF_OK;
    for (size_t i = 0; i < group->count && status == HF_OK; i++)
        status = take_one(client, &requests[order[i]], deadline, group, order[i]);
    for (size_t i = 0; i < group->count && status == HF_OK; i++)
        status = refill(group->lease[i], &requests[i]);
    return status;
}

hf_status hf_call_many(struct hf_client *client, const struct hf_request *requests, size_t count, int64_t wait_ms,
                       struct hf_lease **leases)
{
    size_t *order = calloc(count, sizeof *order);
    struct hf_group *group = calloc(1, sizeof *group + count * sizeof *group->lease);
    hf_status status = order && group ? sort_names(requests, count, order)
                                      : hf_why(HF_NO_MEMORY, "no memory to take %zu names at once", count);
    if (group) {
        group->refs = 1;
        group->count = count;
    }
    if (status == HF_OK)
        status = take_all(client, requests, order, hf_deadline(hf_clock_boot(), wait_ms), group);
    char words[HF_WHY_MAX];
    snprintf(words, sizeof words, "%s", status == HF_OK ? "" : hf_why_text());
    for (size_t i = 0; group && i < count; i++) {
        struct hf_lease *lease = group->lease[i];
        if (status == HF_OK)
            leases[i] = hand_out(lease);
        else if (lease)
            hf_call_free(lease);
    }
    hf_latch_lock(&client->lock);
    if (group)
        unref_group(group);
    hf_latch_unlock(&client->lock);
    free(order);
    return status == HF_OK ? HF_OK : hf_why(status, "%s", words);
}
