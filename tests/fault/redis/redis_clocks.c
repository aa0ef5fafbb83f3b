/* redis_clocks.c - the clocks of a client's machine: the wall clock and the monotonic one may step
 * by hours, and nothing happens; the one that counts while the machine sleeps ends what ended
 * meanwhile, at once. The library's clocks come from here because the linker wraps them
 * (tests/CMakeLists.txt); and once more from a time namespace. */
#include "lib/loss_notes.h"
#include "redis_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TTL_MS = 600,
    WAIT_MS = 400,
    SLACK_MS = 300, /* a machine with much else to do */
    HOUR_S = 3600,
    STEPS = 40,
};

/* ---- Clocks ---- */

static struct {
    _Atomic int64_t wrong_s; /* by how much each is */
} clocks[CLOCK_BOOTTIME + 1];

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (clock < 0 || clock > CLOCK_BOOTTIME)
        return result;
    time->tv_sec += atomic_load(&clocks[clock].wrong_s);
    return result;
}

/* The true time, whatever the others show. */
static int64_t true_ms(void)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC_RAW, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* By how many seconds this clock differs from the kernel's, as seen by whoever is linked into this
 * program. */
static int64_t seen_wrong_s(clockid_t clock)
{
    struct timespec shown, kernel;
    clock_gettime(clock, &shown);
    syscall(SYS_clock_gettime, clock, &kernel);
    return shown.tv_sec - kernel.tv_sec;
}

static int teardown(void **state)
{
    for (clockid_t clock = 0; clock <= CLOCK_BOOTTIME; clock++)
        atomic_store(&clocks[clock].wrong_s, 0);
    return scene_teardown(state);
}

/* ---- Leases ---- */

static hf_lease *hold(const char *name, int64_t ttl_ms, uint32_t flags, struct loss *loss)
{
    return hold_noting(scene_client(),
                       &(struct want){.name = name, .ttl_ms = ttl_ms, .flags = flags}, loss);
}

/* A wait for what somebody else keeps lasts as long as it should. */
static void wait_in_vain(void)
{
    struct hf_request request =
        request_of(&(struct want){.name = "kept", .ttl_ms = TTL_MS, .wait_ms = WAIT_MS});
    hf_lease *lease;
    int64_t from = true_ms();
    assert_int_equal(hf_acquire(scene_client(), &request, &lease), HF_TIMEOUT);
    assert_in_range(true_ms() - from, WAIT_MS - 1, WAIT_MS + SLACK_MS);
}

/* ---- Clocks that do not matter ---- */

/* Forward and back by hours, many times within a ttl. */
static void *step(void *arg)
{
    clockid_t clock = *(const clockid_t *)arg;
    static const int64_t to_s[] = {5 * HOUR_S, -7 * HOUR_S, 1, -1, 24 * HOUR_S, 0};
    for (int i = 0; i < STEPS; i++) {
        atomic_store(&clocks[clock].wrong_s, to_s[i % 6]);
        usleep(2 * TTL_MS * 1000 / STEPS);
    }
    atomic_store(&clocks[clock].wrong_s, 3 * HOUR_S);
    return NULL;
}

static void does_not_matter(clockid_t clock)
{
    pthread_t thread;
    struct loss loss = {0};
    uint64_t token = 0;
    struct actor *other = scene_actor();
    actor_holds(other, 1, &(struct want){.name = "kept", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW});
    hf_lease *held = hold("held", TTL_MS, HF_AUTO_RENEW, &loss);
    assert_int_equal(pthread_create(&thread, NULL, step, &clock), 0);
    for (int i = 0; i < 3; i++) {
        hf_lease *brief = hold("brief", TTL_MS, 0, &loss);
        int64_t left = hf_lease_left_ms(brief);
        assert_in_range(left, TTL_MS / 2, TTL_MS);
        assert_true(hf_lease_token(brief) > token);
        token = hf_lease_token(brief);
        wait_in_vain();
        assert_in_range(hf_lease_left_ms(held), 1, TTL_MS);
        must_release(brief);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&loss.times), 0);
    assert_true(hf_lease_ok(held));
    must_release(held);
    assert_in_range(seen_wrong_s(clock), 2 * HOUR_S, 4 * HOUR_S);
}

static void test_wall(void **state)
{
    (void)state;
    does_not_matter(CLOCK_REALTIME);
}

static void test_monotonic(void **state)
{
    (void)state;
    does_not_matter(CLOCK_MONOTONIC);
}

/* What a log says the time is, is the wall clock's. */
static void note_wall(void *arg, const struct hf_log_event *event)
{
    atomic_store((_Atomic int64_t *)arg, event->wall_ms);
}

static void test_log(void **state)
{
    (void)state;
    static _Atomic int64_t wall_ms;
    struct hf_client_options options = {
        .size = sizeof options, .on_log = note_wall, .log_arg = (void *)&wall_ms};
    hf_client *client;
    assert_int_equal(hf_open(scene.url, &options, &client), HF_OK);
    atomic_store(&clocks[CLOCK_REALTIME].wrong_s, 100 * HOUR_S);
    hf_lease_free(must_acquire(client, &(struct want){.name = "logged", .ttl_ms = TTL_MS}));
    assert_int_equal(hf_close(client, 5000), HF_OK);
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    assert_in_range(atomic_load(&wall_ms) / 1000, now.tv_sec + 99 * HOUR_S,
                    now.tv_sec + 101 * HOUR_S);
}

/* ---- The machine slept ---- */

static void sleep_for(int64_t seconds)
{
    atomic_fetch_add(&clocks[CLOCK_BOOTTIME].wrong_s, seconds);
}

static void test_slept(void **state)
{
    (void)state;
    struct loss loss[2] = {0};
    hf_lease *kept = hold("kept", 10 * TTL_MS, HF_AUTO_RENEW, &loss[0]);
    hf_lease *brief = hold("brief", TTL_MS, 0, &loss[1]);
    sleep_for(HOUR_S);
    assert_in_range(seen_wrong_s(CLOCK_BOOTTIME), HOUR_S - 1, HOUR_S + 1);
    assert_int_equal(hf_lease_left_ms(kept), 0);
    assert_int_equal(hf_lease_left_ms(brief), 0);
    assert_int_equal(hf_extend(brief, 0), HF_LOST);
    for (int64_t from = true_ms(); !atomic_load(&loss[0].times) || !atomic_load(&loss[1].times);
         usleep(1000))
        assert_true(true_ms() - from < 10 * TTL_MS); /* what was left of the thread's sleep */
    assert_false(hf_lease_ok(kept) || hf_lease_ok(brief));
    assert_int_equal(hf_release(kept), HF_NOT_HELD);
    hf_lease_free(kept);
    hf_lease_free(brief);
    must_release(
        hold("kept", TTL_MS, 0, &loss[0])); /* the old one was given back, or this would be busy */
    assert_int_equal(atomic_load(&loss[0].times) + atomic_load(&loss[1].times), 2);
}

static _Atomic pid_t waits_there; /* the thread of wait_there */

static void await_asleep(pid_t thread)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    for (; state != 'S'; usleep(1000)) {
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%*d %*s %c", &state), 1);
        fclose(file);
    }
}

/* A wait that was over while the machine slept ends; the queue has nobody left. */
static void *wait_there(void *status)
{
    atomic_store(&waits_there, gettid());
    struct hf_request request =
        request_of(&(struct want){.name = "kept", .ttl_ms = TTL_MS, .wait_ms = 600 * 1000});
    hf_lease *lease;
    *(hf_status *)status = hf_acquire(scene.client, &request, &lease);
    hf_lease_free(lease);
    return NULL;
}

static void test_slept_in_the_queue(void **state)
{
    (void)state;
    pthread_t thread;
    hf_status status;
    struct actor *other = scene_actor();
    scene_client();
    actor_holds(other, 1, &(struct want){.name = "kept", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW});
    assert_int_equal(pthread_create(&thread, NULL, wait_there, &status), 0);
    scene_await_queue("kept", 1);
    await_asleep(atomic_load(&waits_there));
    int64_t from = true_ms();
    sleep_for(HOUR_S);
    assert_int_equal(pthread_join(thread, NULL), 0);
    print_message("# ended %lld ms after it woke up: %s\n", (long long)(true_ms() - from),
                  hf_status_name(status));
    assert_int_equal(status, HF_TIMEOUT);
    assert_in_range(true_ms() - from, 0, TTL_MS + SLACK_MS); /* a look of its own */
    scene_await_queue("kept", 0);
}

/* ---- Another time ---- */

/* In a namespace whose boot was a day earlier: exit status 0, or 3 where there can be none. */
static int live_elsewhere(void)
{
    FILE *offsets = unshare(CLONE_NEWTIME) == 0 ? fopen("/proc/self/timens_offsets", "w") : NULL;
    if (!offsets || fprintf(offsets, "monotonic 86400 0\nboottime 86400 0\n") < 0 ||
        fclose(offsets) != 0)
        return 3;
    pid_t pid = fork(); /* only children live in it */
    if (pid == 0) {
        hf_client *client;
        hf_lease *lease;
        struct hf_request request =
            request_of(&(struct want){.name = "far", .ttl_ms = TTL_MS, .wait_ms = 10000});
        request.flags = HF_AUTO_RENEW;
        if (hf_open(scene.url, NULL, &client) != HF_OK ||
            hf_acquire(client, &request, &lease) != HF_OK)
            _exit(4);
        usleep(3 * TTL_MS * 1000);
        bool good = hf_lease_left_ms(lease) > 0 && hf_release(lease) == HF_OK;
        hf_lease_free(lease);
        _exit(good && hf_close(client, 5000) == HF_OK ? 0 : 5);
    }
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : 6;
}

static void play_elsewhere(struct actor *me, void *arg)
{
    (void)arg;
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_says(me, &(struct answer){.what = ORDER_CLOSE, .number = live_elsewhere()});
}

/* Until it waits; at once where there can be no such namespace, which it says then. */
static void await_waiting(struct actor *far)
{
    while (server_count(scene.server, "ZCARD {lock:far}:q") == 0 && actor_is_silent(far))
        usleep(1000);
}

/* One of them waits for the other for a ttl, there and back. */
static void test_namespace(void **state)
{
    (void)state;
    struct loss loss = {0};
    hf_lease *held = hold("far", TTL_MS, HF_AUTO_RENEW, &loss);
    struct actor *far = actor_start_part(play_elsewhere, NULL);
    actor_answer(far, ORDER_GO, 0);
    await_waiting(far);
    usleep(TTL_MS * 1000);
    uint64_t token = hf_lease_token(held);
    must_release(held); /* and with that hands it over */
    scene_await_queue("far", 0);
    struct want want = {.name = "far", .ttl_ms = TTL_MS, .wait_ms = 10000};
    int64_t from = true_ms();
    held = must_acquire(scene_client(), &want);
    int64_t waited = true_ms() - from;
    uint64_t later = hf_lease_token(held);
    must_release(held);
    int64_t status = actor_answer(far, ORDER_CLOSE, 0).number;
    if (status == 3) {
        print_message("# no time namespace can be made here\n");
        skip();
    }
    assert_int_equal(status, 0);
    print_message("# waited %lld ms for one whose clock is a day ahead\n", (long long)waited);
    assert_in_range(waited, TTL_MS, 3 * TTL_MS + SLACK_MS);
    assert_true(later > token);
}

#define PLAYED(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = scene_setup, .teardown_func = teardown  \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAYED("a wall clock that steps by hours changes nothing", test_wall),
        PLAYED("a monotonic clock that steps by hours changes nothing", test_monotonic),
        PLAYED("what a log shows is the wall clock", test_log),
        PLAYED("a machine that slept longer than the ttl has lost its leases, at once", test_slept),
        PLAYED("a wait that was over while the machine slept ends", test_slept_in_the_queue),
        PLAYED("a client in a time namespace of its own takes its turn with others",
               test_namespace),
    };
    return cmocka_run_group_tests_name("redis: clocks", tests, NULL, NULL);
}
