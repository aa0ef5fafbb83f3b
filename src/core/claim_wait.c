/* claim_wait.c - a claim from its first ask to its outcome: asking, queueing, pausing, leaving.
 *
 * Every path out of here reports GRANTED or DENIED, once. While the wait goes on the same attempt is asked for again
 * and again, so a request that was cut may be executed late without harm; only the end of the wait must leave a
 * tombstone behind a doubt. */
#include "claim_actions.h"
#include "retry.h"

static bool waits(const struct hf_claim *claim)
{
    return claim->deadline > claim->started_at;
}

static struct hf_deed ask(struct hf_claim *claim, hf_nanos now)
{
    claim->state = HF_S_ASKING;
    claim->hinted = false;
    return hf_claim_send(claim, HF_V_ACQUIRE, now);
}

/* The end of the wait without a grant; what the engine may still know of the attempt is taken back in the background.
 */
static struct hf_deed deny(struct hf_claim *claim, hf_status status, hf_nanos now)
{
    if (claim->doubt)
        return hf_claim_end_releasing(claim, HF_R_DENIED, status, now);
    return hf_claim_end(claim, HF_R_DENIED, status);
}

/* Asks again after a pause, or ends with `outcome` if the wait is over by then. `hint`: when it may well be free. */
static struct hf_deed pause_or_deny(struct hf_claim *claim, hf_status outcome, hf_nanos hint,
                                    const struct hf_event *event)
{
    if (event->now >= claim->deadline)
        return deny(claim, outcome, event->now);
    hf_nanos again = event->now + hf_retry_pause(&claim->sheet->t, claim->tries++, event->random);
    if (hint < again)
        again = hint > event->now + claim->sheet->t.retry_floor ? hint : event->now + claim->sheet->t.retry_floor;
    claim->act_at = again;
    claim->outcome = outcome;
    claim->state = HF_S_PAUSED;
    return (struct hf_deed){.verb = HF_V_NONE};
}

static struct hf_deed leave(struct hf_claim *claim, hf_status outcome, hf_nanos now)
{
    claim->state = HF_S_LEAVING;
    claim->outcome = outcome;
    claim->act_at = now + 2 * claim->sheet->t.op_timeout;
    return hf_claim_send(claim, HF_V_LEAVE, now);
}

struct hf_deed hf_act_start(struct hf_claim *claim, const struct hf_event *event)
{
    claim->started_at = event->now;
    return ask(claim, event->now);
}

struct hf_deed hf_act_ask_now(struct hf_claim *claim, const struct hf_event *event)
{
    return ask(claim, event->now);
}

struct hf_deed hf_act_note_hint(struct hf_claim *claim, const struct hf_event *event)
{
    (void)event;
    claim->hinted = true;
    return (struct hf_deed){.verb = HF_V_NONE};
}

struct hf_deed hf_act_grant(struct hf_claim *claim, const struct hf_event *event)
{
    hf_nanos until = hf_claim_validity(claim, event->news);
    if (claim->cancelled)
        return hf_claim_end_releasing(claim, HF_R_DENIED, claim->outcome, event->now);
    if (until <= event->now) {
        /* A lease without time is not reported. Asking again is safe, the engine grants an attempt once; but should
         * the wait end first, the record may still be ours: that is a doubt. */
        claim->doubt = true;
        if (claim->state == HF_S_LEAVING)
            return deny(claim, claim->outcome, event->now);
        return pause_or_deny(claim, HF_TIMEOUT, HF_NEVER, event);
    }
    claim->state = HF_S_HELD;
    hf_claim_set_token(claim, event->news->token);
    claim->hinted = false;
    claim->granted_at = event->now;
    claim->brief = event->news->brief;
    /* What is left of a brief grant is planned from now: the ask that it counts from may be long ago. */
    hf_claim_believe(claim, claim->brief ? event->now : event->news->asked_at, until);
    return (struct hf_deed){.report = HF_R_GRANTED, .status = HF_OK};
}

/* Only what leaving itself found. A grant of before may have been read late, when the engine gives it back already;
 * where it does not, it says so in its answer. */
struct hf_deed hf_act_grant_leaving(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->news->asked_at < claim->asked_at)
        return (struct hf_deed){.verb = HF_V_NONE};
    return hf_act_grant(claim, event);
}

struct hf_deed hf_act_queue(struct hf_claim *claim, const struct hf_event *event)
{
    hf_nanos soonest = event->now + claim->sheet->t.retry_floor;
    bool first = !claim->queued;
    struct hf_deed move = {.report = HF_R_NONE};
    claim->queued = true;
    claim->outcome = HF_TIMEOUT; /* the engine is there, whatever came before */
    claim->act_at = event->news->retry_at > soonest ? event->news->retry_at : soonest;
    claim->state = HF_S_QUEUED;
    if (claim->hinted)
        move = ask(claim, event->now);
    move.report = first ? HF_R_QUEUED : HF_R_NONE;
    return move;
}

struct hf_deed hf_act_busy(struct hf_claim *claim, const struct hf_event *event)
{
    if (claim->hinted && event->now < claim->deadline)
        return ask(claim, event->now);
    return pause_or_deny(claim, waits(claim) ? HF_TIMEOUT : HF_BUSY, event->news->retry_at, event);
}

struct hf_deed hf_act_cut(struct hf_claim *claim, const struct hf_event *event)
{
    claim->doubt = true;
    return pause_or_deny(claim, claim->queued ? HF_TIMEOUT : HF_IN_DOUBT, HF_NEVER, event);
}

/* FULL and NO_MEMORY count as transient too (the retry column of status.def): room comes back when others release, and
 * the caller said how long that may take. */
struct hf_deed hf_act_fail(struct hf_claim *claim, const struct hf_event *event)
{
    /* Nothing happened, so the place in the queue that an earlier ask got is still there: nobody else gives it up. */
    claim->doubt |= claim->queued;
    if (!hf_claim_transient(event->news->status))
        return deny(claim, event->news->status, event->now);
    return pause_or_deny(claim, claim->queued ? HF_TIMEOUT : event->news->status, event->news->retry_at, event);
}

struct hf_deed hf_act_timer_asking(struct hf_claim *claim, const struct hf_event *event)
{
    hf_nanos end = waits(claim) ? claim->deadline : claim->asked_at + claim->sheet->t.answer;
    if (event->now < end)
        return (struct hf_deed){.verb = HF_V_NONE};
    /* Who heard of nothing but failures so far has not found it taken; nor has one that does not wait, and heard of
     * nothing at all. */
    hf_status unheard = waits(claim) ? HF_TIMEOUT : HF_UNAVAILABLE;
    return leave(claim, claim->outcome != HF_OK ? claim->outcome : unheard, event->now);
}

struct hf_deed hf_act_timer_queued(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->deadline)
        return leave(claim, waits(claim) ? HF_TIMEOUT : HF_BUSY, event->now);
    if (event->now >= claim->act_at)
        return ask(claim, event->now);
    return (struct hf_deed){.verb = HF_V_NONE};
}

struct hf_deed hf_act_timer_paused(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now >= claim->deadline)
        return deny(claim, claim->outcome, event->now);
    if (event->now >= claim->act_at)
        return ask(claim, event->now);
    return (struct hf_deed){.verb = HF_V_NONE};
}

struct hf_deed hf_act_cancel(struct hf_claim *claim, const struct hf_event *event)
{
    claim->cancelled = true;
    return leave(claim, event->status, event->now);
}

struct hf_deed hf_act_cancel_paused(struct hf_claim *claim, const struct hf_event *event)
{
    if (claim->doubt)
        return hf_act_cancel(claim, event);
    claim->cancelled = true;
    return hf_claim_end(claim, HF_R_DENIED, event->status);
}

struct hf_deed hf_act_deny_all(struct hf_claim *claim, const struct hf_event *event)
{
    return hf_claim_end(claim, HF_R_DENIED, event->status);
}

struct hf_deed hf_act_timer_leaving(struct hf_claim *claim, const struct hf_event *event)
{
    if (event->now < claim->act_at)
        return (struct hf_deed){.verb = HF_V_NONE};
    return hf_act_leave_unanswered(claim, event);
}

/* The first reason stays the outcome, unless it was the time-out: then the grant that may come is not wanted either. */
struct hf_deed hf_act_cancel_leaving(struct hf_claim *claim, const struct hf_event *event)
{
    if (!claim->cancelled)
        claim->outcome = event->status;
    claim->cancelled = true;
    return (struct hf_deed){.verb = HF_V_NONE};
}

/* An engine that could not even ask says so: then it is not the wait that was too short, unless it was shorter than any
 * request may take. */
struct hf_deed hf_act_left(struct hf_claim *claim, const struct hf_event *event)
{
    hf_status unasked = event->news ? event->news->status : HF_OK;
    bool had_time = claim->deadline - claim->started_at >= claim->sheet->t.op_timeout;
    bool guess = claim->outcome == HF_TIMEOUT && !claim->queued && unasked != HF_OK && had_time;
    return hf_claim_end(claim, HF_R_DENIED, guess ? unasked : claim->outcome);
}

/* Who does not wait knows no more than that it asked. */
struct hf_deed hf_act_leave_unanswered(struct hf_claim *claim, const struct hf_event *event)
{
    bool knows = waits(claim) || claim->cancelled || claim->queued;
    claim->doubt = true;
    return hf_claim_end_releasing(claim, HF_R_DENIED, knows ? claim->outcome : HF_IN_DOUBT, event->now);
}
