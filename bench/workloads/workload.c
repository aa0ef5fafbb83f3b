/* workload.c - worker processes that use one lock. */
#include "workload.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_WITHIN_NS 60000000000
#define WAITS_FOR_LONG_NS 1000000
#define HANDOFF_SECTION_MS 2
/* Pause before the measurement, in which all workers begin to wait: without it the first ones would
 * be alone. */
#define SETTLES_NS 50000000
/* most workers that connect at the same time: a server cannot accept a thousand in time */
#define CONNECT_AT_ONCE 50

struct worker {
    uint64_t counted, all; /* number of cycles that ended in time, and number of all cycles */
    double cpu_us;
    int64_t rss_kb;
    struct times cycles, handoffs;
};

/* Shared by all workers. */
struct workload {
    atomic_int ready, inside;
    atomic_int gate; /* a futex; 1: go */
    int64_t go_ns;   /* time from which cycles count */
    atomic_int_fast64_t until_ns;
    /* time of the last release; 0: the lock was acquired since */
    atomic_int_fast64_t given_ns;
    /* time of the last acquire; longest time between two */
    atomic_int_fast64_t taken_ns, longest_gap_ns;
    atomic_uint_fast64_t overlaps;
    struct worker worker[];
};

/* The state of one worker. */
struct post {
    const struct bench *b;
    const struct lock_kind *kind;
    struct workload *workload;
    struct worker *me;
    void *lock;
    int64_t waited_least_ns; /* shortest wait for a handoff to count */
};

void *share(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_fail("%zu bytes of shared memory: %s", size, strerror(errno));
    return memory;
}

/* ---- A worker ---- */

static void enter(struct workload *workload, int holders)
{
    if (atomic_fetch_add(&workload->inside, 1) >= holders)
        atomic_fetch_add(&workload->overlaps, 1);
}

static void note_gap(struct workload *workload, int64_t taken)
{
    int64_t last = atomic_exchange(&workload->taken_ns, taken),
            longest = atomic_load(&workload->longest_gap_ns);
    if (taken > atomic_load(&workload->until_ns))
        return;

    int64_t gap = last ? taken - last : 0;
    while (gap > longest &&
           !atomic_compare_exchange_weak(&workload->longest_gap_ns, &longest, gap)) {
    }
}

/* Returns the time at which the cycle begins. With a rate, that is the time when it should have
 * begun: if the last cycle took too long, the delay counts as latency. */
static int64_t await_begin(struct post *post)
{
    if (post->b->rate == 0)
        return now_ns();

    int64_t due = post->workload->go_ns + (int64_t)post->me->all * 1000000000 / post->b->rate;
    struct timespec until = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }

    return due;
}

static void cycle(struct post *post)
{
    struct workload *workload = post->workload;
    bool alone = post->b->workers <= 1;
    int64_t asked = await_begin(post);

    post->kind->take(post->lock);
    int64_t taken = now_ns();
    if (!alone) {
        int64_t given = atomic_exchange(&workload->given_ns, 0);
        enter(workload, post->kind->holders ? post->kind->holders : 1);
        note_gap(workload, taken);
        if (given && given - asked >= post->waited_least_ns)
            times_note(&post->me->handoffs, taken - given);
    }
    pass_ms(post->b->section_ms);
    if (!alone) {
        atomic_fetch_sub(&workload->inside, 1);
        atomic_store(&workload->given_ns, now_ns());
    }
    post->kind->give(post->lock);
    int64_t ended = now_ns();
    if (asked >= workload->go_ns && ended <= atomic_load(&workload->until_ns)) {
        times_note(&post->me->cycles, ended - asked);
        post->me->counted++;
    }
    post->me->all++;
}

/* Connects by one acquire and release; then sleeps until all workers are ready. */
static void get_ready(struct post *post)
{
    post->kind->take(post->lock);
    post->kind->give(post->lock);
    atomic_fetch_add(&post->workload->ready, 1);
    while (!atomic_load(&post->workload->gate))
        syscall(SYS_futex, &post->workload->gate, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static void work(struct post *post, int number)
{
    pin(post->b->cpu);
    /* the default slack of 50 us would make a section of 1 ms last 1.05 ms */
    prctl(PR_SET_TIMERSLACK, 1);
    post->lock = post->kind->open(post->b, number);
    get_ready(post);
    double before = cpu_us(0);

    while (now_ns() < atomic_load(&post->workload->until_ns))
        cycle(post);
    post->me->cpu_us = cpu_us(0) - before;
    post->me->rss_kb = rss_kb(0);
    post->kind->close(post->lock);
}

/* ---- All of them ---- */

static void begin(struct post *post, int number, pid_t *pid)
{
    fflush(NULL);
    *pid = fork();
    if (*pid < 0)
        bench_fail("worker %d: %s", number, strerror(errno));
    if (*pid > 0)
        return;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    post->me = &post->workload->worker[number];
    work(post, number);
    _exit(0);
}

/* Forgets a worker that has ended, and returns its status. If it failed, kills the others, because
 * they may wait for the lock that it held. */
static int end_of_one(pid_t *pids, int workers, pid_t pid, int how)
{
    int status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    for (int i = 0; i < workers; i++)
        if (pids[i] == pid)
            pids[i] = 0;

    for (int i = 0; i < workers && status != 0; i++)
        if (pids[i] > 0 && kill(pids[i], SIGKILL) == 0)
            waitpid(pids[i], NULL, 0);
    return status;
}

/* Returns 0 once `needed` workers are ready, or the status of a worker that failed before. */
static int await_ready(struct workload *workload, pid_t *pids, int workers, int needed)
{
    int64_t end = now_ns() + READY_WITHIN_NS;
    for (int how; atomic_load(&workload->ready) < needed; pass_ms(1)) {
        pid_t pid = waitpid(-1, &how, WNOHANG);
        int status = pid > 0 ? end_of_one(pids, workers, pid, how) : 0;
        if (status != 0)
            return status;
        if (now_ns() > end)
            bench_fail("only %d of %d workers are ready", atomic_load(&workload->ready), workers);
    }

    return 0;
}

static int start(struct post *post, int workers, pid_t *pids)
{
    int status = 0;
    for (int i = 0; i < workers && status == 0; i++) {
        status = await_ready(post->workload, pids, workers, i - CONNECT_AT_ONCE);
        if (status == 0)
            begin(post, i, &pids[i]);
    }

    return status ? status : await_ready(post->workload, pids, workers, workers);
}

static int await_end(pid_t *pids, int workers)
{
    int how, status = 0;
    for (int left = workers; left > 0 && status == 0; left--) {
        pid_t pid = wait(&how);
        if (pid < 0)
            bench_fail("a worker was lost: %s", strerror(errno));
        status = end_of_one(pids, workers, pid, how);
    }

    return status;
}

struct costs {
    double commands, server_us;
};

static struct costs costs_now(const struct bench *b, const struct lock_kind *kind)
{
    return (struct costs){.commands = kind->commands ? kind->commands(b) : NAN,
                          .server_us = b->server_pid ? cpu_us(b->server_pid) : NAN};
}

static void sum_up(const struct workload *workload, const struct bench *b, struct costs used,
                   struct result *r)
{
    struct times *cycles = calloc(2, sizeof *cycles), *handoffs = cycles + 1;
    uint64_t *counts = calloc((size_t)r->workers, sizeof *counts);
    double ops = 0, all = 0, client_us = 0;
    if (!cycles || !counts)
        bench_fail("no memory");

    for (int i = 0; i < r->workers; i++) {
        const struct worker *w = &workload->worker[i];
        counts[i] = w->counted;
        ops += (double)w->counted;
        all += (double)w->all;
        client_us += w->cpu_us;
        times_join(cycles, &w->cycles);
        times_join(handoffs, &w->handoffs);
    }

    result_rate(r, ops, workload->until_ns - workload->go_ns);
    result_times(r, cycles);
    r->client_cpu_us = client_us / all;
    r->server_cpu_us = used.server_us / all;
    r->commands_per_op = used.commands / all;
    r->rss_kb = (double)workload->worker[0].rss_kb;
    if (b->workers > 1) {
        result_handoff(r, handoffs);
        result_shares(r, counts, r->workers);
        r->overlaps = (double)workload->overlaps;
        r->longest_gap_ms = (double)workload->longest_gap_ns / 1e6;
    }
    free(cycles);
    free(counts);
}

static void open_gate(struct workload *workload, const struct bench *b)
{
    int64_t now = now_ns();
    workload->go_ns = b->workers > 1 ? now + SETTLES_NS : now;
    atomic_store(&workload->taken_ns, now);
    atomic_store(&workload->until_ns, workload->go_ns + (int64_t)(b->seconds * 1e9));
    atomic_store(&workload->gate, 1);
    syscall(SYS_futex, &workload->gate, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int run(const struct bench *b, const struct lock_kind *kind, int64_t waited_least_ns,
               struct result *result)
{
    *result = result_of(b, kind->who, kind->engine);
    int workers = result->workers;
    struct workload *workload =
        share(sizeof *workload + (size_t)workers * sizeof workload->worker[0]);
    struct post post = {
        .b = b, .kind = kind, .workload = workload, .waited_least_ns = waited_least_ns};
    pid_t *pids = calloc((size_t)workers, sizeof *pids);
    if (!pids)
        bench_fail("no memory");

    int code = start(&post, workers, pids);
    if (code == 0) {
        struct costs before = costs_now(b, kind), after;
        open_gate(workload, b);
        code = await_end(pids, workers);
        after = costs_now(b, kind);
        after.commands -= before.commands;
        after.server_us -= before.server_us;
        sum_up(workload, b, after, result);
    }
    munmap(workload, sizeof *workload + (size_t)workers * sizeof workload->worker[0]);
    free(pids);

    return code;
}

int workload_run(const struct bench *b, const struct lock_kind *kind, struct result *result)
{
    return run(b, kind, 0, result);
}

int workload_handoff(const struct bench *b, const struct lock_kind *kind, struct result *result)
{
    struct bench two = *b;
    two.workers = 2;
    two.section_ms = HANDOFF_SECTION_MS;
    return run(&two, kind, WAITS_FOR_LONG_NS, result);
}
