/* claim_wait.c - a claim from its first ACQUIRE to its outcome: acquiring, queueing, pausing,
 * leaving.
 *
 * Every path out of here reports GRANTED or DENIED, once. While the wait goes on, the same attempt
 * is sent again and again, so a request with unknown outcome may be executed late without harm.
 * Only at the end of the wait must such a request leave a tombstone. */
#include "backoff.h"
#include "claim_actions.h"

static bool waits(const struct claim *claim)
{
    return claim->deadline > claim->started_at;
}

static struct claim_effect send_acquire(struct claim *claim, nanos now)
{
    claim->state = CLAIM_ACQUIRING;
    claim->notified = false;
    return claim_send(claim, OP_ACQUIRE, now);
}

/* Ends the wait without a grant. If the engine may still have the attempt, it is released in the
 * background. */
static struct claim_effect deny(struct claim *claim, hf_status status, nanos now)
{
    assert(claim->state < CLAIM_OVER && status != HF_OK);

    if (claim->may_be_in_flight)
        return claim_end_releasing(claim, REPORT_DENIED, status, now);
    return claim_end(claim, REPORT_DENIED, status);
}

/* Plans the next ACQUIRE after a pause, or ends with `outcome` if the wait is over. `free_at`: when
 * the lock may become free; TIME_NEVER: not known. */
static struct claim_effect pause_or_deny(struct claim *claim, hf_status outcome, nanos free_at,
                                         const struct claim_event *event)
{
    assert(outcome != HF_OK);

    if (event->now >= claim->deadline)
        return deny(claim, outcome, event->now);

    nanos soonest = event->now + claim->sheet->t.retry_floor;
    nanos again = event->now + backoff_pause(&claim->sheet->t, claim->tries++, event->random);
    if (free_at < again)
        again = free_at > soonest ? free_at : soonest;

    claim->act_at = again;
    claim->outcome = outcome;
    claim->state = CLAIM_PAUSED;
    return (struct claim_effect){.verb = OP_NONE};
}

/* A wait ends within one op_timeout of its deadline. A caller that does not wait has already spent
 * its time on the ACQUIRE, so it accepts the reply to the LEAVE only if that comes at once. */
static struct claim_effect leave(struct claim *claim, hf_status outcome, nanos now)
{
    assert(claim->state <= CLAIM_PAUSED && outcome != HF_OK);

    bool is_patient = waits(claim) || claim->cancelled;
    claim->state = CLAIM_LEAVING;
    claim->outcome = outcome;
    claim->act_at = is_patient ? now + timing_sheet_op_timeout(claim->sheet) : now;
    return claim_send(claim, OP_LEAVE, now);
}

struct claim_effect claim_act_start(struct claim *claim, const struct claim_event *event)
{
    claim->started_at = event->now;
    return send_acquire(claim, event->now);
}

struct claim_effect claim_act_acquire_now(struct claim *claim, const struct claim_event *event)
{
    return send_acquire(claim, event->now);
}

struct claim_effect claim_act_note_notify(struct claim *claim, const struct claim_event *event)
{
    (void)event;
    claim->notified = true;
    return (struct claim_effect){.verb = OP_NONE};
}

struct claim_effect claim_act_grant(struct claim *claim, const struct claim_event *event)
{
    nanos until = claim_validity(claim, event->reply);
    if (claim->cancelled)
        return claim_end_releasing(claim, REPORT_DENIED, claim->outcome, event->now);
    if (until <= event->now) {
        /* A grant that has already expired is not reported. Sending ACQUIRE again is safe: the
         * engine never makes two holds of one attempt. If the caller's wait ends before the next
         * reply, the engine may still have the expired hold, so a tombstone is needed. */
        claim->may_be_in_flight = true;
        if (claim->state == CLAIM_LEAVING)
            return deny(claim, claim->outcome, event->now);
        return pause_or_deny(claim, HF_TIMEOUT, TIME_NEVER, event);
    }
    claim->state = CLAIM_HELD;
    claim_set_token(claim, event->reply->token);
    claim->notified = false;
    claim->granted_at = event->now;
    claim->brief = event->reply->brief;
    /* The claim may have sent another ACQUIRE after the request that was granted. */
    bool is_last = event->reply->asked_at >= claim->asked_at;
    claim->is_settled = event->reply->is_settled && is_last && !claim->may_be_in_flight;
    /* After a brief grant, renewal and warning are planned from now on: its request may have been
     * sent long ago. */
    claim_believe(claim, claim->brief ? event->now : event->reply->asked_at, until);
    return (struct claim_effect){.report = REPORT_GRANTED, .status = HF_OK};
}

/* Only a grant that replies to the LEAVE counts. A grant that replies to an earlier ACQUIRE may
 * arrive while the engine is already releasing it; if the engine keeps it, the reply to the LEAVE
 * is a grant, too. */
struct claim_effect claim_act_grant_leaving(struct claim *claim, const struct claim_event *event)
{
    if (event->reply->asked_at < claim->asked_at)
        return (struct claim_effect){.verb = OP_NONE};
    return claim_act_grant(claim, event);
}

struct claim_effect claim_act_queue(struct claim *claim, const struct claim_event *event)
{
    assert(claim->state == CLAIM_ACQUIRING || claim->state == CLAIM_QUEUED);

    nanos soonest = event->now + claim->sheet->t.retry_floor;
    bool first = !claim->queued;
    struct claim_effect move = {.report = REPORT_NONE};
    claim->queued = true;
    claim->answered = true;
    claim->outcome = HF_TIMEOUT; /* the engine replied: earlier failures no longer matter */
    claim->act_at = event->reply->retry_at > soonest ? event->reply->retry_at : soonest;
    claim->state = CLAIM_QUEUED;
    if (claim->notified)
        move = send_acquire(claim, event->now);
    move.report = first ? REPORT_QUEUED : REPORT_NONE;
    return move;
}

struct claim_effect claim_act_busy(struct claim *claim, const struct claim_event *event)
{
    claim->answered = true;
    if (claim->notified && event->now < claim->deadline)
        return send_acquire(claim, event->now);
    return pause_or_deny(claim, waits(claim) ? HF_TIMEOUT : HF_BUSY, event->reply->retry_at, event);
}

struct claim_effect claim_act_cut(struct claim *claim, const struct claim_event *event)
{
    claim->may_be_in_flight = true;
    return pause_or_deny(claim, claim->queued ? HF_TIMEOUT : HF_IN_DOUBT, TIME_NEVER, event);
}

/* FULL and NO_MEMORY are transient too (the retry column of status.def): room comes back when
 * others release, and the caller said how long that may take.
 *
 * A request with unknown outcome ends the attempt, and the release removes what the request has
 * written. It must not be sent again: half a grant that it left behind would count as a whole one,
 * with a token that is not in the counter. */
struct claim_effect claim_act_fail(struct claim *claim, const struct claim_event *event)
{
    assert(event->reply->status != HF_OK);

    /* A place in the queue that an earlier ACQUIRE got is still there, and only a release removes
     * it. */
    claim->may_be_in_flight |= claim->queued || event->reply->outcome_unknown;
    hf_status status = event->reply->status;
    if (event->reply->outcome_unknown || !claim_transient(status))
        return deny(claim, status, event->now);

    /* HF_NOT_REPLICATED: the wait in the queue ended with a grant that was not replicated, so
     * TIMEOUT would be wrong. */
    bool still_waits = claim->queued && status != HF_NOT_REPLICATED;
    return pause_or_deny(claim, still_waits ? HF_TIMEOUT : status, event->reply->retry_at, event);
}

/* Handles that an earlier ACQUIRE failed while the claim pauses. Only an unknown outcome matters.
 */
struct claim_effect claim_act_fail_paused(struct claim *claim, const struct claim_event *event)
{
    if (event->reply->outcome_unknown)
        return claim_act_fail(claim, event);
    return (struct claim_effect){.verb = OP_NONE};
}

struct claim_effect claim_act_timer_acquiring(struct claim *claim, const struct claim_event *event)
{
    nanos end =
        waits(claim) ? claim->deadline : claim->asked_at + timing_sheet_answer(claim->sheet);
    if (event->now < end)
        return (struct claim_effect){.verb = OP_NONE};

    /* If only failures came so far, the outcome is the last of them: the lock was not seen held.
     * Without any reply a caller that does not wait gets UNAVAILABLE. */
    hf_status silent = waits(claim) ? HF_TIMEOUT : HF_UNAVAILABLE;
    return leave(claim, claim->outcome != HF_OK ? claim->outcome : silent, event->now);
}

struct claim_effect claim_act_timer_queued(struct claim *claim, const struct claim_event *event)
{
    if (event->now >= claim->deadline)
        return leave(claim, waits(claim) ? HF_TIMEOUT : HF_BUSY, event->now);
    if (event->now >= claim->act_at)
        return send_acquire(claim, event->now);
    return (struct claim_effect){.verb = OP_NONE};
}

struct claim_effect claim_act_timer_paused(struct claim *claim, const struct claim_event *event)
{
    assert(claim->outcome != HF_OK);

    if (event->now >= claim->deadline)
        return deny(claim, claim->outcome, event->now);
    if (event->now >= claim->act_at)
        return send_acquire(claim, event->now);
    return (struct claim_effect){.verb = OP_NONE};
}

struct claim_effect claim_act_cancel(struct claim *claim, const struct claim_event *event)
{
    assert(event->status != HF_OK);

    claim->cancelled = true;
    return leave(claim, event->status, event->now);
}

/* The claim has sent nothing, but the engine may have asked for it ahead (engine_op.next). */
struct claim_effect claim_act_cancel_new(struct claim *claim, const struct claim_event *event)
{
    claim->started_at = event->now;
    return claim_act_cancel(claim, event);
}

struct claim_effect claim_act_cancel_paused(struct claim *claim, const struct claim_event *event)
{
    if (claim->may_be_in_flight)
        return claim_act_cancel(claim, event);
    claim->cancelled = true;
    return claim_end(claim, REPORT_DENIED, event->status);
}

struct claim_effect claim_act_deny_all(struct claim *claim, const struct claim_event *event)
{
    return claim_end(claim, REPORT_DENIED, event->status);
}

struct claim_effect claim_act_timer_leaving(struct claim *claim, const struct claim_event *event)
{
    if (event->now < claim->act_at)
        return (struct claim_effect){.verb = OP_NONE};
    return claim_act_leave_unanswered(claim, event);
}

/* The outcome of the first cancel stays. If the wait had ended by its deadline, the cancel replaces
 * that outcome, and a grant that still arrives is released. */
struct claim_effect claim_act_cancel_leaving(struct claim *claim, const struct claim_event *event)
{
    assert(claim->outcome != HF_OK && event->status != HF_OK);

    if (!claim->cancelled)
        claim->outcome = event->status;
    claim->cancelled = true;
    return (struct claim_effect){.verb = OP_NONE};
}

/* The engine may say why the wait ended without a grant. If no ACQUIRE of this claim was answered,
 * that reason replaces TIMEOUT, which would say that others hold the lock. NOT_REPLICATED always
 * replaces it: there was a grant, which was not yet durable. */
struct claim_effect claim_act_left(struct claim *claim, const struct claim_event *event)
{
    assert(claim->state == CLAIM_LEAVING && claim->outcome != HF_OK);

    hf_status reason = event->reply ? event->reply->status : HF_OK;
    bool was_unsent = reason != HF_OK && !claim->answered;
    bool replaces = claim->outcome == HF_TIMEOUT && (was_unsent || reason == HF_NOT_REPLICATED);
    return claim_end(claim, REPORT_DENIED, replaces ? reason : claim->outcome);
}

/* Returns the outcome of a wait whose LEAVE the engine did not answer. TIMEOUT is only true if the
 * engine has said before that others hold the lock. Otherwise the outcome is the failure that the
 * engine reports now, or IN_DOUBT if the server was silent. */
static hf_status unanswered_outcome(const struct claim *claim, const struct claim_event *event)
{
    bool is_known = waits(claim) || claim->cancelled || claim->queued;
    bool failed = event->in == INPUT_FAILED && event->reply && event->reply->status != HF_OK;
    if (!is_known)
        return HF_IN_DOUBT;
    if (claim->outcome != HF_TIMEOUT || claim->answered)
        return claim->outcome;
    return failed ? event->reply->status : HF_IN_DOUBT;
}

struct claim_effect claim_act_leave_unanswered(struct claim *claim, const struct claim_event *event)
{
    assert(claim->state == CLAIM_LEAVING && claim->outcome != HF_OK);

    hf_status outcome = unanswered_outcome(claim, event);
    claim->may_be_in_flight = true;
    return claim_end_releasing(claim, REPORT_DENIED, outcome, event->now);
}
