/* checker_attempts.c - what happens to those who ask: each event is kept, and judged at once where
 * an invariant speaks of it.
 */
#include "checker_internal.h"

struct lock *hist_meet_lock(struct history *h, uint32_t number)
{
    GROW(h->locks, number + 1);
    while (h->locks.count <= number)
        h->locks.at[h->locks.count++] = (struct lock){.foreign_from = -1, .restarted = -1};
    return &h->locks.at[number];
}

static void expect_return(struct history *h, struct attempt *a, const struct history_event *e)
{
    const struct process *p = &h->process[a->process];
    if (a->calling)
        hist_fails(h, INV_RETURNS, "a%u is called about twice at a time", number_of(h, a));
    a->calling = true;
    a->due = e->until;
    a->slack = e->slack;
    a->stood = p->stood;
    a->late = p->late;
}

static void add_attempt(struct history *h, const struct history_event *e)
{
    GROW(h->attempts, e->who + 1);
    while (h->attempts.count <= e->who)
        h->attempts.at[h->attempts.count++].known = false;
    GROW(h->open, h->open.count + 1);
    h->open.at[h->open.count++] = e->who;
    h->attempts.at[e->who] = (struct attempt){.known = true,
                                              .process = e->process,
                                              .life = e->life,
                                              .lock = e->lock,
                                              .asks = e->units,
                                              .units = e->units,
                                              .owner = e->owner,
                                              .other = e->other,
                                              .flags = e->flags,
                                              .asked = e->at,
                                              .reach = e->reach};
}

/* What was left behind goes on as this one. */
static void take_up(struct attempt *a, const struct attempt *left)
{
    a->asked = left->asked;
    a->gone = left->gone;
    a->let_in = left->let_in;
    a->reach = later_of(a->reach, left->reach);
    a->token = left->token;
    a->other = H_NOBODY;
}

void hist_hear_ask(struct history *h, const struct history_event *e)
{
    struct lock *l = hist_meet_lock(h, e->lock);
    if (attempt_at(h, e->who) || e->process >= H_PROCESSES) {
        hist_fails(h, INV_SEQUENCE, "a%u asked twice, or nobody did", e->who);
        return;
    }
    add_attempt(h, e);
    struct attempt *a = &h->attempts.at[e->who],
                   *other = e->other < 0 ? NULL : attempt_at(h, (uint32_t)e->other);
    if (e->capacity > l->capacity)
        l->capacity = e->capacity;
    l->reach = later_of(l->reach, e->reach);
    l->entered |= (e->flags & H_ENTERS) != 0;
    struct process *p = &h->process[a->process];
    if (h->now < p->near_until)
        a->touched = ~0u;
    if (p->lives <= a->life)
        p->lives = a->life + 1;
    expect_return(h, a, e);
    a->waits = !(e->flags & H_ADOPTS);
    if (other && e->flags & H_ADOPTS)
        take_up(a, other);
    else if (other)
        other->other = (int)e->who;
}

/* What its user relied on is over. */
static void stop_believing(struct history *h, struct attempt *a)
{
    struct lock *l = lock_of(h, a);
    if (a->held && !a->dead)
        l->busy = later_of(l->busy, h->now < a->until ? h->now : a->until);
    a->held = false;
}

static void hear_grant(struct history *h, struct attempt *a, const struct history_event *e)
{
    bool adopted = e->flags & H_ADOPTS;
    judge_return(h, a);
    if (a->decided)
        hist_fails(h, INV_RETURNS, "a%u has two outcomes", number_of(h, a));
    judge_waiting(h, a);
    a->decided = a->held = true;
    a->waits = false;
    a->token = e->token;
    a->sure = e->from;
    a->until = e->until;
    a->promised = adopted ? 0 : e->slack;
    if (e->flags & H_HARDLY)
        a->touched = ~0u;
    if (!adopted) {
        judge_token(h, a);
        judge_told_order(h, a);
    }
    judge_exclusion(h, a->lock);
}

/* One that counts again after a fault is looked at again, too. */
static void hear_belief(struct history *h, struct attempt *a, const struct history_event *e)
{
    bool was_over = h->now >= a->until;
    if (h->rules.exact && was_over && e->until > h->now)
        hist_fails(h, INV_REVIVAL, "a%u was over at %.3f ms and is good again at %.3f ms",
                   number_of(h, a), ms_of(a->until), ms_of(h->now));
    if (!a->held || a->lost)
        hist_fails(h, INV_REVIVAL, "a%u (token %llu) is good after its end", number_of(h, a),
                   (unsigned long long)a->token);
    h->judged[INV_REVIVAL]++;
    a->sure = later_of(a->sure, e->from);
    a->token = e->token;
    a->until = h->rules.exact ? e->until : later_of(a->until, e->until);
    if (!h->rules.exact)
        judge_exclusion(h, a->lock);
}

static void hear_conversion(struct history *h, struct attempt *a, const struct history_event *e)
{
    a->units = e->units;
    a->token = e->token;
    judge_exclusion(h, a->lock);
    if (e->flags & H_FRESH)
        judge_token(h, a);
}

static void close_attempt(struct history *h, const struct attempt *a)
{
    uint32_t number = number_of(h, a);
    for (size_t i = 0; i < h->open.count; i++)
        if (h->open.at[i] == number) {
            h->open.at[i] = h->open.at[--h->open.count];
            return;
        }
}

static void hear_end(struct history *h, struct attempt *a, const struct history_event *e)
{
    stop_believing(h, a);
    if (e->what == H_LOST) {
        judge_loss(h, a, e->flags & H_WISHED);
        a->lost = true;
    } else if (e->flags & H_LEFT) {
        a->left = true;
        a->gone = h->now;
    }
}

static void hear_refusal(struct history *h, struct attempt *a)
{
    judge_return(h, a);
    if (a->decided)
        hist_fails(h, INV_RETURNS, "a%u has two outcomes", number_of(h, a));
    judge_waiting(h, a);
    a->decided = true;
    a->waits = false;
}

/* Those that were told when they were over end by themselves. */
void hist_close_held(struct history *h)
{
    for (size_t i = h->open.count; i-- > 0;) {
        const struct attempt *a = &h->attempts.at[h->open.at[i]];
        if (a->flags & H_WHOLE && a->until <= h->now)
            close_attempt(h, a);
    }
}

void hist_hear_held(struct history *h, const struct history_event *e)
{
    struct history_event asked = *e;
    hist_close_held(h);
    asked.who = (uint32_t)h->attempts.count;
    asked.owner = (uint32_t)e->token;
    asked.other = H_NOBODY;
    asked.units = asked.capacity = 1;
    asked.flags = H_ENTERS | H_WHOLE;
    hist_hear_ask(h, &asked);
    hear_grant(h, &h->attempts.at[asked.who], e);
}

void hist_hear_attempt(struct history *h, struct attempt *a, const struct history_event *e)
{
    switch (e->what) {
    case H_QUEUED:
        a->queued = a->queued ? a->queued : h->now;
        judge_embrace(h, a);
        break;
    case H_LEAVES:
        a->waits = false;
        break;
    case H_GRANTED:
        hear_grant(h, a, e);
        break;
    case H_REFUSED:
        hear_refusal(h, a);
        break;
    case H_EXTENDS:
        a->reach = later_of(a->reach, e->reach);
        break;
    case H_BELIEVES:
        hear_belief(h, a, e);
        break;
    case H_RELIES:
        a->units = e->units;
        break;
    case H_CONVERTED:
        hear_conversion(h, a, e);
        break;
    case H_ENDED:
    case H_LOST:
        hear_end(h, a, e);
        break;
    case H_OVER:
        a->over = true;
        a->waits = false;
        a->left |= (e->flags & H_LEFT) != 0;
        a->doubt = e->flags & H_DOUBT;
        close_attempt(h, a);
        break;
    case H_WROTE:
        judge_write(h, a, e->token, e->flags & H_ADMITTED);
        break;
    case H_CALLED:
        expect_return(h, a, e);
        break;
    default:
        judge_return(h, a);
    }
}
