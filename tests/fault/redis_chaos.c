/* redis_chaos.c - some processes on one server while all that can happen to it, to them and to the lines between them
 * does, in an order drawn from a seed. They use a lock, a semaphore, and a lock for readers and writers. What they
 * write down is judged by history_check: where the server kept its data nobody holds more than there is; where it lost
 * them, or its clock stepped, two are good for a ttl at most; tokens rise; every call returns once and in time; and in
 * the end nothing stays behind.
 *
 *     redis_chaos [SECONDS [SEED [KILLS [valkey]]]]      a seed of 0 is drawn; lasts until so many were killed, too */
#include "redis_chaos/schedule.h"

enum { PEACE_MS = 10000, PEACE_GRANTS = 20 };

static unsigned seconds = 20, kills_wanted;
static enum server_kind kind;

static int setup(void **state)
{
    scene.kind = kind;
    if (server_missing(kind))
        return 0;
    if (stage_setup(state) != 0)
        return -1;
    scene.server = server_start(&(struct server_options){.kind = kind, .appendonly = true, .preload = HF_SERVER_CLOCK});
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

static void open_stage(const char *log)
{
    world.shared = scene_page(sizeof *world.shared);
    world.shared->log = history_open(log);
    world.clock = (struct quorum){.count = 1, .server = {scene.server}};
    for (unsigned i = 0; i < CLIENTS; i++) {
        world.client[i].part = (struct part){.shared = world.shared, .number = i};
        start_client(&world.client[i]);
    }
}

/* Everything is fine again: in how many milliseconds so many more were granted. */
static int64_t see_peace(void)
{
    int64_t from = now_ns();
    unsigned wanted = atomic_load(&world.shared->grants) + PEACE_GRANTS;
    while (atomic_load(&world.shared->grants) < wanted) {
        if (now_ns() - from > PEACE_MS * 1000000LL)
            fail_msg("all is healed, and %u are still to be granted", wanted - atomic_load(&world.shared->grants));
        nap_us(1000);
    }
    return (now_ns() - from) / 1000000;
}

static void end_clients(void)
{
    atomic_store(&world.shared->over, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        assert_int_equal(actor_answer(world.client[i].actor, ORDER_CLOSE, 0).status, HF_OK);
}

/* Whoever was killed has left its place; somebody who comes sweeps it away. */
static void check_nothing_is_left(void)
{
    static const struct want all[] = {
        {.name = "job"},
        {.name = "seats", .kind = HF_SEMAPHORE, .units = SEATS, .capacity = SEATS},
        {.name = "page", .kind = HF_WRITE},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        struct want want = all[i];
        want.ttl_ms = 1000;
        want.wait_ms = 5000;
        hf_lease *lease = must_acquire(scene_client(), &want);
        assert_int_equal(hf_release(lease), HF_OK);
        hf_lease_free(lease);
        assert_int_equal(
            server_count(scene.server, "EXISTS lock:%s {lock:%s}:q {lock:%s}:h", want.name, want.name, want.name), 0);
    }
    struct leftovers left = scene_leftovers();
    print_message("# left: %lld counters, %lld inboxes, %lld tombstones\n", (long long)left.counters,
                  (long long)left.inboxes, (long long)left.buried);
}

static void test_chaos(void **state)
{
    (void)state;
    char log[512];
    server_needed(kind);
    snprintf(log, sizeof log, "%s/history", stage_directory());
    stack_deck(kills_wanted);
    open_stage(log);
    let_happen(seconds, kills_wanted);
    show_faults();
    int64_t peace_ms = see_peace();
    struct shared *s = world.shared;
    print_message("# %u grants, the last %d in %lld ms of peace, %u refusals, %u extended, %u lost\n",
                  atomic_load(&s->grants), PEACE_GRANTS, (long long)peace_ms, atomic_load(&s->refusals),
                  atomic_load(&s->extended), atomic_load(&s->lost));
    print_message("# of the grants %u of the semaphore, %u to read, %u to write\n", atomic_load(&s->seats),
                  atomic_load(&s->readers), atomic_load(&s->writers));
    end_clients();
    assert_int_equal(history_judge(log), 0);
    check_nothing_is_left();
    assert_true(atomic_load(&s->extended) && atomic_load(&s->lost));
    assert_true(atomic_load(&s->seats) && atomic_load(&s->readers) && atomic_load(&s->writers));
    if (missing_fault())
        fail_msg("%s: none happened", missing_fault()->name);
    close(s->log);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        {.name = "whatever happens nobody holds more than there is, tokens rise, calls return, and nothing is left",
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
