/* clang-format off */
/* redis_dead_waiters.c - dead waiters on a real server keep a free lock from nobody: N waiters of
 * killed or stopped processes stand in the queue, one living waiter behind them, and the lock
 * becomes free. Prints how long that waiter waited, as the rows of a table.
 *
 *     redis_dead_waiters [--all]     without --all the ends of the table and one server for the rest: the daily part */
/* clang-format on */
#include "lib/proxy.h"
#include "redis_fixture.h"

#include <signal.h>
#include <time.h>

enum {
    WAITED_MS = 1100, /* how long the dead had waited at least: after a second only their client
                         vouches for them */
    ONE_MS = 1000,    /* bound for one dead waiter */
    CROWD_MS = 2000,  /* bound for any number of them */
    BEYOND_ONE_SCRIPT = 5000,
};

static bool whole_table;
static const char *const wakes[] = {"inbox", "pubsub", "poll"};
enum { WAKES = 3 };

/* ---- Those who die ---- */

struct crowd {
    const char *name;
    int waits;
};

static void ignore_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)outcome, (void)arg;
}

static struct want patient(const char *name)
{
    return (struct want){.name = name, .ttl_ms = 30000, .wait_ms = HF_FOREVER};
}

static void wait_in_a_crowd(struct actor *me, void *arg)
{
    const struct crowd *crowd = arg;
    struct want want = patient(crowd->name);
    struct hf_request request = request_of(&want);
    hf_client *client = scene_part_client();
    for (int i = 0; i < crowd->waits; i++) {
        hf_lease *lease;
        part_must(hf_acquire_start(client, &request, ignore_outcome, NULL, &lease) == HF_OK);
    }
    part_awaits_go(me); /* it dies before that */
}

static struct actor *start_crowd(const char *name, int waits)
{
    return actor_start_part(wait_in_a_crowd, &(struct crowd){.name = name, .waits = waits});
}

static void use_wake(const char *wake)
{
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?wake=%s", server_port(scene.server),
             wake);
}

/* ---- One lock: its holder, the crowd in the queue, the living waiter behind it ---- */

struct queue {
    char name[16];
    hf_lease *held; /* by the test's own client */
    struct actor *crowd, *living;
    int64_t free_ns; /* when the lock became free */
};

static struct queue line_up(const char *wake, int dead)
{
    struct queue q = {.name = ""};
    snprintf(q.name, sizeof q.name, "%s", wake);
    struct want held = {.name = q.name, .ttl_ms = 30000, .flags = HF_AUTO_RENEW};
    q.held = must_acquire(scene_client(), &held);
    use_wake(wake);
    q.crowd = start_crowd(q.name, dead);
    scene_await_queue(q.name, dead);
    return q;
}

static void add_living(struct queue *q, int dead)
{
    struct want want = patient(q->name);
    q->living = scene_actor();
    actor_acquire(q->living, 0, ORDER_START, &want);
    scene_await_queue(q->name, dead + 1);
}

static void bury(struct actor *a)
{
    actor_kill(a);
    actor_await_end(a);
}

static void release_now(struct queue *q)
{
    q->free_ns = now_ns();
    must_release(q->held);
}

static double served_after_ms(struct queue *q)
{
    struct answer granted = actor_answer(q->living, ORDER_START, 0);
    assert_int_equal(granted.status, HF_OK);
    assert_int_equal(actor_does(q->living, ORDER_RELEASE, 0).status, HF_OK);
    return (double)(granted.at_ns - q->free_ns) / 1e6;
}

/* The living waiter polls every 800 ms. Each measurement meets another moment between two polls. */
static void let_them_wait(void)
{
    static int turn;
    nap_us((WAITED_MS + turn++ * 310 % 800) * 1000);
}

/* ---- The table ---- */

static void print_row(const char *dead, const char *when, const double longest_ms[WAKES])
{
    printf("# | %s | %s | %s |", scene.kind == SERVER_REDIS ? "Redis" : "Valkey", dead, when);
    for (int i = 0; i < WAKES; i++)
        printf(" %.2f s |", longest_ms[i] / 1000);
    puts("");
    fflush(stdout);
}

/* A row: the three ways of waking at the same time, each with its own lock and its own dead. */
static void measure(int dead, int before_ms, double longest_ms[WAKES])
{
    struct queue q[WAKES];
    for (int i = 0; i < WAKES; i++)
        q[i] = line_up(wakes[i], dead);
    for (int i = 0; i < WAKES; i++) {
        use_wake(wakes[i]);
        add_living(&q[i], dead);
    }
    let_them_wait();
    for (int i = 0; i < WAKES; i++)
        bury(q[i].crowd);
    nap_us(before_ms * 1000);
    for (int i = 0; i < WAKES; i++)
        release_now(&q[i]);
    for (int i = 0; i < WAKES; i++) {
        double after_ms = served_after_ms(&q[i]);
        bury(q[i].living);
        longest_ms[i] = after_ms > longest_ms[i] ? after_ms : longest_ms[i];
    }
}

/* The longest of several measurements. */
static void measure_row(int dead, int before_ms)
{
    double longest_ms[WAKES] = {0};
    char count[16], when[16];
    for (int i = 0; i < (whole_table ? 3 : 1); i++)
        measure(dead, before_ms, longest_ms);
    snprintf(count, sizeof count, "%d", dead);
    snprintf(when, sizeof when, "%.1f s", before_ms / 1000.0);
    print_row(count, when, longest_ms);
    for (int i = 0; i < WAKES; i++)
        assert_true(longest_ms[i] < (dead == 1 ? ONE_MS : CROWD_MS));
}

static void measure_rows(int before_ms)
{
    static const int all[] = {1, 100, 400, 1500}, ends[] = {1, 1500};
    if (whole_table)
        for (int i = 0; i < 4; i++)
            measure_row(all[i], before_ms);
    else
        for (int i = 0; i < 2; i++)
            measure_row(ends[i], before_ms);
}

static void test_just_dead(void **state)
{
    (void)state;
    measure_rows(300);
}

static void test_long_dead(void **state)
{
    (void)state;
    measure_rows(1500);
}

/* ---- Other crowds ---- */

enum { MANY = 200 };

static void test_processes(void **state)
{
    (void)state;
    struct queue q = line_up("inbox", 1);
    struct actor *crowd[MANY] = {q.crowd};
    for (int i = 1; i < MANY; i++)
        crowd[i] = start_crowd(q.name, 1);
    scene_await_queue(q.name, MANY);
    add_living(&q, MANY);
    let_them_wait();
    for (int i = 0; i < MANY; i++)
        actor_kill(crowd[i]);
    for (int i = 0; i < MANY; i++)
        actor_await_end(crowd[i]);
    nap_us(300 * 1000);
    release_now(&q);
    double after_ms = served_after_ms(&q);
    printf("# %d killed processes with one wait each: the living waiter held after %.0f ms\n", MANY,
           after_ms);
    assert_true(after_ms < CROWD_MS);
}

static void test_stopped(void **state)
{
    (void)state;
    struct queue q = line_up("inbox", 1500);
    add_living(&q, 1500);
    let_them_wait();
    actor_stop(q.crowd);
    nap_us(300 * 1000);
    release_now(&q);
    double after_ms = served_after_ms(&q);
    printf("# a stopped process with 1500 waits: the living waiter held after %.0f ms\n", after_ms);
    assert_true(after_ms < CROWD_MS);
}

static void test_holder_dies(void **state)
{
    (void)state;
    struct queue q = {.name = "l"};
    struct actor *holder = scene_actor();
    actor_holds(holder, 0, &(struct want){.name = "l", .ttl_ms = 3000, .flags = HF_AUTO_RENEW});
    q.crowd = start_crowd("l", 1500);
    scene_await_queue("l", 1500);
    add_living(&q, 1500);
    let_them_wait();
    actor_kill(holder);
    bury(q.crowd);
    actor_await_end(holder);
    q.free_ns = scene_end_of_hold("l");
    double after_ms = served_after_ms(&q);
    printf("# holder and 1500 waiters killed: the living waiter held %.0f ms after the end of the "
           "hold\n",
           after_ms);
    assert_true(after_ms >= 0 && after_ms < CROWD_MS);
}

/* ---- Nobody is there but a newcomer ---- */

static void let_newcomer_in(const char *name)
{
    struct want want = {.name = name, .ttl_ms = 30000};
    must_release(must_acquire(scene_client(), &want)); /* fails on BUSY */
}

static void test_newcomer(void **state)
{
    (void)state;
    struct queue q = line_up("inbox", 1500);
    let_them_wait();
    bury(q.crowd);
    nap_us(300 * 1000);
    release_now(&q);
    nap_us(1200 * 1000);
    let_newcomer_in(q.name);
}

/* More than one script removes. */
static void test_newcomer_beyond(void **state)
{
    (void)state;
    struct queue q = line_up("inbox", BEYOND_ONE_SCRIPT);
    let_them_wait();
    bury(q.crowd);
    nap_us(300 * 1000);
    release_now(&q); /* the lock goes to a dead one: nobody removes the others */
    nap_us(1200 * 1000);
    assert_true(server_count(scene.server, "ZCARD {lock:%s}:q", q.name) > 4096);
    let_newcomer_in(q.name);
    assert_int_equal(server_count(scene.server, "ZCARD {lock:%s}:q", q.name), 0);
}

static void test_release_beyond(void **state)
{
    (void)state;
    struct queue q = line_up("inbox", BEYOND_ONE_SCRIPT);
    add_living(&q, BEYOND_ONE_SCRIPT);
    let_them_wait();
    bury(q.crowd);
    nap_us(1500 * 1000);
    release_now(&q);
    double after_ms = served_after_ms(&q);
    printf("# %d dead, 1.5 s before the release: the living waiter held after %.0f ms\n",
           BEYOND_ONE_SCRIPT, after_ms);
    assert_true(after_ms < 500);
}

/* ---- Requests that reach the server after the death of the waiter that sent them ---- */

/* The only waiter is behind a proxy. It polls twice a second, with the longest op_timeout. */
static struct queue line_up_behind(struct proxy *proxy)
{
    struct queue q = {.name = "l"};
    struct want held = {.name = "l", .ttl_ms = 30000, .flags = HF_AUTO_RENEW};
    q.held = must_acquire(scene_client(), &held);
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?wake=poll", proxy_port(proxy));
    add_living(&q, 0);
    let_them_wait();
    return q;
}

/* Its next poll comes as far as the proxy, and then it dies. */
static void die_with_a_poll_in_flight(struct queue *q, struct proxy *proxy)
{
    proxy_freeze(proxy, true);
    uint64_t others = proxy_frozen(proxy);
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    while (proxy_frozen(proxy) < others + 150 && now_ns() < end) /* signs of life are shorter */
        nap_us(1000);
    assert_true(now_ns() < end);
    bury(q->living);
}

static int64_t hold_left_ms(void)
{
    return server_count(scene.server, "PTTL lock:l");
}

static void test_poll_after_handoff(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server_port(scene.server));
    struct queue q = line_up_behind(proxy);
    die_with_a_poll_in_flight(&q, proxy);
    release_now(&q);
    assert_in_range(hold_left_ms(), 1, ONE_MS); /* it was handed over */
    nap_us(300 * 1000);
    int64_t left_ms = hold_left_ms();
    proxy_freeze(proxy, false);
    while (hold_left_ms() == left_ms || (hold_left_ms() > 0 && hold_left_ms() < left_ms))
        nap_us(1000); /* until the poll is executed */
    left_ms = hold_left_ms();
    printf("# a poll that came after the handoff and the death of its waiter held for %lld ms\n",
           (long long)left_ms);
    assert_in_range(left_ms, 1, ONE_MS);
    proxy_end(proxy);
}

static void test_poll_of_passed_over(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server_port(scene.server));
    struct queue q = line_up_behind(proxy);
    die_with_a_poll_in_flight(&q, proxy);
    nap_us(1000 * 1000);
    release_now(&q);
    assert_int_equal(server_count(scene.server, "EXISTS lock:l"), 0); /* it was passed over */
    proxy_freeze(proxy, false);
    while (server_count(scene.server, "EXISTS lock:l") == 0)
        nap_us(1000); /* until the poll is executed */
    int64_t left_ms = hold_left_ms();
    printf("# a poll that found the lock free after the death of its waiter held for %lld ms\n",
           (long long)left_ms);
    assert_in_range(left_ms, 1, ONE_MS);
    proxy_end(proxy);
}

/* ---- What is shown, and the order of the living ---- */

static void test_list(void **state)
{
    (void)state;
    struct queue q = line_up("inbox", 100);
    add_living(&q, 100);
    let_them_wait();
    await_sight(scene_client(), q.name, 1, 101);
    bury(q.crowd);
    int64_t dead_ns = now_ns();
    await_sight(scene_client(), q.name, 1, 1);
    double known_ms = (double)(now_ns() - dead_ns) / 1e6;
    printf("# list showed none of 100 dead waiters after %.0f ms\n", known_ms);
    assert_true(known_ms < 1500);
    release_now(&q);
    assert_true(served_after_ms(&q) < ONE_MS);
}

static struct actor *join_queue(const char *name, int64_t place)
{
    struct want want = patient(name);
    struct actor *a = scene_actor();
    actor_acquire(a, 0, ORDER_START, &want);
    scene_await_queue(name, place);
    return a;
}

static void await_turn(struct actor *a, uint64_t *token)
{
    struct answer granted = actor_answer(a, ORDER_START, 0);
    assert_int_equal(granted.status, HF_OK);
    assert_true(granted.token > *token);
    *token = granted.token;
}

/* The second of three stands still for 1.5 s, and goes on before its turn. */
static void test_pause(void **state)
{
    (void)state;
    struct actor *a[3];
    uint64_t token = 0;
    hf_lease *held = must_acquire(scene_client(), &(struct want){.name = "l", .ttl_ms = 30000});
    for (int i = 0; i < 3; i++)
        a[i] = join_queue("l", i + 1);
    actor_stop(a[1]);
    nap_us(1500 * 1000);
    actor_go_on(a[1]);
    must_release(held);
    await_turn(a[0], &token);
    nap_us(1000 * 1000); /* by now the second one has asked again */
    for (int i = 0; i < 3; i++) {
        if (i)
            await_turn(a[i], &token);
        for (int k = i + 1; k < 3; k++)
            assert_true(actor_is_silent(a[k]));
        assert_int_equal(actor_does(a[i], ORDER_RELEASE, 0).status, HF_OK);
    }
}

/* Its turn comes while it stands still: the third one is served, and the second one before the
 * fourth. */
static void test_place_back(void **state)
{
    (void)state;
    struct actor *a[4];
    uint64_t token = 0;
    hf_lease *held = must_acquire(scene_client(), &(struct want){.name = "l", .ttl_ms = 30000});
    for (int i = 0; i < 4; i++)
        a[i] = join_queue("l", i + 1);
    must_release(held);
    await_turn(a[0], &token);
    actor_stop(a[1]);
    nap_us(1500 * 1000);
    assert_int_equal(actor_does(a[0], ORDER_RELEASE, 0).status, HF_OK);
    await_turn(a[2], &token);
    scene_await_queue("l", 1); /* the second one has lost its place */
    actor_go_on(a[1]);
    scene_await_queue("l", 2);
    assert_int_equal(actor_does(a[2], ORDER_RELEASE, 0).status, HF_OK);
    await_turn(a[1], &token);
    assert_true(actor_is_silent(a[3]));
    assert_int_equal(actor_does(a[1], ORDER_RELEASE, 0).status, HF_OK);
    await_turn(a[3], &token);
    assert_int_equal(actor_does(a[3], ORDER_RELEASE, 0).status, HF_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("waiters that died 0.3 s before the release cost less than 2 s, one of them less "
                 "than 1 s",
                 test_just_dead),
        SENTENCE("so do waiters that died 1.5 s before it", test_long_dead),
        SENTENCE("so do 200 killed processes with one wait each", test_processes),
        SENTENCE("so does a stopped process with 1,500 waits", test_stopped),
        SENTENCE("so do they when the holder dies, too", test_holder_dies),
        SENTENCE("a poll that is executed after handoff and death holds for less than a second",
                 test_poll_after_handoff),
        SENTENCE("so does one that is executed when its dead waiter was passed over",
                 test_poll_of_passed_over),
        SENTENCE("a newcomer that does not wait is let in 1.5 s after the deaths", test_newcomer),
        SENTENCE("so is it behind more dead waiters than one script removes", test_newcomer_beyond),
        SENTENCE("a release goes on behind more dead waiters than one script removes",
                 test_release_beyond),
        SENTENCE("list shows no dead waiter", test_list),
        SENTENCE("a client that stood still for 1.5 s in the queue is served in its place",
                 test_pause),
        SENTENCE("a client that was passed over gets its place back", test_place_back),
    };
    whole_table = argc > 1 && strcmp(argv[1], "--all") == 0;
    puts("# | server | dead waiters | died before the release | inbox | pubsub | poll |");
    if (whole_table)
        return SCENE_JUDGE(tests);
    return scene_judge_kind(SERVER_REDIS, "redis", tests, sizeof tests / sizeof *tests) +
           scene_judge_kind(SERVER_VALKEY, "valkey", tests, 1);
}
