/* costs.c - what an uncontended cycle and a quiet queue cost: system calls and allocations are counted, not timed.
 * `costs cycles` is the part of itself that it runs under strace. */
#include "actors.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CYCLES = 10000,
    CALLS_ALLOWED = 10, /* of the background thread, in all of these cycles */
    WAITING_PROCESSES = 10,
    WAITERS_EACH = 10,
    IDLE_MS = 5000,
    IDLE_CPU_MS = 10,
};

/* ---- Allocations: malloc and its family of this program count, and hand on to the C library's ---- */

static _Atomic uint64_t allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

void *malloc(size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_realloc(block, size);
}

/* ---- Cycles ---- */

/* Each kind in turn, with and without renewal, released by name of the deed or by freeing the handle. */
static bool run_cycles(hf_client *client, int count)
{
    static const struct want wants[] = {
        {.name = "costs-lock"},
        {.name = "costs-renewed", .flags = HF_AUTO_RENEW},
        {.name = "costs-permit", .kind = HF_SEMAPHORE, .capacity = 3},
        {.name = "costs-shared", .kind = HF_READ, .wait_ms = HF_FOREVER},
        {.name = "costs-shared", .kind = HF_WRITE, .wait_ms = 1000},
    };
    for (int i = 0; i < count; i++) {
        struct hf_request request = request_of(&wants[i % 5]);
        hf_lease *lease;
        if (hf_acquire(client, &request, &lease) != HF_OK)
            return false;
        if (i % 2 && hf_release(lease) != HF_OK)
            return false;
        hf_lease_free(lease);
    }
    return true;
}

/* G33 */
static void test_allocations(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    assert_true(run_cycles(client, 100));
    uint64_t before = atomic_load(&allocations);
    assert_true(run_cycles(client, CYCLES));
    uint64_t counted = atomic_load(&allocations) - before;
    printf("# %llu allocations in %d cycles\n", (unsigned long long)counted, CYCLES);
    assert_int_equal(counted, 0);
    hf_client *other; /* the counter counts: opening a client does allocate */
    assert_int_equal(hf_open(stage_url(), NULL, &other), HF_OK);
    assert_true(atomic_load(&allocations) > before);
    assert_int_equal(hf_close(other, 1000), HF_OK);
}

/* ---- System calls ---- */

/* Between two calls of getppid, which nothing else here makes. */
static int run_marked_cycles(const char *url)
{
    hf_client *client;
    if (hf_open(url, NULL, &client) != HF_OK || !run_cycles(client, 100))
        return 1;
    getppid();
    bool good = run_cycles(client, CYCLES);
    getppid();
    return !good || hf_close(client, 1000) != HF_OK;
}

/* Lines of strace's output between the marks; each is one call, of any thread. */
static int count_calls(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char line[1024];
    int marks = 0, calls = 0;
    while (fgets(line, sizeof line, file)) {
        if (strstr(line, "getppid("))
            marks++;
        else if (marks == 1 && !strstr(line, "resumed>")) {
            calls++;
            printf("# %s", line);
        }
    }
    fclose(file);
    assert_int_equal(marks, 2);
    return calls;
}

/* G33 */
static void test_system_calls(void **state)
{
    (void)state;
    char self[1024], trace[128];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    snprintf(trace, sizeof trace, "%s/trace", stage_directory());
    pid_t pid = fork();
    if (pid == 0) {
        execlp("strace", "strace", "-f", "-o", trace, self, "cycles", stage_url(), (char *)NULL);
        perror("strace");
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    int calls = count_calls(trace);
    printf("# %d system calls in %d cycles\n", calls, CYCLES);
    assert_true(calls <= CALLS_ALLOWED);
}

/* ---- Waiting ---- */

/* Nanoseconds that all threads of a process have been on a CPU. */
static int64_t cpu_of(pid_t pid)
{
    char path[320];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    int64_t sum = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)pid, task->d_name);
        FILE *file = fopen(path, "r");
        long long on_cpu;
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%lld", &on_cpu), 1);
        fclose(file);
        sum += on_cpu;
    }
    closedir(tasks);
    return sum;
}

static int64_t cpu_of_all(struct actor *const *actor)
{
    int64_t sum = 0;
    for (int p = 0; p < WAITING_PROCESSES; p++)
        sum += cpu_of(actor_pid(actor[p]));
    return sum;
}

/* G33 */
static void test_idle_waiters(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *holder = actor_start(), *actor[WAITING_PROCESSES];
    actor_holds(holder, 0, &(struct want){.name = "l", .flags = HF_AUTO_RENEW});
    struct want patient = {.name = "l", .wait_ms = HF_FOREVER};
    for (int p = 0; p < WAITING_PROCESSES; p++) {
        actor[p] = actor_start();
        for (uint32_t w = 0; w < WAITERS_EACH; w++)
            actor_acquire(actor[p], w, w % 2 ? ORDER_START : ORDER_ACQUIRE, &patient);
    }
    await_sight(client, "l", 1, WAITING_PROCESSES * WAITERS_EACH);
    nap_us(100000); /* the last of them is on its way to sleep */
    int64_t from = now_ns(), before = cpu_of_all(actor);
    assert_true(before > 0);
    nap_us(IDLE_MS * 1000);
    double spent = (double)(cpu_of_all(actor) - before) / 1e6, passed = (double)(now_ns() - from) / 1e6;
    printf("# %d waiters used %.3f ms of CPU in %.0f ms\n", WAITING_PROCESSES * WAITERS_EACH, spent, passed);
    assert_true(passed >= IDLE_MS);
    assert_true(spent < IDLE_CPU_MS);
    assert_int_equal(see(client, "l").waiters, WAITING_PROCESSES * WAITERS_EACH);
    actor_does(holder, ORDER_RELEASE, 0);
    await_sight(client, "l", 1, WAITING_PROCESSES * WAITERS_EACH - 1);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "cycles") == 0)
        return run_marked_cycles(argv[2]);
    const struct CMUnitTest tests[] = {
        STAGED("an uncontended acquire and release allocates nothing", test_allocations),
        STAGED("an uncontended acquire and release makes no system call", test_system_calls),
        STAGED("100 waiters in 10 processes use less than 10 ms of CPU in 5 s", test_idle_waiters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
