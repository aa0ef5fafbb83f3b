/* bid.c - what a client asks of a quorum: tries with a ballot each, and the pauses between them.
 *
 * Who waits listens on every server, and a hint sends him to ask again, each waiter at another moment. Tries that split
 * the votes, so that nobody holds, are followed by another one soon, and ever less soon while that goes on; also of one
 * that does not wait, for as long as an answer may take. */
#include "redlock.h"

#include "base/why.h"

#include <stdlib.h>
#include <string.h>

#define HINT_SPREAD HF_MS(12)  /* those who hear that a lock is free do not all ask in the same moment */
enum { SPREAD_DOUBLINGS = 6 }; /* and those whose votes split again and again ever less so */

/* ---- Telling ---- */

void hf_bid_set_lines(struct hf_redlock *l, struct bid *bid)
{
    const struct ballot *b = bid->ballot;
    uint32_t lines = hf_tally_lines(bid);
    bool awaits = b && b->over_at != HF_NEVER; /* when the round is decided, the slow ones are not waited for */
    for (unsigned i = 0; i < l->servers; i++) {
        uint32_t here = awaits ? b->seat[i].ask.lines : 0;
        here |= bid->listens ? bid->ear[i].lines : 0;
        lines |= here << i * HF_MEMBER_LINES;
    }
    bid->ask->lines = lines;
}

void hf_bid_tell(struct hf_redlock *l, struct bid *bid, const struct hf_news *news)
{
    hf_bid_set_lines(l, bid);
    l->host->tell(l->host->ctx, bid->ask, news);
}

void hf_bid_fail(struct hf_redlock *l, struct bid *bid, hf_nanos now, hf_status status, const char *text)
{
    hf_bid_tell(
        l, bid,
        &(struct hf_news){.cue = HF_N_FAILED, .asked_at = now, .retry_at = HF_NEVER, .status = status, .text = text});
}

static void answer_released(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    hf_bid_tell(l, bid, &(struct hf_news){.cue = HF_N_RELEASED, .asked_at = now, .retry_at = HF_NEVER});
}

/* ---- Hints ---- */

void hf_bid_listen(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    if (bid->listens || !bid->ask->waits)
        return;
    bid->listens = true;
    for (unsigned i = 0; i < l->servers; i++) {
        bid->ear[i] = (struct hf_ask){
            .verb = HF_V_LISTEN, .name = bid->ask->name, .name_len = bid->ask->name_len, .slot = SLOT_EAR, .seen = i};
        hf_wire_redis.submit(l->member[i].redis, &bid->ear[i], now);
    }
}

static void stop_listening(struct hf_redlock *l, struct bid *bid)
{
    for (unsigned i = 0; bid->listens && i < l->servers; i++)
        hf_wire_redis.forget(l->member[i].redis, &bid->ear[i]);
    bid->listens = false;
    struct bid **at = &l->hinted;
    while (bid->is_hinted && *at != bid)
        at = &(*at)->hinted;
    if (bid->is_hinted)
        *at = bid->hinted;
    bid->is_hinted = false;
}

static hf_nanos draw_pause(struct hf_redlock *l, const struct bid *bid)
{
    hf_nanos spread = HINT_SPREAD << (bid->splits < SPREAD_DOUBLINGS ? bid->splits : SPREAD_DOUBLINGS);
    return spread / 1024 * (l->host->random(l->host->ctx) % 1024);
}

void hf_bid_hint_soon(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    if (!bid->listens || bid->hint_at != HF_NEVER)
        return;
    bid->hint_at = now + draw_pause(l, bid);
    hf_bid_set_alarm(l, bid);
}

/* What is left of the time for an answer is for the last try itself. */
static hf_nanos last_try_at(const struct hf_redlock *l, const struct bid *bid)
{
    struct hf_timing t;
    hf_timing_fill(&t, bid->ask->ttl_ms, &l->limits, &l->wishes);
    return bid->asked_at + t.op_timeout;
}

bool hf_bid_may_try(const struct hf_redlock *l, const struct bid *bid, hf_nanos at)
{
    return !bid->ask->waits && at < last_try_at(l, bid);
}

void hf_bid_try_soon(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    hf_nanos at = now + draw_pause(l, bid), last = last_try_at(l, bid);
    bid->try_at = at < last ? at : last;
    hf_bid_set_alarm(l, bid);
}

void hf_bid_set_alarm(struct hf_redlock *l, struct bid *bid)
{
    hf_nanos due = hf_tally_due(bid);
    due = bid->hint_at < due ? bid->hint_at : due;
    due = bid->try_at < due ? bid->try_at : due;
    if (due == HF_NEVER)
        hf_heap_remove(&l->bid_alarms, &bid->alarm);
    else
        hf_heap_put(&l->bid_alarms, &bid->alarm, due);
}

/* ---- Coming and going ---- */

struct bid *hf_bid_meet(struct hf_redlock *l, struct hf_ask *ask)
{
    struct bid *bid = l->unused_bids;
    if (!bid && hf_heap_reserve(&l->bid_alarms, l->bid_count + 1) != HF_OK)
        return NULL;
    if (bid)
        l->unused_bids = bid->next;
    else if ((bid = malloc(sizeof *bid)))
        l->bid_count++;
    else
        return NULL;
    *bid = (struct bid){.ask = ask, .hint_at = HF_NEVER, .try_at = HF_NEVER, .next = l->bids};
    if (l->bids)
        l->bids->prev = bid;
    l->bids = bid;
    ask->engine_state = bid;
    return bid;
}

/* A hold that nobody released belongs to its text; everything else is taken back. */
static void part(struct hf_redlock *l, struct bid *bid)
{
    struct ballot *b = bid->ballot;
    if (!b)
        return;
    bool elsewhere = b->first_asked == 0; /* made elsewhere, and only looked at: it is not ours to end */
    if ((b->held || elsewhere) && b->round != ROUND_RELEASE) {
        hf_ballot_free(l, b);
    } else {
        b->bid = NULL;
        hf_ballot_update(l, b, 0); /* the next tick takes it from here */
    }
}

void hf_bid_forget(struct hf_redlock *l, struct bid *bid)
{
    bid->ask->engine_state = NULL;
    bid->ask->lines = 0;
    stop_listening(l, bid);
    part(l, bid);
    hf_tally_free(l, bid);
    hf_heap_remove(&l->bid_alarms, &bid->alarm);
    *(bid->prev ? &bid->prev->next : &l->bids) = bid->next;
    if (bid->next)
        bid->next->prev = bid->prev;
    bid->next = l->unused_bids;
    l->unused_bids = bid;
}

/* ---- Wishes ---- */

static void draw_id(struct hf_redlock *l, struct hf_id *id)
{
    for (size_t i = 0; i < sizeof id->b; i += 4) {
        uint32_t random = l->host->random(l->host->ctx);
        memcpy(id->b + i, &random, 4);
    }
}

/* Each try has an id of its own: a late message of the last one must not become part of this one. */
static void begin_try(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    struct hf_ask *ask = bid->ask;
    if (bid->ballot) {
        hf_give_back_alone(l, bid->ballot, now);
        bid->tried = true;
    }
    if (bid->tried) {
        bool same = memcmp(&ask->owner, &ask->attempt, sizeof ask->owner) == 0;
        draw_id(l, &ask->attempt);
        if (same)
            ask->owner = ask->attempt;
    }
    struct ballot *b = hf_ballot_make(l, bid);
    if (!b) {
        hf_bid_fail(l, bid, now, HF_NO_MEMORY, "no memory to ask");
        return;
    }
    b->first_asked = now;
    hf_ballot_ask_all(l, b, ROUND_ASK, HF_V_ACQUIRE, now);
    hf_round_judge(l, b, now);
    if (bid->ballot)
        hf_ballot_update(l, bid->ballot, now);
}

static void leave(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    if (bid->ballot)
        hf_give_back_alone(l, bid->ballot, now);
    answer_released(l, bid, now);
}

static void release(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    struct ballot *b = bid->ballot;
    if (!b) {
        answer_released(l, bid, now);
        return;
    }
    b->lost = bid->ask->lost;
    hf_give_back(l, b, now);
    hf_round_judge(l, b, now);
}

/* A hold that was made elsewhere is looked at as if it were ours. */
static void renew_or_look(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    struct ballot *b = bid->ballot ? bid->ballot : hf_ballot_make(l, bid);
    enum hf_verb verb = bid->ask->verb;
    if (!b) {
        hf_bid_fail(l, bid, now, HF_NO_MEMORY, "no memory to ask");
        return;
    }
    if (verb == HF_V_EXTEND)
        b->ttl_ms = bid->ask->ttl_ms;
    hf_ballot_ask_all(l, b, verb == HF_V_CHECK ? ROUND_CHECK : ROUND_EXTEND, verb, now);
    hf_round_judge(l, b, now);
}

static bool is_too_long(const struct hf_redlock *l, const struct hf_ask *ask)
{
    return HF_MS(ask->ttl_ms) > l->max_ttl && (ask->verb == HF_V_ACQUIRE || ask->verb == HF_V_EXTEND);
}

void hf_bid_submit(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    const struct hf_ask *ask = bid->ask;
    if (is_too_long(l, ask)) {
        hf_why(HF_INVALID, "ttl: %lld ms is longer than max_ttl, which is %lld ms and the same for all clients",
               (long long)ask->ttl_ms, (long long)(l->max_ttl / HF_MS(1)));
        hf_bid_fail(l, bid, now, HF_INVALID, hf_why_text());
        return;
    }
    bid->hint_at = bid->try_at = HF_NEVER;
    bid->asked_at = now;
    switch (ask->verb) {
    case HF_V_ACQUIRE:
        begin_try(l, bid, now);
        break;
    case HF_V_LEAVE:
        leave(l, bid, now);
        break;
    case HF_V_RELEASE:
        release(l, bid, now);
        break;
    case HF_V_EXTEND:
    case HF_V_CHECK:
        renew_or_look(l, bid, now);
        break;
    default:
        hf_tally_submit(l, bid, now);
    }
    if (bid->ballot)
        hf_ballot_update(l, bid->ballot, now);
    hf_bid_set_alarm(l, bid);
}

/* ---- What is due ---- */

static void alarm_bid(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    if (now >= bid->hint_at) {
        bid->hint_at = HF_NEVER;
        hf_bid_tell(l, bid, &(struct hf_news){.cue = HF_N_HINT, .retry_at = HF_NEVER});
    }
    if (now >= bid->try_at) {
        bid->try_at = HF_NEVER;
        begin_try(l, bid, now);
    }
    hf_tally_tick(l, bid, now);
    hf_bid_set_alarm(l, bid);
}

void hf_bids_tick(struct hf_redlock *l, hf_nanos now)
{
    for (struct hf_heap_node *node; (node = hf_heap_first(&l->bid_alarms)) && now >= node->key;)
        alarm_bid(l, (struct bid *)(void *)((char *)node - offsetof(struct bid, alarm)), now);
}
