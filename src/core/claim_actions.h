/* claim_actions.h - what claim.c's table dispatches to, and the few moves that all actions are made of. */
#pragma once
#include "claim.h"

/* Anywhere (claim.c). */
hf_action hf_act_ignore, hf_act_note_doubt;

/* From the first ask to its outcome (claim_wait.c). */
hf_action hf_act_start, hf_act_ask_now, hf_act_note_hint, hf_act_grant, hf_act_grant_leaving, hf_act_queue, hf_act_busy,
    hf_act_cut, hf_act_fail, hf_act_timer_asking, hf_act_timer_queued, hf_act_timer_paused, hf_act_cancel,
    hf_act_cancel_paused, hf_act_deny_all, hf_act_timer_leaving, hf_act_cancel_leaving, hf_act_left,
    hf_act_leave_unanswered;

/* While it is held (claim_hold.c). */
hf_action hf_act_timer_held, hf_act_timer_extending, hf_act_extend, hf_act_extended, hf_act_extend_failed,
    hf_act_grant_again, hf_act_gone, hf_act_lose_all, hf_act_convert, hf_act_not_converted, hf_act_check_now,
    hf_act_forfeit;

/* From the release to its answer (claim_release.c). */
hf_action hf_act_release, hf_act_release_answered, hf_act_release_failed, hf_act_timer_releasing, hf_act_give_back,
    hf_act_unanswered_end;

/* May the same request succeed later? The retry column of status.def. */
bool hf_claim_transient(hf_status status);

static inline void hf_claim_set_token(struct hf_claim *claim, uint64_t token)
{
    atomic_store_explicit(&claim->token, token, memory_order_relaxed);
}

/* Who sees the belief sees the token that was set before. */
static inline void hf_claim_set_valid(struct hf_claim *claim, hf_nanos until)
{
    atomic_store_explicit(&claim->valid_until, until, memory_order_release);
}

/* The verb, sent now. */
static inline struct hf_deed hf_claim_send(struct hf_claim *claim, enum hf_verb verb, hf_nanos now)
{
    claim->asked_at = now;
    return (struct hf_deed){.verb = verb, .doubt = claim->doubt};
}

/* The report, together with a release in the background that nobody waits for. */
struct hf_deed hf_claim_end_releasing(struct hf_claim *claim, enum hf_report report, hf_status status, hf_nanos now);

/* The report, and nothing more. */
struct hf_deed hf_claim_end(struct hf_claim *claim, enum hf_report report, hf_status status);

/* Until when a hold is certainly ours, by news that say so. */
static inline hf_nanos hf_claim_validity(const struct hf_claim *claim, const struct hf_news *news)
{
    return news->asked_at + news->good - hf_timing_drift(&claim->sheet->limits, news->good);
}

/* Held from here on: belief counted from `asked_at`; plans renewal and warning. */
void hf_claim_believe(struct hf_claim *claim, hf_nanos asked_at, hf_nanos valid_until);
