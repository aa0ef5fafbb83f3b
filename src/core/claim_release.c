/* claim_release.c - a claim from its release to the engine's answer, and the grants that come when nobody wants them.
 *
 * Our belief ends when the release is sent. The claim is forgotten only on a definite answer, or when the engine's own
 * record must have ended long ago. */
#include "claim_actions.h"

static struct hf_deed send_release(struct hf_claim *claim, hf_nanos now)
{
    claim->state = HF_S_RELEASING;
    claim->act_at = now + 2 * claim->sheet->t.op_timeout;
    return hf_claim_send(claim, HF_V_RELEASE, now);
}

static void stop_believing(struct hf_claim *claim)
{
    hf_claim_set_valid(claim, 0);
    claim->act_at = HF_NEVER;
    claim->warn_at = HF_NEVER;
    claim->asked_extend = claim->brief = false;
    claim->extend_ms = 0;
    claim->in_flight = claim->convert_next = HF_V_NONE;
}

struct hf_deed hf_claim_end_releasing(struct hf_claim *claim, enum hf_report report, hf_status status, hf_nanos now)
{
    stop_believing(claim);
    claim->asked_release = false;
    claim->give_up_at = now + claim->sheet->t.release_for;
    claim->outcome = status;
    struct hf_deed move = send_release(claim, now);
    move.report = report;
    move.status = status;
    return move;
}

struct hf_deed hf_claim_end(struct hf_claim *claim, enum hf_report report, hf_status status)
{
    stop_believing(claim);
    claim->asked_release = false;
    claim->outcome = status;
    claim->state = HF_S_OVER;
    return (struct hf_deed){.report = report, .status = status};
}

/* If the caller still waits for the outcome of its release: this is it. */
static struct hf_deed report_release(struct hf_claim *claim, struct hf_deed move, hf_status status)
{
    if (claim->asked_release) {
        claim->asked_release = false;
        claim->outcome = status;
        move.report = HF_R_RELEASED;
        move.status = status;
    }
    return move;
}

struct hf_deed hf_act_release(struct hf_claim *claim, const struct hf_event *event)
{
    stop_believing(claim);
    claim->asked_release = true;
    claim->ended_at = event->now;
    claim->give_up_at = event->now + claim->sheet->t.release_for;
    return send_release(claim, event->now);
}

/* News of a request that the release was sent behind: its own answer is yet to come. */
static bool is_overtaken(const struct hf_claim *claim, const struct hf_news *news)
{
    return news && news->asked_at < claim->asked_at;
}

struct hf_deed hf_act_release_answered(struct hf_claim *claim, const struct hf_event *event)
{
    if (is_overtaken(claim, event->news)) /* a leave's answer, say, which left no tombstone */
        return (struct hf_deed){.verb = HF_V_NONE};
    claim->state = HF_S_OVER;
    hf_status status = event->in == HF_I_RELEASED ? HF_OK : HF_NOT_HELD;
    return report_release(claim, (struct hf_deed){.verb = HF_V_NONE}, status);
}

struct hf_deed hf_act_release_failed(struct hf_claim *claim, const struct hf_event *event)
{
    struct hf_deed move = {.verb = HF_V_NONE};
    bool overtaken = is_overtaken(claim, event->news);
    if (overtaken && event->in == HF_I_FAILED)
        return move;
    if (event->in == HF_I_FAILED && !hf_claim_transient(event->news->status)) {
        claim->state = HF_S_OVER;
        return report_release(claim, move, event->news->status);
    }
    /* What was cut may have been a refresh of the queue place that the release overtook. */
    claim->doubt |= event->in == HF_I_CUT && claim->queued;
    if (overtaken)
        return move;
    claim->act_at = event->now + claim->sheet->t.op_timeout;
    return report_release(claim, move, HF_IN_DOUBT);
}

struct hf_deed hf_act_timer_releasing(struct hf_claim *claim, const struct hf_event *event)
{
    struct hf_deed move = {.verb = HF_V_NONE};
    if (event->now >= claim->give_up_at) {
        claim->state = HF_S_OVER;
        return report_release(claim, move, HF_IN_DOUBT);
    }
    if (event->now >= claim->act_at)
        return report_release(claim, send_release(claim, event->now), HF_IN_DOUBT);
    return move;
}

/* A grant that nobody wants: a ghost of an earlier ask. The tombstone refuses the next one. */
struct hf_deed hf_act_give_back(struct hf_claim *claim, const struct hf_event *event)
{
    if (claim->asked_release && is_overtaken(claim, event->news)) /* the caller's release was sent behind it */
        return (struct hf_deed){.verb = HF_V_NONE};
    claim->doubt = true;
    if (claim->state == HF_S_OVER)
        claim->give_up_at = event->now + claim->sheet->t.release_for;
    return send_release(claim, event->now);
}

/* The claim ended, and then a request of it turns out to be unanswered: the answer that ended it was an older one's (a
 * leave and a release crossed), or a refresh of the queue place comes to light. Seen in one of a million simulated
 * schedules: the ghost takes a place in the queue. One more release, within the time that was set for them. */
struct hf_deed hf_act_unanswered_end(struct hf_claim *claim, const struct hf_event *event)
{
    bool ghost = event->in == HF_I_CUT || (claim->doubt && hf_claim_transient(event->news->status));
    if (!ghost || event->now >= claim->give_up_at)
        return (struct hf_deed){.verb = HF_V_NONE};
    if (claim->give_up_at == HF_NEVER)
        claim->give_up_at = event->now + claim->sheet->t.release_for;
    claim->doubt = true;
    return send_release(claim, event->now);
}
