/* handoff_delay.c - how long after a death the next in line holds, also on a kernel that cannot
 * wait for two words. */
#include "lib/actors.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WAITERS = 20,
    ROUNDS = 50,
    MEDIAN_MS = 5,
    WORST_MS = 20,
    OLD_KERNEL_MS = 50,
    OLD_KERNEL_ROUNDS = 10
};

static const struct want patient = {.name = "l", .ttl_ms = 600000, .wait_ms = HF_FOREVER};

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static struct actor *queue_one(struct actor *a, int waiters)
{
    actor_acquire(a, 0, ORDER_ACQUIRE, &patient);
    await_sight(stage_client(), "l", 1, waiters);
    return a;
}

/* From the kill to the moment at which the next process has its lease in hand, sorted. */
static void measure(int64_t took[ROUNDS])
{
    struct actor *line[ROUNDS + WAITERS + 1];
    for (int i = 0; i <= WAITERS; i++)
        line[i] = queue_one(actor_start(), i);
    uint64_t token = actor_answer(line[0], ORDER_ACQUIRE, 0).token;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t killed_at = now_ns();
        actor_kill(line[round]);
        struct answer next = actor_answer(line[round + 1], ORDER_ACQUIRE, 0);
        assert_int_equal(next.status, HF_OK);
        assert_true(next.token > token);
        token = next.token;
        took[round] = next.at_ns - killed_at;
        actor_await_end(line[round]);
        if (round + 1 < ROUNDS)
            line[round + 1 + WAITERS] = queue_one(actor_start(), WAITERS);
    }
    for (int i = ROUNDS; i < ROUNDS + WAITERS; i++) {
        actor_kill(line[i]);
        actor_await_end(line[i]);
    }
    await_sight(stage_client(), "l", 0, 0);
    qsort(took, ROUNDS, sizeof *took, by_size);
}

/* What the machine itself takes now for processes to begin and end. */
static void measure_processes(int64_t took[ROUNDS])
{
    for (int i = 0; i < ROUNDS; i++) {
        int64_t from = now_ns();
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        assert_true(pid > 0 && waitpid(pid, NULL, 0) == pid);
        took[i] = now_ns() - from;
    }
    qsort(took, ROUNDS, sizeof *took, by_size);
}

static int64_t longer(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Another load on the machine may spoil one measurement, not two; and a handoff may take as long
 * as five processes that begin and end just before it. */
/* G17 */
static void test_holder_killed(void **state)
{
    (void)state;
    int64_t took[ROUNDS], beside[ROUNDS];
    bool fast = false;
    for (int tries = 0; tries < 2 && !fast; tries++) {
        measure_processes(beside);
        measure(took);
        int64_t median = took[ROUNDS / 2], worst = took[ROUNDS - 1];
        printf(
            "# kill -9 of the holder while %d wait, %d rounds: median %.3f ms, worst %.3f ms%s\n",
            WAITERS, ROUNDS, (double)median / 1e6, (double)worst / 1e6,
            tries ? " (second try)" : "");
        fast = median < longer(MEDIAN_MS * 1000000LL, 5 * beside[ROUNDS / 2]) &&
               worst < longer(WORST_MS * 1000000LL, 5 * beside[ROUNDS - 1]);
    }
    assert_true(fast);
}

/* From here on futex_waitv answers ENOSYS, as before Linux 5.16. */
static void forbid_waitv(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    part_must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    part_must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
    part_must(syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) < 0 && errno == ENOSYS);
}

static void live_on_old_kernel(struct actor *me, void *arg)
{
    (void)arg;
    forbid_waitv();
    hf_client *client = part_client();
    part_says(me, &(struct answer){.what = ORDER_GO});
    part_follows_orders(me, client);
}

/* The test's own client joined first and watches the first actor only, which never dies: each death
 * is noticed by one that cannot wait for two words. */
static void test_old_kernel(void **state)
{
    (void)state;
    stage_client();
    struct actor *line[OLD_KERNEL_ROUNDS + 1],
        *watcher = actor_start_part(live_on_old_kernel, NULL);
    actor_answer(watcher, ORDER_GO, 0);
    for (int i = 0; i <= OLD_KERNEL_ROUNDS; i++) {
        line[i] = actor_start_part(live_on_old_kernel, NULL);
        actor_answer(line[i], ORDER_GO, 0);
        queue_one(line[i], i);
    }
    actor_answer(line[0], ORDER_ACQUIRE, 0);
    int64_t worst = 0;
    for (int round = 0; round < OLD_KERNEL_ROUNDS; round++) {
        int64_t killed_at = now_ns();
        actor_kill(line[round]);
        struct answer next = actor_answer(line[round + 1], ORDER_ACQUIRE, 0);
        assert_int_equal(next.status, HF_OK);
        worst = next.at_ns - killed_at > worst ? next.at_ns - killed_at : worst;
    }
    printf("# without futex_waitv, %d deaths: worst %.3f ms\n", OLD_KERNEL_ROUNDS,
           (double)worst / 1e6);
    assert_true(worst < OLD_KERNEL_MS * 1000000LL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED("the next one holds within 20 ms after kill -9 of the holder while 20 wait",
               test_holder_killed),
        STAGED("deaths are noticed within 50 ms on a kernel without futex_waitv", test_old_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
