/* checker_server_state.c - the invariants of what the server shows after each request: who holds,
 * and who stands in the queue. */
#include "checker_internal.h"

static const struct seen_hold *find_hold(const struct history_sight *s, int attempt)
{
    for (unsigned i = 0; i < s->holds; i++)
        if (s->hold[i].attempt == attempt)
            return &s->hold[i];
    return NULL;
}

static const struct seen_place *find_place(const struct history_sight *s, int attempt)
{
    for (unsigned i = 0; i < s->places; i++)
        if (s->place[i].attempt == attempt)
            return &s->place[i];
    return NULL;
}

/* NULL: of a stranger. */
static struct attempt *seen(const struct history *h, int attempt)
{
    return attempt < 0 ? NULL : attempt_at(h, (uint32_t)attempt);
}

/* Another attempt of its owner holds. */
static bool has_sibling(const struct history *h, const struct history_sight *s,
                        const struct attempt *a)
{
    for (unsigned i = 0; a->flags & H_ENTERS && i < s->holds; i++) {
        const struct attempt *other = seen(h, s->hold[i].attempt);
        if (other && other != a && other->flags & H_ENTERS && other->owner == a->owner)
            return true;
    }
    return false;
}

/* ---- First come, first served: whoever is let in passes nobody who is in the queue and has not
 * let its time pass.
 * ---- */

static void judge_order(struct history *h, const struct history_sight *was,
                        const struct history_sight *is, const struct seen_hold *hold)
{
    int who = hold->attempt;
    const struct attempt *a = seen(h, who);
    const struct seen_place *own = find_place(was, who);
    double arrival = own ? own->arrival : hold->arrival;
    if (a->flags & (H_BARGES | H_PASSES) || has_sibling(h, is, a))
        return;
    h->judged[INV_SHOWN_ORDER]++;
    for (unsigned i = 0; i < was->places; i++) {
        const struct seen_place *other = &was->place[i];
        if (arrival && other->arrival >= arrival)
            return; /* a waiter that was passed over while it gave no sign of life keeps its number
                     */
        const struct seen_place *still = find_place(is, other->attempt);
        if (other->attempt >= 0 && still && still->arrival == other->arrival && other->alive &&
            still->alive)
            hist_fails(h, INV_SHOWN_ORDER,
                       "a%d is let in at %.3f ms before a%d, which waits for longer (number %.0f)",
                       who, ms_of(h->now), other->attempt, other->arrival);
    }
}

/* ---- Whoever let its time pass holds up nobody: it is let in by a request of its own only. ----
 */

static void judge_overtaking(struct history *h, const struct history_sight *was,
                             const struct history_sight *is, int who)
{
    const struct seen_place *own = find_place(was, who);
    const struct attempt *a = seen(h, who);
    bool asks_itself = is->by == (int)a->process && is->by_life == a->life;
    h->judged[INV_OVERTAKING]++;
    if (own && !own->alive && own->due_us <= is->clock_us && !asks_itself)
        hist_fails(h, INV_OVERTAKING,
                   "a%d let its time pass, and is let in by somebody else at %.3f ms", who,
                   ms_of(h->now));
}

/* ---- A waiter that is well stays in the queue until it holds, and holds until it knows. Who holds
 * does not wait; except that what takes without a script, and comes late, knows of no queue. ----
 */

static void judge_apart(struct history *h, const struct history_sight *is)
{
    for (unsigned i = 0; i < is->places; i++) {
        const struct attempt *a = seen(h, is->place[i].attempt);
        if (a && !(a->flags & H_PASSES) && find_hold(is, is->place[i].attempt))
            hist_fails(h, INV_PLACES, "a%d holds, and waits in the queue, at %.3f ms",
                       is->place[i].attempt, ms_of(h->now));
    }
}

static void judge_place(struct history *h, const struct history_sight *is, int who)
{
    const struct attempt *a = seen(h, who);
    if (!a || !a->waits || a->dead || find_place(is, who) || find_hold(is, who))
        return;
    if (a->asks > 1 && a->asks == lock_of(h, a)->capacity && has_sibling(h, is, a))
        return; /* its owner reads: it is told to upgrade */
    if (a->units <= is->capacity && !lock_of(h, a)->resized && hist_applies(h, INV_PLACES, a))
        hist_fails(h, INV_PLACES,
                   "a%d lost its place in the queue at %.3f ms although nothing went wrong", who,
                   ms_of(h->now));
}

static bool was_broken(const struct history *h, uint64_t token)
{
    for (size_t i = 0; i < h->broken.count; i++)
        if (h->broken.at[i].token == token)
            return true;
    return false;
}

static void judge_turn(struct history *h, const struct history_sight *is,
                       const struct seen_hold *hold)
{
    const struct attempt *a = seen(h, hold->attempt);
    bool is_gone = a && a->waits && !a->dead && !find_hold(is, hold->attempt);
    /* If a hold is broken, a waiter may be let in before the first waiter of its process, the only
     * one that polls. */
    bool may_be_late = a && a->flags & H_POLLS && h->broken.count;
    if (is_gone && !was_broken(h, hold->token) && !may_be_late && hist_applies(h, INV_PLACES, a))
        hist_fails(h, INV_PLACES,
                   "a%d lost its turn (token %llu) at %.3f ms although nothing went wrong",
                   hold->attempt, (unsigned long long)hold->token, ms_of(h->now));
}

/* ---- No request that changes anything ends with one at the head of the queue that fits. A plain
 * lock that lapsed is given on by the next ask. ---- */

/* Nobody came, went or was given more time: it may have been a script that only looks. */
static bool is_unchanged(const struct history_sight *was, const struct history_sight *is)
{
    if (was->holds != is->holds || was->places != is->places)
        return false;
    for (unsigned i = 0; i < is->holds; i++)
        if (was->hold[i].attempt != is->hold[i].attempt ||
            was->hold[i].end_us != is->hold[i].end_us)
            return false;
    for (unsigned i = 0; i < is->places; i++)
        if (was->place[i].attempt != is->place[i].attempt ||
            was->place[i].due_us != is->place[i].due_us)
            return false;
    return true;
}

static void judge_idle(struct history *h, const struct history_sight *was,
                       const struct history_sight *is)
{
    const int64_t expiry_us = 2000; /* keys end in whole milliseconds */
    for (unsigned i = 0; i < is->places && !is_unchanged(was, is); i++) {
        const struct attempt *first = seen(h, is->place[i].attempt);
        bool given_back =
            was->holds && !is->there && was->hold[0].end_us > is->clock_us + expiry_us;
        bool sent_in_line = !is->there && !find_place(was, is->place[i].attempt);
        if (!first || !is->place[i].alive)
            continue;
        h->judged[INV_IDLE]++;
        if (given_back || sent_in_line ||
            (is->there && !is->plain && is->used + first->asks <= is->capacity))
            hist_fails(h, INV_IDLE,
                       "a%d is first in line and fits, and nobody lets it in at %.3f ms",
                       is->place[i].attempt, ms_of(h->now));
        return;
    }
}

/* ---- Requests of one owner share one hold: one token, units counted once. ---- */

static bool is_good(const struct history_sight *is, const struct seen_hold *hold)
{
    return hold->end_us > is->clock_us;
}

static void judge_owner(struct history *h, const struct history_sight *is,
                        const struct seen_hold *hold)
{
    const struct attempt *a = seen(h, hold->attempt);
    if (!a || !(a->flags & H_ENTERS) || !is_good(is, hold))
        return;
    for (const struct seen_hold *other = is->hold; other < hold; other++) {
        const struct attempt *b = seen(h, other->attempt);
        bool is_same_owner = b && b->flags & H_ENTERS && b->owner == a->owner;
        if (!is_same_owner || !is_good(is, other))
            continue;
        h->judged[INV_OWNERS]++;
        if (other->token != hold->token || (other->units && hold->units))
            hist_fails(
                h, INV_OWNERS,
                "a%d and a%d are of one owner and hold apart (tokens %llu and %llu) at %.3f ms",
                other->attempt, hold->attempt, (unsigned long long)other->token,
                (unsigned long long)hold->token, ms_of(h->now));
    }
}

/* ---- Who is over has nothing in the server. Not where the server lost what it was told. ---- */

void judge_leaving(struct history *h, int who, const char *what)
{
    const struct attempt *a = seen(h, who);
    if (who == H_NOBODY)
        hist_fails(h, INV_REST, "all are gone, and somebody %s", what);
    bool lives = a && a->life >= h->process[a->process].lives_over;
    if (lives && a->over && !a->left && !a->doubt && a->asked > h->forgot)
        hist_fails(h, INV_LEAVING, "a%d is over and still %s (token %llu, at %.3f ms)", who, what,
                   (unsigned long long)a->token, ms_of(h->now));
}

/* ---- What nobody wants any more ends in time: its last message may be late, then its time runs
 * out. ---- */

static void judge_recovery(struct history *h, const struct history_sight *is,
                           const struct seen_hold *hold)
{
    const struct attempt *a = seen(h, hold->attempt);
    if (!a || hold->end_us <= is->clock_us || (!a->dead && !a->left))
        return;
    if (h->asked_since == H_NEVER)
        return; /* a hold that a step made longer is cut back by the first one who wants it */
    int64_t since = later_of(a->gone, h->asked_since);
    if (h->stepped_back) /* a dead waiter may count as alive for as long as the step was, and gets
                            its turn */
        since = later_of(since, a->let_in);
    h->judged[INV_RECOVERY]++;
    if (h->now > since + h->rules.recovery + a->reach)
        hist_fails(h, INV_RECOVERY, "a%d (token %llu) is dead for %.3f ms and still holds",
                   hold->attempt, (unsigned long long)hold->token, ms_of(h->now - since));
}

/* Somebody asked, and waits. */
static bool saw_ask(const struct history_sight *was, const struct history_sight *is)
{
    for (unsigned i = 0; i < is->places; i++) {
        const struct seen_place *before_it = find_place(was, is->place[i].attempt);
        if (!before_it || before_it->due_us != is->place[i].due_us)
            return true;
    }
    return false;
}

static void judge_holder(struct history *h, const struct history_sight *was,
                         const struct history_sight *is, const struct seen_hold *hold)
{
    struct attempt *a = seen(h, hold->attempt);
    if (!a)
        return;
    if (!find_hold(was, hold->attempt)) {
        h->hand_overs += find_place(was, hold->attempt) != NULL;
        a->let_in = h->now;
        judge_order(h, was, is, hold);
        judge_overtaking(h, was, is, hold->attempt);
    }
    if (hold->end_us > is->clock_us)
        judge_leaving(h, hold->attempt, "holds");
    judge_recovery(h, is, hold);
}

void judge_sight(struct history *h, const struct history_sight *was, const struct history_sight *is)
{
    if (h->asked_since == H_NEVER && saw_ask(was, is))
        h->asked_since = h->now;
    for (unsigned i = 0; i < is->holds; i++)
        judge_holder(h, was, is, &is->hold[i]);
    for (unsigned i = 0; i < is->holds; i++)
        judge_owner(h, is, &is->hold[i]);
    for (unsigned i = 0; i < is->places; i++)
        if (is->place[i].attempt >= 0)
            judge_leaving(h, is->place[i].attempt, "waits in the queue");
    judge_apart(h, is);
    for (unsigned i = 0; i < was->places; i++)
        judge_place(h, is, was->place[i].attempt);
    for (unsigned i = 0; i < was->holds; i++)
        judge_turn(h, is, &was->hold[i]);
    judge_idle(h, was, is);
}
