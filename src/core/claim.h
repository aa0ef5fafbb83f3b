/* claim.h - the state machine of one lease, from the first ACQUIRE to the last reply.
 *
 * Pure: an event and a time go in; at most one verb, one timer and one report come out. The same
 * state, event and random number always give the same move. claim.def says which event is legal in
 * which state and where it may lead; code, tests and docs/claim.md are made from it. */
#pragma once
#include "timing.h"

#include <assert.h>
#include <stdatomic.h>

enum claim_state {
#define CLAIM_STATE(name, text) CLAIM_##name,
#include "claim.def"
    CLAIM_STATES
};

/* The inputs of a claim: calls of the caller, the clock, and replies of the engine. */
enum claim_input {
#define CLAIM_INPUT(name, text) INPUT_##name,
#include "claim.def"
    INPUT_COUNT
};

/* One bit for a state, for the masks in the last column of claim.def. */
#define CLAIM_IN(state) (1u << CLAIM_##state)

enum claim_report {
    REPORT_NONE,
    REPORT_GRANTED,  /* the acquire has ended: held */
    REPORT_DENIED,   /* the acquire has ended: not held; status says why */
    REPORT_QUEUED,   /* the request has its first place in the queue (for logs) */
    REPORT_EXTENDED, /* the caller's extend or conversion has ended; status HF_OK or why not */
    REPORT_WARN,     /* two thirds of the ttl have passed without a renewal */
    /* a hold that was reported as granted has ended; status says why; reported once */
    REPORT_LOST,
    REPORT_RELEASED, /* the caller's release has ended; status HF_OK, NOT_HELD or IN_DOUBT */
};

struct claim {
    uint8_t state; /* enum claim_state */
    bool auto_renew : 1;
    /* the program hangs, so auto_renew has no effect; set before each TIMER */
    bool is_stalled : 1;
    bool is_text : 1;    /* the hold's text was exported: other handles may extend the hold */
    bool is_assumed : 1; /* valid_until is a guess, because the engine has not replied yet */
    /* By the time of the grant every ACQUIRE of this attempt was answered, and a held claim sends
     * none. So another handle of the same hold may release it without a tombstone. */
    bool is_settled : 1;
    /* A request of this attempt may still be executed: the final RELEASE must leave a tombstone. */
    bool may_be_in_flight;
    bool cancelled; /* the caller stopped waiting: a late grant is released, not reported */
    bool queued;    /* the attempt had a place in the queue, and that was reported */
    bool notified;  /* NOTIFY came while a request was in flight, and the reply to that request may
                       be older */
    bool asked_extend;  /* the caller waits for the outcome of the extend or conversion in flight */
    bool asked_release; /* the caller waits for the outcome of the release */
    bool warned;        /* WARN was reported, and no renewal succeeded since */
    bool token_may_rise;  /* an upgrade was sent, or others may send one for the same hold */
    bool brief;           /* granted for less than its ttl: an EXTEND must get the rest */
    uint8_t in_flight;    /* EXTENDING: the verb whose reply is awaited */
    uint8_t convert_next; /* conversion that waits for that reply; OP_NONE: none */
    bool answered;        /* the engine replied that others hold the lock: QUEUED or BUSY */
    /* The outcome to report unless a better one comes: HF_OK, TIMEOUT or the last failure. Once the
     * wait or the hold was ended: why (CANCELLED, LOST ...), until that is reported. */
    hf_status outcome : 16;
    uint32_t tries;     /* number of requests that were followed by a pause */
    uint32_t extend_ms; /* ttl of a caller's extend that waits for the reply in flight; 0: none */
    /* owned by the caller of claim_init; lives until the claim is over */
    const struct timing_sheet *sheet;
    nanos deadline; /* end of the wait; TIME_NEVER: none */
    nanos max_hold; /* longest time for which the lock may be held; 0: no limit */
    nanos started_at;
    nanos granted_at;
    /* end of the hold: when it was released or lost, even if that was noticed later */
    nanos ended_at;
    nanos asked_at; /* when the last request was sent */
    /* When to act next. QUEUED: refresh the place. PAUSED: send ACQUIRE. HELD: renew or check.
     * LEAVING, RELEASING: treat the engine as silent. */
    nanos act_at;
    nanos warn_at;
    nanos give_up_at; /* RELEASING: when to stop trying */
    /* Until then a downgrade with unknown outcome may still be executed; 0: none. */
    nanos downgrade_unknown_until;
    /* Read at any time by threads without a lock: */
    _Atomic nanos valid_until; /* end of the time that is certainly ours; 0: not held */
    _Atomic uint64_t token;
};

struct claim_event {
    enum claim_input in;
    nanos now;
    const struct engine_reply *reply; /* the reply, if the input is one */
    int64_t ttl_ms;                   /* EXTEND: ttl to extend to; 0: the claim's own */
    enum op_verb verb;                /* CONVERT: OP_UPGRADE or OP_DOWNGRADE */
    hf_status status;                 /* CANCEL, LOST_ALL: the reason */
    uint32_t random;                  /* 32 fresh random bits, for the length of a pause */
};

/* A claim_move without its timer: small enough to be returned in registers. */
struct claim_effect {
    enum op_verb verb : 8; /* verb to submit now; OP_NONE: nothing */
    enum claim_report report : 8;
    bool may_be_in_flight; /* that verb must leave a tombstone */
    bool is_renewal;       /* EXTEND: no caller asked for it */
    hf_status
        status; /* with a report: its status; without one: HF_OK, or why the event was refused */
    nanos ttl;  /* EXTEND: for how long */
};
_Static_assert(sizeof(struct claim_effect) == 16, "an effect must fit into two registers");

struct claim_move {
    enum op_verb verb;
    bool may_be_in_flight, is_renewal;
    nanos ttl;
    enum claim_report report;
    hf_status status;
    nanos wake_at; /* time to send TIMER; TIME_NEVER: no timer */
};

struct claim_terms {
    int64_t max_hold_ms;
    bool auto_renew;
    bool shared;    /* other leases may have the same owner or attempt, and upgrade the hold */
    nanos deadline; /* TIME_NEVER: wait for ever; the time of START: do not wait */
};

/* Makes a claim in state NEW that takes its intervals from the sheet. */
void claim_init(struct claim *claim, const struct claim_terms *terms,
                const struct timing_sheet *sheet);

/* Turns a claim in state NEW into one that is HELD, for a hold that was exported as text.
 * `is_settled` is that of the exporting claim. */
void claim_adopt(struct claim *claim, nanos now, nanos valid_until, uint64_t token,
                 bool is_settled);

/* Notes that the text of the hold was exported: from now on other handles may extend and upgrade
 * the hold. So when valid_until passes, this claim is lost without a release, because a release
 * would end the hold for the others. */
void claim_export(struct claim *claim);

/* The opposite of claim_adopt: the claim is OVER, and the hold continues without it. */
void claim_disown(struct claim *claim);

/* A row of claim.def: the action, and a mask of the states that it may lead to. */
typedef struct claim_effect claim_action(struct claim *claim, const struct claim_event *event);
struct claim_transition {
    claim_action *act; /* NULL: illegal in this state */
    unsigned next;
};
#define INPUT_ROOM 32 /* a power of two makes the index cheaper */
_Static_assert((int)INPUT_COUNT <= INPUT_ROOM, "every input must have a column");
extern const struct claim_transition claim_transitions[CLAIM_STATES][INPUT_ROOM];

/* assert() for the hot path: it traps instead of calling a function. Stays in release builds,
 * because a broken invariant must not become a second holder. */
#define claim_assert(condition) (__builtin_expect(!!(condition), 1) ? (void)0 : __builtin_trap())

/* Makes one step. An event that claim.def does not list for the state changes nothing. The status
 * is then HF_NOT_HELD for a call of the caller, HF_INTERNAL for a reply that is impossible in this
 * state. The step aborts if the action leads to a state that claim.def does not allow. CANCEL,
 * LOST_ALL and FAILED need a status other than HF_OK.
 *
 * A verb is sent while another is in flight in these cases only:
 * - ACQUIRE again after a QUEUED reply;
 * - LEAVE in place of an ACQUIRE;
 * - RELEASE behind an EXTEND, CHECK, conversion or LEAVE;
 * - RELEASE again, if the first got no reply for two op_timeouts or a late grant came.
 * A reply to a request that a RELEASE overtook does not end the release. Every other call of the
 * caller waits until the reply in flight has come.
 *
 * One report may end several calls: EXTENDED ends every open extend and conversion of the caller.
 * If one of them is a conversion, the status is that of the conversion. LOST ends them too, and so
 * does the caller's own RELEASE, which has no report for them.
 *
 * After a conversion that is IN_DOUBT the caller may rely on reading only: an upgrade may not have
 * happened, a downgrade may have happened or may still happen. */
struct claim_move claim_step(struct claim *claim, const struct claim_event *event);

/* The two halves of claim_step are claim_act and claim_wake_at. claim_driver.c calls them apart: a
 * step that another one follows at once needs no timer. */

/* Returns the effect of an event that claim.def does not list. */
struct claim_effect claim_refuse(const struct claim_event *event);

/* Returns true if the event has everything that its input needs. */
static inline bool claim_event_complete(const struct claim_event *event)
{
    const unsigned explained = 1u << INPUT_CANCEL | 1u << INPUT_LOST_ALL | 1u << INPUT_FAILED;
    bool is_reply = event->in >= INPUT_GRANTED;
    if (is_reply && !event->reply)
        return false;
    return !(1u << event->in & explained) ||
           (is_reply ? event->reply->status : event->status) != HF_OK;
}

static inline struct claim_effect claim_act(struct claim *claim, const struct claim_event *event)
{
    claim_assert(claim->state < CLAIM_STATES && event->in < INPUT_COUNT &&
                 claim_event_complete(event));
    const struct claim_transition *step = &claim_transitions[claim->state][event->in];
    if (!step->act)
        return claim_refuse(event);

    struct claim_effect effect = step->act(claim, event);
    claim_assert(step->next & 1u << claim->state);
    return effect;
}

/* Switches auto-renewal of a held claim on or off. When it is switched on, a renewal is due at the
 * next TIMER. */
void claim_set_renewal(struct claim *claim, bool on, nanos now);

/* Returns when to send TIMER; TIME_NEVER: not at all. */
nanos claim_wake_at(const struct claim *claim);

static inline enum claim_input claim_input_of_reply(enum reply_kind kind)
{
    return (enum claim_input)(INPUT_GRANTED + (unsigned)kind);
}
const char *claim_state_name(unsigned state);
const char *claim_input_name(unsigned input);
bool claim_legal(unsigned state, unsigned input);

/* Returns true if the hold is certainly ours at `now`, by our own clock. */
static inline bool claim_valid(const struct claim *claim, nanos now)
{
    return now < claim->valid_until;
}
