/* client_close.h - a process closes its client, as client/client.c does it: what is held is given
 * back or left to itself, who waits is sent home, answers are waited for for a while, and whoever
 * has no outcome by then hears one. */
#pragma once
#include "client_clocks.h"

static bool is_of(const struct attempt_of_user *a, unsigned number)
{
    return a->process == number && a->life == w.process[number].life &&
           (a->alive || a->op.is_ahead) && !a->adopts;
}

/* Without the time to ask, who waits is told at once. */
static void end_attempt(unsigned id, bool in_time)
{
    const struct attempt_of_user *a = &w.attempt[id];
    struct claim_event event = {.in = is_held(a) ? INPUT_RELEASE
                                      : in_time  ? INPUT_CANCEL
                                                 : INPUT_LOST_ALL,
                                .status = HF_CLOSED};
    if (is_held(a) && a->leaves)
        leave_behind(id);
    else if ((is_held(a) || !a->decided) && claim_legal(a->claim.state, event.in))
        apply(id, event);
}

static void close_client(unsigned number)
{
    struct process *p = &w.process[number];
    bool in_time = draw_clock(2), patient = draw_clock(2);
    nanos patience = in_time ? (patient ? w.ttl : NANOS_OF_MS(1)) / 4096 * draw_clock(4096) : 0;
    if (p->closing || !(w.options.faults & FAULT_CLOSE))
        return;
    tally.closes++;
    note((int)number, "closes its client within %.1f ms", (double)patience / 1e6);
    p->closing = true;
    for (unsigned id = 0; id < w.attempts; id++)
        if (is_of(&w.attempt[id], number))
            end_attempt(id, in_time);
    schedule((struct occurrence){.at = w.now + patience, .what = CLOSED, .who = number});
}

/* What was sent arrives, but nobody hears an answer. */
static void end_client(unsigned number)
{
    nanos after = 2 * w.ttl / 4096 * draw_clock(4096);
    bool follows = draw_clock(2);
    for (unsigned id = 0; id < w.attempts; id++)
        if (is_of(&w.attempt[id], number) && !w.attempt[id].decided)
            apply(id, (struct claim_event){.in = INPUT_LOST_ALL, .status = HF_CLOSED});
    note((int)number, "has closed its client");
    kill_process(number, true);
    if (follows)
        schedule((struct occurrence){.at = w.now + after, .what = SPAWN, .who = number});
}
