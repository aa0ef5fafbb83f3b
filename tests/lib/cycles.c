/* cycles.c - runs cycles and counts what they cost. */
#include "cycles.h"

#include "actors.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CYCLES = 2000,
    WARM_UP = 100, /* after which every pool is filled */
    TOLD_MOST = 10,
};

/* ---- Allocations: malloc and its family of this program count, and hand on to the C library's
 * ---- */

/* Shared libraries, too, find these instead of the C library's. */
#define IN_ITS_PLACE __attribute__((visibility("default")))

static _Atomic uint64_t allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

IN_ITS_PLACE void *malloc(size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_malloc(size);
}

IN_ITS_PLACE void *calloc(size_t count, size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_calloc(count, size);
}

IN_ITS_PLACE void *realloc(void *block, size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_realloc(block, size);
}

unsigned long allocations_so_far(void)
{
    return atomic_load(&allocations);
}

/* ---- Cycles ---- */

static const struct want wants[] = {
    {.name = "costs-lock"},
    {.name = "costs-renewed", .flags = HF_AUTO_RENEW},
    {.name = "costs-permit", .kind = HF_SEMAPHORE, .capacity = 3},
    {.name = "costs-shared", .kind = HF_READ, .wait_ms = HF_FOREVER},
    {.name = "costs-shared", .kind = HF_WRITE, .wait_ms = 1000},
};

enum { KINDS = sizeof wants / sizeof *wants };

/* How cycles are made: of the first `kinds` in turn, each with a planted cost. */
struct round {
    hf_client *client;
    int kinds;
    /* every second hold is released by freeing its handle, which costs no more on an engine
     * without a server */
    bool frees;
    enum plant plant;
    int planted; /* number of planted instructions */
};

static void act_planted(const struct round *round)
{
    void *volatile block;
    if (round->plant == PLANT_ALLOCATION) {
        block = malloc(1);
        free(block);
    } else if (round->plant == PLANT_CALL) {
        getuid();
    }
    for (int i = 0; i < round->planted; i += 4)
        __asm__ volatile("nop"); /* with the three of the loop four instructions */
}

static bool go_round(const struct round *round, int count)
{
    for (int i = 0; i < count; i++) {
        struct hf_request request = request_of(&wants[i % round->kinds]);
        hf_lease *lease;
        if (hf_acquire(round->client, &request, &lease) != HF_OK)
            return false;
        if (!(round->frees && i % 2 == 0) && hf_release(lease) != HF_OK)
            return false;
        hf_lease_free(lease);
        act_planted(round);
    }
    return true;
}

bool run_cycles(hf_client *client, int count)
{
    return go_round(&(struct round){.client = client, .kinds = KINDS}, count);
}

static bool begin_round(struct round *round, const char *url)
{
    round->frees = strncmp(url, "local:", 6) == 0;
    return hf_open(url, NULL, &round->client) == HF_OK && go_round(round, WARM_UP);
}

double count_allocations(const char *url, enum plant plant)
{
    struct round round = {.kinds = KINDS, .plant = plant};
    uint64_t before_all = atomic_load(&allocations);
    assert_true(begin_round(&round, url));
    uint64_t before = atomic_load(&allocations);
    assert_true(before > before_all); /* the counter counts: opening a client does allocate */
    assert_true(go_round(&round, CYCLES));
    uint64_t counted = atomic_load(&allocations) - before;
    assert_int_equal(hf_close(round.client, 1000), HF_OK);
    return (double)counted / CYCLES;
}

/* ---- Memory ---- */

/* Some leases are held before counting begins, so that what all leases share is there: a client
 * keeps the keys of some hundred locks in wire format, for each server. */
enum { HELD = 10000, SHARING = 2000 };

/* Returns the bytes in use in all arenas, with what the allocator adds to each block. */
static size_t bytes_in_use(void)
{
    struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
}

static hf_lease *hold(hf_client *client, int number)
{
    char name[33];
    hf_lease *lease;
    snprintf(name, sizeof name, "held-%027d", number);
    struct hf_request request =
        request_of(&(struct want){.name = name, .ttl_ms = 60000, .flags = HF_AUTO_RENEW});
    assert_int_equal(hf_acquire(client, &request, &lease), HF_OK);
    return lease;
}

double count_held_bytes(const char *url, size_t planted)
{
    static hf_lease *lease[SHARING + HELD];
    static void *beside[HELD];
    hf_client *client;
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    for (int i = 0; i < SHARING; i++)
        lease[i] = hold(client, i);
    size_t before = bytes_in_use();
    for (int i = 0; i < HELD; i++) {
        lease[SHARING + i] = hold(client, SHARING + i);
        beside[i] = planted ? malloc(planted) : NULL;
    }
    size_t after = bytes_in_use();
    for (int i = 0; i < HELD; i++) {
        assert_true(hf_lease_ok(lease[SHARING + i]));
        free(beside[i]);
    }
    assert_int_equal(hf_close(client, 10000), HF_OK);
    return (double)(after - before) / HELD;
}

/* ---- The part that runs under the tools: PROGRAM cycles URL KINDS PLANT PLANTED ---- */

/* strace counts between two calls of getppid, which nothing else here makes; callgrind inside this
 * function. */
__attribute__((noinline, noclone)) static bool run_counted_cycles(const struct round *round)
{
    getppid();
    bool good = go_round(round, CYCLES);
    getppid();
    return good;
}

int cycles_part(int argc, char **argv)
{
    if (argc != 6 || strcmp(argv[1], "cycles") != 0)
        return -1;
    struct round round = {
        .kinds = atoi(argv[3]), .plant = (enum plant)atoi(argv[4]), .planted = atoi(argv[5])};
    bool good = begin_round(&round, argv[2]) && run_counted_cycles(&round);
    return !good || hf_close(round.client, 1000) != HF_OK;
}

/* Runs the part under a tool, whose command line ends with NULL. */
static void run_part(const char *const *tool, const char *url, const struct round *round)
{
    char self[1024], kinds[16], plant[16], planted[16];
    const char *command[16];
    int count = 0, status;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    snprintf(kinds, sizeof kinds, "%d", round->kinds);
    snprintf(plant, sizeof plant, "%d", (int)round->plant);
    snprintf(planted, sizeof planted, "%d", round->planted);
    for (; tool[count]; count++)
        command[count] = tool[count];
    memcpy(&command[count], (const char *[]){self, "cycles", url, kinds, plant, planted, NULL},
           7 * sizeof *command);
    pid_t pid = fork();
    if (pid == 0) {
        execvp(command[0], (char *const *)command);
        perror(command[0]);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- System calls ---- */

static bool is_one_of(const char *name, const char *names)
{
    const char *at = strstr(names, name);
    return at && at[-1] == ' ' && at[strlen(name)] == ' ';
}

/* Counts a call. A call that another thread's line cuts in two is counted at its first half; its
 * result is in the second. */
static void count_call(const char *call, struct calls *calls)
{
    char name[32];
    bool nothing = strstr(call, "EAGAIN");
    if (sscanf(call, "<... %31[a-z0-9_] resumed>", name) == 1) {
        bool looked = nothing && is_one_of(name, " recvfrom recvmsg ");
        calls->receives -= looked;
        calls->spins += looked;
    } else if (sscanf(call, "%31[a-z0-9_](", name) != 1) {
        printf("# not a call: %s", call);
    } else if (is_one_of(name, " sendto sendmsg ")) {
        calls->sends++;
    } else if (is_one_of(name, " recvfrom recvmsg ")) {
        *(nothing ? &calls->spins : &calls->receives) += 1;
    } else if (strcmp(name, "poll") == 0 &&
               (strstr(call, ", 0)") || strstr(call, ", 0 <unfinished"))) {
        calls->spins++;
    } else if (is_one_of(name, " poll ppoll ")) {
        calls->polls++;
    } else {
        if (calls->others++ < TOLD_MOST)
            printf("# %s", call);
    }
}

/* Reads the lines of strace, "PID call(...". The thread that makes the marks makes the cycles. */
static struct calls read_calls(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char line[1024];
    int marks = 0, maker = 0, pid, at;
    struct calls calls = {0};
    while (fgets(line, sizeof line, file)) {
        assert_int_equal(sscanf(line, "%d %n", &pid, &at), 1);
        if (strstr(line, "getppid(")) {
            marks++;
            maker = pid;
        } else if (marks == 1 && pid == maker) {
            count_call(line + at, &calls);
        } else if (marks == 1 && !strstr(line, "resumed>")) {
            calls.strays++;
        }
    }
    fclose(file);
    assert_int_equal(marks, 2);
    return calls;
}

struct calls count_calls(const char *url, enum plant plant)
{
    char trace[128];
    snprintf(trace, sizeof trace, "%s/trace", stage_directory());
    run_part((const char *[]){"strace", "-f", "-o", trace, NULL}, url,
             &(struct round){.kinds = KINDS, .plant = plant});
    struct calls sum = read_calls(trace);
    return (struct calls){sum.sends / CYCLES, sum.receives / CYCLES, sum.polls / CYCLES,
                          sum.spins / CYCLES, sum.others / CYCLES,   sum.strays / CYCLES};
}

/* ---- Instructions ---- */

double count_instructions(const char *url, int planted)
{
    char output[128], option[160], line[1024];
    long long total = 0;
    snprintf(output, sizeof output, "%s/callgrind", stage_directory());
    snprintf(option, sizeof option, "--callgrind-out-file=%s", output);
    /* The C library's choice of functions for this very processor would make the count depend on
     * the machine. */
    setenv("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-AVX512F", 1);
    run_part((const char *[]){"valgrind", "-q", "--tool=callgrind",
                              "--toggle-collect=run_counted_cycles", option, NULL},
             url, &(struct round){.kinds = 1, .planted = planted});
    unsetenv("GLIBC_TUNABLES");
    FILE *file = fopen(output, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "totals: %lld", &total);
    fclose(file);
    assert_true(total > 0);
    return (double)total / CYCLES;
}
