/* waits.c - waits and who asks in them, and how many there may be. */
#include "waits.h"
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct name_count {
    char name[HF_NAME_MAX + 1];
    size_t count;
};

/* ---- How many wait ---- */

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct name_count *)left)->name, ((const struct name_count *)right)->name);
}

static struct name_count *count_of(struct leases *leases, const char *name)
{
    struct name_count wanted;
    snprintf(wanted.name, sizeof wanted.name, "%s", name);
    struct name_count **found = tfind(&wanted, &leases->names, by_name);
    if (found)
        return *found;
    struct name_count *new = calloc(1, sizeof *new);
    if (!new)
        return NULL;
    memcpy(new->name, wanted.name, sizeof new->name);
    if (tsearch(new, &leases->names, by_name))
        return new;
    free(new);
    return NULL;
}

void wait_count(struct wait *wait)
{
    struct name_count *count = count_of(wait->leases, wait->name);
    if (wait->request.wait_ms == 0 || !count)
        return;
    wait->counted = true;
    count->count++;
    wait->leases->waiting++;
}

void wait_uncount(struct wait *wait)
{
    struct name_count *count = wait->counted ? count_of(wait->leases, wait->name) : NULL;
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
    struct name_count *count = wait->request.wait_ms != 0 ? count_of(wait->leases, wait->name) : NULL;
    if (wait->request.wait_ms == 0)
        return true;
    bool all = wait->leases->waiting >= (size_t)setting_number(settings, SET_MAX_WAITS);
    bool here = !count || count->count >= (size_t)setting_number(settings, SET_MAX_WAITS_PER_NAME);
    if (!all && !here)
        return true;
    exchange_field(x, "Retry-After", "1");
    if (all)
        answer_problem(x, 503, "too_many_waits", "too many requests wait", NULL);
    else
        answer_problem(x, 429, "too_many_waits", "too many requests wait for this name", NULL);
    return false;
}

void wait_counts_free(struct leases *leases)
{
    tdestroy(leases->names, free);
}

/* ---- Waits and who asks in them ---- */

void wait_free(struct wait *wait)
{
    struct leases *leases = wait->leases;
    wait_uncount(wait);
    give_back(leases, NULL, &wait->keyed, wait->phase == PHASE_LOCK && wait->outcome != HF_BUSY);
    *(wait->prev ? &wait->prev->next : &leases->waits) = wait->next;
    if (wait->next)
        wait->next->prev = wait->prev;
    free(wait);
}

/* Out of the queue. A record and a note wait for nothing, and are asked for under attempts that may hold already: to
 * give up the second ask would give up the hold. */
void wait_cancel(struct wait *wait)
{
    if (wait->lease && (wait->phase == PHASE_TURN || wait->phase == PHASE_LOCK))
        hf_cancel(wait->lease);
}

/* Not without the turn, for then another instance may stand there under the same attempt, or hold. */
static void give_up(struct wait *wait)
{
    if (!wait->keyed.turn || hf_lease_ok(wait->keyed.turn))
        wait_cancel(wait);
}

/* The client left: the last one takes the place in the queue along. */
static void on_gone(struct exchange *x)
{
    struct asker *asker = x->work;
    struct wait *wait = asker->wait;
    struct asker **at = &wait->askers;
    while (*at != asker)
        at = &(*at)->next;
    *at = asker->next;
    free(asker);
    x->work = NULL;
    wait->leases->server->metrics.left++;
    if (!wait->askers)
        give_up(wait);
    exchange_answer(x, 499, NULL, NULL, 0);
}

bool wait_join(struct wait *wait, struct exchange *x)
{
    struct asker *asker = calloc(1, sizeof *asker);
    if (!asker)
        return false;
    *asker = (struct asker){.x = x, .wait = wait, .next = wait->askers};
    wait->askers = asker;
    x->work = asker;
    x->gone = on_gone;
    return true;
}

struct exchange *wait_take_asker(struct wait *wait)
{
    struct asker *asker = wait->askers;
    if (!asker)
        return NULL;
    struct exchange *x = asker->x;
    wait->askers = asker->next;
    free(asker);
    x->gone = NULL;
    x->work = NULL;
    return x;
}
