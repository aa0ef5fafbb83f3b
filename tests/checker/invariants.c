/* invariants.c - the invariants of what users are told. */
#include "checker_internal.h"

#include <stdio.h>

#define TOKEN(number) (unsigned long long)(number)

/* ---- Exclusion: whoever believes, and may, never has more than there is. ---- */

static bool counts_on(struct history *h, const struct attempt *a)
{
    return hist_believes(h, a) && !hist_is_broken(h, a) && hist_applies(h, INV_EXCLUSION, a);
}

/* An owner's units count once: with the one of its attempts that has the most, the first of those.
 */
static bool is_counted_with_another(struct history *h, const struct attempt *a)
{
    for (size_t i = 0; a->flags & H_ENTERS && i < h->open.count; i++) {
        const struct attempt *other = &h->attempts.at[h->open.at[i]];
        bool more = other->units > a->units || (other->units == a->units && other < a);
        if (other != a && other->owner == a->owner && other->lock == a->lock &&
            other->flags & H_ENTERS && more && counts_on(h, other))
            return true;
    }
    return false;
}

static uint32_t believed_units(struct history *h, const struct attempt *a)
{
    return counts_on(h, a) && !is_counted_with_another(h, a) ? a->units : 0;
}

/* Another program cannot check what the server lost. */
static bool foreign_counts(const struct history *h, const struct lock *l)
{
    return l->foreign_until > h->now && h->forgot < l->foreign_from;
}

static void tell_holders(struct history *h, uint32_t lock, uint64_t units)
{
    char who[160] = "";
    int len = 0;
    for (size_t i = 0; i < h->open.count && len < 120; i++) {
        const struct attempt *a = &h->attempts.at[h->open.at[i]];
        if (a->lock == lock && believed_units(h, a))
            len += snprintf(who + len, sizeof who - (size_t)len, " a%u (token %llu, until %.3f ms)",
                            number_of(h, a), TOKEN(a->token), ms_of(a->until));
    }
    hist_fails(h, INV_EXCLUSION, "at %.3f ms %llu units are believed to be held of %u:%s%s",
               ms_of(h->now), (unsigned long long)units, h->locks.at[lock].capacity, who,
               foreign_counts(h, &h->locks.at[lock]) ? " and another program" : "");
}

void judge_exclusion(struct history *h, uint32_t lock)
{
    uint64_t units = foreign_counts(h, &h->locks.at[lock]);
    for (size_t i = 0; i < h->open.count; i++) {
        const struct attempt *a = &h->attempts.at[h->open.at[i]];
        if (a->lock == lock)
            units += believed_units(h, a);
    }
    if (units > h->locks.at[lock].capacity && h->locks.at[lock].capacity)
        tell_holders(h, lock, units);
}

/* ---- Tokens: who is alone has a higher one than all before it, and who comes after it a higher
 * one than that. Those who share may hear of their grants in another order than that in which they
 * were made. ---- */

static void raise_highest(const struct history *h, struct lock *l, const struct attempt *a)
{
    if (a->token > l->highest) {
        l->highest = a->token;
        l->highest_owner = a->owner;
    }
    if (hist_is_alone(h, a) && a->token > l->highest_alone) {
        l->highest_alone = a->token;
        l->alone_owner = a->owner;
    }
}

/* Old data brings back what was given up. An owner that asks then enters its own hold, whose token
 * is lower than what others were given meanwhile; it is one that this owner had before. */
static bool enters_revived(const struct history *h, const struct attempt *a)
{
    for (size_t i = 0; i < h->attempts.count && a->flags & H_ENTERS; i++) {
        const struct attempt *other = &h->attempts.at[i];
        if (other != a && other->known && other->lock == a->lock && other->owner == a->owner &&
            other->token == a->token && other->asked < h->last[H_STALE])
            return true;
    }
    return false;
}

void judge_token(struct history *h, struct attempt *a)
{
    struct lock *l = lock_of(h, a);
    bool alone = hist_is_alone(h, a);
    uint64_t floor = alone ? l->highest : l->highest_alone;
    /* Of an owner that has it already. */
    bool again =
        alone ? l->highest_owner == a->owner && a->token == l->highest : l->alone_owner == a->owner;
    again &= (a->flags & H_ENTERS) != 0;
    if (!a->token || a->sure <= l->restarted)
        return;
    if (!hist_is_broken(h, a) && hist_applies(h, INV_TOKEN_ORDER, a)) {
        a->revived = a->token <= floor && !again && enters_revived(h, a);
        if (a->token <= floor && !again && !a->revived)
            hist_fails(h, INV_TOKEN_ORDER, "a%u got token %llu at %.3f ms, after %llu",
                       number_of(h, a), TOKEN(a->token), ms_of(h->now), TOKEN(floor));
        l->uncounted = false;
    }
    raise_highest(h, l, a);
}

/* ---- A store that remembers the highest token accepts no lower one, and never refuses whoever is
 * alone. ---- */

void judge_write(struct history *h, const struct attempt *a, uint64_t token, bool admitted)
{
    struct lock *l = lock_of(h, a);
    if (admitted && token < l->stored)
        hist_fails(h, INV_STORE, "at %.3f ms token %llu of a%u is accepted behind %llu",
                   ms_of(h->now), TOKEN(token), number_of(h, a), TOKEN(l->stored));
    bool is_of_before =
        a->sure <= l->restarted; /* granted before tokens began anew, and perhaps told afterwards */
    if (admitted)
        l->stored = token > l->stored ? token : l->stored;
    if (admitted && is_of_before && token > l->stored_before)
        l->stored_before = token;
    bool is_old = a->revived || token < l->stored_before || is_of_before;
    if (is_old || !hist_believes(h, a) || hist_is_broken(h, a) || !hist_applies(h, INV_STORE, a))
        return;
    if (!admitted && hist_is_alone(h, a))
        hist_fails(h, INV_STORE, "at %.3f ms a%u is alone with token %llu, and is refused for %llu",
                   ms_of(h->now), number_of(h, a), TOKEN(token), TOKEN(l->stored));
}

/* ---- First come, first served: whoever heard that it waits before another one asked has the lower
 * token. Not against those who barge, nor where owners enter again or somebody breaks holds or
 * changes the capacity. ---- */

static void note_passing(struct history *h, const struct attempt *a)
{
    for (size_t i = 0; i < h->open.count && !(a->flags & (H_BARGES | H_PASSES)); i++) {
        struct attempt *other = &h->attempts.at[h->open.at[i]];
        bool passed =
            other->lock == a->lock && !other->decided && other->queued && other->queued < a->asked;
        if (passed && (!other->passed_token || a->token < other->passed_token)) {
            other->passed_token = a->token;
            other->passed_by = number_of(h, a);
        }
    }
}

void judge_told_order(struct history *h, struct attempt *a)
{
    const struct lock *l = lock_of(h, a);
    note_passing(h, a);
    if (!a->queued || l->entered || l->resized || h->broken.count || a->asked <= h->forgot ||
        !hist_applies(h, INV_TOLD_ORDER, a))
        return;
    if (a->passed_token && a->passed_token < a->token)
        hist_fails(h, INV_TOLD_ORDER,
                   "a%u waited from %.3f ms on when a%u asked, and was let in after it",
                   number_of(h, a), ms_of(a->queued), a->passed_by);
}

/* ---- Every call returns by its deadline, once. ---- */

void judge_return(struct history *h, struct attempt *a)
{
    const struct process *p = &h->process[a->process];
    if (!a->calling) {
        hist_fails(h, INV_RETURNS, "a%u returns at %.3f ms without a call", number_of(h, a),
                   ms_of(h->now));
        return;
    }
    h->judged[INV_RETURNS]++;
    a->calling = false;
    if (a->due == H_NEVER)
        return;
    int64_t due = later_of(a->due + p->stood - a->stood, p->woke) + p->late - a->late;
    if (h->now > due + a->slack)
        hist_fails(h, INV_RETURNS, "a%u ended at %.3f ms, %.3f ms after its deadline",
                   number_of(h, a), ms_of(h->now), ms_of(h->now - due));
}

/* ---- Nobody loses what was never in danger. ---- */

void judge_loss(struct history *h, struct attempt *a, bool wished)
{
    const int64_t round_trip = 3000000;
    if (a->lost)
        hist_fails(h, INV_KEEPING, "a%u is told twice that it is lost", number_of(h, a));
    if (!h->rules.exact || wished || hist_is_broken(h, a) || a->flags & H_BOUNDED ||
        !hist_applies(h, INV_KEEPING, a))
        return;
    if (a->flags & H_RENEWS)
        hist_fails(h, INV_KEEPING,
                   "a%u lost its lease (token %llu) at %.3f ms although nothing went wrong",
                   number_of(h, a), TOKEN(a->token), ms_of(h->now));
    if (h->now + round_trip < a->promised)
        hist_fails(h, INV_KEEPING,
                   "a%u lost its lease (token %llu) at %.3f ms, before the ttl was over",
                   number_of(h, a), TOKEN(a->token), ms_of(h->now));
}

/* ---- Nobody waits for longer than the bound for what nobody alive has. ---- */

static bool is_held_by_anybody(const struct history *h, uint32_t lock)
{
    for (size_t i = 0; i < h->open.count; i++) {
        const struct attempt *a = &h->attempts.at[h->open.at[i]];
        if (a->lock == lock && hist_believes(h, a))
            return true;
    }
    return false;
}

void judge_waiting(struct history *h, const struct attempt *a)
{
    const struct lock *l = lock_of(h, a);
    int64_t since = later_of(later_of(a->asked, l->busy), h->healed + h->rules.settles);
    bool counts = h->rules.recovery && a->waits && !(a->flags & H_BARGES) && !l->resized &&
                  !is_held_by_anybody(h, a->lock);
    if (!counts || !hist_applies(h, INV_WAITING, a))
        return;
    if (h->now > since + h->rules.recovery + l->reach)
        hist_fails(h, INV_WAITING, "a%u waited until %.3f ms, and nobody had it for %.3f ms",
                   number_of(h, a), ms_of(h->now), ms_of(h->now - since));
}

/* ---- Nobody waits for somebody who waits for it. ---- */

/* It holds the first one of two names, and waits for the second. */
static bool wants_more(const struct history *h, const struct attempt *a)
{
    const struct attempt *other = a->other < 0 ? NULL : attempt_at(h, (uint32_t)a->other);
    return other && a->waits && !a->dead && other->held && lock_of(h, a)->capacity == 1 &&
           lock_of(h, other)->capacity == 1;
}

void judge_embrace(struct history *h, const struct attempt *a)
{
    if (a->other < 0 || !wants_more(h, a))
        return;
    h->judged[INV_EMBRACE]++;
    for (size_t i = 0; i < h->open.count; i++) {
        const struct attempt *b = &h->attempts.at[h->open.at[i]];
        if (b->lock != a->lock && wants_more(h, b))
            hist_fails(h, INV_EMBRACE,
                       "a%u and a%u have one of two names each, and wait for the other one",
                       number_of(h, a), number_of(h, b));
    }
}

/* ---- At rest nothing is left. ---- */

void judge_rest(struct history *h, const struct history_event *e)
{
    static const char *const things[] = {"permit", "waiter", "inbox", "key"};
    h->judged[INV_REST]++;
    if (e->until == H_NEVER)
        hist_fails(h, INV_REST, "the %s %.40s has no end", things[e->thing], e->text);
    else if (e->thing == H_INBOX && e->until > h->rules.inbox && !h->stepped_back)
        hist_fails(h, INV_REST, "the inbox %.40s lives for %.0f ms", e->text, ms_of(e->until));
    else if (e->thing == H_PERMIT || e->thing == H_WAITER)
        judge_leaving(h, (int)e->who,
                      e->thing == H_PERMIT ? "holds at the end" : "waits at the end");
}

void judge_end(struct history *h)
{
    for (size_t i = 0; i < h->open.count; i++) {
        const struct attempt *a = &h->attempts.at[h->open.at[i]];
        if (a->dead)
            continue;
        if (a->calling)
            hist_fails(h, INV_RETURNS, "a%u, which was called at %.3f ms, never returned",
                       number_of(h, a), ms_of(a->asked));
        hist_fails(h, INV_RETURNS, "a%u (token %llu) never ended", number_of(h, a),
                   TOKEN(a->token));
    }
}
