/* adopt_hold.h - a process takes up a hold that somebody left behind, as hf_attach() does it: it
 * asks whether the hold is still there, and believes what the server says of the time that is left.
 */
#pragma once
#include "redis_history.h"

static void refuse_adoption(unsigned id)
{
    struct attempt_of_user *a = &w.attempt[id];
    a->adopts = a->alive = false;
    a->disowned = true;
    tell_judge((struct history_event){.what = H_REFUSED, .who = id});
    tell_judge((struct history_event){.what = H_OVER, .who = id, .flags = H_LEFT});
    arm_timer(id, TIME_NEVER);
    redis_wire_engine.forget(w.process[a->process].engine, &a->op);
}

static void hear_adoption(unsigned id, const struct engine_reply *reply)
{
    struct attempt_of_user *a = &w.attempt[id];
    const struct process *p = &w.process[a->process];
    if (reply->kind != REPLY_EXTENDED || reply->token != a->op.token) {
        refuse_adoption(id);
        return;
    }
    nanos until =
        reply->asked_at + reply->good - timing_drift(&a->claim.sheet->limits, reply->good);
    bool is_settled = a->is_settled || w.options.plant == PLANT_ADOPT_SURE;
    claim_adopt(&a->claim, reply->asked_at, until, reply->token, is_settled);
    note((int)a->process, "a%u is taken up until %.1f", id, (double)real_time(p, until) / 1e6);
    tally.adopted++;
    a->adopts = false;
    a->decided = a->adopted = true;
    bool hardly = until - local_time(p, w.now) < 2 * a->claim.sheet->t.answer;
    arm_timer(id, a->claim.act_at < until ? a->claim.act_at : until);
    tell_grant(id, reply->asked_at, H_ADOPTS | (hardly ? H_HARDLY : 0));
    use_store(id);
    plan_wish(id, INPUT_RELEASE, a->hold_for);
}

/* `from`: the attempt that left it behind. Its place in the history is the new one's from here on.
 */
static void adopt(unsigned process, unsigned from)
{
    struct process *p = &w.process[process];
    nanos local = local_time(p, w.now);
    int id =
        p->dead || w.attempt[from].was_taken ? -1 : make_attempt(process, w.attempt[from].user);
    if (id < 0)
        return;
    struct attempt_of_user *a = &w.attempt[id], *left = &w.attempt[from];
    struct engine_limits limits = REDIS_LIMITS;
    struct timing_overrides overrides = {.acknowledge_ms = w.acknowledge_ms};
    struct claim_terms terms = {.auto_renew = draw(2), .shared = w.owners};
    left->was_taken = true;
    a->is_settled = left->is_settled;
    a->op = left->op;
    a->op.engine_state = NULL;
    a->op.token = left->claim.token;
    a->op.ttl_ms = w.ttl / NANOS_OF_MS(1);
    memcpy(a->id, left->id, sizeof a->id);
    a->owner = left->owner;
    a->units = left->units;
    a->longest = later(left->longest, w.ttl);
    a->life = p->life;
    a->adopts = a->alive = a->ended = true;
    a->leaves = !draw(3);
    timing_sheet_fill(&a->sheet, a->op.ttl_ms, &limits, &overrides);
    claim_init(&a->claim, &terms, &a->sheet);
    note((int)process, "a%d asks for what a%u left behind", id, from);
    tell_ask((unsigned)id, (int)from, true);
    look_away();
    arm_timer((unsigned)id, local + a->claim.sheet->t.answer);
    submit(a, &(struct claim_move){.verb = OP_CHECK}, local);
}
