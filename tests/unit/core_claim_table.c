/* core_claim_table.c - tests that walk the whole table of claim.def: every pair of state and input, every arrow of the
 * drawing, and the properties that hold on every path. */
#include "../sim/draw_claim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct hf_limits limits = {
    .ttl_min_ms = 10, .ttl_max_ms = 86400000, .drift_ppm = 10000, .drift_ms = 2, .offers = HF_QUEUES};

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

/* ---- Every pair ---------------------------------------------------------------------------------------------- */

static struct hf_move put(struct hf_claim *claim, enum hf_input in, hf_nanos now)
{
    struct hf_news news = {.asked_at = claim->asked_at > now - HF_MS(1) ? claim->asked_at : now - HF_MS(1),
                           .good = HF_MS(1000),
                           .token = 7,
                           .retry_at = now + HF_MS(100),
                           .status = HF_UNAVAILABLE};
    struct hf_event event = {.in = in, .now = now, .status = HF_CANCELLED, .random = 1u << 31, .news = &news};
    event.verb = HF_V_UPGRADE;
    if (in >= HF_I_GRANTED)
        news.cue = (enum hf_cue)(in - HF_I_GRANTED);
    return hf_claim_step(claim, &event);
}

static const struct hf_sheet *one_second(void)
{
    static struct hf_sheet sheet;
    hf_sheet_fill(&sheet, 1000, &limits, &(struct hf_timing_wishes){0});
    return &sheet;
}

/* A claim that came to `state` by its usual way; the last step was at 1 s. */
static struct hf_claim claim_in(unsigned state)
{
    static const enum hf_input ways[HF_S_COUNT][4] = {
        [HF_S_ASKING] = {HF_I_START, HF_I_COUNT},
        [HF_S_QUEUED] = {HF_I_START, HF_I_QUEUED, HF_I_COUNT},
        [HF_S_PAUSED] = {HF_I_START, HF_I_BUSY, HF_I_COUNT},
        [HF_S_HELD] = {HF_I_START, HF_I_GRANTED, HF_I_COUNT},
        [HF_S_EXTENDING] = {HF_I_START, HF_I_GRANTED, HF_I_EXTEND, HF_I_COUNT},
        [HF_S_LEAVING] = {HF_I_START, HF_I_CANCEL, HF_I_COUNT},
        [HF_S_RELEASING] = {HF_I_START, HF_I_GRANTED, HF_I_RELEASE, HF_I_COUNT},
        [HF_S_OVER] = {HF_I_START, HF_I_LOST_ALL, HF_I_COUNT},
        [HF_S_NEW] = {HF_I_COUNT},
    };
    struct hf_claim_terms terms = {.auto_renew = true, .deadline = HF_MS(5000)};
    struct hf_claim claim;
    memset(&claim, 0, sizeof claim);
    hf_claim_init(&claim, &terms, one_second());
    for (unsigned i = 0; i < 4 && ways[state][i] != HF_I_COUNT; i++)
        put(&claim, ways[state][i], HF_MS(1000));
    assert_int_equal(claim.state, state);
    return claim;
}

static void an_input_that_the_table_does_not_list_changes_no_byte_and_says_why(void **state)
{
    (void)state;
    unsigned illegal = 0;
    for (unsigned s = 0; s < HF_S_COUNT; s++) {
        for (unsigned i = 0; i < HF_I_COUNT; i++) {
            assert_int_equal(hf_claim_legal(s, i), row_of(s, i) != NULL);
            if (row_of(s, i))
                continue;
            struct hf_claim claim = claim_in(s), before;
            memcpy(&before, &claim, sizeof claim);
            struct hf_move move = put(&claim, (enum hf_input)i, HF_MS(90000));
            assert_memory_equal(&claim, &before, sizeof claim);
            assert_int_equal(move.verb, HF_V_NONE);
            assert_int_equal(move.report, HF_R_NONE);
            bool wish = i == HF_I_CANCEL || (i >= HF_I_EXTEND && i <= HF_I_FORFEIT);
            assert_int_equal(move.status, wish ? HF_NOT_HELD : HF_INTERNAL);
            illegal++;
        }
    }
    assert_int_equal(illegal + DRAWN_STEPS, HF_S_COUNT * HF_I_COUNT);
}

static void an_input_that_the_table_lists_leads_to_a_listed_state_and_does_nothing_only_if_it_says_ignore(void **state)
{
    (void)state;
    for (size_t r = 0; r < DRAWN_STEPS; r++) {
        const struct drawn_step *row = &drawn_steps[r];
        struct hf_claim claim = claim_in(row->state), before;
        memcpy(&before, &claim, sizeof claim);
        /* A timer comes when it is due: an hour later it is, in every state. */
        hf_nanos now = row->input == HF_I_TIMER ? HF_MS(3600000) : HF_MS(1010);
        if (row->state == HF_S_LEAVING && row->input == HF_I_CANCEL)
            claim.cancelled = before.cancelled = false; /* it left because of a time-out */
        if (row->state == HF_S_OVER)
            claim.doubt = before.doubt = true;
        if (row->state == HF_S_EXTENDING && row->input == HF_I_BUSY)
            claim.in_flight = before.in_flight = HF_V_UPGRADE; /* nothing else is answered with BUSY */
        struct hf_move move = put(&claim, (enum hf_input)row->input, now);
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
    assert_string_equal(hf_state_name(HF_S_EXTENDING), "EXTENDING");
    assert_string_equal(hf_input_name(HF_I_LOST_ALL), "LOST_ALL");
    assert_string_equal(hf_state_name(HF_S_COUNT), "UNKNOWN");
    assert_string_equal(hf_input_name(HF_I_COUNT), "UNKNOWN");
    assert_false(hf_claim_legal(HF_S_COUNT, 0) || hf_claim_legal(0, HF_I_COUNT));
    for (unsigned cue = 0; cue < HF_N_CUES; cue++)
        assert_int_equal(hf_input_of_cue((enum hf_cue)cue), HF_I_GRANTED + cue);
}

/* ---- Random walks -------------------------------------------------------------------------------------------- */

struct walk {
    struct hf_claim claim;
    struct hf_move last;
    hf_nanos now, ever_told; /* the latest end that any news justified */
    unsigned outcomes, granted, lost, released, wished_release;
    unsigned walked[HF_S_COUNT][HF_I_COUNT]; /* masks of where it led */
};

static struct hf_news random_news(struct walk *w, enum hf_input in)
{
    static const hf_status statuses[] = {HF_UNAVAILABLE, HF_FULL, HF_TOO_BIG, HF_DENIED};
    struct hf_news news = {.cue = (enum hf_cue)(in - HF_I_GRANTED), .status = statuses[draw(4)]};
    news.asked_at = w->now - (hf_nanos)draw(draw(4) ? 20000000 : 2000000000);
    if (draw(2))
        news.asked_at = w->claim.asked_at;
    news.good = draw(8) ? HF_MS(1000) : HF_MS(draw(1000));
    news.token = draw(6) ? 7 : 5 + draw(5);
    news.brief = !draw(3);
    news.retry_at = draw(2) ? HF_NEVER : w->now + HF_MS(draw(500)) - HF_MS(100);
    return news;
}

static void check_belief(const struct walk *w, const struct hf_claim *before)
{
    const struct hf_claim *claim = &w->claim;
    bool held = claim->state == HF_S_HELD || claim->state == HF_S_EXTENDING;
    assert_int_equal(held, claim->valid_until != 0);
    assert_true(claim->valid_until <= w->ever_told);
    if (before->valid_until && w->now >= before->valid_until && w->last.status != HF_INTERNAL)
        assert_true(claim->valid_until <= before->valid_until); /* never revived */
    if (before->valid_until && claim->valid_until)
        assert_true(claim->valid_until >= before->valid_until); /* never shortened */
}

static void check_counts(struct walk *w, enum hf_input in, const struct hf_claim *before)
{
    const struct hf_move *move = &w->last;
    w->outcomes += move->report == HF_R_GRANTED || move->report == HF_R_DENIED;
    w->granted += move->report == HF_R_GRANTED;
    w->lost += move->report == HF_R_LOST;
    w->released += move->report == HF_R_RELEASED;
    w->wished_release += in == HF_I_RELEASE && move->verb == HF_V_RELEASE;
    assert_true(w->outcomes <= 1 && w->lost <= w->granted && w->released <= w->wished_release);
    assert_false(move->report == HF_R_LOST && w->wished_release);
    assert_false(move->report == HF_R_GRANTED && before->cancelled);
    bool waiting = w->claim.state >= HF_S_ASKING && w->claim.state <= HF_S_PAUSED;
    assert_int_equal(w->outcomes, waiting || w->claim.state == HF_S_LEAVING || w->claim.state == HF_S_NEW ? 0 : 1);
    if (move->report == HF_R_DENIED || move->report == HF_R_LOST)
        assert_int_not_equal(move->status, HF_OK);
}

/* The token changes by an upgrade only, and only upwards. An upgrade's OK is the answer to that very request. */
static void check_conversion(const struct walk *w, enum hf_input in, const struct hf_claim *before,
                             const struct hf_news *news)
{
    const struct hf_claim *claim = &w->claim;
    if (before->token && claim->token != before->token)
        assert_true(claim->token > before->token && before->token_may_rise && news->token == claim->token);
    bool upgrades = before->in_flight == HF_V_UPGRADE || before->convert_next == HF_V_UPGRADE;
    if (upgrades && w->last.report == HF_R_EXTENDED && w->last.status == HF_OK)
        assert_true(in == HF_I_EXTENDED && before->in_flight == HF_V_UPGRADE && news->asked_at >= before->asked_at);
    if (w->last.verb == HF_V_UPGRADE)
        assert_true(w->now >= before->downgrade_doubt_until && claim->token_may_rise);
}

static void check_move(const struct walk *w, enum hf_input in, const struct hf_claim *before)
{
    const struct hf_move *move = &w->last;
    if (before->state == HF_S_OVER && move->verb)
        assert_true(move->verb == HF_V_RELEASE && move->doubt &&
                    (in == HF_I_GRANTED || in == HF_I_CUT || in == HF_I_FAILED));
    if (w->claim.state == HF_S_OVER)
        assert_true(move->wake_at == HF_NEVER && move->verb == HF_V_NONE);
    if (w->claim.state == HF_S_PAUSED || w->claim.state >= HF_S_HELD)
        assert_true(w->claim.state == HF_S_OVER || move->wake_at < HF_NEVER);
    if (move->verb == HF_V_EXTEND)
        assert_true(move->ttl > 0 && move->ttl % HF_MS(1) == 0);
    if (move->verb == HF_V_RELEASE || move->verb == HF_V_LEAVE)
        assert_int_equal(move->doubt, w->claim.doubt);
    assert_int_equal(w->claim.state == HF_S_EXTENDING, w->claim.in_flight != HF_V_NONE);
    bool held = w->claim.state == HF_S_HELD || w->claim.state == HF_S_EXTENDING;
    assert_false(w->claim.brief && !held);
    if (w->claim.state != HF_S_EXTENDING)
        assert_true(!w->claim.asked_extend && !w->claim.extend_ms && !w->claim.convert_next);
}

static void step(struct walk *w, enum hf_input in)
{
    struct hf_claim before = w->claim;
    struct hf_news news = random_news(w, in < HF_I_GRANTED ? HF_I_GRANTED : in);
    struct hf_event event = {.in = in, .now = w->now, .news = in < HF_I_GRANTED ? NULL : &news};
    event.status = in == HF_I_CANCEL ? HF_CANCELLED : HF_LOST;
    event.ttl_ms = (int64_t)draw(2) * draw(3000);
    event.verb = draw(2) ? HF_V_UPGRADE : HF_V_DOWNGRADE;
    event.random = draw(UINT32_MAX);
    if (in == HF_I_GRANTED || in == HF_I_EXTENDED) {
        hf_nanos end = news.asked_at + news.good - hf_timing_drift(&limits, news.good);
        w->ever_told = end > w->ever_told ? end : w->ever_told;
    }
    w->last = hf_claim_step(&w->claim, &event);
    if (hf_claim_legal(before.state, in))
        w->walked[before.state][in] |= 1u << w->claim.state;
    check_belief(w, &before);
    check_counts(w, in, &before);
    check_move(w, in, &before);
    check_conversion(w, in, &before, &news);
}

static void begin(struct walk *w)
{
    struct hf_claim_terms terms = {.auto_renew = draw(2), .max_hold_ms = draw(3) ? 0 : draw(5000)};
    w->now = HF_MS(1000000);
    terms.deadline = draw(4) ? w->now + HF_MS(draw(3000)) : draw(2) ? HF_NEVER : w->now;
    w->outcomes = w->granted = w->lost = w->released = w->wished_release = 0;
    w->ever_told = 0;
    hf_claim_init(&w->claim, &terms, one_second());
    step(w, HF_I_START);
}

static void move_the_clock(struct walk *w)
{
    if (draw(3) == 0 && w->last.wake_at != HF_NEVER && w->last.wake_at > w->now)
        w->now = w->last.wake_at; /* exactly on time: the edge of every comparison */
    else if (!draw(40))
        w->now += HF_MS(70000); /* past every release that is tried */
    else
        w->now += (hf_nanos)draw(draw(8) ? 30000000 : 1500000000);
}

/* No more news: what is left is the clock, and a caller who has had enough. */
static void finish(struct walk *w)
{
    if (hf_claim_legal(w->claim.state, HF_I_CANCEL))
        step(w, HF_I_CANCEL);
    if (hf_claim_legal(w->claim.state, HF_I_RELEASE))
        step(w, HF_I_RELEASE);
    for (unsigned i = 0; i < 2000 && w->claim.state != HF_S_OVER; i++) {
        assert_true(w->last.wake_at != HF_NEVER);
        w->now = w->last.wake_at > w->now ? w->last.wake_at : w->now;
        step(w, HF_I_TIMER);
    }
    assert_int_equal(w->claim.state, HF_S_OVER);
    assert_int_equal(w->outcomes, 1);
    assert_int_equal(w->released, w->wished_release);
}

/* Conversions and their ends come often enough while it is held that also what needs several of them is walked. */
static enum hf_input draw_input(const struct walk *w)
{
    if (w->claim.state == HF_S_HELD && !draw(4))
        return HF_I_CONVERT;
    if (w->claim.state == HF_S_EXTENDING && !draw(4))
        return draw(2) ? HF_I_CUT : HF_I_EXTENDED;
    return draw(3) ? (enum hf_input)draw(HF_I_COUNT) : HF_I_TIMER;
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
            step(&w, draw_input(&w));
        }
        finish(&w);
    }
    for (size_t r = 0; r < DRAWN_STEPS; r++) {
        const struct drawn_step *row = &drawn_steps[r];
        if (row->state == HF_S_NEW && row->input != HF_I_START)
            continue; /* the walk begins behind it */
        if (w.walked[row->state][row->input] != row->next)
            fail_msg("claim.def says more than is true: %s and %s lead to %x, never beyond %x",
                     hf_state_name(row->state), hf_input_name(row->input), row->next, w.walked[row->state][row->input]);
    }
}

/* ---- The drawing --------------------------------------------------------------------------------------------- */

static void the_committed_drawing_is_the_one_that_the_table_makes(void **state)
{
    (void)state;
    char path[4096];
    const char *tests = strstr(__FILE__, "tests/unit/");
    assert_non_null(tests);
    snprintf(path, sizeof path, "%.*sdocs/claim.md", (int)(tests - __FILE__), __FILE__);
    FILE *committed = fopen(path, "r");
    if (!committed)
        fail_msg("cannot read %s", path);
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
        cmocka_unit_test(an_input_that_the_table_lists_leads_to_a_listed_state_and_does_nothing_only_if_it_says_ignore),
        cmocka_unit_test(names_of_states_and_inputs_are_those_of_the_table_and_unknown_beyond),
        cmocka_unit_test(on_every_path_there_is_one_outcome_one_loss_at_most_and_an_end),
        cmocka_unit_test(the_committed_drawing_is_the_one_that_the_table_makes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
