/* model_compare.c - is the model of a server honest? Random operations go to the model and to a
 * real server, and every answer must be equal to the byte, on every connection. Then mistakes are
 * planted in the model, and each must be found.
 *
 *     model_compare [OPERATIONS [SEED [SENTENCES]]]    those sentences only: "*Valkey*"
 *     model_compare --plant NAME [OPERATIONS]      shows how that mistake is found
 *
 * Not compared to the byte, because the servers are free there: the order of SCAN (the set of keys
 * is compared, over whole iterations), which fields HRANDFIELD draws (they must be there, and
 * distinct), the number of CLIENT ID, and the fields of INFO that are not the model's. Valkey
 * words some errors in another way: there only the code is compared. */
#include "sim/compare_world/compare_replies.h"

static uint64_t operations = 10000, first_seed = 1;

/* ---- Operations ---- */

static void load_library(void)
{
    struct request r = {.count = 0};
    add_word(&r, "FUNCTION");
    add_word(&r, "LOAD");
    if (draw(2))
        add_word(&r, "REPLACE");
    add_word(&r, shipped[SCRIPT_LIBRARY]);
    send_and_compare(&r, 0);
}

static void load_scripts(void)
{
    load_library();
    for (unsigned i = SCRIPT_CLAIMING; i < SCRIPT_TEXTS && !t.differ; i++) {
        struct request r = {.count = 0};
        add_word(&r, "SCRIPT");
        add_word(&r, "LOAD");
        add_word(&r, shipped[i]);
        redisReply *reply = server_answer("SCRIPT LOAD %s", shipped[i]);
        if (reply->type == REDIS_REPLY_ERROR)
            fail_msg("%s", reply->str);
        snprintf(shas[i], sizeof shas[i], "%s", reply->str);
        freeReplyObject(reply);
        send_and_compare(&r, 0);
    }
}

static void flush_scripts(void)
{
    struct request r = {.count = 0};
    add_template(&r, draw(2) ? "SCRIPT FLUSH %{SYNC|ASYNC|bogus|}"
                             : "FUNCTION FLUSH %{SYNC|ASYNC|bogus|}");
    send_and_compare(&r, 0);
}

/* Those that it has or had, and others; none of them now and then. */
static void ask_for_scripts(void)
{
    struct request r = {.count = 0};
    add_template(&r, "SCRIPT %{EXISTS|exists}");
    for (unsigned i = SCRIPT_CLAIMING; i < SCRIPT_TEXTS; i++)
        if (draw(2))
            add_template(&r,
                         draw(4) ? shas[i] : "%{bogus|E0E1F9FABFC9D4800C877A703B823AC0578FF8DB|}");
    send_and_compare(&r, 0);
}

static int64_t draw_time(void)
{
    static const int64_t steps[] = {1, 300, 999, 1000, 1001, 2000, 5000, 20000, 99000, 1000000};
    int64_t now = model_time(t.model);
    switch (draw(20)) {
    case 0:
        return now + (int64_t)draw(40000000);
    case 1:
        return draw(20) ? now : now - (int64_t)draw(5000000);
    case 2:
        return now / 1000 * 1000 + (int64_t)draw(2) * 999; /* the ends of a millisecond */
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
        return now + steps[draw(LENGTH(steps))];
    default:
        return now;
    }
}

static void draw_operation(void)
{
    struct request r = {.count = 0};
    unsigned line = (unsigned)draw(PLAIN_LINES);
    uint64_t what = draw(1000);
    if (what < 450) {
        draw_shipped(&r);
    } else if (what < 820) {
        add_template(&r, templates[draw(LENGTH(templates))]);
    } else if (what < 920) {
        draw_small_script(&r);
    } else if (what < 950) {
        line = WAITING_LINE;
        draw_waiting(&r);
    } else if (what < 970) {
        line = HEARING_LINE;
        add_template(&r, hearing_templates[draw(LENGTH(hearing_templates))]);
    } else if (what < 990) {
        compare_special();
    } else if (what < 994) {
        set_full(!t.full && draw(3) == 0);
    } else if (what < 995) {
        flush_scripts();
    } else if (what < 997) {
        ask_for_scripts();
    } else {
        load_scripts();
    }
    if (r.count)
        send_and_compare(&r, line);
}

/* Valkey refuses an UNSUBSCRIBE of who is subscribed to nothing, so there it always is. */
static void always_hear(void)
{
    struct request r = {.count = 0};
    add_template(&r, "SUBSCRIBE always");
    send_and_compare(&r, HEARING_LINE);
}

/* False: they differed. */
static bool run(uint64_t seed, uint64_t count, enum model_plant plant)
{
    begin(seed, plant);
    load_scripts();
    if (t.words_differ)
        always_hear();
    for (; t.operations < count && !t.differ; t.operations++) {
        pass_time(draw_time());
        if (!t.differ)
            draw_operation();
    }
    control("PING"); /* the server is through with all that was sent before */
    for (unsigned i = 0; i < LINES; i++)
        compare_silence(i);
    return !t.differ;
}

/* ---- Tests ---- */

static void compare_with(enum server_kind kind)
{
    server_needed(kind);
    start_sides(kind);
    bool equal = run(first_seed, operations, MODEL_HONEST);
    struct model_counts counts = model_counts(t.model);
    printf("# seed %llu: %llu operations, %llu requests, %llu scripts of which %llu failed\n",
           (unsigned long long)first_seed, (unsigned long long)t.operations,
           (unsigned long long)counts.requests, (unsigned long long)counts.scripts,
           (unsigned long long)counts.script_errors);
    end_sides();
    assert_true(equal);
    /* Equal errors prove little: the scripts must mostly run to their end. */
    assert_true(counts.script_errors < counts.scripts / 8);
}

static void test_redis(void **state)
{
    (void)state;
    compare_with(SERVER_REDIS);
}

static bool has_flag(const redisReply *flags, const char *name)
{
    for (size_t i = 0; i < flags->elements; i++)
        if (strcmp(flags->element[i]->str, name) == 0)
            return true;
    return false;
}

enum {
    W = 1,
    M = 2,
    N = 4,
    S = 0,
    T = 0,
    K = 8
}; /* see commands.def; S and T are no flags of a server */

static void compare_command(const char *name, int words, unsigned flags)
{
    redisReply *reply = server_answer("COMMAND INFO %s", name);
    assert_int_equal(reply->elements, 1);
    const redisReply *row = reply->element[0];
    assert_int_equal(row->type, REDIS_REPLY_ARRAY);
    bool same = row->element[1]->integer == words &&
                has_flag(row->element[2], "write") == !!(flags & W) &&
                has_flag(row->element[2], "denyoom") == !!(flags & M) &&
                has_flag(row->element[2], "noscript") == !!(flags & N) &&
                (row->element[3]->integer == 1) == !!(flags & K);
    if (!same)
        fail_msg("%s: the server has other flags, or %lld words", name, row->element[1]->integer);
    freeReplyObject(reply);
}

static void test_commands(void **state)
{
    (void)state;
    server_needed(SERVER_REDIS);
    start_sides(SERVER_REDIS);
#define COMMAND(name, words, flags, function) compare_command(name, words, flags);
#include "sim/model/commands.def"
#undef COMMAND
    end_sides();
}

static void test_valkey(void **state)
{
    (void)state;
    compare_with(SERVER_VALKEY);
}

#define FIND_WITHIN 40000 /* operations in which each planted mistake must show */

static const struct {
    enum model_plant plant;
    const char *name;
} plants[] = {
    {MODEL_LATE_EXPIRY, "late-expiry"},
    {MODEL_TIES, "ties"},
    {MODEL_ROUNDS, "rounds"},
    {MODEL_FULL_RUNS, "full-runs"},
    {MODEL_FORGETS_KEEPS, "forgets-keeps"},
};

#define PLANTS LENGTH(plants)

static void test_planted(void **state)
{
    uint64_t last = 0;
    (void)state;
    server_needed(SERVER_REDIS);
    start_sides(SERVER_REDIS);
    t.quiet = true;
    for (unsigned i = 0; i < PLANTS; i++) {
        if (run(first_seed, FIND_WITHIN, plants[i].plant))
            fail_msg("the planted mistake %s was not found in %d operations", plants[i].name,
                     FIND_WITHIN);
        printf("# %s: found at operation %llu\n", plants[i].name, (unsigned long long)t.operations);
        last = t.operations > last ? t.operations : last;
    }
    if (!run(first_seed, last, MODEL_HONEST))
        fail_msg("without a planted mistake they differ, too");
    end_sides();
}

static int show_plant(const char *name)
{
    for (unsigned i = 0; i < PLANTS; i++) {
        if (strcmp(name, plants[i].name) != 0)
            continue;
        start_sides(SERVER_REDIS);
        bool equal = run(first_seed, operations, plants[i].plant);
        end_sides();
        return equal;
    }
    fprintf(stderr, "model_compare: no mistake is called %s\n", name);
    return 64;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("the model's table of commands is that of Redis", test_commands),
        SENTENCE("the model answers as Redis does, byte for byte", test_redis),
        SENTENCE("the model answers as Valkey does, but for the words of errors", test_valkey),
        SENTENCE("a mistake in the model is found by comparing it with Redis", test_planted),
    };
    prepare_scripts();
    bool planted = argc > 2 && strcmp(argv[1], "--plant") == 0;
    int at = planted ? 3 : 1;
    if (argc > at)
        operations = strtoull(argv[at], NULL, 10);
    if (argc > at + 1)
        first_seed = strtoull(argv[at + 1], NULL, 10);
    if (argc > at + 2)
        cmocka_set_test_filter(argv[at + 2]);
    int failed = planted ? show_plant(argv[2]) : cmocka_run_group_tests(tests, NULL, NULL);
    forget_scripts();
    return failed;
}
