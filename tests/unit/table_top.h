/* table_top.h - one claim on the table, for the tests of its rules: wishes, news and the clock go in by hand, and what
 * comes out is looked at. */
#pragma once
#include "core/claim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MS HF_MS(1)
#define TTL HF_MS(1000)
#define DRIFT HF_MS(12) /* 1% of TTL and 2 ms */

/* One claim under test. Times in the tests are milliseconds since its start. */
struct table_top {
    struct hf_claim claim;
    struct hf_move move;
};

static const struct hf_limits limits = {
    .ttl_min_ms = 10, .ttl_max_ms = 86400000, .drift_ppm = 10000, .drift_ms = 2, .offers = HF_QUEUES};
static const hf_nanos epoch = HF_MS(1000000);

static inline struct hf_move *send(struct table_top *top, struct hf_event event, int64_t at_ms)
{
    event.now = epoch + HF_MS(at_ms);
    top->move = hf_claim_step(&top->claim, &event);
    return &top->move;
}

static inline struct hf_move *wish(struct table_top *top, enum hf_input in, int64_t at_ms)
{
    return send(top, (struct hf_event){.in = in, .status = HF_CANCELLED, .random = 1u << 31}, at_ms);
}

static inline struct hf_move *timer(struct table_top *top, int64_t at_ms)
{
    return wish(top, HF_I_TIMER, at_ms);
}

static inline struct hf_move *tell_full(struct table_top *top, struct hf_news news, int64_t at_ms)
{
    return send(top, (struct hf_event){.in = hf_input_of_cue(news.cue), .news = &news, .random = 1u << 31}, at_ms);
}

/* The answer to the newest request. */
static inline struct hf_move *tell(struct table_top *top, enum hf_cue cue, int64_t at_ms)
{
    struct hf_news news = {.cue = cue, .retry_at = HF_NEVER, .asked_at = top->claim.asked_at};
    news.status = cue == HF_N_FAILED ? HF_UNAVAILABLE : HF_OK;
    return tell_full(top, news, at_ms);
}

/* Ours for TTL, counted from a request that was handed over at `asked_ms`. */
static inline struct hf_move *tell_good(struct table_top *top, enum hf_cue cue, int64_t asked_ms, int64_t at_ms)
{
    return tell_full(top, (struct hf_news){.cue = cue, .asked_at = epoch + HF_MS(asked_ms), .good = TTL, .token = 9},
                     at_ms);
}

static inline struct table_top asking_for(struct hf_claim_terms terms, int64_t wait_ms)
{
    static struct hf_sheet sheet;
    struct table_top top;
    hf_sheet_fill(&sheet, TTL / MS, &limits, &(struct hf_timing_wishes){0});
    terms.deadline = wait_ms < 0 ? HF_NEVER : epoch + HF_MS(wait_ms);
    hf_claim_init(&top.claim, &terms, &sheet);
    wish(&top, HF_I_START, 0);
    assert_int_equal(top.move.verb, HF_V_ACQUIRE);
    return top;
}

static inline struct table_top asking(int64_t wait_ms)
{
    return asking_for((struct hf_claim_terms){.auto_renew = true}, wait_ms);
}

static inline struct table_top held_for(struct hf_claim_terms terms)
{
    struct table_top top = asking_for(terms, 5000);
    tell_good(&top, HF_N_GRANTED, 0, 1);
    return top;
}

static inline struct table_top held(void)
{
    return held_for((struct hf_claim_terms){.auto_renew = true});
}

static inline void expect(const struct table_top *top, enum hf_state state, enum hf_verb verb, enum hf_report report,
                          hf_status status)
{
    assert_string_equal(hf_state_name(top->claim.state), hf_state_name(state));
    assert_int_equal(top->move.verb, verb);
    assert_int_equal(top->move.report, report);
    assert_int_equal(top->move.status, status);
}

static inline void expect_wake(const struct table_top *top, int64_t at_ms)
{
    assert_int_equal(top->move.wake_at, at_ms < 0 ? HF_NEVER : epoch + HF_MS(at_ms));
}
