/* redlock_history.h - what this world tells the judge (checker/checker.h), who sees nothing else of
 * it: what clients ask for, are told and rely on, and what they write to a store that is guarded by
 * tokens. What befalls one server of a quorum excuses nothing, so that no fault is told. */
#pragma once
#include "redlock_network.h"

static struct history *judge;

static bool is_held(const struct client *c)
{
    return c->state == HOLDING || c->state == EXTENDING;
}

static void tell_judge(const struct client *c, struct history_event event)
{
    event.at = w.now;
    event.who = c->attempt;
    event.process = (uint32_t)(c - w.client);
    history_add(judge, &event);
    if (history_failures(judge))
        flaw("%s", history_failure(judge));
}

/* When its clock shows that, or a moment later: local_time() counts in steps. */
static nanos real_time(const struct client *c, nanos local)
{
    enum { STEP = 3000 };
    return (nanos)((__int128)(local - c->ahead) * 1000000 / (1000000 + c->fast_ppm)) + STEP;
}

static void tell_ask(struct client *c)
{
    c->attempt = w.attempts++;
    tell_judge(c, (struct history_event){.what = H_ASKED,
                                         .units = 1,
                                         .capacity = 1,
                                         .owner = c->attempt,
                                         .other = H_NOBODY,
                                         .until = H_NEVER,
                                         .reach = NANOS_OF_MS(c->op.ttl_ms)});
}

static void tell_grant(const struct client *c, nanos asked_at)
{
    tell_judge(c, (struct history_event){.what = H_GRANTED,
                                         .token = c->token,
                                         .from = real_time(c, asked_at),
                                         .until = real_time(c, c->valid_until)});
}

/* asked_at: as a renewal says; 0: its clock was changed. */
static void tell_belief(const struct client *c, nanos asked_at)
{
    tell_judge(c, (struct history_event){.what = H_BELIEVES,
                                         .token = c->token,
                                         .from = asked_at ? real_time(c, asked_at) : 0,
                                         .until = real_time(c, c->valid_until)});
}

/* It gives back what it holds, or has not got. */
static void tell_end(const struct client *c)
{
    tell_judge(c, (struct history_event){.what = is_held(c) ? H_ENDED : H_REFUSED});
}

static void tell_over(const struct client *c)
{
    tell_judge(c, (struct history_event){.what = H_OVER});
}

/* Also one that does not know yet that its time is over: that is what tokens are for. */
static void write_to_store(const struct client *c)
{
    bool admitted = c->token >= w.stored;
    if (admitted)
        w.stored = c->token;
    w.refusals += !admitted;
    tell_judge(c, (struct history_event){
                      .what = H_WROTE, .token = c->token, .flags = admitted ? H_ADMITTED : 0});
}
