/* claim_hold.c - a claim while it is held: renewing, checking, warning, losing.
 *
 * The belief (valid_until) grows only by an answer to a request that we timed ourselves, and only while it is not over:
 * renewal never revives. Whoever reads it needs no lock and no engine to know that the hold is good. */
#include "claim_actions.h"

static struct hf_move nothing(void)
{
    return (struct hf_move){.verb = HF_V_NONE};
}

static hf_nanos hold_end(const struct hf_claim *claim)
{
    return claim->max_hold ? claim->granted_at + claim->max_hold : HF_NEVER;
}

/* Is there anything to renew? Once the belief reaches to the end of max_hold, give or take what is taken off for drift,
 * another renewal would not move it. */
static bool renews(const struct hf_claim *claim)
{
    return claim->auto_renew && hold_end(claim) - claim->t.drift > claim->valid_until;
}

hf_nanos hf_claim_validity(const struct hf_claim *claim, const struct hf_news *news)
{
    return news->asked_at + news->good - hf_timing_drift(&claim->limits, news->good);
}

void hf_claim_believe(struct hf_claim *claim, hf_nanos asked_at, hf_nanos valid_until)
{
    const struct hf_timing *t = &claim->t;
    hf_nanos length = valid_until - asked_at;
    claim->valid_until = valid_until;
    claim->warned = false;
    claim->warn_at = HF_NEVER;
    claim->renew_at = asked_at + t->renew;
    if (!renews(claim))
        return; /* checks keep their pace: a share of ever less would be ever more checks towards the end */
    hf_nanos share = hf_timing_share(t, t->renew, length);
    claim->renew_at = asked_at + (share > t->op_timeout ? share : t->op_timeout);
    claim->warn_at = asked_at + hf_timing_share(t, t->warn, length);
}

/* Ends a hold that was reported as granted. The release behind it tells the engine, should it still think otherwise. */
static struct hf_move lose(struct hf_claim *claim, hf_nanos now)
{
    claim->doubt = true;
    return hf_claim_end_releasing(claim, HF_R_LOST, HF_LOST, now);
}

static struct hf_move send_extend(struct hf_claim *claim, hf_nanos ttl, hf_nanos now)
{
    struct hf_move move = hf_claim_send(claim, HF_V_EXTEND, now);
    move.ttl = ttl;
    claim->state = HF_S_EXTENDING;
    return move;
}

/* Our own renewal. Towards the end of max_hold it asks for what is missing, in whole milliseconds because the engine
 * counts those, and never for less than the engine's shortest ttl: so max_hold is passed by less than that. */
static struct hf_move renew_or_check(struct hf_claim *claim, hf_nanos now)
{
    claim->asked_extend = false;
    if (!renews(claim)) {
        claim->state = HF_S_EXTENDING;
        return hf_claim_send(claim, HF_V_CHECK, now);
    }
    hf_nanos left = hold_end(claim) - now;
    if (left >= claim->t.ttl)
        return send_extend(claim, claim->t.ttl, now);
    hf_nanos clipped = (left + HF_MS(1) - 1) / HF_MS(1) * HF_MS(1);
    hf_nanos shortest = hf_timing_nanos(claim->limits.ttl_min_ms);
    return send_extend(claim, clipped > shortest ? clipped : shortest, now);
}

static struct hf_move warn_if_due(struct hf_claim *claim, hf_nanos now, struct hf_move move)
{
    if (now >= claim->warn_at) {
        claim->warned = true;
        claim->warn_at = HF_NEVER;
        move.report = HF_R_WARN;
    }
    return move;
}

struct hf_move hf_act_timer_held(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    struct hf_move move = event->now >= claim->renew_at ? renew_or_check(claim, event->now) : nothing();
    return warn_if_due(claim, event->now, move);
}

struct hf_move hf_act_timer_extending(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    return warn_if_due(claim, event->now, nothing());
}

/* The caller's extend. One request at a time: while ours is in flight it waits for that answer. */
struct hf_move hf_act_extend(struct hf_claim *claim, const struct hf_event *event)
{
    hf_nanos ttl = event->ttl_ms > 0 ? hf_timing_nanos(event->ttl_ms) : claim->t.ttl;
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    if (claim->state == HF_S_EXTENDING) {
        claim->extend_ttl = ttl > claim->extend_ttl ? ttl : claim->extend_ttl;
        return nothing();
    }
    claim->asked_extend = true;
    return send_extend(claim, ttl, event->now);
}

/* What comes after the answer to an extend or check: the caller's waiting extend, else the report of its outcome. */
static struct hf_move after_answer(struct hf_claim *claim, hf_status outcome, hf_nanos now)
{
    hf_nanos wanted = claim->extend_ttl;
    bool asked = claim->asked_extend;
    claim->extend_ttl = 0;
    claim->asked_extend = wanted > 0;
    if (wanted)
        return send_extend(claim, wanted, now);
    claim->state = HF_S_HELD;
    return asked ? (struct hf_move){.report = HF_R_EXTENDED, .status = outcome} : nothing();
}

/* Takes news that say how long the hold is good. False: it is another hold than the one that was reported. */
static bool take_validity(struct hf_claim *claim, const struct hf_news *news)
{
    if (news->token && news->token != claim->token)
        return false;
    /* Never shortened: the engine does not shorten either, and an answer that took long counts from long ago. A CHECK
     * cannot overstate: `good` is what the record had left when it was read, which was after asked_at. */
    hf_nanos until = hf_claim_validity(claim, news);
    hf_claim_believe(claim, news->asked_at, until > claim->valid_until ? until : claim->valid_until);
    return true;
}

struct hf_move hf_act_extended(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until || !take_validity(claim, event->news))
        return lose(claim, event->now);
    if (claim->state == HF_S_HELD)
        return nothing();
    return after_answer(claim, HF_OK, event->now);
}

/* No answer, or a refusal. Also a refusal for good is tried again until the belief ends: there is nothing to lose. */
struct hf_move hf_act_extend_failed(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    /* The connection that was cut may have carried a refresh of the queue place, too. */
    claim->doubt |= event->in == HF_I_CUT && claim->queued;
    claim->renew_at = event->now + claim->t.op_timeout;
    return after_answer(claim, event->in == HF_I_CUT ? HF_IN_DOUBT : event->news->status, event->now);
}

/* A second answer for an ask that was granted already (a refresh and the push crossed). A higher token is another
 * hold: the one that was reported had ended in between. A lower one is old news. */
struct hf_move hf_act_grant_again(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until || event->news->token > claim->token)
        return lose(claim, event->now);
    if (event->news->token == claim->token)
        take_validity(claim, event->news);
    return nothing();
}

/* RELEASED comes here as well: a leave that was overtaken by a stale grant says that nothing is ours. */
struct hf_move hf_act_gone(struct hf_claim *claim, const struct hf_event *event)
{
    if (claim->doubt)
        return hf_claim_end_releasing(claim, HF_R_LOST, HF_LOST, event->now);
    return hf_claim_end(claim, HF_R_LOST, HF_LOST);
}

struct hf_move hf_act_lose_all(struct hf_claim *claim, const struct hf_event *event)
{
    return hf_claim_end(claim, HF_R_LOST, event->status);
}
