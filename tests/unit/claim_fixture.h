/* claim_fixture.h - one claim on the table, for the tests of its rules: wishes, news and the clock
 * go in by hand, and what comes out is looked at. */
#pragma once
#include "core/claim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MS NANOS_OF_MS(1)
#define TTL NANOS_OF_MS(1000)
#define DRIFT NANOS_OF_MS(12) /* 1% of TTL and 2 ms */

/* One claim under test. Times in the tests are milliseconds since its start. */
struct table_top {
    struct claim claim;
    struct claim_move move;
};

static const struct engine_limits limits = {.ttl_min_ms = 10,
                                            .ttl_max_ms = 86400000,
                                            .drift_ppm = 10000,
                                            .drift_ms = 2,
                                            .offers = ENGINE_QUEUES};
static const nanos epoch = NANOS_OF_MS(1000000);

static inline struct claim_move *send(struct table_top *top, struct claim_event event,
                                      int64_t at_ms)
{
    event.now = epoch + NANOS_OF_MS(at_ms);
    top->move = claim_step(&top->claim, &event);
    return &top->move;
}

static inline struct claim_move *wish(struct table_top *top, enum claim_input in, int64_t at_ms)
{
    return send(top, (struct claim_event){.in = in, .status = HF_CANCELLED, .random = 1u << 31},
                at_ms);
}

static inline struct claim_move *timer(struct table_top *top, int64_t at_ms)
{
    return wish(top, INPUT_TIMER, at_ms);
}

static inline struct claim_move *tell_full(struct table_top *top, struct engine_reply reply,
                                           int64_t at_ms)
{
    return send(top,
                (struct claim_event){
                    .in = claim_input_of_reply(reply.kind), .reply = &reply, .random = 1u << 31},
                at_ms);
}

/* The answer to the newest request. */
static inline struct claim_move *tell(struct table_top *top, enum reply_kind kind, int64_t at_ms)
{
    struct engine_reply reply = {
        .kind = kind, .retry_at = TIME_NEVER, .asked_at = top->claim.asked_at};
    reply.status = kind == REPLY_FAILED ? HF_UNAVAILABLE : HF_OK;
    return tell_full(top, reply, at_ms);
}

/* Ours for TTL, counted from a request that was handed over at `asked_ms`. */
static inline struct claim_move *tell_good(struct table_top *top, enum reply_kind kind,
                                           int64_t asked_ms, int64_t at_ms)
{
    return tell_full(
        top,
        (struct engine_reply){
            .kind = kind, .asked_at = epoch + NANOS_OF_MS(asked_ms), .good = TTL, .token = 9},
        at_ms);
}

static inline struct table_top asking_for(struct claim_terms terms, int64_t wait_ms)
{
    static struct timing_sheet sheet;
    struct table_top top;
    memset(&top, 0xff, sizeof top); /* leases are used again: claim_init() must set every field */
    timing_sheet_fill(&sheet, TTL / MS, &limits, &(struct timing_overrides){0});
    terms.deadline = wait_ms < 0 ? TIME_NEVER : epoch + NANOS_OF_MS(wait_ms);
    claim_init(&top.claim, &terms, &sheet);
    wish(&top, INPUT_START, 0);
    assert_int_equal(top.move.verb, OP_ACQUIRE);
    return top;
}

static inline struct table_top asking(int64_t wait_ms)
{
    return asking_for((struct claim_terms){.auto_renew = true}, wait_ms);
}

static inline struct table_top held_for(struct claim_terms terms)
{
    struct table_top top = asking_for(terms, 5000);
    tell_good(&top, REPLY_GRANTED, 0, 1);
    return top;
}

static inline struct table_top held(void)
{
    return held_for((struct claim_terms){.auto_renew = true});
}

static inline void expect(const struct table_top *top, enum claim_state state, enum op_verb verb,
                          enum claim_report report, hf_status status)
{
    assert_string_equal(claim_state_name(top->claim.state), claim_state_name(state));
    assert_int_equal(top->move.verb, verb);
    assert_int_equal(top->move.report, report);
    assert_int_equal(top->move.status, status);
}

static inline void expect_wake(const struct table_top *top, int64_t at_ms)
{
    assert_int_equal(top->move.wake_at, at_ms < 0 ? TIME_NEVER : epoch + NANOS_OF_MS(at_ms));
}
