/* redlock_waiting.c - waiting for a lock on a quorum: a release wakes, a lost message costs one
 * back-off, and split votes do not last (G39). Usage: redlock_waiting [SECONDS of contention] */
#include "redlock_fixture.h"

#include <stdatomic.h>

static int contention_s = 5;

/* ---- A release wakes ---- */

enum { HANDOVERS = 20, WOKEN_MS = 60, SLOW_MS = 150 };

/* Nobody would look again within ten seconds by himself. */
static const char patient[] = "retry_min=10s&retry_max=10s";

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void test_release_wakes(void **state)
{
    (void)state;
    char url[512];
    scene_start(5);
    quorum_url(&scene.quorum, patient, url, sizeof url);
    hf_client *holder = scene_client(NULL);
    struct actor *waiter = scene_actor(url);
    actor_holds(waiter, 1, &(struct want){.name = "warm", .ttl_ms = 20000});
    int64_t took_us[HANDOVERS];
    for (uint32_t i = 0; i < HANDOVERS; i++) {
        hf_lease *lease =
            must_acquire(holder, &(struct want){.name = "job", .ttl_ms = 20000, .wait_ms = 5000});
        actor_acquire(waiter, i + 2, ORDER_ACQUIRE,
                      &(struct want){.name = "job", .ttl_ms = 20000, .wait_ms = 9000});
        nap_us(40000);
        assert_true(actor_is_silent(waiter));
        int64_t released_at = now_ns();
        must_release(lease);
        struct answer answer = actor_answer(waiter, ORDER_ACQUIRE, i + 2);
        assert_int_equal(answer.status, HF_OK);
        took_us[i] = (answer.at_ns - released_at) / 1000;
        actor_does(waiter, ORDER_RELEASE, i + 2);
    }
    qsort(took_us, HANDOVERS, sizeof *took_us, compare);
    print_message("# from release to the next grant: %lld us in the middle, %lld us at most\n",
                  (long long)took_us[HANDOVERS / 2], (long long)took_us[HANDOVERS - 1]);
    assert_in_range(took_us[HANDOVERS / 2], 0, WOKEN_MS * 1000);
}

/* Not one message comes through: what he pays is one pause. */
static void test_lost_message(void **state)
{
    (void)state;
    enum { PAUSE_MS = 400 };
    char url[512];
    scene_start(5);
    scene_proxied_url("retry_min=400ms&retry_max=400ms", url, sizeof url);
    hf_client *holder = scene_client(NULL);
    struct actor *waiter = scene_actor(url);
    hf_lease *lease = must_acquire(holder, &(struct want){.name = "job", .ttl_ms = 20000});
    int fault[5];
    for (unsigned i = 0; i < 5;
         i++) /* the second connection is the one on which it hears; nothing ever comes there */
        fault[i] = proxy_plant(
            scene.proxy[0][i],
            &(struct proxy_fault){.kind = PROXY_DROP, .way = PROXY_REPLIES, .connection = 2});
    actor_acquire(waiter, 1, ORDER_ACQUIRE,
                  &(struct want){.name = "job", .ttl_ms = 20000, .wait_ms = 9000});
    for (unsigned i = 0; i < 5; i++)
        proxy_await(scene.proxy[0][i], fault[i]);
    assert_true(actor_is_silent(waiter));
    int64_t released_at = now_ns();
    must_release(lease);
    struct answer answer = actor_answer(waiter, ORDER_ACQUIRE, 1);
    assert_int_equal(answer.status, HF_OK);
    int64_t took_ms = (answer.at_ns - released_at) / 1000000;
    print_message("# without a message: %lld ms\n", (long long)took_ms);
    assert_in_range(took_ms, 0, PAUSE_MS + 100);
}

static int64_t calls_of(const char *command)
{
    int64_t calls = 0;
    for (unsigned i = 0; i < scene.quorum.count; i++)
        calls += server_calls(scene.quorum.server[i], command);
    return calls;
}

static void await_calls(const char *command, int64_t at_least)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    while (calls_of(command) < at_least) {
        if (now_ns() > end)
            fail_msg("no %s came", command);
        nap_us(2000);
    }
}

/* The release comes when the waiter has found it held, and before it listens anywhere. By himself
 * he would look again at any time within ten seconds; so luck has three chances to fail. */
static void try_release_before_listening(hf_client *holder, const char *url)
{
    struct actor *waiter = scene_actor(url);
    actor_holds(waiter, 1, &(struct want){.name = "warm", .ttl_ms = 20000});
    actor_does(waiter, ORDER_RELEASE, 1);
    hf_lease *lease = must_acquire(holder, &(struct want){.name = "job", .ttl_ms = 20000});
    scene_await_keys("job", 5);
    nap_us(50000); /* the slow ones have heard of its token, too */
    for (unsigned i = 0; i < 5; i++)
        proxy_delay(scene.proxy[0][i], PROXY_REPLIES, SLOW_MS);
    int64_t asked = calls_of("fcall"), heard = calls_of("subscribe");
    actor_acquire(waiter, 2, ORDER_ACQUIRE,
                  &(struct want){.name = "job", .ttl_ms = 20000, .wait_ms = 9000});
    await_calls("fcall",
                asked + 5); /* refused by all; the waiter hears of it when its answers come */
    assert_int_equal(calls_of("subscribe"), heard);
    int64_t released_at = now_ns();
    must_release(lease);
    struct answer answer = actor_answer(waiter, ORDER_ACQUIRE, 2);
    assert_int_equal(answer.status, HF_OK);
    int64_t took_ms = (answer.at_ns - released_at) / 1000000;
    print_message("# let in after %lld ms, with answers that take %d ms\n", (long long)took_ms,
                  SLOW_MS);
    assert_in_range(took_ms, 0, 2000);
    actor_does(waiter, ORDER_RELEASE, 2);
    for (unsigned i = 0; i < 5; i++)
        proxy_delay(scene.proxy[0][i], PROXY_REPLIES, 0);
}

static void test_release_before_listening(void **state)
{
    (void)state;
    char url[512];
    scene_start(5);
    scene_proxied_url(patient, url, sizeof url);
    hf_client *holder = scene_client(NULL);
    for (int i = 0; i < 3; i++)
        try_release_before_listening(holder, url);
}

/* Somebody holds it on three of five. What waiters get from the other two they give back, and
 * nobody hears of it. */
static void test_failed_tries_wake_nobody(void **state)
{
    (void)state;
    enum { WAITERS = 3 };
    struct actor *waiter[WAITERS];
    char url[512];
    scene_start(5);
    quorum_url(&scene.quorum, "retry_min=100ms&retry_max=100ms", url, sizeof url);
    for (unsigned i = 0; i < 3; i++)
        server_does(scene.quorum.server[i], "SET lock:job somebody PX 60000");
    for (unsigned i = 0; i < WAITERS; i++) {
        waiter[i] = scene_actor(url);
        actor_acquire(waiter[i], 1, ORDER_ACQUIRE,
                      &(struct want){.name = "job", .ttl_ms = 2000, .wait_ms = 9000});
    }
    await_calls("subscribe", (int64_t)WAITERS * 5);
    nap_us(100000); /* what was missed before they listened is made up for by one try */
    int64_t before = calls_of("fcall"), published = calls_of("publish");
    nap_us(1000000);
    int64_t tries =
        (calls_of("fcall") - before) / 7; /* five are asked, and two have something to take back */
    print_message("# %lld tries of %d waiters in a second\n", (long long)tries, WAITERS);
    assert_int_equal(calls_of("publish"), published);
    assert_in_range(tries, 1,
                    WAITERS * 10 * 4); /* full jitter of 100 ms: 20 a second each, on average */
    for (unsigned i = 0; i < 3; i++)
        server_does(scene.quorum.server[i], "DEL lock:job");
    for (unsigned i = 0; i < WAITERS; i++) {
        assert_int_equal(actor_answer(waiter[i], ORDER_ACQUIRE, 1).status, HF_OK);
        actor_does(waiter[i], ORDER_RELEASE, 1);
    }
    assert_true(calls_of("publish") > published); /* what was held is told of */
}

/* A holder that dies releases nothing: its hold ends, and who waits is in soon after. */
static void test_expiry(void **state)
{
    (void)state;
    char url[512];
    scene_start(5);
    quorum_url(&scene.quorum, patient, url, sizeof url);
    struct actor *holder = scene_actor(url), *waiter = scene_actor(url);
    actor_holds(waiter, 1, &(struct want){.name = "warm", .ttl_ms = 20000});
    int64_t held_at = actor_holds(holder, 1, &(struct want){.name = "job", .ttl_ms = 1000}).at_ns;
    actor_kill(holder);
    actor_acquire(waiter, 2, ORDER_ACQUIRE,
                  &(struct want){.name = "job", .ttl_ms = 1000, .wait_ms = 5000});
    struct answer answer = actor_answer(waiter, ORDER_ACQUIRE, 2);
    assert_int_equal(answer.status, HF_OK);
    int64_t after_ms = (answer.at_ns - held_at) / 1000000;
    print_message("# let in after %lld ms of 1000\n", (long long)after_ms);
    assert_in_range(after_ms, 980, 1250);
}

/* ---- The queue ---- */

/* Those before it are shown, and dead: they are passed over once, after their grace, however many
 * they are. */
static void test_dead_waiters(void **state)
{
    (void)state;
    enum { DEAD = 6, PASSED_MS = 400 };
    struct actor *waiter[DEAD + 1];
    char url[512];

    scene_start(5);
    quorum_url(&scene.quorum, patient, url, sizeof url);
    hf_client *holder = scene_client(NULL);
    hf_lease *lease = must_acquire(holder, &(struct want){.name = "job", .ttl_ms = 20000});
    for (int i = 0; i <= DEAD; i++) {
        waiter[i] = scene_actor(url);
        actor_acquire(waiter[i], 1, ORDER_ACQUIRE,
                      &(struct want){.name = "job", .ttl_ms = 20000, .wait_ms = 9000});
        await_sight(holder, "job", 1, i + 1);
    }
    for (int i = 0; i < DEAD; i++)
        actor_kill(waiter[i]);
    int64_t released_at = now_ns();
    must_release(lease);
    struct answer answer = actor_answer(waiter[DEAD], ORDER_ACQUIRE, 1);
    assert_int_equal(answer.status, HF_OK);
    int64_t took_ms = (answer.at_ns - released_at) / 1000000;
    print_message("# behind %d dead waiters: %lld ms\n", DEAD, (long long)took_ms);
    assert_in_range(took_ms, 0, PASSED_MS);
    assert_int_equal(see(holder, "job").waiters, 0);
}

/* ---- Split votes ---- */

enum { CONTENDERS = 3, GAP_MS = 200 };

struct floor {
    _Atomic int inside, overlaps;
    _Atomic int64_t left_at; /* when the last holder left */
    _Atomic int64_t longest; /* gap without a holder */
    _Atomic int64_t gaps;    /* their sum */
    _Atomic unsigned held[CONTENDERS];
    _Atomic bool over;
};

struct contender {
    struct floor *floor;
    unsigned number;
    char url[512];
};

static void hold_once(struct floor *floor, struct contender *me, hf_lease *lease)
{
    int64_t gap = now_ns() - atomic_load(&floor->left_at), longest = atomic_load(&floor->longest);
    if (atomic_fetch_add(&floor->inside, 1) != 0)
        atomic_fetch_add(&floor->overlaps, 1);
    while (gap > longest && !atomic_compare_exchange_weak(&floor->longest, &longest, gap)) {
    }
    atomic_fetch_add(&floor->gaps, gap);
    atomic_fetch_add(&floor->held[me->number], 1);
    nap_us(1000 + arc4random_uniform(4000));
    atomic_fetch_sub(&floor->inside, 1);
    atomic_store(&floor->left_at, now_ns());
    part_must(hf_release(lease) == HF_OK);
    hf_lease_free(lease);
}

static void contend(struct actor *self, void *arg)
{
    struct contender *me = arg;
    struct want want = {.name = "job", .ttl_ms = 20000, .wait_ms = 10000};
    struct hf_request request = request_of(&want);
    hf_client *client;
    part_must(hf_open(me->url, NULL, &client) == HF_OK);
    part_says(self, &(struct answer){.what = ORDER_GO});
    part_awaits_go(self);
    while (!atomic_load(&me->floor->over)) {
        hf_lease *lease;
        part_must(hf_acquire(client, &request, &lease) == HF_OK);
        hold_once(me->floor, me, lease);
    }
    part_must(hf_close(client, 5000) == HF_OK);
    part_says(self, &(struct answer){.what = ORDER_CLOSE});
}

static void test_contenders(void **state)
{
    (void)state;
    static struct contender contender[CONTENDERS];
    struct actor *actor[CONTENDERS];
    struct floor *floor =
        mmap(NULL, sizeof *floor, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(floor != MAP_FAILED);
    scene_start(5);
    for (unsigned i = 0; i < CONTENDERS; i++) {
        contender[i] = (struct contender){.floor = floor, .number = i};
        quorum_url(&scene.quorum, NULL, contender[i].url, sizeof contender[i].url);
        actor[i] = actor_start_part(contend, &contender[i]);
        actor_answer(actor[i], ORDER_GO, 0);
    }
    atomic_store(&floor->left_at, now_ns());
    int64_t begin = now_ns();
    for (unsigned i = 0; i < CONTENDERS; i++)
        actor_order(actor[i], ORDER_GO, 0);
    nap_us((int64_t)contention_s * 1000000);
    atomic_store(&floor->over, true);
    for (unsigned i = 0; i < CONTENDERS; i++)
        actor_answer(actor[i], ORDER_CLOSE, 0);
    unsigned held = 0;
    for (unsigned i = 0; i < CONTENDERS; i++) {
        assert_true(atomic_load(&floor->held[i]) > 0);
        held += atomic_load(&floor->held[i]);
    }
    print_message("# %u holds in %lld ms, %lld us between two, %lld ms at most\n", held,
                  (long long)(now_ns() - begin) / 1000000,
                  (long long)atomic_load(&floor->gaps) / held / 1000,
                  (long long)atomic_load(&floor->longest) / 1000000);
    assert_int_equal(atomic_load(&floor->overlaps), 0);
    assert_in_range(atomic_load(&floor->longest), 0, INT64_C(1000000) * GAP_MS);
    scene_await_keys("job", 0);
    munmap(floor, sizeof *floor);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        ON_QUORUM("a release wakes who waits", test_release_wakes),
        ON_QUORUM("a lost message costs one back-off", test_lost_message),
        ON_QUORUM("a release that came before anybody listened is made up for",
                  test_release_before_listening),
        ON_QUORUM("tries that fail wake nobody", test_failed_tries_wake_nobody),
        ON_QUORUM("the end of a dead holder's lease lets the next one in", test_expiry),
        ON_QUORUM("waiters are seen, and dead ones are passed over together", test_dead_waiters),
        ON_QUORUM("three contenders leave no gap without a holder", test_contenders),
    };
    if (argc > 1)
        contention_s = atoi(argv[1]);
    return cmocka_run_group_tests_name("redlock: waiting", tests, NULL, NULL);
}
