/* clang-format off */
/* redis_cuts.c - the wire is cut in the middle of every request and every answer: the request is
 * lost, or carried out and not answered, or carried out when the client has long moved on.
 * Whatever comes of it is said, two never hold by their own clocks (G1), and no call that ended
 * leaves a hold or a place in a queue behind (G4).
 *
 *     redis_cuts asking|holding|loading [STRIDE [FIRST]]      a stride of 1 is every byte
 *
 * A rival in another process, with a connection of its own, tries to take the lock the whole time. */
/* clang-format on */
#include "redis_cut_scenario.h"

/* How many bytes the request, or the answer, has at least: nothing else is sent meanwhile. */
static uint64_t measure(enum part part, enum proxy_way way)
{
    set_the_stage(&(struct cut){.part = part, .variant = NO_FAULT});
    uint32_t line = play.line[concerns_messages(part)];
    uint64_t before = part == HANDING_OVER ? 0 : proxy_bytes(play.proxy, line, way);
    act();
    if (part == HANDING_OVER) /* it comes as the last there */
        before = play.before;
    uint64_t bytes = proxy_bytes(play.proxy, line, way) - before;
    clear_the_stage();
    return bytes;
}

static unsigned cuts;

/* Each cut has a lock of its own, so that it does not matter where the record is divided. */
static void judge(void)
{
    assert_one_held(arena->held);
    recording_forget(arena->held);
}

static void cut_every(uint64_t step, enum part part, enum variant variant, uint64_t bytes)
{
    int64_t from = now_ns();
    unsigned count = 0;
    for (uint64_t byte = first_byte % step; byte < bytes; byte += step) {
        run(part, variant, byte);
        if (++count % JUDGED_AFTER == 0)
            judge();
    }
    judge();
    print_message("# %s, %s: %u cuts in %ju bytes, %lld ms\n", part_names[part],
                  variant_names[variant], count, (uintmax_t)bytes,
                  (long long)(now_ns() - from) / 1000000);
    assert_true(count > 0);
    cuts += count;
}

static void cut_part(enum part part)
{
    uint64_t request = measure(part, PROXY_REQUESTS), reply = measure(part, PROXY_REPLIES);
    cut_every(stride, part, LOST, request);
    cut_every(stride, part, LATE, request);
    cut_every(stride, part, UNANSWERED, reply);
    cut_every(stride, part, UNHEARD, reply);
}

/* What is dropped without a word takes long to be noticed: every byte by night, or else a few. */
static uint64_t every_or_few(uint64_t bytes)
{
    return stride <= 2 ? 1 : bytes / 5 + 1;
}

/* The scripts are there, as nearly always. */
static void test_greeting(void **state)
{
    (void)state;
    run(GREETING, NO_FAULT, 0); /* this one brings them */
    uint64_t request = measure(GREETING, PROXY_REQUESTS), reply = measure(GREETING, PROXY_REPLIES);
    assert_true(request < 1024);
    cut_every(stride, GREETING, LOST, request);
    cut_every(stride, GREETING, LATE, request);
    cut_every(stride, GREETING, UNANSWERED, reply);
    cut_every(every_or_few(reply), GREETING, UNHEARD, reply);
}

/* Most of it are the scripts, which are a hundred times as long as the answers. */
static void test_loading(void **state)
{
    (void)state;
    server_add_locker(scene.server, "locker", NULL);
    /* It may not ask which scripts are there. */
    server_does(scene.server, "ACL SETUSER locker -fcall +evalsha +script|load");
    uint64_t request = measure(LOADING, PROXY_REQUESTS), reply = measure(LOADING, PROXY_REPLIES);
    assert_true(request > 20000);
    cut_every(stride, LOADING, LOST, request);
    cut_every(stride, LOADING, LATE, request);
    cut_every(stride / 100 + 1, LOADING, UNANSWERED, reply);
    cut_every(every_or_few(reply), LOADING, UNHEARD, reply);
}

/* The message comes behind what is answered to the listening, on the same line. */
static void test_hand_over(void **state)
{
    (void)state;
    until_it_listens = measure(LISTENING, PROXY_REQUESTS);
    uint64_t message = measure(HANDING_OVER, PROXY_REPLIES),
             answers = measure(LISTENING, PROXY_REPLIES) - message;
    cut_every(stride, LISTENING, LOST, until_it_listens);
    cut_every(stride, LISTENING, LATE, until_it_listens);
    cut_every(stride, LISTENING, UNANSWERED, answers);
    cut_every(every_or_few(answers), LISTENING, UNHEARD, answers);
    cut_every(stride, HANDING_OVER, UNANSWERED, message);
    cut_every(every_or_few(message), HANDING_OVER, UNHEARD, message);
}

/* ---- The judge ---- */

/* By force there are two: the record goes, and its holder does not hear of it. */
static void test_two_are_seen(void **state)
{
    (void)state;
    char why[400];
    set_the_stage(&(struct cut){.part = EXTENDING, .variant = NO_FAULT});
    assert_int_equal(server_count(scene.server, "DEL lock:%s", play.name), 1);
    await_rival("by force");
    record_hold(arena->held, play.what, play.lease, play.from_ns);
    assert_true(two_held(arena->held, why, sizeof why));
    assert_non_null(strstr(why, "exclusion (G1"));
    hf_lease_free(play.lease);
    assert_int_equal(hf_close(play.victim, 5000), HF_OK);
}

static void test_acquire(void **state)
{
    (void)state;
    cut_part(ACQUIRING);
}

static void test_take(void **state)
{
    (void)state;
    cut_part(TAKING);
}

static void test_wait(void **state)
{
    (void)state;
    cut_part(WAITING);
}

static void test_extend(void **state)
{
    (void)state;
    cut_part(EXTENDING);
}

static void test_release(void **state)
{
    (void)state;
    cut_part(RELEASING);
}

static void test_give_back(void **state)
{
    (void)state;
    cut_part(GIVING_BACK);
}

static void test_upgrade(void **state)
{
    (void)state;
    cut_part(UPGRADING);
}

static void test_downgrade(void **state)
{
    (void)state;
    cut_part(DOWNGRADING);
}

/* A company of the test's own, which lives through it. */
static int open_stage(void **state)
{
    if (scene_setup(state) != 0)
        return -1;
    memset(&play, 0, sizeof play);
    arena = scene_page(sizeof *arena);
    arena->held = recording_open(HOLDS);
    struct actor *rival = actor_start_part(be_rival, NULL);
    actor_answer(rival, ORDER_GO, 0);
    play.holder = open_at(server_port(scene.server), false);
    return 0;
}

static int close_stage(void **state)
{
    if (play.proxy)
        proxy_end(play.proxy);
    if (hf_close(play.holder, 5000) != HF_OK)
        print_error("closing the holder: %s\n", hf_error_text());
    struct recording *held = arena->held;
    int ended = scene_teardown(state);
    recording_close(held);
    return ended;
}

#define PLAYED(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = open_stage,                             \
        .teardown_func = close_stage                                                               \
    }

static const struct CMUnitTest asking[] = {
    PLAYED("two that hold by force are found", test_two_are_seen),
    PLAYED("a greeting may be cut anywhere", test_greeting),
    PLAYED("an acquire may be cut anywhere", test_acquire),
    PLAYED("so may one that needs no token", test_take),
    PLAYED("a wait may be cut anywhere", test_wait),
    PLAYED("a hand-over may be cut anywhere, and so may listening for it", test_hand_over),
};
static const struct CMUnitTest holding[] = {
    PLAYED("an extend may be cut anywhere", test_extend),
    PLAYED("a release may be cut anywhere", test_release),
    PLAYED("so may one of what was taken without a token", test_give_back),
    PLAYED("an upgrade may be cut anywhere", test_upgrade),
    PLAYED("a downgrade may be cut anywhere", test_downgrade),
};

static const struct CMUnitTest loading[] = {
    PLAYED("a greeting that brings the scripts may be cut anywhere", test_loading),
};

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    stride = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 5;
    first_byte = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    int failed;
    if (stride && strcmp(which, "asking") == 0)
        failed = cmocka_run_group_tests(asking, NULL, NULL);
    else if (stride && strcmp(which, "holding") == 0)
        failed = cmocka_run_group_tests(holding, NULL, NULL);
    else if (stride && strcmp(which, "loading") == 0)
        failed = cmocka_run_group_tests(loading, NULL, NULL);
    else {
        fprintf(stderr, "usage: redis_cuts asking|holding|loading [STRIDE [FIRST]]\n");
        return 64;
    }
    print_message("# %u cuts\n", cuts);
    return failed;
}
