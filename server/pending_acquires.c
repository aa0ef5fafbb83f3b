/* pending_acquires.c - pending acquires, the requests that share them, and the limits on their
 * number. */
#include "pending_acquires.h"
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct name_count {
    char name[HF_NAME_MAX + 1];
    size_t count;
};

/* ---- Limits ---- */

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct name_count *)left)->name,
                  ((const struct name_count *)right)->name);
}

/* Returns NULL if nobody waits for the name. */
static struct name_count *find_count(const struct leases *leases, const char *name)
{
    struct name_count wanted;
    snprintf(wanted.name, sizeof wanted.name, "%s", name);
    struct name_count **found = tfind(&wanted, &leases->names, by_name);
    return found ? *found : NULL;
}

static struct name_count *add_count(struct leases *leases, const char *name)
{
    struct name_count *count = find_count(leases, name);

    if (count)
        return count;

    count = calloc(1, sizeof *count);
    if (!count)
        return NULL;

    snprintf(count->name, sizeof count->name, "%s", name);
    if (tsearch(count, &leases->names, by_name))
        return count;

    free(count);

    return NULL;
}

/* Counts a name while somebody waits for it; its last waiter removes it. max-waits bounds the
 * number of names. */
void wait_count(struct wait *wait)
{
    struct name_count *count =
        wait->request.wait_ms != 0 ? add_count(wait->leases, wait->name) : NULL;
    if (!count)
        return;

    wait->counted = true;
    count->count++;
    wait->leases->waiting++;
}

void wait_uncount(struct wait *wait)
{
    struct name_count *count = wait->counted ? find_count(wait->leases, wait->name) : NULL;

    if (!count)
        return;

    wait->counted = false;
    wait->leases->waiting--;
    if (--count->count > 0)
        return;

    tdelete(count, &wait->leases->names, by_name);
    free(count);
}

bool wait_may(struct exchange *x, struct wait *wait)
{
    const struct settings *settings = &wait->leases->server->settings;

    if (wait->request.wait_ms == 0)
        return true;

    const struct name_count *count = find_count(wait->leases, wait->name);
    size_t waiting = count ? count->count : 0;
    bool all = wait->leases->waiting >= (size_t)setting_number(settings, SET_MAX_WAITS);
    bool here = waiting >= (size_t)setting_number(settings, SET_MAX_WAITS_PER_NAME);
    if (!all && !here)
        return true;

    exchange_field(x, "Retry-After", "1");
    if (all)
        answer_problem(x, 503, "too_many_waits", "too many requests are waiting", NULL);
    else
        answer_problem(x, 429, "too_many_waits", "too many requests are waiting for this name",
                       NULL);
    return false;
}

void wait_counts_free(struct leases *leases)
{
    tdestroy(leases->names, free);
}

/* ---- Waits and their requesters ---- */

void wait_free(struct wait *wait)
{
    struct leases *leases = wait->leases;

    wait_uncount(wait);
    release_job(leases, NULL, &wait->idempotency,
                wait->phase == PHASE_LOCK && wait->outcome != HF_BUSY);
    *(wait->prev ? &wait->prev->next : &leases->waits) = wait->next;
    if (wait->next)
        wait->next->prev = wait->prev;
    free(wait);
}

/* Leaves the queue. Record and note never queue. Their attempts may hold already, and cancelling
 * another acquire of such an attempt would give up the hold. */
void wait_cancel(struct wait *wait)
{
    bool may_queue = wait->lease && (wait->phase == PHASE_KEY_LOCK || wait->phase == PHASE_LOCK);
    if (may_queue)
        hf_cancel(wait->lease);
}

/* Gives up a wait. Without the key's lock another instance may wait or hold under the same
 * attempt; then nothing is cancelled. The clock decides: after a stop of the process the loop may
 * get here before the background thread has noticed the loss. */
static void give_up(struct wait *wait)
{
    if (!wait->idempotency.key_lock || hf_lease_left_ms(wait->idempotency.key_lock) > 0)
        wait_cancel(wait);
}

/* A client disconnected. If it was the last requester, the place in the queue is given up. */
static void on_disconnect(struct exchange *x)
{
    struct requester *requester = x->work;
    struct wait *wait = requester->wait;
    struct requester **at = &wait->requesters;

    while (*at != requester)
        at = &(*at)->next;
    *at = requester->next;
    free(requester);
    x->work = NULL;
    wait->leases->server->metrics.left++;
    if (!wait->requesters)
        give_up(wait);
    exchange_answer(x, 499, NULL, NULL, 0);
}

bool wait_join(struct wait *wait, struct exchange *x)
{
    struct requester *requester = calloc(1, sizeof *requester);

    if (!requester)
        return false;

    *requester = (struct requester){.x = x, .wait = wait, .next = wait->requesters};
    wait->requesters = requester;
    x->work = requester;
    x->disconnected = on_disconnect;

    return true;
}

struct exchange *wait_take_requester(struct wait *wait)
{
    struct requester *requester = wait->requesters;

    if (!requester)
        return NULL;

    struct exchange *x = requester->x;
    wait->requesters = requester->next;
    free(requester);
    x->disconnected = NULL;
    x->work = NULL;

    return x;
}
