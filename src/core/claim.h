/* claim.h - the life of one request, from the first ask to the last answer.
 *
 * Pure: an event and a time go in; at most one verb, one timer and one report come out. Same state, same event, same
 * random number: same move. Which event is legal in which state, and where it may lead, stands in claim.def, from which
 * code, test and drawing are made. */
#pragma once
#include "timing.h"

#include <stdatomic.h>

enum hf_state {
#define HF_STATE(name, text) HF_S_##name,
#include "claim.def"
    HF_S_COUNT
};

/* What happens to a claim: the caller's wishes, the clock, and the engine's news. */
enum hf_input {
#define HF_INPUT(name, text) HF_I_##name,
#include "claim.def"
    HF_I_COUNT
};

#define HF_IN(state) (1u << HF_S_##state) /* masks of states: the last column of claim.def */

enum hf_report {
    HF_R_NONE,
    HF_R_GRANTED,  /* the ask is over: held. Also "acquire" outcome HF_OK */
    HF_R_DENIED,   /* the ask is over: not held; status says why */
    HF_R_QUEUED,   /* waiting; nothing is over (for logs) */
    HF_R_EXTENDED, /* an extend or conversion that the caller asked for is over; status OK or why not */
    HF_R_WARN,     /* two thirds of the ttl are over and no renewal came through */
    HF_R_LOST,     /* a hold that was reported as granted has ended; exactly once; status HF_LOST or more precise */
    HF_R_RELEASED, /* a release that the caller asked for is over; status OK, NOT_HELD or IN_DOUBT */
};

struct hf_claim {
    uint8_t state;
    bool auto_renew;
    bool doubt;             /* the engine may know more of this attempt than we do: its last words leave a tombstone */
    bool cancelled;         /* the caller does not want it any more: a late grant is given back, not reported */
    bool queued;            /* it had a place in the queue, and that was reported */
    bool hinted;            /* a hint came while a request was in flight: the answer may be older than the hint */
    bool asked_extend;      /* the caller waits for the outcome of the extend or conversion in flight */
    bool asked_release;     /* the caller waits for the outcome of the release */
    bool warned;            /* WARN was reported and no renewal came through since */
    bool token_may_rise;    /* an upgrade was sent, or others may send one for the same hold */
    bool brief;             /* held for less than its ttl: an extend has yet to get the rest */
    uint8_t in_flight;      /* EXTENDING: the verb whose answer is awaited */
    uint8_t convert_next;   /* the caller's conversion that waits for that answer; HF_V_NONE: none */
    hf_status outcome : 16; /* what the wait ends with if nothing better comes: HF_OK, TIMEOUT, the last failure; and
                               kept from the cause of an end to its report: CANCELLED, LOST ... */
    uint32_t tries;
    uint32_t extend_ms;           /* an extend that the caller wants and that waits for the one in flight; 0: none */
    const struct hf_sheet *sheet; /* the maker's, who keeps it until the claim is over */
    hf_nanos deadline;            /* of the wait; HF_NEVER: none */
    hf_nanos max_hold;            /* length; 0: no bound */
    hf_nanos started_at;
    hf_nanos granted_at;
    hf_nanos ended_at; /* from then on it was not ours any more: the caller gave it back, or it was lost, however late
                          that was noticed */
    hf_nanos asked_at; /* of the request in flight */
    hf_nanos act_at;   /* QUEUED: refresh; PAUSED: ask; HELD: renew or check; LEAVING, RELEASING: the engine was silent
                          for too long */
    hf_nanos warn_at;
    hf_nanos give_up_at;            /* RELEASING: the end of its tries */
    hf_nanos downgrade_doubt_until; /* until then a downgrade without an answer may still be executed; 0: none */
    /* Read by threads that have no lock, at any time: */
    _Atomic hf_nanos valid_until; /* our belief: 0 while not held */
    _Atomic uint64_t token;
};

struct hf_event {
    enum hf_input in;
    hf_nanos now;
    const struct hf_news *news; /* for the inputs that are news */
    int64_t ttl_ms;             /* EXTEND: 0 = the claim's own */
    enum hf_verb verb;          /* CONVERT: HF_V_UPGRADE or HF_V_DOWNGRADE */
    hf_status status;           /* CANCEL, LOST_ALL: why */
    uint32_t random;            /* 32 fresh random bits; used where a pause is drawn */
};

/* A move but for its timer. So small that it is returned in registers. */
struct hf_deed {
    enum hf_verb verb : 8; /* to submit now; HF_V_NONE: nothing */
    enum hf_report report : 8;
    bool doubt;       /* that verb must leave a tombstone */
    hf_status status; /* of the report; or, without report, why the event was refused (HF_OK: it was not) */
    hf_nanos ttl;     /* EXTEND: for how long */
};
_Static_assert(sizeof(struct hf_deed) == 16, "two registers");

struct hf_move {
    enum hf_verb verb;
    bool doubt;
    hf_nanos ttl;
    enum hf_report report;
    hf_status status;
    hf_nanos wake_at; /* send TIMER then; HF_NEVER: no timer */
};

struct hf_claim_terms {
    int64_t max_hold_ms;
    bool auto_renew;
    bool shared;       /* others may ask with the same owner or attempt, and upgrade the hold */
    hf_nanos deadline; /* HF_NEVER: wait for ever; now: do not wait */
};

/* A claim in state NEW, whose times are those of the sheet. */
void hf_claim_init(struct hf_claim *claim, const struct hf_claim_terms *terms, const struct hf_sheet *sheet);

/* Turns a claim in state NEW into one that is already HELD: re-attached from its serialised form. */
void hf_claim_adopt(struct hf_claim *claim, hf_nanos now, hf_nanos valid_until, uint64_t token);

/* The opposite: the hold goes on without this claim, which is OVER. */
void hf_claim_disown(struct hf_claim *claim);

/* A row of claim.def: what is done, and a mask of where that may lead. */
typedef struct hf_deed hf_action(struct hf_claim *claim, const struct hf_event *event);
struct hf_step {
    hf_action *act; /* NULL: not in this state */
    unsigned next;
};
#define HF_I_ROOM 32 /* a power of two is found faster */
_Static_assert((int)HF_I_COUNT <= HF_I_ROOM, "every input has its column");
extern const struct hf_step hf_claim_steps[HF_S_COUNT][HF_I_ROOM];

/* A broken invariant must not become a second holder, and core may not print: it traps. Stays in release builds. */
#define hf_assert(condition) (__builtin_expect(!!(condition), 1) ? (void)0 : __builtin_trap())

/* One step. An event that claim.def does not list for the state changes nothing and comes back with status HF_NOT_HELD
 * (the caller's wishes) or HF_INTERNAL (news that cannot be). Aborts if a step leads where claim.def does not say.
 *
 * A verb is sent while another one is in flight in these cases only: ACQUIRE again for one that was answered QUEUED,
 * LEAVE in place of an ACQUIRE, RELEASE behind an EXTEND, CHECK, conversion or LEAVE, and RELEASE again after one that
 * was silent for two op_timeouts or met a late grant; an answer to what a RELEASE overtook does not end it. What else
 * the caller wants waits for the answer to the request in flight. One report may answer several wishes: EXTENDED ends
 * every extend and conversion of the caller that is open, and if one of them is a conversion the status is that one's;
 * so does LOST, and the caller's own RELEASE, which has no report for them. A conversion that is IN_DOUBT leaves the
 * caller a reader, as far as it may rely on anything: an upgrade may not have happened, a downgrade may have or still
 * may. CANCEL, LOST_ALL and FAILED need a status that is not HF_OK. */
struct hf_move hf_claim_step(struct hf_claim *claim, const struct hf_event *event);

/* Its two halves, for whoever does not need the timer of a step that another one follows at once. */
struct hf_deed hf_claim_refuse(const struct hf_event *event); /* what claim.def does not list */

/* Has the event all that its input needs? */
static inline bool hf_event_complete(const struct hf_event *event)
{
    const unsigned explained = 1u << HF_I_CANCEL | 1u << HF_I_LOST_ALL | 1u << HF_I_FAILED;
    bool is_news = event->in >= HF_I_GRANTED;
    if (is_news && !event->news)
        return false;
    return !(1u << event->in & explained) || (is_news ? event->news->status : event->status) != HF_OK;
}

static inline struct hf_deed hf_claim_act(struct hf_claim *claim, const struct hf_event *event)
{
    hf_assert(claim->state < HF_S_COUNT && event->in < HF_I_COUNT && hf_event_complete(event));
    const struct hf_step *step = &hf_claim_steps[claim->state][event->in];
    if (!step->act)
        return hf_claim_refuse(event);
    struct hf_deed deed = step->act(claim, event);
    hf_assert(step->next & 1u << claim->state);
    return deed;
}
hf_nanos hf_claim_wake_at(const struct hf_claim *claim);

static inline enum hf_input hf_input_of_cue(enum hf_cue cue)
{
    return (enum hf_input)(HF_I_GRANTED + (unsigned)cue);
}
const char *hf_state_name(unsigned state);
const char *hf_input_name(unsigned input);
bool hf_claim_legal(unsigned state, unsigned input);

/* True while our own clock says that the hold is certainly good. */
static inline bool hf_claim_valid(const struct hf_claim *claim, hf_nanos now)
{
    return now < claim->valid_until;
}
