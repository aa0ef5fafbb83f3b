/* checker.c - follows a history event by event: memory, who is excused, and what happens to the
 * world. */
#include "checker_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *promises;
    unsigned doubts, excuses;
} invariants[] = {
#define INVARIANT(id, name, promises, doubts, excuses, remains) {name, promises, doubts, excuses},
#include "invariants.def"
};

/* ---- Memory ---- */

void *hist_grown(void *at, size_t wanted, size_t *room, size_t size)
{
    if (wanted <= *room)
        return at;
    while (*room < wanted)
        *room = *room ? *room * 2 : 64;
    at = reallocarray(at, *room, size);
    if (!at)
        abort();
    return at;
}

struct history *history_open(void)
{
    struct history *h = calloc(1, sizeof *h);
    if (h)
        h->sight = calloc(1, sizeof *h->sight);
    if (!h || !h->sight)
        abort();
    return h;
}

void history_close(struct history *h)
{
    free(h->attempts.at);
    free(h->locks.at);
    free(h->open.at);
    free(h->broken.at);
    free(h->sight);
    free(h);
}

void history_begin(struct history *h, const struct history_rules *rules)
{
    h->rules = *rules;
    h->attempts.count = h->locks.count = h->open.count = h->broken.count = 0;
    memset(h->process, 0, sizeof h->process);
    for (int i = 0; i < H_FAULTS; i++)
        h->last[i] = -1;
    h->now = h->ahead = h->shown = h->asked_since = h->healed = 0;
    h->forgot = -1;
    h->lags = h->stepped_back = false;
    h->sight->holds = h->sight->places = 0;
    memset(h->judged, 0, sizeof h->judged);
    h->hand_overs = h->failures = 0;
    h->failure[0] = '\0';
}

/* ---- What is wrong ---- */

const char *history_failure(const struct history *h)
{
    return h->failure;
}

unsigned history_failures(const struct history *h)
{
    return h->failures;
}

uint64_t history_judged(const struct history *h, enum invariant which)
{
    return h->judged[which];
}

uint64_t history_hand_overs(const struct history *h)
{
    return h->hand_overs;
}

void hist_fails(struct history *h, enum invariant which, const char *format, ...)
{
    if (h->failures++)
        return;
    int len = snprintf(h->failure, sizeof h->failure, "%s (%s): ", invariants[which].name,
                       invariants[which].promises);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(h->failure + len, sizeof h->failure - (size_t)len, format, arguments);
    va_end(arguments);
}

/* ---- Who is excused ---- */

/* A fault after which the server may not know what it said yes to. */
static bool is_in_doubt(const struct history *h, const struct attempt *a, unsigned faults)
{
    for (int i = 0; faults; i++, faults >>= 1)
        if (faults & 1 && a->sure <= h->last[i] && h->now <= h->last[i] + a->reach)
            return true;
    return false;
}

static bool is_near(const struct history *h, const struct attempt *a)
{
    return a->touched || h->now < h->process[a->process].near_until || h->lags;
}

bool hist_applies(struct history *h, enum invariant which, const struct attempt *a)
{
    if (is_in_doubt(h, a, invariants[which].doubts) || (invariants[which].excuses && is_near(h, a)))
        return false;
    h->judged[which]++;
    return true;
}

/* A hold may have got another token by an upgrade of which its user, or its owner's other attempts,
 * have not heard. And all that are held without a token have the same, 1: who takes one of them
 * away may be late, and takes another. */
bool hist_is_broken(const struct history *h, const struct attempt *a)
{
    uint64_t token = a->token ? a->token : 1;
    for (size_t i = 0; i < h->broken.count; i++)
        if (h->broken.at[i].owner == a->owner || h->broken.at[i].token == token)
            return true;
    return false;
}

bool hist_believes(const struct history *h, const struct attempt *a)
{
    return a->held && !a->dead && h->now < a->until;
}

bool hist_is_alone(const struct history *h, const struct attempt *a)
{
    return a->units == lock_of(h, a)->capacity && !lock_of(h, a)->resized;
}

/* ---- The world ---- */

static void hear_resize(struct history *h, const struct history_event *e)
{
    struct lock *l = hist_meet_lock(h, e->lock);
    l->resized = true;
    if (e->capacity > l->capacity)
        l->capacity = e->capacity;
}

static void hear_foreigner(struct history *h, const struct history_event *e)
{
    struct lock *l = hist_meet_lock(h, e->lock);
    if (e->until > h->now)
        l->foreign_from = h->now;
    l->foreign_until = e->until;
    l->busy = later_of(l->busy, e->until);
    judge_exclusion(h, e->lock);
}

static void hear_break(struct history *h, const struct history_event *e)
{
    GROW(h->broken, h->broken.count + 1);
    h->broken.at[h->broken.count++] = (struct breaking){e->token, e->owner};
}

/* What is in use of it. */
static void copy_sight(struct history_sight *to, const struct history_sight *from)
{
    memcpy(to, from, offsetof(struct history_sight, hold));
    memcpy(to->hold, from->hold, from->holds * sizeof *from->hold);
    memcpy(to->place, from->place, from->places * sizeof *from->place);
}

void history_look_away(struct history *h, const struct history_sight *sight)
{
    copy_sight(h->sight, sight);
}

static void hear_sight(struct history *h, const struct history_sight *is)
{
    judge_sight(h, h->sight, is);
    copy_sight(h->sight, is);
}

void history_add(struct history *h, const struct history_event *e)
{
    h->now = e->at;
    struct attempt *a;
    switch (e->what) {
    case H_ASKED:
        hist_hear_ask(h, e);
        break;
    case H_HELD:
        hist_hear_held(h, e);
        break;
    case H_FAULT:
        hist_strike(h, e);
        break;
    case H_BROKEN:
        hear_break(h, e);
        break;
    case H_RESIZED:
        hear_resize(h, e);
        break;
    case H_FOREIGN:
        hear_foreigner(h, e);
        break;
    case H_SHOWN:
        hear_sight(h, e->sight);
        break;
    case H_REST:
        judge_rest(h, e);
        break;
    default:
        a = attempt_at(h, e->who);
        if (a)
            hist_hear_attempt(h, a, e);
        else
            hist_fails(h, INV_SEQUENCE, "something happens to a%u, which nobody asked for", e->who);
    }
}

void history_finish(struct history *h)
{
    h->now = H_NEVER;
    hist_close_held(h);
    judge_end(h);
}
