/* claim_release.c - a claim from its release to the engine's reply, and grants that come too late.
 *
 * The hold counts as ended when the release is sent. The claim is over only after a definite reply,
 * or when the engine's own record must have expired long ago. */
#include "claim_actions.h"

static struct claim_effect send_release(struct claim *claim, nanos now)
{
    claim->state = CLAIM_RELEASING;
    claim->act_at = now + 2 * timing_sheet_op_timeout(claim->sheet);
    return claim_send(claim, OP_RELEASE, now);
}

static void end_validity(struct claim *claim)
{
    claim_set_valid(claim, 0);
    claim->act_at = TIME_NEVER;
    claim->warn_at = TIME_NEVER;
    claim->asked_extend = claim->brief = false;
    claim->extend_ms = 0;
    claim->in_flight = claim->convert_next = OP_NONE;
}

struct claim_effect claim_end_releasing(struct claim *claim, enum claim_report report,
                                        hf_status status, nanos now)
{
    assert(report != REPORT_NONE && status != HF_OK);

    end_validity(claim);
    claim->asked_release = false;
    claim->give_up_at = now + claim->sheet->t.release_for;
    claim->outcome = status;

    struct claim_effect move = send_release(claim, now);
    move.report = report;
    move.status = status;
    return move;
}

struct claim_effect claim_end(struct claim *claim, enum claim_report report, hf_status status)
{
    assert(claim->state != CLAIM_NEW && claim->state != CLAIM_OVER);

    end_validity(claim);
    claim->asked_release = false;
    claim->outcome = status;
    claim->state = CLAIM_OVER;
    return (struct claim_effect){.report = report, .status = status};
}

/* Adds the report of the release, if the caller waits for one. */
static struct claim_effect report_release(struct claim *claim, struct claim_effect move,
                                          hf_status status)
{
    if (claim->asked_release) {
        claim->asked_release = false;
        claim->outcome = status;
        move.report = REPORT_RELEASED;
        move.status = status;
    }

    return move;
}

struct claim_effect claim_act_release(struct claim *claim, const struct claim_event *event)
{
    end_validity(claim);
    claim->asked_release = true;
    claim->ended_at = event->now;
    claim->give_up_at = event->now + claim->sheet->t.release_for;
    return send_release(claim, event->now);
}

/* Returns true if this is the reply to an earlier request, so the reply to the release is still
 * to come. */
static bool is_overtaken(const struct claim *claim, const struct engine_reply *reply)
{
    return reply && reply->asked_at < claim->asked_at;
}

struct claim_effect claim_act_release_answered(struct claim *claim, const struct claim_event *event)
{
    /* for example the reply to a LEAVE, which leaves no tombstone */
    if (is_overtaken(claim, event->reply))
        return (struct claim_effect){.verb = OP_NONE};
    claim->state = CLAIM_OVER;
    hf_status status = event->in == INPUT_RELEASED ? HF_OK : HF_NOT_HELD;
    return report_release(claim, (struct claim_effect){.verb = OP_NONE}, status);
}

/* Returns true if trying again is pointless. DENIED is not final, because the right may be
 * granted again. Nor is an unknown outcome, because the release may be half done. */
static bool is_final(const struct claim_event *event)
{
    if (event->in != INPUT_FAILED || event->reply->outcome_unknown)
        return false;
    return event->reply->status != HF_DENIED && !claim_transient(event->reply->status);
}

/* The engine refused the release or did not answer. The caller's call ends at once with the reason;
 * the claim tries again until give_up_at. */
struct claim_effect claim_act_release_failed(struct claim *claim, const struct claim_event *event)
{
    assert(claim->state == CLAIM_RELEASING && event->reply);

    struct claim_effect move = {.verb = OP_NONE};
    bool overtaken = is_overtaken(claim, event->reply), failed = event->in == INPUT_FAILED;
    /* The release overtook a request that refreshes the place in the queue. That request may
     * have been lost with the connection, or may still arrive. */
    claim->may_be_in_flight |= event->reply->outcome_unknown || (!failed && claim->queued);
    if (overtaken)
        return move;
    if (is_final(event)) {
        claim->state = CLAIM_OVER;
        return report_release(claim, move, event->reply->status);
    }
    claim->act_at = event->now + timing_sheet_op_timeout(claim->sheet);
    bool is_reason = failed && !claim_transient(event->reply->status);
    return report_release(claim, move, is_reason ? event->reply->status : HF_IN_DOUBT);
}

struct claim_effect claim_act_timer_releasing(struct claim *claim, const struct claim_event *event)
{
    struct claim_effect move = {.verb = OP_NONE};
    if (event->now >= claim->give_up_at) {
        claim->state = CLAIM_OVER;
        return report_release(claim, move, HF_IN_DOUBT);
    }
    if (event->now >= claim->act_at)
        return report_release(claim, send_release(claim, event->now), HF_IN_DOUBT);
    return move;
}

/* A late grant, to an earlier ACQUIRE: releases it again. The tombstone refuses any later
 * ACQUIRE. */
struct claim_effect claim_act_give_back(struct claim *claim, const struct claim_event *event)
{
    assert(claim->valid_until == 0);

    bool is_covered = claim->asked_release && is_overtaken(claim, event->reply);
    if (is_covered) /* the caller's release was sent after the request that was granted */
        return (struct claim_effect){.verb = OP_NONE};

    claim->may_be_in_flight = true;
    if (claim->state == CLAIM_OVER)
        claim->give_up_at = event->now + claim->sheet->t.release_for;
    return send_release(claim, event->now);
}

/* The claim is over, and only then an earlier request of it turns out to have an unknown outcome.
 * Either the reply that ended the claim belonged to an older request (a LEAVE and a RELEASE
 * crossed), or the request was a refresh of the place in the queue. In one of a million simulated
 * schedules such a request takes a place in the queue. So one more RELEASE is sent, at the latest
 * at give_up_at. */
struct claim_effect claim_act_unanswered_end(struct claim *claim, const struct claim_event *event)
{
    assert(claim->state == CLAIM_OVER && event->reply);

    bool is_unknown = event->in == INPUT_UNKNOWN || event->reply->outcome_unknown;
    bool was_transient = !is_unknown && claim_transient(event->reply->status);
    bool may_be_executed = is_unknown || (claim->may_be_in_flight && was_transient);
    if (!may_be_executed || event->now >= claim->give_up_at)
        return (struct claim_effect){.verb = OP_NONE};
    if (claim->give_up_at == TIME_NEVER)
        claim->give_up_at = event->now + claim->sheet->t.release_for;
    claim->may_be_in_flight = true;
    return send_release(claim, event->now);
}
