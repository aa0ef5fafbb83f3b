/* redlock_costs.c - what an uncontended cycle on five servers costs: sends, receives, polls, kicks
 * of the background thread and allocations are counted, not timed (G33). */
#include "lib/cycles.h"
#include "redlock_fixture.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CYCLES = 1000, ROUNDS = 3 }; /* ask, raise, release */

static struct {
    _Atomic unsigned long sends, receives, polls, kicks;
} count;

/* ---- What the library calls goes through here ---- */

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    count.sends++;
    return __real_send(fd, bytes, len, flags);
}

ssize_t __real_recv(int fd, void *bytes, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t len, int flags)
{
    ssize_t got = __real_recv(fd, bytes, len, flags);
    count.receives += got > 0;
    return got;
}

int __real_poll(struct pollfd *fds, nfds_t fd_count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t fd_count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t fd_count, int timeout)
{
    count.polls += timeout != 0; /* who looks for a moment before it sleeps does not wait */
    return __real_poll(fds, fd_count, timeout);
}

ssize_t __real_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    count.kicks++;
    return __real_write(fd, bytes, len);
}

/* ---- Cycles ---- */

struct cost {
    unsigned long sends, receives, polls, kicks, allocations;
    int64_t took_ms;
};

static void cycle(hf_client *client)
{
    must_release(must_acquire(client, &(struct want){.name = "job", .ttl_ms = 20000}));
}

static struct cost measure(hf_client *client)
{
    struct cost before = {count.sends, count.receives,       count.polls,
                          count.kicks, allocations_so_far(), 0};
    int64_t begin = now_ns();
    for (int i = 0; i < CYCLES; i++)
        cycle(client);
    struct cost cost = {count.sends - before.sends,
                        count.receives - before.receives,
                        count.polls - before.polls,
                        count.kicks - before.kicks,
                        allocations_so_far() - before.allocations,
                        (now_ns() - begin) / 1000000};
    print_message(
        "# a cycle: %.2f sends, %.2f receives, %.2f polls, %.3f kicks, %.3f allocations, %lld us\n",
        (double)cost.sends / CYCLES, (double)cost.receives / CYCLES, (double)cost.polls / CYCLES,
        (double)cost.kicks / CYCLES, (double)cost.allocations / CYCLES,
        (long long)cost.took_ms * 1000 / CYCLES);
    return cost;
}

/* The background thread looks at what lies about once in a while, on a busy machine more often; if
 * a cycle woke it there would be one for each. */
static void check_kicks(const struct cost *cost)
{
    assert_in_range(cost->kicks, 0, CYCLES / 3);
}

static void test_healthy(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    for (int i = 0; i < 100; i++)
        cycle(client);
    struct cost cost = measure(client);
    assert_in_range(cost.sends, CYCLES * ROUNDS * 3,
                    CYCLES * ROUNDS * 5 + 100); /* who is late need not be raised */
    assert_in_range(cost.receives, 0, CYCLES * ROUNDS * 5 + 100);
    assert_in_range(cost.polls, 0, CYCLES * ROUNDS * 5);
    assert_in_range(cost.allocations, 0, CYCLES / 5); /* rooms that grow, and then are there */
    check_kicks(&cost);
}

/* What it owes is not looked at by every cycle anew. */
static void test_one_hung(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client("op_timeout=200ms");
    for (int i = 0; i < 100; i++)
        cycle(client);
    server_pause(scene.quorum.server[2]);
    struct cost cost = measure(client);
    server_continue(scene.quorum.server[2]);
    assert_in_range(cost.sends, 0, CYCLES * ROUNDS * 5 + 200);
    assert_in_range(cost.kicks, 0,
                    CYCLES / 4); /* its line is given up and dialled again meanwhile */
    scene_await_keys("job", 0);
}

/* What a shared library allocates is seen: hiredis reads for the engine, too. */
static void test_counter_sees_libraries(void **state)
{
    (void)state;
    scene_start(1);
    unsigned long before = allocations_so_far();
    freeReplyObject(server_cli(scene.quorum.server[0], "PING"));
    assert_true(allocations_so_far() > before);
}

static void test_two_killed(void **state)
{
    (void)state;
    scene_start(5);
    hf_client *client = scene_client(NULL);
    for (int i = 0; i < 100; i++)
        cycle(client);
    server_kill9(scene.quorum.server[1]);
    server_kill9(scene.quorum.server[3]);
    struct cost cost = measure(client);
    assert_in_range(cost.sends, 0, CYCLES * ROUNDS * 3 + 200);
    check_kicks(&cost);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ON_QUORUM("a cycle is three sends to each server, no allocation, and wakes nobody",
                  test_healthy),
        ON_QUORUM("allocations of shared libraries are among those counted",
                  test_counter_sees_libraries),
        ON_QUORUM("with one server hung it costs no more", test_one_hung),
        ON_QUORUM("with two of five killed it costs less", test_two_killed),
    };
    return cmocka_run_group_tests_name("redlock: costs", tests, NULL, NULL);
}
