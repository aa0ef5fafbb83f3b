/* claim.c - the step function of a claim: looks the action up in claim.def, runs it, and checks where it led.
 *
 * Read claim.def first: it is the machine. The actions live in claim_wait.c (asking, queueing, leaving), claim_hold.c
 * (renewing, converting, losing) and claim_release.c (giving back). To add a rule: a row in claim.def, an action in the
 * file of its phase, and the unit test of every pair tells what else it touches. */
#include "claim.h"
#include "claim_actions.h"

const struct hf_step hf_claim_steps[HF_S_COUNT][HF_I_ROOM] = {
#define HF_STEP(state, input, action, next) [HF_S_##state][HF_I_##input] = {hf_act_##action, next},
#include "claim.def"
};

static const char *const state_names[] = {
#define HF_STATE(name, text) #name,
#include "claim.def"
};

static const char *const input_names[] = {
#define HF_INPUT(name, text) #name,
#include "claim.def"
};

_Static_assert(HF_I_GRANTED + HF_N_CUES == HF_I_COUNT, "claim.def lists one input for each hf_cue");
_Static_assert(HF_I_GRANTED + HF_N_QUEUED == HF_I_QUEUED && HF_I_GRANTED + HF_N_BUSY == HF_I_BUSY, "in its order");
_Static_assert(HF_I_GRANTED + HF_N_EXTENDED == HF_I_EXTENDED && HF_I_GRANTED + HF_N_GONE == HF_I_GONE, "in its order");
_Static_assert(HF_I_GRANTED + HF_N_RELEASED == HF_I_RELEASED && HF_I_GRANTED + HF_N_CUT == HF_I_CUT, "in its order");
_Static_assert(HF_I_GRANTED + HF_N_FAILED == HF_I_FAILED && HF_I_GRANTED + HF_N_HINT == HF_I_HINT, "in its order");

const char *hf_state_name(unsigned state)
{
    return state < HF_S_COUNT ? state_names[state] : "UNKNOWN";
}

const char *hf_input_name(unsigned input)
{
    return input < HF_I_COUNT ? input_names[input] : "UNKNOWN";
}

bool hf_claim_legal(unsigned state, unsigned input)
{
    return state < HF_S_COUNT && input < HF_I_COUNT && hf_claim_steps[state][input].act;
}

bool hf_claim_transient(hf_status status)
{
    switch (status) {
#define HF_STATUS(name, number, exit_code, http, retry, text)                                                          \
    case HF_##name:                                                                                                    \
        return retry;
#include "holdfast/status.def"
#undef HF_STATUS
    }
    return false;
}

static hf_nanos sooner(hf_nanos a, hf_nanos b)
{
    return a < b ? a : b;
}

/* The one place that says when a state wants its TIMER. */
hf_nanos hf_claim_wake_at(const struct hf_claim *claim)
{
    switch ((enum hf_state)claim->state) {
    case HF_S_ASKING:
        /* A claim that does not wait at all still gives its one ask the time for an answer. */
        return claim->deadline > claim->started_at ? claim->deadline : claim->asked_at + claim->sheet->t.answer;
    case HF_S_QUEUED:
    case HF_S_PAUSED:
        return sooner(claim->act_at, claim->deadline);
    case HF_S_HELD:
        return sooner(sooner(claim->act_at, claim->warn_at), claim->valid_until);
    case HF_S_EXTENDING:
        return sooner(claim->warn_at, claim->valid_until);
    case HF_S_LEAVING:
        return claim->act_at;
    case HF_S_RELEASING:
        return sooner(claim->act_at, claim->give_up_at);
    case HF_S_NEW:
    case HF_S_OVER:
    case HF_S_COUNT:
        break;
    }
    return HF_NEVER;
}

struct hf_deed hf_claim_refuse(const struct hf_event *event)
{
    bool wish = event->in == HF_I_CANCEL || event->in == HF_I_EXTEND || event->in == HF_I_RELEASE ||
                event->in == HF_I_CONVERT || event->in == HF_I_FORFEIT;
    return (struct hf_deed){.status = wish ? HF_NOT_HELD : HF_INTERNAL};
}

struct hf_move hf_claim_step(struct hf_claim *claim, const struct hf_event *event)
{
    struct hf_deed deed = hf_claim_act(claim, event);
    return (struct hf_move){
        .verb = deed.verb,
        .doubt = deed.doubt,
        .ttl = deed.ttl,
        .report = deed.report,
        .status = deed.status,
        .wake_at = hf_claim_wake_at(claim),
    };
}

/* Field by field: a whole struct would be cleared by an instruction that costs more than the rest. */
void hf_claim_init(struct hf_claim *claim, const struct hf_claim_terms *terms, const struct hf_sheet *sheet)
{
    claim->state = HF_S_NEW;
    claim->auto_renew = terms->auto_renew;
    claim->doubt = claim->cancelled = claim->queued = claim->hinted = false;
    claim->asked_extend = claim->asked_release = claim->warned = false;
    claim->token_may_rise = terms->shared;
    claim->brief = false;
    claim->in_flight = claim->convert_next = HF_V_NONE;
    claim->tries = 0;
    claim->outcome = HF_OK;
    claim->sheet = sheet;
    claim->deadline = terms->deadline;
    claim->max_hold = hf_timing_nanos(terms->max_hold_ms);
    claim->started_at = claim->granted_at = claim->ended_at = claim->asked_at = 0;
    claim->act_at = claim->warn_at = claim->give_up_at = HF_NEVER;
    claim->extend_ms = 0;
    claim->downgrade_doubt_until = 0;
    hf_claim_set_token(claim, 0);
    hf_claim_set_valid(claim, 0);
}

void hf_claim_adopt(struct hf_claim *claim, hf_nanos now, hf_nanos valid_until, uint64_t token)
{
    hf_assert(claim->state == HF_S_NEW);
    claim->state = HF_S_HELD;
    claim->started_at = now;
    claim->granted_at = now;
    hf_claim_set_token(claim, token);
    claim->token_may_rise = true; /* whoever exported it can still upgrade it, */
    claim->doubt = true;          /* and an ask of it may still be under way */
    hf_claim_believe(claim, now, valid_until);
}

void hf_claim_disown(struct hf_claim *claim)
{
    hf_assert(claim->state == HF_S_HELD || claim->state == HF_S_EXTENDING);
    hf_claim_end(claim, HF_R_NONE, HF_OK);
}

struct hf_deed hf_act_ignore(struct hf_claim *claim, const struct hf_event *event)
{
    (void)claim;
    (void)event;
    return (struct hf_deed){.verb = HF_V_NONE};
}

/* An older request of this attempt turned out to be unanswered; what is going on now is not affected. */
struct hf_deed hf_act_note_doubt(struct hf_claim *claim, const struct hf_event *event)
{
    (void)event;
    claim->doubt = true;
    return (struct hf_deed){.verb = HF_V_NONE};
}
