/* claim.c - the step function of a claim: looks the action up in claim.def, runs it, and checks the
 * state that it led to.
 *
 * Read claim.def first: it is the state machine. The actions are in claim_wait.c (acquiring,
 * queueing, leaving), claim_hold.c (renewing, converting, losing) and claim_release.c (releasing).
 * To add a rule, add a row to claim.def and an action to the file of its phase. The unit test of
 * every pair then shows which other states are affected. */
#include "claim.h"
#include "claim_actions.h"

const struct claim_transition claim_transitions[CLAIM_STATES][INPUT_ROOM] = {
#define CLAIM_STEP(state, input, action, next)                                                     \
    [CLAIM_##state][INPUT_##input] = {claim_act_##action, next},
#include "claim.def"
};

static const char *const state_names[] = {
#define CLAIM_STATE(name, text) #name,
#include "claim.def"
};

static const char *const input_names[] = {
#define CLAIM_INPUT(name, text) #name,
#include "claim.def"
};

_Static_assert(INPUT_GRANTED + REPLY_KINDS == INPUT_COUNT,
               "claim.def has one input for each reply_kind");
_Static_assert(INPUT_GRANTED + REPLY_QUEUED == INPUT_QUEUED &&
                   INPUT_GRANTED + REPLY_BUSY == INPUT_BUSY,
               "inputs and reply kinds have the same order");
_Static_assert(INPUT_GRANTED + REPLY_EXTENDED == INPUT_EXTENDED &&
                   INPUT_GRANTED + REPLY_NOT_HELD == INPUT_NOT_HELD,
               "inputs and reply kinds have the same order");
_Static_assert(INPUT_GRANTED + REPLY_RELEASED == INPUT_RELEASED &&
                   INPUT_GRANTED + REPLY_UNKNOWN == INPUT_UNKNOWN,
               "inputs and reply kinds have the same order");
_Static_assert(INPUT_GRANTED + REPLY_FAILED == INPUT_FAILED &&
                   INPUT_GRANTED + REPLY_NOTIFY == INPUT_NOTIFY,
               "inputs and reply kinds have the same order");

const char *claim_state_name(unsigned state)
{
    return state < CLAIM_STATES ? state_names[state] : "UNKNOWN";
}

const char *claim_input_name(unsigned input)
{
    return input < INPUT_COUNT ? input_names[input] : "UNKNOWN";
}

bool claim_legal(unsigned state, unsigned input)
{
    return state < CLAIM_STATES && input < INPUT_COUNT && claim_transitions[state][input].act;
}

bool claim_transient(hf_status status)
{
    switch (status) {
#define HF_STATUS(name, number, exit_code, http, retry, text)                                      \
    case HF_##name:                                                                                \
        return retry;
#include "holdfast/status.def"
#undef HF_STATUS
    }
    return false;
}

static nanos sooner(nanos a, nanos b)
{
    return a < b ? a : b;
}

/* Returns when the claim wants its TIMER: the only place that decides it. */
nanos claim_wake_at(const struct claim *claim)
{
    switch ((enum claim_state)claim->state) {
    case CLAIM_ACQUIRING:
        /* A caller that does not wait sends this one request only, and still gives it time for a
         * reply. */
        return claim->deadline > claim->started_at
                   ? claim->deadline
                   : claim->asked_at + timing_sheet_answer(claim->sheet);
    case CLAIM_QUEUED:
    case CLAIM_PAUSED:
        return sooner(claim->act_at, claim->deadline);
    case CLAIM_HELD:
        return sooner(sooner(claim->act_at, claim->warn_at), claim->valid_until);
    case CLAIM_EXTENDING:
        return sooner(sooner(claim->warn_at, claim->valid_until), claim_answer_due(claim));
    case CLAIM_LEAVING:
        return claim->act_at;
    case CLAIM_RELEASING:
        return sooner(claim->act_at, claim->give_up_at);
    case CLAIM_NEW:
    case CLAIM_OVER:
    case CLAIM_STATES:
        break;
    }
    return TIME_NEVER;
}

struct claim_effect claim_refuse(const struct claim_event *event)
{
    assert(event->in < INPUT_COUNT);

    const unsigned calls = 1u << INPUT_CANCEL | 1u << INPUT_EXTEND | 1u << INPUT_RELEASE |
                           1u << INPUT_CONVERT | 1u << INPUT_FORFEIT;
    bool is_call = 1u << event->in & calls;
    return (struct claim_effect){.status = is_call ? HF_NOT_HELD : HF_INTERNAL};
}

struct claim_move claim_step(struct claim *claim, const struct claim_event *event)
{
    struct claim_effect effect = claim_act(claim, event);
    return (struct claim_move){
        .verb = effect.verb,
        .may_be_in_flight = effect.may_be_in_flight,
        .is_renewal = effect.is_renewal,
        .ttl = effect.ttl,
        .report = effect.report,
        .status = effect.status,
        .wake_at = claim_wake_at(claim),
    };
}

/* Initialised field by field, because clearing the whole struct first costs more. */
void claim_init(struct claim *claim, const struct claim_terms *terms,
                const struct timing_sheet *sheet)
{
    claim->state = CLAIM_NEW;
    claim->auto_renew = terms->auto_renew;
    claim->may_be_in_flight = claim->cancelled = claim->queued = claim->notified = false;
    claim->answered = claim->is_stalled = false;
    claim->asked_extend = claim->asked_release = claim->warned = false;
    claim->token_may_rise = terms->shared;
    claim->is_text = claim->is_assumed = claim->is_settled = claim->brief = false;
    claim->in_flight = claim->convert_next = OP_NONE;
    claim->tries = 0;
    claim->outcome = HF_OK;
    claim->sheet = sheet;
    claim->deadline = terms->deadline;
    claim->max_hold = timing_nanos(terms->max_hold_ms);
    claim->started_at = claim->granted_at = claim->ended_at = claim->asked_at = 0;
    claim->act_at = claim->warn_at = claim->give_up_at = TIME_NEVER;
    claim->extend_ms = 0;
    claim->downgrade_unknown_until = 0;
    claim_set_token(claim, 0);
    claim_set_valid(claim, 0);
}

void claim_adopt(struct claim *claim, nanos now, nanos valid_until, uint64_t token, bool is_settled)
{
    claim_assert(claim->state == CLAIM_NEW);
    claim->state = CLAIM_HELD;
    claim->started_at = now;
    claim->granted_at = now;
    claim_set_token(claim, token);
    claim_export(claim); /* the exporting process still has a handle */
    /* the exporting process may have sent an ACQUIRE that is not executed yet */
    claim->may_be_in_flight = !is_settled;
    claim->is_settled = is_settled;
    claim_believe(claim, now, valid_until);
}

void claim_export(struct claim *claim)
{
    claim_assert(claim->state == CLAIM_HELD || claim->state == CLAIM_EXTENDING);
    claim->is_text = true;
    claim->token_may_rise = true;
}

void claim_disown(struct claim *claim)
{
    claim_assert(claim->state == CLAIM_HELD || claim->state == CLAIM_EXTENDING);
    claim_end(claim, REPORT_NONE, HF_OK);
}

struct claim_effect claim_act_ignore(struct claim *claim, const struct claim_event *event)
{
    (void)claim;
    (void)event;
    return (struct claim_effect){.verb = OP_NONE};
}

/* An older request of this attempt has an unknown outcome. The current state is not affected. */
struct claim_effect claim_act_note_unknown(struct claim *claim, const struct claim_event *event)
{
    assert(event->in == INPUT_UNKNOWN);
    (void)event;
    claim->may_be_in_flight = true;
    return (struct claim_effect){.verb = OP_NONE};
}

/* An older request of this attempt was refused. Most refusals mean that nothing happened. */
struct claim_effect claim_act_note_failure(struct claim *claim, const struct claim_event *event)
{
    assert(event->in == INPUT_FAILED && event->reply);

    claim->may_be_in_flight |= event->reply->outcome_unknown;
    return (struct claim_effect){.verb = OP_NONE};
}
