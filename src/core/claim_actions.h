/* claim_actions.h - the actions of claim.def, and the few moves that they are made of. */
#pragma once
#include "claim.h"

/* Actions in any state (claim.c). */
claim_action claim_act_ignore, claim_act_note_unknown, claim_act_note_failure;

/* Actions from START to the outcome (claim_wait.c). */
claim_action claim_act_start, claim_act_acquire_now, claim_act_note_notify, claim_act_grant,
    claim_act_grant_leaving, claim_act_queue, claim_act_busy, claim_act_cut, claim_act_fail,
    claim_act_fail_paused, claim_act_timer_acquiring, claim_act_timer_queued,
    claim_act_timer_paused, claim_act_cancel, claim_act_cancel_new, claim_act_cancel_paused,
    claim_act_deny_all, claim_act_timer_leaving, claim_act_cancel_leaving, claim_act_left,
    claim_act_leave_unanswered;

/* Actions while the lock is held (claim_hold.c). */
claim_action claim_act_timer_held, claim_act_timer_extending, claim_act_extend, claim_act_extended,
    claim_act_extend_failed, claim_act_grant_again, claim_act_gone, claim_act_lose_all,
    claim_act_convert, claim_act_not_converted, claim_act_check_now, claim_act_forfeit;

/* Actions from the release to its reply (claim_release.c). */
claim_action claim_act_release, claim_act_release_answered, claim_act_release_failed,
    claim_act_timer_releasing, claim_act_give_back, claim_act_unanswered_end;

/* EXTENDING: returns until when the caller waits for a reply, TIME_NEVER if nobody waits. */
nanos claim_answer_due(const struct claim *claim);

/* Returns true if the same request may succeed later: the retry column of status.def. */
bool claim_transient(hf_status status);

static inline void claim_set_token(struct claim *claim, uint64_t token)
{
    atomic_store_explicit(&claim->token, token, memory_order_relaxed);
}

/* Sets valid_until so that a thread that reads it also sees the token that was set before. */
static inline void claim_set_valid(struct claim *claim, nanos until)
{
    atomic_store_explicit(&claim->valid_until, until, memory_order_release);
}

/* Sends the verb now. */
static inline struct claim_effect claim_send(struct claim *claim, enum op_verb verb, nanos now)
{
    claim_assert(verb != OP_NONE);

    claim->asked_at = now;
    return (struct claim_effect){.verb = verb, .may_be_in_flight = claim->may_be_in_flight};
}

/* Ends the claim with this report, and releases in the background; nobody waits for that release.
 */
struct claim_effect claim_end_releasing(struct claim *claim, enum claim_report report,
                                        hf_status status, nanos now);

/* Ends the claim with this report; nothing is sent. */
struct claim_effect claim_end(struct claim *claim, enum claim_report report, hf_status status);

/* Returns until when a hold is certainly ours, according to this reply. */
static inline nanos claim_validity(const struct claim *claim, const struct engine_reply *reply)
{
    return reply->asked_at + reply->good - timing_drift(&claim->sheet->limits, reply->good);
}

/* Sets the end of the hold and plans renewal and warning, both counted from `asked_at`. */
void claim_believe(struct claim *claim, nanos asked_at, nanos valid_until);
