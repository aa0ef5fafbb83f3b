/* clang-format off */
/* redis_chaos.c - some processes on one server while all that can happen to it, to them and to the
 * lines between them does, in an order drawn from a seed. They use a lock, a semaphore, and a lock
 * for readers and writers. What they write down is judged as the simulator is (checker/checker.h):
 * where the server kept its data nobody holds more than there is; where it lost them, or its clock
 * went ahead, two are good for a ttl at most; tokens rise; every call returns once and in time;
 * when all is healed nobody waits for the dead; and in the end nothing stays behind.
 *
 *     redis_chaos [SECONDS [SEED [KILLS [valkey]]]]      a seed of 0 is drawn; lasts until so many were killed, too */
/* clang-format on */
#include "fault/redis/chaos/chaos_schedule.h"

enum { PEACE_MS = 10000, PEACE_GRANTS = 20 };
enum {
    SETTLES_MS = 1000,  /* so long after a fault it excuses who waits */
    RECOVERY_MS = 1000, /* so long after it, besides its reach, nobody waits for the dead */
    EVENTS = 1 << 20,
};

static unsigned seconds = 20, kills_wanted;
static enum server_kind kind;

static int setup(void **state)
{
    scene.kind = kind;
    if (server_missing(kind))
        return 0;
    if (stage_setup(state) != 0)
        return -1;
    scene.server = server_start(
        &(struct server_options){.kind = kind, .appendonly = true, .preload = HF_WRONG_CLOCK});
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u", server_port(scene.server));
    return 0;
}

static int teardown(void **state)
{
    if (server_missing(kind))
        return 0;
    for (unsigned i = 0; i < CLIENTS; i++)
        if (world.client[i].proxy)
            proxy_end(world.client[i].proxy);
    return scene_teardown(state);
}

static void open_stage(void)
{
    world.shared = scene_page(sizeof *world.shared);
    world.shared->told = recording_open(EVENTS);
    world.clock = (struct quorum){.count = 1, .server = {scene.server}};
    for (unsigned i = 0; i < CLIENTS; i++) {
        world.client[i].part = (struct part){.shared = world.shared, .number = i};
        start_client(&world.client[i]);
    }
}

/* Everything is fine again: in how many milliseconds so many more were granted. It goes on until
 * faults excuse nobody.
 */
static int64_t see_peace(void)
{
    int64_t from = now_ns();
    unsigned wanted = atomic_load(&world.shared->grants) + PEACE_GRANTS;
    while (atomic_load(&world.shared->grants) < wanted) {
        if (now_ns() - from > PEACE_MS * 1000000LL)
            fail_msg("all is healed, and %u are still to be granted",
                     wanted - atomic_load(&world.shared->grants));
        nap_us(1000);
    }
    int64_t took = now_ns() - from;
    nap_us((SETTLES_MS + RECOVERY_MS) * 1000);
    return took / 1000000;
}

static void end_clients(void)
{
    atomic_store(&world.shared->over, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        assert_int_equal(actor_answer(world.client[i].actor, ORDER_CLOSE, 0).status, HF_OK);
}

/* Whoever was killed has left its place; somebody who comes sweeps it away. */
static void sweep(const struct want *want)
{
    struct part part = {.shared = world.shared, .number = CLIENTS};
    struct holding h = {.part = &part, .want = *want, .ttl_ms = want->ttl_ms};
    h.number = recording_attempt(world.shared->told);
    tell_ask(&h);
    h.lease = must_acquire(scene_client(), want);
    TELL(&h, .what = H_GRANTED, .token = hf_lease_token(h.lease), .from = h.asked,
         .until = good_until(&h));
    TELL(&h, .what = H_ENDED);
    assert_int_equal(hf_release(h.lease), HF_OK);
    hf_lease_free(h.lease);
    TELL(&h, .what = H_OVER);
}

static void tell_key(redisContext *to, const char *key, void *counts)
{
    size_t length = strlen(key);
    int64_t ttl = scene_number(to, "PTTL %s", key);
    bool waits = length > 2 && strcmp(key + length - 2, ":q") == 0;
    bool other =
        length > 2 && (strcmp(key + length - 2, ":t") == 0 || strcmp(key + length - 2, ":w") == 0);
    enum history_thing thing = strstr(key, ":inbox:") ? H_INBOX
                               : waits                ? H_WAITER
                               : other                ? H_KEY
                                                      : H_PERMIT;
    bool is_index = strstr(key, "}:names") != NULL;
    if (ttl == -2 || (is_index && ttl > 0))
        return; /* it has just ended, or it is the index of names, which stays for a day */
    if (other && key[length - 1] == 'w')
        scene_count_tombs(to, key);
    struct history_event left = {
        .at = now_ns(), .what = H_REST, .thing = (uint8_t)thing, .who = (uint32_t)H_NOBODY};
    left.until = ttl < 0 ? H_NEVER : ttl * 1000000;
    snprintf(left.text, sizeof left.text, "%s", key);
    record_event(world.shared->told, &left);
    ((unsigned *)counts)[thing]++;
}

static void tell_rest(void)
{
    static const struct want all[] = {
        {.name = "job", .ttl_ms = 1000, .wait_ms = 5000},
        {.name = "seats",
         .kind = HF_SEMAPHORE,
         .units = SEATS,
         .capacity = SEATS,
         .ttl_ms = 1000,
         .wait_ms = 5000},
        {.name = "page", .kind = HF_WRITE, .ttl_ms = 1000, .wait_ms = 5000},
    };
    unsigned left[4] = {0};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        sweep(&all[i]);
    scene_each_key(tell_key, left);
    print_message("# left: %u permits, %u waiters, %u inboxes, %u counters and tombstones\n",
                  left[H_PERMIT], left[H_WAITER], left[H_INBOX], left[H_KEY]);
}

/* What was judged at all, and how often no fault excused it. */
static void judge_all(void)
{
    static const struct history_rules rules = {.settles = SETTLES_MS * 1000000LL,
                                               .recovery = RECOVERY_MS * 1000000LL,
                                               .inbox = 60000000000LL};
    static const enum invariant must[] = {INV_EXCLUSION, INV_TOKEN_ORDER, INV_RETURNS, INV_WAITING,
                                          INV_REST};
    struct history *h = history_open();
    const char *failure = recording_judge(world.shared->told, h, &rules);
    unsigned failures = history_failures(h);
    print_message(
        "# %u events; judged: exclusion %llu, token order %llu, returns %llu, waiting %llu times\n",
        atomic_load(&world.shared->told->count),
        (unsigned long long)history_judged(h, INV_EXCLUSION),
        (unsigned long long)history_judged(h, INV_TOKEN_ORDER),
        (unsigned long long)history_judged(h, INV_RETURNS),
        (unsigned long long)history_judged(h, INV_WAITING));
    if (*failure)
        fail_msg("%s (%u in all)", failure, failures);
    for (unsigned i = 0; i < sizeof must / sizeof *must; i++)
        assert_true(history_judged(h, must[i]) > 0);
    history_close(h);
}

static void test_chaos(void **state)
{
    (void)state;
    server_needed(kind);
    stack_deck(kills_wanted);
    open_stage();
    let_happen(seconds, kills_wanted);
    show_faults();
    int64_t peace_ms = see_peace();
    struct shared *s = world.shared;
    print_message(
        "# %u grants, the last %d in %lld ms of peace, %u refusals, %u extended, %u lost\n",
        atomic_load(&s->grants), PEACE_GRANTS, (long long)peace_ms, atomic_load(&s->refusals),
        atomic_load(&s->extended), atomic_load(&s->lost));
    print_message("# of the grants %u of the semaphore, %u to read, %u to write\n",
                  atomic_load(&s->seats), atomic_load(&s->readers), atomic_load(&s->writers));
    end_clients();
    tell_rest();
    judge_all();
    assert_true(atomic_load(&s->extended) && atomic_load(&s->lost));
    assert_true(atomic_load(&s->seats) && atomic_load(&s->readers) && atomic_load(&s->writers));
    if (missing_fault())
        fail_msg("%s: none happened", missing_fault()->name);
    recording_close(s->told);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        {.name = "whatever happens nobody holds more than there is, tokens rise, calls return, and "
                 "nothing is left",
         .test_func = test_chaos,
         .setup_func = setup,
         .teardown_func = teardown},
    };
    if (argc > 1)
        seconds = (unsigned)atoi(argv[1]);
    draw_from(argc > 2 ? argv[2] : NULL);
    kills_wanted = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
    kind = argc > 4 && strcmp(argv[4], "valkey") == 0 ? SERVER_VALKEY : SERVER_REDIS;
    return cmocka_run_group_tests_name("redis: chaos", tests, NULL, NULL);
}
