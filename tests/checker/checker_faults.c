/* checker_faults.c - what struck, whom, and what may not be relied on after it. */
#include "checker_internal.h"

static void touch(struct history *h, uint32_t process, const struct history_event *e)
{
    struct process *p = &h->process[process];
    int64_t until = e->until == H_NEVER ? h->now : later_of(h->now, e->until);
    p->near_until = later_of(p->near_until, until + h->rules.settles);
    if (e->fault == H_PAUSED || e->fault == H_ASLEEP) {
        int64_t more = until - later_of(h->now, p->woke);
        p->stood += more > 0 ? more : 0;
        p->woke = later_of(p->woke, until);
    }
    if (e->fault == H_ASLEEP)
        p->late += until - h->now;
    if (e->fault == H_JUMPED)
        p->woke = later_of(p->woke, h->now);
    if (e->fault == H_KILLED)
        p->lives_over = p->lives;
}

static void touch_attempts(struct history *h, const struct history_event *e)
{
    for (size_t i = 0; i < h->open.count; i++) {
        struct attempt *a = &h->attempts.at[h->open.at[i]];
        if (e->process != H_ALL && e->process != a->process)
            continue;
        a->touched |= 1u << e->fault;
        if (e->fault != H_KILLED || a->dead)
            continue;
        a->dead = true;
        a->gone = h->now;
        if (a->held)
            lock_of(h, a)->busy =
                later_of(lock_of(h, a)->busy, h->now < a->until ? h->now : a->until);
    }
}

/* Without its counter, a lock's tokens begin at the clock. */
static void restart_tokens(struct history *h, int64_t until, bool all)
{
    for (size_t i = 0; i < h->locks.count; i++) {
        struct lock *l = &h->locks.at[i];
        if (!all && !l->uncounted)
            continue;
        l->highest = l->highest_alone = 0;
        l->restarted = until;
        l->stored_before = l->stored;
    }
}

static void lose_counters(struct history *h, int64_t until)
{
    for (size_t i = 0; i < h->locks.count; i++)
        h->locks.at[i].uncounted = true;
    if (h->now + h->ahead < h->shown)
        restart_tokens(h, until, true);
}

static void step_clock(struct history *h, const struct history_event *e, int64_t until)
{
    if (e->by < 0) {
        h->shown = later_of(h->shown, until + h->ahead);
        h->stepped_back = true;
        restart_tokens(h, until, false);
    }
    h->ahead += e->by;
}

static void hear_server_fault(struct history *h, const struct history_event *e)
{
    int64_t until = e->until == H_NEVER ? h->now : later_of(h->now, e->until);
    h->healed = later_of(h->healed, until);
    if (h->rules.quorum)
        return; /* the others know */
    if (e->fault == H_LAGS)
        h->lags = e->until == H_NEVER;
    h->last[e->fault] = until;
    if (e->fault == H_KEPT || e->fault == H_STALE || e->fault == H_FORGOT)
        lose_counters(h, until);
    if (e->fault == H_AHEAD || e->fault == H_BACK)
        step_clock(h, e, until);
    if (e->fault >= H_KEPT) {
        h->forgot = until;
        h->asked_since = H_NEVER;
    }
}

void hist_strike(struct history *h, const struct history_event *e)
{
    if (e->fault >= H_AWAY)
        hear_server_fault(h, e);
    for (uint32_t p = 0; p < H_PROCESSES; p++)
        if (e->process == H_ALL || e->process == p)
            touch(h, p, e);
    touch_attempts(h, e);
}
