/* claim_hold.c - a claim while it is held: renewing, checking, converting, warning, losing.
 *
 * The belief (valid_until) grows only by an answer to a request that we timed ourselves, and only while it is not over:
 * renewal never revives. Whoever reads it needs no lock and no engine to know that the hold is good.
 *
 * One request at a time. What the caller wants meanwhile waits: a conversion first, then an extend. The outcome of a
 * conversion is never mixed with another's: who upgrades must not hear the OK of an extend. */
#include "claim_actions.h"

static struct hf_deed nothing(void)
{
    return (struct hf_deed){.verb = HF_V_NONE};
}

static hf_nanos hold_end(const struct hf_claim *claim)
{
    return claim->max_hold ? claim->granted_at + claim->max_hold : HF_NEVER;
}

/* Is there anything to renew? Also without auto-renewal the caller gets its ttl, once. When the belief reaches to the
 * end of max_hold, give or take what is taken off for drift, another renewal would not move it. */
static bool renews(const struct hf_claim *claim)
{
    return (claim->auto_renew || claim->brief) && hold_end(claim) - claim->sheet->t.drift > claim->valid_until;
}

void hf_claim_believe(struct hf_claim *claim, hf_nanos asked_at, hf_nanos valid_until)
{
    const struct hf_timing *t = &claim->sheet->t;
    hf_nanos length = valid_until - asked_at;
    hf_claim_set_valid(claim, valid_until);
    claim->warned = false;
    claim->warn_at = HF_NEVER;
    claim->act_at = asked_at + t->renew;
    if (!renews(claim))
        return; /* checks keep their pace: a share of ever less would be ever more checks towards the end */
    hf_nanos share = hf_timing_share(t, t->renew, length);
    bool soon = claim->brief || share > t->op_timeout; /* little is left, and a second try must fit */
    claim->act_at = asked_at + (soon ? share : t->op_timeout);
    claim->warn_at = asked_at + hf_timing_share(t, t->warn, length);
}

/* What is lost by time was lost when the time was over, however late that is noticed. */
static void note_end(struct hf_claim *claim, hf_nanos now)
{
    claim->ended_at = claim->valid_until < now ? claim->valid_until : now;
}

/* Ends a hold that was reported as granted. The release behind it tells the engine, should it still think otherwise. */
static struct hf_deed lose(struct hf_claim *claim, hf_nanos now)
{
    note_end(claim, now);
    claim->doubt = true;
    return hf_claim_end_releasing(claim, HF_R_LOST, HF_LOST, now);
}

static struct hf_deed send(struct hf_claim *claim, enum hf_verb verb, bool asked, hf_nanos now)
{
    claim->in_flight = (uint8_t)verb;
    claim->asked_extend = asked;
    claim->state = HF_S_EXTENDING;
    return hf_claim_send(claim, verb, now);
}

static struct hf_deed send_extend(struct hf_claim *claim, hf_nanos ttl, bool asked, hf_nanos now)
{
    struct hf_deed move = send(claim, HF_V_EXTEND, asked, now);
    move.ttl = ttl;
    return move;
}

/* From here on the token may rise at any time: the answer may be lost, and the request executed late. */
static struct hf_deed send_convert(struct hf_claim *claim, enum hf_verb verb, hf_nanos now)
{
    claim->token_may_rise |= verb == HF_V_UPGRADE;
    return send(claim, verb, true, now);
}

static bool converts(unsigned verb)
{
    return verb == HF_V_UPGRADE || verb == HF_V_DOWNGRADE;
}

/* Our own renewal. Towards the end of max_hold it asks for what is missing, in whole milliseconds because the engine
 * counts those, and never for less than the engine's shortest ttl: so max_hold is passed by less than that. */
static struct hf_deed renew_or_check(struct hf_claim *claim, hf_nanos now)
{
    if (!renews(claim))
        return send(claim, HF_V_CHECK, false, now);
    hf_nanos left = hold_end(claim) - now;
    if (left >= claim->sheet->t.ttl)
        return send_extend(claim, claim->sheet->t.ttl, false, now);
    hf_nanos clipped = (left + HF_MS(1) - 1) / HF_MS(1) * HF_MS(1);
    hf_nanos shortest = hf_timing_nanos(claim->sheet->limits.ttl_min_ms);
    return send_extend(claim, clipped > shortest ? clipped : shortest, false, now);
}

static struct hf_deed warn_if_due(struct hf_claim *claim, hf_nanos now, struct hf_deed move)
{
    if (now >= claim->warn_at) {
        claim->warned = true;
        claim->warn_at = HF_NEVER;
        move.report = HF_R_WARN;
    }
    return move;
}

struct hf_deed hf_act_timer_held(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    struct hf_deed move = event->now >= claim->act_at ? renew_or_check(claim, event->now) : nothing();
    return warn_if_due(claim, event->now, move);
}

struct hf_deed hf_act_timer_extending(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    return warn_if_due(claim, event->now, nothing());
}

/* The caller's extend. One request at a time: while ours is in flight it waits for that answer. */
struct hf_deed hf_act_extend(struct hf_claim *claim, const struct hf_event *event)
{
    hf_nanos ttl = event->ttl_ms > 0 ? hf_timing_nanos(event->ttl_ms) : claim->sheet->t.ttl;
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    if (claim->brief && ttl < claim->sheet->t.ttl)
        ttl = claim->sheet->t.ttl; /* "at least" was asked for, and the grant still owes that much */
    if (claim->state == HF_S_EXTENDING) {
        claim->extend_ms = ttl > HF_MS(claim->extend_ms) ? (uint32_t)(ttl / HF_MS(1)) : claim->extend_ms;
        return nothing();
    }
    return send_extend(claim, ttl, true, event->now);
}

/* Whoever waits for an answer hears that there is none to rely on; what is in flight goes on unwatched. */
static struct hf_deed tell_in_doubt(struct hf_claim *claim)
{
    claim->asked_extend = false;
    claim->extend_ms = 0;
    claim->convert_next = HF_V_NONE;
    return (struct hf_deed){.report = HF_R_EXTENDED, .status = HF_IN_DOUBT};
}

/* The caller's wish to convert. It never waits for others, but it does for an extend in flight. The same wish twice is
 * one. Two that contradict each other have no outcome that is true for both. Nor is there one behind a downgrade that
 * may be executed late: it would make a reader of the writer who was told that all is well. */
struct hf_deed hf_act_convert(struct hf_claim *claim, const struct hf_event *event)
{
    hf_assert(converts(event->verb));
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    unsigned open = converts(claim->in_flight) ? claim->in_flight : claim->convert_next;
    bool contradicts = open != HF_V_NONE && open != event->verb;
    if (contradicts || (event->verb == HF_V_UPGRADE && event->now < claim->downgrade_doubt_until))
        return tell_in_doubt(claim);
    if (claim->state == HF_S_HELD)
        return send_convert(claim, event->verb, event->now);
    if (converts(claim->in_flight))
        claim->asked_extend = true;
    else
        claim->convert_next = (uint8_t)event->verb;
    return nothing();
}

/* What comes after the answer to the request in flight: the report, and what was wanted meanwhile. Only one report
 * fits: with a conversion next it is that one's; an extend or check behind a conversion does not keep its from being
 * told. */
static struct hf_deed after_answer(struct hf_claim *claim, hf_status outcome, hf_nanos now)
{
    bool converted = converts(claim->in_flight), asked = claim->asked_extend, hinted = claim->hinted;
    enum hf_verb convert = claim->convert_next;
    hf_nanos wanted = HF_MS(claim->extend_ms);
    struct hf_deed move = nothing();
    claim->in_flight = HF_V_NONE;
    claim->asked_extend = false;
    claim->convert_next = HF_V_NONE;
    claim->state = HF_S_HELD;
    if (convert != HF_V_NONE)
        return send_convert(claim, convert, now);
    claim->extend_ms = 0;
    if (wanted)
        move = send_extend(claim, wanted, true, now);
    else if (hinted)
        move = send(claim, HF_V_CHECK, false, now);
    claim->hinted = hinted && wanted;
    if (asked && (converted || !wanted)) {
        move.report = HF_R_EXTENDED;
        move.status = outcome;
    }
    return move;
}

/* Takes news that say how long the hold is good. False: it is another hold than the one that was reported. */
static bool take_validity(struct hf_claim *claim, const struct hf_news *news)
{
    if (news->token && news->token != claim->token) {
        if (!claim->token_may_rise)
            return false;
        if (news->token < claim->token)
            return true; /* from before the upgrade: old news */
        hf_claim_set_token(claim, news->token);
    }
    /* Never shortened: the engine does not shorten either, and an answer that took long counts from long ago. A CHECK
     * cannot overstate: `good` is what the record had left when it was read, which was after asked_at. */
    hf_nanos until = hf_claim_validity(claim, news);
    until = until > claim->valid_until ? until : claim->valid_until;
    /* Checks and conversions renew nothing: were the next renewal counted from them, many of them would keep it from
     * ever being sent. */
    if (claim->in_flight != HF_V_EXTEND && renews(claim))
        hf_claim_set_valid(claim, until);
    else
        hf_claim_believe(claim, news->asked_at, until);
    return true;
}

/* News that answer an older request than the one in flight. */
static bool is_stale(const struct hf_claim *claim, const struct hf_news *news)
{
    return claim->in_flight == HF_V_NONE || news->asked_at < claim->asked_at;
}

struct hf_deed hf_act_extended(struct hf_claim *claim, const struct hf_event *event)
{
    if (claim->in_flight == HF_V_EXTEND && !is_stale(claim, event->news))
        claim->brief = false;
    if (event->now >= claim->valid_until || !take_validity(claim, event->news))
        return lose(claim, event->now);
    return is_stale(claim, event->news) ? nothing() : after_answer(claim, HF_OK, event->now);
}

static hf_nanos plan_again(const struct hf_claim *claim, hf_nanos now)
{
    hf_nanos soon = now + claim->sheet->t.op_timeout;
    bool was_renewal = claim->in_flight == HF_V_EXTEND || !renews(claim);
    return was_renewal || soon < claim->act_at ? soon : claim->act_at;
}

/* No answer, or a refusal. Also a refusal for good is tried again until the belief ends: there is nothing to lose. */
struct hf_deed hf_act_extend_failed(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    /* The connection that was cut may have carried a refresh of the queue place, too. */
    claim->doubt |= event->in == HF_I_CUT && claim->queued;
    if (is_stale(claim, event->news))
        return nothing();
    if (event->in == HF_I_CUT && claim->in_flight == HF_V_DOWNGRADE)
        claim->downgrade_doubt_until = event->now + claim->sheet->t.release_for;
    claim->act_at = plan_again(claim, event->now);
    return after_answer(claim, event->in == HF_I_CUT ? HF_IN_DOUBT : event->news->status, event->now);
}

/* A second answer for an ask that was granted already (a refresh and the push crossed). A higher token is another
 * hold, unless an upgrade raised it: the one that was reported had ended in between. A lower one is old news. */
struct hf_deed hf_act_grant_again(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    if (event->news->token < claim->token)
        return nothing();
    claim->brief = claim->brief && event->news->brief;
    return take_validity(claim, event->news) ? nothing() : lose(claim, event->now);
}

/* RELEASED comes here as well: a leave that was overtaken by a stale grant says that nothing is ours. */
struct hf_deed hf_act_gone(struct hf_claim *claim, const struct hf_event *event)
{
    note_end(claim, event->now);
    /* A look of one that had waited may have come after the end, and have got it a new place in the queue. */
    if (claim->doubt || claim->queued)
        return hf_claim_end_releasing(claim, HF_R_LOST, HF_LOST, event->now);
    return hf_claim_end(claim, HF_R_LOST, HF_LOST);
}

/* BUSY answers a conversion only: an old ask's late word has no meaning while we hold. */
struct hf_deed hf_act_not_converted(struct hf_claim *claim, const struct hf_event *event)
{
    if (!converts(claim->in_flight) || is_stale(claim, event->news))
        return nothing();
    return after_answer(claim, HF_BUSY, event->now);
}

/* Somebody says that a hold of ours may be gone. */
struct hf_deed hf_act_check_now(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->valid_until)
        return lose(claim, event->now);
    return send(claim, HF_V_CHECK, false, event->now);
}

struct hf_deed hf_act_forfeit(struct hf_claim *claim, const struct hf_event *event)
{
    return lose(claim, event->now);
}

struct hf_deed hf_act_lose_all(struct hf_claim *claim, const struct hf_event *event)
{
    note_end(claim, event->now);
    return hf_claim_end(claim, HF_R_LOST, event->status);
}
