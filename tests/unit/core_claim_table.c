/* core_claim_table.c - tests that walk the whole table of claim.def: every pair of state and input,
 * every arrow of the drawing, and the properties that hold on every path. */
#include "../sim/draw_claim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct engine_limits limits = {.ttl_min_ms = 10,
                                            .ttl_max_ms = 86400000,
                                            .drift_ppm = 10000,
                                            .drift_ms = 2,
                                            .offers = ENGINE_QUEUES};

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

static const struct drawn_step *row_of(unsigned state, unsigned input)
{
    for (size_t i = 0; i < DRAWN_STEPS; i++)
        if (drawn_steps[i].state == state && drawn_steps[i].input == input)
            return &drawn_steps[i];
    return NULL;
}

/* ---- Every pair ---- */

static struct claim_move put(struct claim *claim, enum claim_input in, nanos now)
{
    struct engine_reply reply = {
        .asked_at = claim->asked_at > now - NANOS_OF_MS(1) ? claim->asked_at : now - NANOS_OF_MS(1),
        .good = NANOS_OF_MS(1000),
        .token = 7,
        .retry_at = now + NANOS_OF_MS(100),
        .outcome_unknown =
            in == INPUT_FAILED && (claim->state == CLAIM_PAUSED || claim->state == CLAIM_HELD),
        .status = HF_UNAVAILABLE};
    struct claim_event event = {
        .in = in, .now = now, .status = HF_CANCELLED, .random = 1u << 31, .reply = &reply};
    event.verb = OP_UPGRADE;
    if (in >= INPUT_GRANTED)
        reply.kind = (enum reply_kind)(in - INPUT_GRANTED);
    return claim_step(claim, &event);
}

static const struct timing_sheet *one_second(void)
{
    static struct timing_sheet sheet;
    timing_sheet_fill(&sheet, 1000, &limits, &(struct timing_overrides){0});
    return &sheet;
}

/* A claim that came to `state` by its usual way; the last step was at 1 s. */
static struct claim claim_in(unsigned state)
{
    static const enum claim_input ways[CLAIM_STATES][4] = {
        [CLAIM_ACQUIRING] = {INPUT_START, INPUT_COUNT},
        [CLAIM_QUEUED] = {INPUT_START, INPUT_QUEUED, INPUT_COUNT},
        [CLAIM_PAUSED] = {INPUT_START, INPUT_BUSY, INPUT_COUNT},
        [CLAIM_HELD] = {INPUT_START, INPUT_GRANTED, INPUT_COUNT},
        [CLAIM_EXTENDING] = {INPUT_START, INPUT_GRANTED, INPUT_EXTEND, INPUT_COUNT},
        [CLAIM_LEAVING] = {INPUT_START, INPUT_CANCEL, INPUT_COUNT},
        [CLAIM_RELEASING] = {INPUT_START, INPUT_GRANTED, INPUT_RELEASE, INPUT_COUNT},
        [CLAIM_OVER] = {INPUT_START, INPUT_LOST_ALL, INPUT_COUNT},
        [CLAIM_NEW] = {INPUT_COUNT},
    };
    struct claim_terms terms = {.auto_renew = true, .deadline = NANOS_OF_MS(5000)};
    struct claim claim;
    memset(&claim, 0, sizeof claim);
    claim_init(&claim, &terms, one_second());
    for (unsigned i = 0; i < 4 && ways[state][i] != INPUT_COUNT; i++)
        put(&claim, ways[state][i], NANOS_OF_MS(1000));
    assert_int_equal(claim.state, state);
    return claim;
}

static void an_input_that_the_table_does_not_list_changes_no_byte_and_says_why(void **state)
{
    (void)state;
    unsigned illegal = 0;
    for (unsigned s = 0; s < CLAIM_STATES; s++) {
        for (unsigned i = 0; i < INPUT_COUNT; i++) {
            assert_int_equal(claim_legal(s, i), row_of(s, i) != NULL);
            if (row_of(s, i))
                continue;
            struct claim claim = claim_in(s), before;
            memcpy(&before, &claim, sizeof claim);
            struct claim_move move = put(&claim, (enum claim_input)i, NANOS_OF_MS(90000));
            assert_memory_equal(&claim, &before, sizeof claim);
            assert_int_equal(move.verb, OP_NONE);
            assert_int_equal(move.report, REPORT_NONE);
            bool wish = i == INPUT_CANCEL || (i >= INPUT_EXTEND && i <= INPUT_FORFEIT);
            assert_int_equal(move.status, wish ? HF_NOT_HELD : HF_INTERNAL);
            illegal++;
        }
    }
    assert_int_equal(illegal + DRAWN_STEPS, CLAIM_STATES * INPUT_COUNT);
}

static void
an_input_that_the_table_lists_leads_to_a_listed_state_and_does_nothing_only_if_it_says_ignore(
    void **state)
{
    (void)state;
    for (size_t r = 0; r < DRAWN_STEPS; r++) {
        const struct drawn_step *row = &drawn_steps[r];
        struct claim claim = claim_in(row->state), before;
        memcpy(&before, &claim, sizeof claim);
        /* A timer comes when it is due: an hour later it is, in every state. */
        nanos now = row->input == INPUT_TIMER ? NANOS_OF_MS(3600000) : NANOS_OF_MS(1010);
        if (row->state == CLAIM_LEAVING && row->input == INPUT_CANCEL)
            claim.cancelled = before.cancelled = false; /* it left because of a time-out */
        if (row->state == CLAIM_OVER)
            claim.may_be_in_flight = before.may_be_in_flight = true;
        if (row->state == CLAIM_EXTENDING && row->input == INPUT_BUSY)
            claim.in_flight = before.in_flight =
                OP_UPGRADE; /* nothing else is answered with BUSY */
        struct claim_move move = put(&claim, (enum claim_input)row->input, now);
        assert_true(row->next & 1u << claim.state);
        bool same = !memcmp(&claim, &before, sizeof claim) && !move.verb && !move.report;
        assert_int_equal(same, !strcmp(row->action, "ignore"));
        if (!strcmp(row->action, "ignore"))
            assert_int_equal(row->next, 1u << row->state);
    }
}

static void names_of_states_and_inputs_are_those_of_the_table_and_unknown_beyond(void **state)
{
    (void)state;
    assert_string_equal(claim_state_name(CLAIM_EXTENDING), "EXTENDING");
    assert_string_equal(claim_input_name(INPUT_LOST_ALL), "LOST_ALL");
    assert_string_equal(claim_state_name(CLAIM_STATES), "UNKNOWN");
    assert_string_equal(claim_input_name(INPUT_COUNT), "UNKNOWN");
    assert_false(claim_legal(CLAIM_STATES, 0) || claim_legal(0, INPUT_COUNT));
    for (unsigned kind = 0; kind < REPLY_KINDS; kind++)
        assert_int_equal(claim_input_of_reply((enum reply_kind)kind), INPUT_GRANTED + kind);
}

/* ---- Random walks ---- */

struct walk {
    struct claim claim;
    struct claim_move last;
    nanos now, ever_told; /* the latest end that any news justified */
    unsigned outcomes, granted, lost, released, wished_release;
    unsigned walked[CLAIM_STATES][INPUT_COUNT]; /* masks of where it led */
};

static struct engine_reply random_news(struct walk *w, enum claim_input in)
{
    static const hf_status statuses[] = {HF_UNAVAILABLE, HF_FULL, HF_TOO_BIG, HF_DENIED};
    struct engine_reply reply = {.kind = (enum reply_kind)(in - INPUT_GRANTED),
                                 .status = statuses[draw(4)]};
    reply.asked_at = w->now - (nanos)draw(draw(4) ? 20000000 : 2000000000);
    if (draw(2))
        reply.asked_at = w->claim.asked_at;
    reply.good = draw(8) ? NANOS_OF_MS(1000) : NANOS_OF_MS(draw(1000));
    reply.token = draw(6) ? 7 : 5 + draw(5);
    reply.brief = !draw(3);
    reply.outcome_unknown = in == INPUT_FAILED && draw(2);
    reply.retry_at = draw(2) ? TIME_NEVER : w->now + NANOS_OF_MS(draw(500)) - NANOS_OF_MS(100);
    return reply;
}

static void check_belief(const struct walk *w, const struct claim *before)
{
    const struct claim *claim = &w->claim;
    bool held = claim->state == CLAIM_HELD || claim->state == CLAIM_EXTENDING;
    assert_int_equal(held, claim->valid_until != 0);
    assert_true(claim->valid_until <= w->ever_told);
    if (before->valid_until && w->now >= before->valid_until && w->last.status != HF_INTERNAL)
        assert_true(claim->valid_until <= before->valid_until); /* never revived */
    if (before->valid_until && claim->valid_until)
        assert_true(claim->valid_until >= before->valid_until); /* never shortened */
}

static void check_counts(struct walk *w, enum claim_input in, const struct claim *before)
{
    const struct claim_move *move = &w->last;
    w->outcomes += move->report == REPORT_GRANTED || move->report == REPORT_DENIED;
    w->granted += move->report == REPORT_GRANTED;
    w->lost += move->report == REPORT_LOST;
    w->released += move->report == REPORT_RELEASED;
    w->wished_release += in == INPUT_RELEASE && move->verb == OP_RELEASE;
    assert_true(w->outcomes <= 1 && w->lost <= w->granted && w->released <= w->wished_release);
    assert_false(move->report == REPORT_LOST && w->wished_release);
    assert_false(move->report == REPORT_GRANTED && before->cancelled);
    bool waiting = w->claim.state >= CLAIM_ACQUIRING && w->claim.state <= CLAIM_PAUSED;
    assert_int_equal(w->outcomes,
                     waiting || w->claim.state == CLAIM_LEAVING || w->claim.state == CLAIM_NEW ? 0
                                                                                               : 1);
    if (move->report == REPORT_DENIED || move->report == REPORT_LOST)
        assert_int_not_equal(move->status, HF_OK);
}

/* The token changes by an upgrade only, and only upwards. An upgrade's OK is the answer to that
 * very request. */
static void check_conversion(const struct walk *w, enum claim_input in, const struct claim *before,
                             const struct engine_reply *reply)
{
    const struct claim *claim = &w->claim;
    if (before->token && claim->token != before->token)
        assert_true(claim->token > before->token && before->token_may_rise &&
                    reply->token == claim->token);
    bool upgrades = before->in_flight == OP_UPGRADE || before->convert_next == OP_UPGRADE;
    if (upgrades && w->last.report == REPORT_EXTENDED && w->last.status == HF_OK)
        assert_true(in == INPUT_EXTENDED && before->in_flight == OP_UPGRADE &&
                    reply->asked_at >= before->asked_at);
    if (w->last.verb == OP_UPGRADE)
        assert_true(w->now >= before->downgrade_unknown_until && claim->token_may_rise);
}

static void check_move(const struct walk *w, enum claim_input in, const struct claim *before)
{
    const struct claim_move *move = &w->last;
    if (before->state == CLAIM_OVER && move->verb)
        assert_true(move->verb == OP_RELEASE && move->may_be_in_flight &&
                    (in == INPUT_GRANTED || in == INPUT_UNKNOWN || in == INPUT_FAILED));
    bool by_time = in != INPUT_FORFEIT && in != INPUT_NOT_HELD && in != INPUT_RELEASED;
    if (before->is_text && by_time && w->now >= before->valid_until && move->report == REPORT_LOST)
        assert_int_equal(move->verb, OP_NONE); /* another handle may have extended it */
    if (w->claim.state == CLAIM_OVER)
        assert_true(move->wake_at == TIME_NEVER && move->verb == OP_NONE);
    if (w->claim.state == CLAIM_PAUSED || w->claim.state >= CLAIM_HELD)
        assert_true(w->claim.state == CLAIM_OVER || move->wake_at < TIME_NEVER);
    if (move->verb == OP_EXTEND)
        assert_true(move->ttl > 0 && move->ttl % NANOS_OF_MS(1) == 0);
    if (move->verb == OP_RELEASE || move->verb == OP_LEAVE)
        assert_int_equal(move->may_be_in_flight, w->claim.may_be_in_flight);
    assert_int_equal(w->claim.state == CLAIM_EXTENDING, w->claim.in_flight != OP_NONE);
    bool held = w->claim.state == CLAIM_HELD || w->claim.state == CLAIM_EXTENDING;
    assert_false(w->claim.brief && !held);
    if (w->claim.state != CLAIM_EXTENDING)
        assert_true(!w->claim.asked_extend && !w->claim.extend_ms && !w->claim.convert_next);
}

static void step(struct walk *w, enum claim_input in)
{
    struct claim before = w->claim;
    struct engine_reply reply = random_news(w, in < INPUT_GRANTED ? INPUT_GRANTED : in);
    struct claim_event event = {
        .in = in, .now = w->now, .reply = in < INPUT_GRANTED ? NULL : &reply};
    event.status = in == INPUT_CANCEL ? HF_CANCELLED : HF_LOST;
    event.ttl_ms = (int64_t)draw(2) * draw(3000);
    event.verb = draw(2) ? OP_UPGRADE : OP_DOWNGRADE;
    event.random = draw(UINT32_MAX);
    if (in == INPUT_GRANTED || in == INPUT_EXTENDED) {
        nanos end = reply.asked_at + reply.good - timing_drift(&limits, reply.good);
        w->ever_told = end > w->ever_told ? end : w->ever_told;
    }
    w->last = claim_step(&w->claim, &event);
    if (claim_legal(before.state, in))
        w->walked[before.state][in] |= 1u << w->claim.state;
    check_belief(w, &before);
    check_counts(w, in, &before);
    check_move(w, in, &before);
    check_conversion(w, in, &before, &reply);
}

static void begin(struct walk *w)
{
    struct claim_terms terms = {.auto_renew = draw(2), .max_hold_ms = draw(3) ? 0 : draw(5000)};
    w->now = NANOS_OF_MS(1000000);
    terms.deadline = draw(4) ? w->now + NANOS_OF_MS(draw(3000)) : draw(2) ? TIME_NEVER : w->now;
    w->outcomes = w->granted = w->lost = w->released = w->wished_release = 0;
    w->ever_told = 0;
    claim_init(&w->claim, &terms, one_second());
    step(w, INPUT_START);
}

static void move_the_clock(struct walk *w)
{
    if (draw(3) == 0 && w->last.wake_at != TIME_NEVER && w->last.wake_at > w->now)
        w->now = w->last.wake_at; /* exactly on time: the edge of every comparison */
    else if (!draw(40))
        w->now += NANOS_OF_MS(70000); /* past every release that is tried */
    else
        w->now += (nanos)draw(draw(8) ? 30000000 : 1500000000);
}

/* No more news: what is left is the clock, and a caller who has had enough. */
static void finish(struct walk *w)
{
    if (claim_legal(w->claim.state, INPUT_CANCEL))
        step(w, INPUT_CANCEL);
    if (claim_legal(w->claim.state, INPUT_RELEASE))
        step(w, INPUT_RELEASE);
    for (unsigned i = 0; i < 2000 && w->claim.state != CLAIM_OVER; i++) {
        assert_true(w->last.wake_at != TIME_NEVER);
        w->now = w->last.wake_at > w->now ? w->last.wake_at : w->now;
        step(w, INPUT_TIMER);
    }
    assert_int_equal(w->claim.state, CLAIM_OVER);
    assert_int_equal(w->outcomes, 1);
    assert_int_equal(w->released, w->wished_release);
}

static void maybe_export(struct walk *w)
{
    bool held = w->claim.state == CLAIM_HELD || w->claim.state == CLAIM_EXTENDING;
    if (held && !draw(8))
        claim_export(&w->claim);
}

/* Conversions and their ends come often enough while it is held that also what needs several of
 * them is walked. */
static enum claim_input draw_input(const struct walk *w)
{
    if (w->claim.state == CLAIM_HELD && !draw(4))
        return INPUT_CONVERT;
    if (w->claim.state == CLAIM_EXTENDING && !draw(4))
        return draw(2) ? INPUT_UNKNOWN : INPUT_EXTENDED;
    return draw(3) ? (enum claim_input)draw(INPUT_COUNT) : INPUT_TIMER;
}

static void on_every_path_there_is_one_outcome_one_loss_at_most_and_an_end(void **state)
{
    (void)state;
    static struct walk w;
    for (uint64_t seed = 0; seed < 60000; seed++) {
        random_state = seed;
        begin(&w);
        unsigned length = draw(40);
        for (unsigned i = 0; i < length; i++) {
            move_the_clock(&w);
            maybe_export(&w);
            step(&w, draw_input(&w));
        }
        finish(&w);
    }
    for (size_t r = 0; r < DRAWN_STEPS; r++) {
        const struct drawn_step *row = &drawn_steps[r];
        if (row->state == CLAIM_NEW && row->input != INPUT_START)
            continue; /* the walk begins behind it */
        if (w.walked[row->state][row->input] != row->next)
            fail_msg("claim.def says more than is true: %s and %s lead to %x, never beyond %x",
                     claim_state_name(row->state), claim_input_name(row->input), row->next,
                     w.walked[row->state][row->input]);
    }
}

/* ---- The drawing ---- */

static void the_committed_drawing_is_the_one_that_the_table_makes(void **state)
{
    (void)state;
    FILE *committed = fopen(HF_CLAIM_PAGE, "r");
    if (!committed)
        fail_msg("cannot read %s", HF_CLAIM_PAGE);
    char *drawn = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&drawn, &size);
    draw_claim(out);
    fclose(out);
    char *text = calloc(1, size + 2);
    size_t got = fread(text, 1, size + 1, committed);
    fclose(committed);
    assert_int_equal(got, size);
    assert_string_equal(text, drawn);
    free(text);
    free(drawn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_input_that_the_table_does_not_list_changes_no_byte_and_says_why),
        cmocka_unit_test(
            an_input_that_the_table_lists_leads_to_a_listed_state_and_does_nothing_only_if_it_says_ignore),
        cmocka_unit_test(names_of_states_and_inputs_are_those_of_the_table_and_unknown_beyond),
        cmocka_unit_test(on_every_path_there_is_one_outcome_one_loss_at_most_and_an_end),
        cmocka_unit_test(the_committed_drawing_is_the_one_that_the_table_makes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
