/* adopting.h - a process takes up a hold that somebody left behind, as hf_attach() does it: it asks whether the hold is
 * still there, and believes what the server says of the time that is left. */
#pragma once
#include "telling.h"

static void refuse_adoption(unsigned id)
{
    struct attempt_of_user *a = &w.attempt[id];
    a->adopts = a->alive = false;
    a->disowned = true;
    tell_judge((struct history_event){.what = H_REFUSED, .who = id});
    tell_judge((struct history_event){.what = H_OVER, .who = id, .flags = H_LEFT});
    arm_timer(id, HF_NEVER);
    hf_wire_redis.forget(w.process[a->process].engine, &a->ask);
}

static void hear_adoption(unsigned id, const struct hf_news *news)
{
    struct attempt_of_user *a = &w.attempt[id];
    const struct process *p = &w.process[a->process];
    if (news->cue != HF_N_EXTENDED || news->token != a->ask.token) {
        refuse_adoption(id);
        return;
    }
    hf_nanos until = news->asked_at + news->good - hf_timing_drift(&a->claim.sheet->limits, news->good);
    hf_claim_adopt(&a->claim, news->asked_at, until, news->token);
    if (w.options.plant == PLANT_ADOPT_SURE)
        a->claim.doubt = false;
    note((int)a->process, "a%u is taken up until %.1f", id, (double)real_time(p, until) / 1e6);
    tally.adopted++;
    a->adopts = false;
    a->decided = a->adopted = true;
    bool hardly = until - local_time(p, w.now) < 2 * a->claim.sheet->t.answer;
    arm_timer(id, a->claim.act_at < until ? a->claim.act_at : until);
    tell_grant(id, news->asked_at, H_ADOPTS | (hardly ? H_HARDLY : 0));
    use_store(id);
    plan_wish(id, HF_I_RELEASE, a->hold_for);
}

/* `from`: the attempt that left it behind. Its place in the history is the new one's from here on. */
static void adopt(unsigned process, unsigned from)
{
    struct process *p = &w.process[process];
    hf_nanos local = local_time(p, w.now);
    int id = p->dead || w.attempt[from].was_taken ? -1 : make_attempt(process, w.attempt[from].user);
    if (id < 0)
        return;
    struct attempt_of_user *a = &w.attempt[id], *left = &w.attempt[from];
    struct hf_limits limits = HF_REDIS_LIMITS;
    struct hf_timing_wishes wishes = {.acknowledge_ms = w.acknowledge_ms};
    struct hf_claim_terms terms = {.auto_renew = draw(2), .shared = w.owners};
    left->was_taken = true;
    a->ask = left->ask;
    a->ask.engine_state = NULL;
    a->ask.token = left->claim.token;
    a->ask.ttl_ms = w.ttl / HF_MS(1);
    memcpy(a->id, left->id, sizeof a->id);
    a->owner = left->owner;
    a->units = left->units;
    a->longest = later(left->longest, w.ttl);
    a->life = p->life;
    a->adopts = a->alive = a->ended = true;
    a->leaves = !draw(3);
    hf_sheet_fill(&a->sheet, a->ask.ttl_ms, &limits, &wishes);
    hf_claim_init(&a->claim, &terms, &a->sheet);
    note((int)process, "a%d asks for what a%u left behind", id, from);
    tell_ask((unsigned)id, (int)from, true);
    look_away();
    arm_timer((unsigned)id, local + a->claim.sheet->t.answer);
    submit(a, &(struct hf_move){.verb = HF_V_CHECK}, local);
}
