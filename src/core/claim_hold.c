/* claim_hold.c - a claim while the lock is held: renewing, checking, converting, warning, losing.
 *
 * valid_until is the end of the time that is certainly ours. It grows only by the reply to a
 * request that we timed ourselves, and only before it has passed: renewal never revives. A thread
 * that reads it needs no lock and no engine to know that the hold is good.
 *
 * One request at a time. Calls that the caller makes meanwhile wait: a conversion first, then an
 * extend. The outcome of a conversion is never that of another request: a caller that upgrades must
 * not get the HF_OK of an extend. */
#include "claim_actions.h"

/* A brief grant is extended after an eighth of its time. That is soon, and yet a holder that
 * releases at once does not extend. */
enum { BRIEF_PART = 8 };

static bool is_held(const struct claim *claim)
{
    return claim->state == CLAIM_HELD || claim->state == CLAIM_EXTENDING;
}

static bool converts(unsigned verb)
{
    return verb == OP_UPGRADE || verb == OP_DOWNGRADE;
}

static struct claim_effect nothing(void)
{
    return (struct claim_effect){.verb = OP_NONE};
}

static nanos hold_end(const struct claim *claim)
{
    return claim->max_hold ? claim->granted_at + claim->max_hold : TIME_NEVER;
}

/* Returns true if a renewal would change valid_until. A brief grant gets its whole ttl even
 * without auto-renewal. Once valid_until has reached the end of max_hold, less the drift, a renewal
 * would change nothing. */
static bool renews(const struct claim *claim)
{
    bool is_kept = claim->auto_renew && !claim->is_stalled;
    return (is_kept || claim->brief) &&
           hold_end(claim) - claim->sheet->t.drift > claim->valid_until;
}

void claim_set_renewal(struct claim *claim, bool on, nanos now)
{
    claim->auto_renew = on;
    if (on)
        claim->act_at = now;
}

void claim_believe(struct claim *claim, nanos asked_at, nanos valid_until)
{
    const struct timing *t = &claim->sheet->t;
    nanos length = valid_until - asked_at;
    claim_set_valid(claim, valid_until);
    claim->warned = false;
    claim->warn_at = TIME_NEVER;
    claim->act_at = asked_at + t->renew;
    if (!renews(claim))
        /* a fixed interval: if it shrank with the time left, checks would pile up towards the
         * end */
        return;

    nanos share = timing_share(t, t->renew, length);
    nanos op_timeout = timing_sheet_op_timeout(claim->sheet);
    if (share < op_timeout)
        share = op_timeout; /* two tries less than op_timeout apart would overlap */
    claim->act_at = asked_at + (claim->brief ? length / BRIEF_PART : share);
    claim->warn_at = asked_at + timing_share(t, t->warn, length);
}

/* Notes when the hold ended. One that expired ended when its time was over, even if that is
 * noticed later. */
static void note_end(struct claim *claim, nanos now)
{
    assert(is_held(claim));
    claim->ended_at = claim->valid_until < now ? claim->valid_until : now;
}

/* Ends a hold that was reported as granted. The release that follows removes the engine's record,
 * if there still is one. */
static struct claim_effect lose(struct claim *claim, nanos now)
{
    note_end(claim, now);
    claim->may_be_in_flight = true;
    return claim_end_releasing(claim, REPORT_LOST, HF_LOST, now);
}

/* Handles that the hold's end, as far as this claim knows, has passed. If others have the text of
 * the hold, one of them may have extended it, and a release would end it for them. If nobody has
 * extended it, it ends by itself. */
static struct claim_effect expire(struct claim *claim, nanos now)
{
    assert(now >= claim->valid_until);

    if (!claim->is_text)
        return lose(claim, now);
    note_end(claim, now);
    return claim_end(claim, REPORT_LOST, HF_LOST);
}

static struct claim_effect send(struct claim *claim, enum op_verb verb, bool asked, nanos now)
{
    assert(claim->state == CLAIM_HELD && claim->in_flight == OP_NONE);

    claim->in_flight = (uint8_t)verb;
    claim->asked_extend = asked;
    claim->state = CLAIM_EXTENDING;
    return claim_send(claim, verb, now);
}

static struct claim_effect send_extend(struct claim *claim, nanos ttl, bool asked, nanos now)
{
    struct claim_effect move = send(claim, OP_EXTEND, asked, now);
    move.ttl = ttl;
    move.is_renewal = !asked;
    return move;
}

/* After an UPGRADE the token may rise at any time: its reply may be lost and the request executed
 * late. */
static struct claim_effect send_convert(struct claim *claim, enum op_verb verb, nanos now)
{
    assert(converts(verb));

    claim->token_may_rise |= verb == OP_UPGRADE;
    return send(claim, verb, true, now);
}

/* Sends the claim's own renewal or check. Towards the end of max_hold a renewal extends by the time
 * that is missing, in whole milliseconds because the engine counts those. It never extends by less
 * than the engine's shortest ttl, so a hold may pass max_hold by less than that. */
static struct claim_effect renew_or_check(struct claim *claim, nanos now)
{
    if (!renews(claim))
        return send(claim, OP_CHECK, false, now);

    nanos left = hold_end(claim) - now;
    if (left >= claim->sheet->t.ttl)
        return send_extend(claim, claim->sheet->t.ttl, false, now);

    nanos clipped = (left + NANOS_OF_MS(1) - 1) / NANOS_OF_MS(1) * NANOS_OF_MS(1);
    nanos shortest = timing_nanos(claim->sheet->limits.ttl_min_ms);
    return send_extend(claim, clipped > shortest ? clipped : shortest, false, now);
}

static struct claim_effect warn_if_due(struct claim *claim, nanos now, struct claim_effect move)
{
    assert(move.report == REPORT_NONE);

    if (now >= claim->warn_at) {
        claim->warned = true;
        claim->warn_at = TIME_NEVER;
        move.report = REPORT_WARN;
    }
    return move;
}

struct claim_effect claim_act_timer_held(struct claim *claim, const struct claim_event *event)
{
    if (event->now >= claim->valid_until)
        return expire(claim, event->now);
    struct claim_effect move =
        event->now >= claim->act_at ? renew_or_check(claim, event->now) : nothing();
    return warn_if_due(claim, event->now, move);
}

/* A reply may come byte by byte for longer than a call may take, so the engine alone cannot end it.
 */
nanos claim_answer_due(const struct claim *claim)
{
    bool caller_waits =
        claim->asked_extend || claim->extend_ms != 0 || claim->convert_next != OP_NONE;
    return caller_waits ? claim->asked_at + timing_sheet_answer(claim->sheet) : TIME_NEVER;
}

/* Ends every open extend and conversion with IN_DOUBT. The request in flight goes on, and nobody
 * waits for it. */
static struct claim_effect report_unknown(struct claim *claim)
{
    assert(is_held(claim));

    claim->asked_extend = false;
    claim->extend_ms = 0;
    claim->convert_next = OP_NONE;
    return (struct claim_effect){.report = REPORT_EXTENDED, .status = HF_IN_DOUBT};
}

struct claim_effect claim_act_timer_extending(struct claim *claim, const struct claim_event *event)
{
    if (event->now >= claim->valid_until)
        return expire(claim, event->now);
    if (event->now >= claim_answer_due(claim))
        return report_unknown(claim);
    return warn_if_due(claim, event->now, nothing());
}

/* Sends the caller's extend. If another request is in flight, the extend waits for its reply. */
struct claim_effect claim_act_extend(struct claim *claim, const struct claim_event *event)
{
    assert(event->ttl_ms >= 0);

    nanos ttl = event->ttl_ms > 0 ? timing_nanos(event->ttl_ms) : claim->sheet->t.ttl;
    if (event->now >= claim->valid_until)
        return expire(claim, event->now);
    if (claim->brief && ttl < claim->sheet->t.ttl)
        ttl = claim->sheet->t.ttl; /* a brief grant lacks the rest of its ttl */

    if (claim->state == CLAIM_EXTENDING) {
        if (ttl > NANOS_OF_MS(claim->extend_ms))
            claim->extend_ms = (uint32_t)(ttl / NANOS_OF_MS(1));
        return nothing();
    }
    return send_extend(claim, ttl, true, event->now);
}

/* The caller's conversion. It never waits for other holders, but it waits for an extend in flight.
 * Two calls for the same conversion share one request. Two conversions that contradict each other
 * end IN_DOUBT, because no outcome is true for both. So does an upgrade after a downgrade with
 * unknown outcome: executed late, the downgrade would turn the writer into a reader after its
 * upgrade had succeeded. */
struct claim_effect claim_act_convert(struct claim *claim, const struct claim_event *event)
{
    claim_assert(converts(event->verb));
    if (event->now >= claim->valid_until)
        return expire(claim, event->now);

    unsigned open = converts(claim->in_flight) ? claim->in_flight : claim->convert_next;
    bool contradicts = open != OP_NONE && open != event->verb;
    bool may_be_undone = event->verb == OP_UPGRADE && event->now < claim->downgrade_unknown_until;
    if (contradicts || may_be_undone)
        return report_unknown(claim);

    if (claim->state == CLAIM_HELD)
        return send_convert(claim, event->verb, event->now);
    if (converts(claim->in_flight))
        claim->asked_extend = true;
    else
        claim->convert_next = (uint8_t)event->verb;
    return nothing();
}

/* Called after the reply to the request in flight: reports its outcome and sends the request that
 * waited. There is one report: if a conversion waits, its outcome is reported later for both. An
 * extend or check that waits does not delay the report of a conversion. */
static struct claim_effect after_answer(struct claim *claim, hf_status outcome, nanos now)
{
    assert(claim->state == CLAIM_EXTENDING && claim->in_flight != OP_NONE);

    bool converted = converts(claim->in_flight), asked = claim->asked_extend;
    bool notified = claim->notified;
    enum op_verb convert = claim->convert_next;
    nanos wanted = NANOS_OF_MS(claim->extend_ms);
    struct claim_effect move = nothing();

    claim->in_flight = OP_NONE;
    claim->asked_extend = false;
    claim->convert_next = OP_NONE;
    claim->state = CLAIM_HELD;
    if (convert != OP_NONE)
        return send_convert(claim, convert, now);

    claim->extend_ms = 0;
    if (wanted)
        move = send_extend(claim, wanted, true, now);
    else if (notified)
        move = send(claim, OP_CHECK, false, now);

    claim->notified = notified && wanted;
    if (asked && (converted || !wanted)) {
        move.report = REPORT_EXTENDED;
        move.status = outcome;
    }
    return move;
}

/* Takes the validity from a reply. Returns false if the reply is about another hold than the one
 * that was reported as granted. */
static bool take_validity(struct claim *claim, const struct engine_reply *reply)
{
    assert(is_held(claim));

    if (reply->token && reply->token != claim->token) {
        if (!claim->token_may_rise)
            return false;
        if (reply->token < claim->token)
            return true; /* the request was sent before the upgrade */
        claim_set_token(claim, reply->token);
    }

    /* The same server never shortens a hold, so a reply with an earlier end is only a slow one, and
     * is ignored. A CHECK does not overstate: `good` is the time that the record had left when it
     * was read, which was after asked_at. There are two exceptions. After a failover the record
     * ends by the clock of another server, perhaps sooner. And the first reply about an assumed
     * hold replaces a guess. */
    nanos until = claim_validity(claim, reply);
    bool is_shorter = until < claim->valid_until;
    if (is_shorter && !reply->is_elsewhere && !claim->is_assumed)
        until = claim->valid_until;
    claim->is_assumed = false;

    /* Checks and conversions renew nothing. If the next renewal counted from them, frequent checks
     * would postpone it for ever. */
    if (claim->in_flight != OP_EXTEND && renews(claim))
        claim_set_valid(claim, until);
    else
        claim_believe(claim, reply->asked_at, until);

    return true;
}

/* Returns true if the reply belongs to an earlier request than the one in flight. */
static bool is_stale(const struct claim *claim, const struct engine_reply *reply)
{
    return claim->in_flight == OP_NONE || reply->asked_at < claim->asked_at;
}

struct claim_effect claim_act_extended(struct claim *claim, const struct claim_event *event)
{
    if (claim->in_flight == OP_EXTEND && !is_stale(claim, event->reply))
        claim->brief = false;
    if (event->now >= claim->valid_until)
        return expire(claim, event->now);
    if (!take_validity(claim, event->reply))
        return lose(claim, event->now);
    if (event->now >= claim->valid_until)
        return expire(claim, event->now);
    return is_stale(claim, event->reply) ? nothing() : after_answer(claim, HF_OK, event->now);
}

static nanos plan_again(const struct claim *claim, nanos now)
{
    nanos soon = now + timing_sheet_op_timeout(claim->sheet);
    bool was_renewal = claim->in_flight == OP_EXTEND || !renews(claim);
    return was_renewal || soon < claim->act_at ? soon : claim->act_at;
}

/* A renewal got no reply, or a refusal. Even after a final refusal the renewal is tried again until
 * valid_until, because a try can lose nothing. */
struct claim_effect claim_act_extend_failed(struct claim *claim, const struct claim_event *event)
{
    if (event->now >= claim->valid_until)
        return expire(claim, event->now);
    /* The broken connection may have carried a refresh of the place in the queue, too. */
    claim->may_be_in_flight |=
        event->reply->outcome_unknown || (event->in == INPUT_UNKNOWN && claim->queued);
    if (is_stale(claim, event->reply))
        return nothing();
    if (event->in == INPUT_UNKNOWN && claim->in_flight == OP_DOWNGRADE)
        claim->downgrade_unknown_until = event->now + claim->sheet->t.release_for;
    claim->act_at = plan_again(claim, event->now);
    /* A conversion with unknown outcome may have happened: IN_DOUBT. An extend that happened harms
     * nobody, so the caller gets its failure. */
    bool outcome_unknown =
        event->in == INPUT_UNKNOWN || (event->reply->outcome_unknown && converts(claim->in_flight));
    return after_answer(claim, outcome_unknown ? HF_IN_DOUBT : event->reply->status, event->now);
}

/* Handles a second grant of the same attempt: the reply to an ACQUIRE that refreshed the place
 * crossed the notification. A higher token means that the hold of which the caller knows has
 * expired and this is a new one, unless an upgrade raised the token. A lower token belongs to an
 * old reply, which is ignored. */
struct claim_effect claim_act_grant_again(struct claim *claim, const struct claim_event *event)
{
    if (event->now >= claim->valid_until)
        return expire(claim, event->now);
    if (event->reply->token < claim->token)
        return nothing();
    claim->brief = claim->brief && event->reply->brief;
    return take_validity(claim, event->reply) ? nothing() : lose(claim, event->now);
}

/* The hold is gone. RELEASED is handled like NOT_HELD: it replies to a LEAVE that a stale grant
 * overtook, and means that nothing is held. */
struct claim_effect claim_act_gone(struct claim *claim, const struct claim_event *event)
{
    note_end(claim, event->now);
    /* A refresh of the place in the queue may have been executed after the end, and have made a new
     * place. */
    if (claim->may_be_in_flight || claim->queued)
        return claim_end_releasing(claim, REPORT_LOST, HF_LOST, event->now);
    return claim_end(claim, REPORT_LOST, HF_LOST);
}

/* BUSY is a reply to a conversion only: a BUSY that replies to an old ACQUIRE means nothing
 * here. */
struct claim_effect claim_act_not_converted(struct claim *claim, const struct claim_event *event)
{
    if (!converts(claim->in_flight) || is_stale(claim, event->reply))
        return nothing();
    return after_answer(claim, HF_BUSY, event->now);
}

/* The engine notified us that this hold may have been revoked: checks it now. */
struct claim_effect claim_act_check_now(struct claim *claim, const struct claim_event *event)
{
    assert(claim->state == CLAIM_HELD);

    if (event->now >= claim->valid_until)
        return expire(claim, event->now);
    return send(claim, OP_CHECK, false, event->now);
}

struct claim_effect claim_act_forfeit(struct claim *claim, const struct claim_event *event)
{
    return lose(claim, event->now);
}

struct claim_effect claim_act_lose_all(struct claim *claim, const struct claim_event *event)
{
    assert(event->status != HF_OK);

    note_end(claim, event->now);
    return claim_end(claim, REPORT_LOST, event->status);
}
