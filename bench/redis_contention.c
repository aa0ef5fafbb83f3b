/* redis_contention.c - workloads through the library: many processes that wait, try at once, or are
 * killed. */
#include "library.h"
#include "redis_requests.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEN_WITHIN_NS 30000000000

/* ---- Processes ---- */

/* Returns true in the new process, which is killed when this one dies. */
static bool start_process(pid_t *pid)
{
    fflush(NULL);
    *pid = fork();
    if (*pid < 0)
        bench_fail("cannot start a process: %s", strerror(errno));

    if (*pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return *pid == 0;
}

static void kill_all(const pid_t *pids, int count)
{
    for (int i = 0; i < count; i++)
        kill(pids[i], SIGKILL);
    for (int i = 0; i < count; i++)
        waitpid(pids[i], NULL, 0);
}

static void count_waiter(void *arg, const struct hf_row *row)
{
    *(int *)arg += row->role == HF_WAITER;
}

static void await_waiters(hf_client *client, const char *name, int expected)
{
    int64_t end = now_ns() + SEEN_WITHIN_NS;
    for (int waiters = 0; waiters < expected; pass_ms(1)) {
        waiters = 0;
        library_must(hf_show(client, name, count_waiter, &waiters));
        if (now_ns() > end)
            bench_fail("only %d of %d wait for %s", waiters, expected, name);
    }
}

static hf_lease *hold(hf_client *client, struct hf_request request, const char *name,
                      int64_t ttl_ms)
{
    hf_lease *lease;
    request.name = name;
    request.ttl_ms = ttl_ms;
    library_must(hf_acquire(client, &request, &lease));
    return lease;
}

/* ---- Nothing happens ---- */

static double cpu_of_all(const pid_t *pids, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += cpu_us(pids[i]);
    return sum;
}

static void watch_idle(const struct bench *b, const pid_t *pids, struct result *r)
{
    double commands = library_commands(b), clients = cpu_of_all(pids, b->workers);
    double server = b->server_pid ? cpu_us(b->server_pid) : NAN;
    int64_t from = now_ns();

    pass_ms(b->seconds * 1000);
    r->seconds = (double)(now_ns() - from) / 1e9;
    r->commands_per_s = (library_commands(b) - commands) / r->seconds;
    r->client_cpu_us = (cpu_of_all(pids, b->workers) - clients) / r->seconds;
    if (b->server_pid)
        r->server_cpu_us = (cpu_us(b->server_pid) - server) / r->seconds;
    r->note = "CPU time of all waiters and of the server in a second";
}

int run_idle(const struct bench *b)
{
    struct hf_request request = request_of(b);
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    pid_t *pids = calloc((size_t)b->workers, sizeof *pids);
    atomic_bool *held = share(sizeof *held);
    if (!pids || b->workers < 2)
        bench_fail("--workers: at least 2");

    pin(b->cpu);
    request.wait_ms = HF_FOREVER;
    for (int i = 0; i < b->workers; i++)
        if (start_process(&pids[i])) {
            while (!atomic_load(held))
                pass_ms(1);
            hold(library_open(b, false), request, LOCK_NAME, 0);
            bench_fail("a waiter got a lock that is held");
        }

    hf_client *client = library_open(b, false);
    hf_lease *lease = hold(client, request, LOCK_NAME, (int64_t)(b->seconds * 1000) + 60000);
    atomic_store(held, true);
    await_waiters(client, LOCK_NAME, b->workers);
    watch_idle(b, pids, &result);
    kill_all(pids, b->workers);
    library_must(hf_release(lease));
    hf_lease_free(lease);
    library_must(hf_close(client, 1000));
    free(pids);
    result_print(&result);

    return 0;
}

/* ---- All try at once ---- */

enum { TRY_PROCESSES = 10 };

struct tries {
    atomic_int ready, answered, granted, left;
    atomic_int_fast64_t go_ns, last_ns;
};

static void tried(hf_lease *lease, hf_status outcome, void *arg)
{
    struct tries *tries = arg;
    (void)lease;
    if (outcome != HF_OK && outcome != HF_BUSY)
        library_must(outcome);

    atomic_fetch_add(&tries->granted, outcome == HF_OK);
    atomic_store(&tries->last_ns, now_ns());
    atomic_fetch_add(&tries->answered, 1);
}

/* Keeps its grants until all tries of all processes have been answered. */
static void try_often(const struct bench *b, struct tries *tries, int count)
{
    struct hf_request request = request_of(b);
    hf_client *client = library_open(b, false);
    hf_lease **lease = calloc((size_t)count, sizeof *lease);
    if (!lease)
        bench_fail("no memory");

    /* acquires once to connect */
    hf_lease_free(hold(client, request, LOCK_NAME "-warm", 0));
    request.wait_ms = 0;
    atomic_fetch_add(&tries->ready, 1);

    while (!atomic_load(&tries->go_ns))
        pass_ms(0.1);
    for (int i = 0; i < count; i++)
        library_must(hf_acquire_start(client, &request, tried, tries, &lease[i]));
    while (atomic_load(&tries->answered) < count * TRY_PROCESSES)
        pass_ms(1);
    library_must(hf_close(client, 5000));
    free(lease);
}

int run_tries(const struct bench *b)
{
    struct tries *tries = share(sizeof *tries);
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    pid_t pids[TRY_PROCESSES];
    int how, count = b->workers / TRY_PROCESSES;

    pin(b->cpu);
    for (int i = 0; i < TRY_PROCESSES; i++)
        if (start_process(&pids[i])) {
            try_often(b, tries, count);
            _exit(0);
        }

    while (atomic_load(&tries->ready) < TRY_PROCESSES) {
        if (waitpid(-1, &how, WNOHANG) > 0)
            bench_fail("a process ended before it tried");
        pass_ms(1);
    }

    atomic_store(&tries->go_ns, now_ns());
    for (int i = 0; i < TRY_PROCESSES;
         i++) /* in any order: the first processes may be waiting for one that has failed */
        if (wait(&how) < 0 || how != 0)
            bench_fail("a process that tried failed");

    result_rate(&result, count * TRY_PROCESSES, tries->last_ns - tries->go_ns);
    result.overlaps = tries->granted > SEMAPHORE_OF ? tries->granted - SEMAPHORE_OF : 0;
    if (tries->granted < SEMAPHORE_OF)
        bench_fail("only %d of %d permits were granted", tries->granted, SEMAPHORE_OF);

    result_print(&result);
    return 0;
}

/* ---- A holder is killed ---- */

#define KILLED_TTL_MS 1500

struct killed {
    atomic_int_fast64_t asked_ns, next_ns;
};

static void hold_until_killed(const struct bench *b, struct killed *killed, const char *name)
{
    hf_client *client = library_open(b, false);
    /* acquires once to connect */
    hf_lease_free(hold(client, request_of(b), LOCK_NAME "-warm", 0));
    int64_t asked = now_ns();

    hold(client, request_of(b), name, KILLED_TTL_MS);
    atomic_store(&killed->asked_ns, asked);
    for (;;)
        pause();
}

static void follow(const struct bench *b, struct killed *killed, const char *name)
{
    struct hf_request request = request_of(b);
    hf_client *client = library_open(b, false);
    hf_lease_free(hold(client, request, LOCK_NAME "-warm", 0));

    request.wait_ms = PATIENCE_MS;
    while (!atomic_load(&killed->asked_ns))
        pass_ms(0.5);
    hf_lease *lease = hold(client, request, name, KILLED_TTL_MS);
    atomic_store(&killed->next_ns, now_ns());
    hf_lease_free(lease);
    library_must(hf_close(client, 1000));
}

static void kill_holders(const struct bench *b, const pid_t *pids, struct killed *killed)
{
    hf_client *client = library_open(b, false);
    char name[sizeof LOCK_NAME];

    for (int i = 0; i < b->workers; i++) {
        numbered_name(name, i);
        await_waiters(client, name, 1);
        kill(pids[2 * i], SIGKILL);
        if (now_ns() - killed[i].asked_ns > KILLED_TTL_MS * 1000000LL)
            bench_fail("a holder was killed only after its ttl had ended");
    }
    library_must(hf_close(client, 1000));
}

int run_killed_holder(const struct bench *b)
{
    size_t locks = (size_t)b->workers;
    struct killed *killed = share(locks * sizeof *killed);
    struct result result = result_of(b, library_who(b), engine_of(b->url));
    struct times times = {0};
    pid_t *pids = calloc(2 * locks, sizeof *pids);
    char name[sizeof LOCK_NAME];
    int how;
    if (!pids || locks == 0)
        bench_fail("--workers: at least 1");

    pin(b->cpu);
    for (int i = 0; i < 2 * b->workers; i++)
        if (start_process(&pids[i])) {
            numbered_name(name, i / 2);
            (i % 2 ? follow : hold_until_killed)(b, &killed[i / 2], name);
            _exit(0);
        }

    kill_holders(b, pids, killed);
    for (int i = 0; i < 2 * b->workers; i++)
        if (waitpid(pids[i], &how, 0) != pids[i] || (i % 2 && how != 0))
            bench_fail("a waiter failed");

    for (size_t i = 0; i < locks; i++)
        times_note(&times, killed[i].next_ns - killed[i].asked_ns - KILLED_TTL_MS * 1000000LL);
    result_times(&result, &times);
    result.ops = (double)locks;
    result.note = "from the end of the ttl, counted from the holder's request, to the next grant";
    free(pids);
    result_print(&result);

    return 0;
}
