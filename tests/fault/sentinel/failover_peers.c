/* failover_peers.c - Holdfast beside the locks of other libraries in the same failovers of a
 * watched primary: how long nobody is served, how long two hold, and in which order waiters are
 * served (G40, G41). One failover keeps all data, one loses the holders' grants.
 *
 * What is asserted is about Holdfast; what others do is printed. failover_peers.sh calls it, and
 * says in HF_PEER_NODE where ioredis and redlock are; without it they are left out. */
#include "lib/loss_notes.h"
#include "lib/sentinel_setup.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TTL_MS = 9000,
    WAITERS = 3,
    WORKERS = 1 + WAITERS, /* of a library; the first one holds */
    STARTING_MS = 15000,
    APART_MS = 300, /* between two waiters, so that their order is known */
    SETTLED_MS = 1500,
    SERVED_MS = 500,
    TOLD_MS = 500,
};

static struct watched watched;

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* ---- Workers ---- */

/* Another process, or for Holdfast a process of ours. Times are 0 until it said so. */
struct worker {
    pid_t pid;
    int orders, says; /* pipes */
    char text[1024];
    size_t len;
    int64_t asks, got, lost, end;
};

static struct library {
    const char *name;
    const char *program[4]; /* NULL: this one */
    bool is_here;
    struct worker worker[WORKERS];
} libraries[] = {
    {.name = "holdfast"},
    {.name = "redis-py", .program = {"/usr/bin/python3", HF_PEERS "/peer_redis_py.py"}},
    {.name = "ioredis", .program = {"node", HF_PEERS "/peer_node.mjs", "ioredis"}},
    {.name = "redlock", .program = {"node", HF_PEERS "/peer_node.mjs", "redlock"}},
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static void say(const char *what)
{
    char line[64];
    int len = snprintf(line, sizeof line, "%s %lld\n", what, (long long)monotonic_ns());
    if (write(STDOUT_FILENO, line, (size_t)len) != len)
        _exit(1);
}

static void say_lost(hf_lease *lease, hf_status why, void *arg)
{
    (void)lease, (void)why, (void)arg;
    say("lost");
}

/* What the programs of the others do. */
static void work(const char *url, bool holds)
{
    hf_client *client;
    hf_lease *lease;
    char line[8];
    if (hf_open(url, NULL, &client) != HF_OK)
        _exit(2);
    struct hf_request request = request_of(
        &(struct want){.name = "peer", .ttl_ms = TTL_MS, .wait_ms = 60000, .flags = HF_AUTO_RENEW});
    request.on_lost = say_lost;
    say("asks");
    if (hf_acquire(client, &request, &lease) != HF_OK)
        _exit(3);
    say("got");
    if (holds)
        (void)!read(STDIN_FILENO, line, sizeof line);
    else
        nap_us(50000);
    say("end");
    (void)hf_release(lease);
    hf_lease_free(lease);
    (void)hf_close(client, 2000);
    _exit(0);
}

static void exec_worker(const struct library *library, bool holds, const char *ports)
{
    char ttl[16], url[512];
    const char *args[10];
    unsigned count = 0;
    if (!library->program[0]) {
        watched_url(&watched, "", url, sizeof url);
        work(url, holds);
    }
    snprintf(ttl, sizeof ttl, "%d", TTL_MS);
    for (unsigned i = 0; i < 4 && library->program[i]; i++)
        args[count++] = library->program[i];
    const char *more[] = {holds ? "hold" : "wait", ports, watched.options.password, ttl, NULL};
    for (unsigned i = 0; i < 5; i++)
        args[count++] = more[i];
    execvp(args[0], (char *const *)args);
    _exit(127);
}

static void worker_begin(struct library *library, unsigned index)
{
    int orders[2], says[2];
    char ports[64];
    snprintf(ports, sizeof ports, "%u,%u,%u", server_port(watched.sentinel[0]),
             server_port(watched.sentinel[1]), server_port(watched.sentinel[2]));
    assert_int_equal(pipe2(orders, O_CLOEXEC) | pipe2(says, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(orders[0], STDIN_FILENO);
        dup2(says[1], STDOUT_FILENO);
        close(orders[1]);
        exec_worker(library, index == 0, ports);
    }
    close(orders[0]);
    close(says[1]);
    library->worker[index] = (struct worker){.pid = pid, .orders = orders[1], .says = says[0]};
}

static void read_lines(struct worker *w)
{
    for (char *end; (end = memchr(w->text, '\n', w->len));) {
        char what[16];
        long long at;
        *end = 0;
        if (sscanf(w->text, "%15s %lld", what, &at) == 2) {
            int64_t *time = strcmp(what, "asks") == 0   ? &w->asks
                            : strcmp(what, "got") == 0  ? &w->got
                            : strcmp(what, "lost") == 0 ? &w->lost
                                                        : &w->end;
            *time = at;
        }
        size_t used = (size_t)(end + 1 - w->text);
        w->len -= used;
        memmove(w->text, w->text + used, w->len);
    }
}

/* Reads what workers say, for so long at most. */
static void hear(int ms)
{
    struct pollfd fds[LIBRARIES * WORKERS];
    struct worker *of[LIBRARIES * WORKERS];
    nfds_t count = 0;
    for (unsigned i = 0; i < LIBRARIES * WORKERS; i++) {
        struct worker *w = &libraries[i / WORKERS].worker[i % WORKERS];
        if (!w->pid || w->says < 0)
            continue;
        fds[count] = (struct pollfd){.fd = w->says, .events = POLLIN};
        of[count++] = w;
    }
    if (poll(fds, count, ms) <= 0)
        return;
    for (nfds_t i = 0; i < count; i++) {
        struct worker *w = of[i];
        if (!fds[i].revents)
            continue;
        ssize_t got = read(w->says, w->text + w->len, sizeof w->text - w->len);
        if (got <= 0) {
            close(w->says);
            w->says = -1;
            continue;
        }
        w->len += (size_t)got;
        read_lines(w);
    }
}

static bool all_say(size_t field, unsigned from, unsigned to)
{
    for (unsigned i = 0; i < LIBRARIES; i++)
        for (unsigned k = from; libraries[i].is_here && k < to; k++) {
            const struct worker *w = &libraries[i].worker[k];
            int64_t at;
            memcpy(&at, (const char *)w + field, sizeof at);
            if (!at && w->says >= 0)
                return false;
        }
    return true;
}

static void await_all(size_t field, unsigned from, unsigned to, int64_t ms)
{
    int64_t end = monotonic_ns() + ms * 1000000;
    while (!all_say(field, from, to) && monotonic_ns() < end)
        hear(20);
}

#define AWAIT(what, from, to, ms) await_all(offsetof(struct worker, what), from, to, ms)

/* A library whose holder did not come up is left out. */
static void begin_holders(void)
{
    for (unsigned i = 0; i < LIBRARIES; i++) {
        bool is_node = libraries[i].program[0] && strcmp(libraries[i].program[0], "node") == 0;
        memset(libraries[i].worker, 0, sizeof libraries[i].worker);
        libraries[i].is_here = !is_node || getenv("HF_PEER_NODE");
        if (libraries[i].is_here)
            worker_begin(&libraries[i], 0);
    }
    AWAIT(got, 0, 1, STARTING_MS);
    assert_true(libraries[0].worker[0].got);
    for (unsigned i = 0; i < LIBRARIES; i++) {
        if (libraries[i].is_here && !libraries[i].worker[0].got) {
            print_message("# %s: left out, its holder does not hold\n", libraries[i].name);
            kill(libraries[i].worker[0].pid, SIGKILL);
            waitpid(libraries[i].worker[0].pid, NULL, 0);
            libraries[i].is_here = false;
        }
    }
}

static void begin_waiters(void)
{
    for (unsigned k = 1; k < WORKERS; k++) {
        for (unsigned i = 0; i < LIBRARIES; i++)
            if (libraries[i].is_here)
                worker_begin(&libraries[i], k);
        AWAIT(asks, k, k + 1, STARTING_MS);
        nap_us(APART_MS * 1000);
    }
}

static void order_release(void)
{
    for (unsigned i = 0; i < LIBRARIES; i++)
        if (libraries[i].is_here && libraries[i].worker[0].orders >= 0) {
            (void)!write(libraries[i].worker[0].orders, "go\n", 3);
            close(libraries[i].worker[0].orders);
            libraries[i].worker[0].orders = -1;
        }
}

static void end_workers(void)
{
    for (unsigned i = 0; i < LIBRARIES; i++)
        for (unsigned k = 0; k < WORKERS; k++) {
            struct worker *w = &libraries[i].worker[k];
            if (!w->pid)
                continue;
            kill(w->pid, SIGKILL);
            waitpid(w->pid, NULL, 0);
            if (w->says >= 0)
                close(w->says);
            if (w->orders >= 0)
                close(w->orders);
            w->pid = 0;
        }
}

static int teardown(void **state)
{
    (void)state;
    end_workers();
    servers_end();
    return 0;
}

/* ---- What came of it ---- */

struct verdict {
    double gap_ms, overlap_ms; /* gap: from `since` to the first grant of a waiter; below 0: none */
    char order[WAITERS * 2 + 1];
    bool is_in_order;
};

/* When a worker no longer believed. */
static int64_t until(const struct worker *w)
{
    int64_t never = monotonic_ns();
    int64_t end = w->end ? w->end : never;
    return w->lost && w->lost < end ? w->lost : end;
}

static double overlap_of(const struct worker *a, const struct worker *b)
{
    int64_t from = a->got > b->got ? a->got : b->got;
    int64_t to = until(a) < until(b) ? until(a) : until(b);
    return a->got && b->got && to > from ? (double)(to - from) / 1e6 : 0;
}

static struct verdict judge(const struct library *library, int64_t since)
{
    struct verdict v = {.gap_ms = -1, .is_in_order = true};
    const struct worker *w = library->worker;
    int64_t first = 0, last = 0;
    for (unsigned turn = 0; turn < WAITERS; turn++) {
        const struct worker *next = NULL;
        for (unsigned k = 1; k < WORKERS; k++)
            if (w[k].got > last && (!next || w[k].got < next->got))
                next = &w[k];
        if (!next)
            break;
        last = next->got;
        first = first ? first : next->got;
        v.order[2 * turn] = (char)('a' + (next - w));
        v.order[2 * turn + 1] = ' ';
        v.is_in_order &= next == &w[turn + 1];
    }
    v.is_in_order &= strlen(v.order) == (size_t)2 * WAITERS;
    if (first)
        v.gap_ms = (double)(first - since) / 1e6;
    for (unsigned i = 0; i < WORKERS; i++)
        for (unsigned k = i + 1; k < WORKERS; k++)
            v.overlap_ms += overlap_of(&w[i], &w[k]);
    return v;
}

/* Monotonic times, of which the setup knows only those of now_ns(). */
static int64_t announced_at(void)
{
    int64_t apart = monotonic_ns() - now_ns();
    return watched_await_announcement() + apart;
}

static int64_t start_and_fail(bool loses)
{
    server_needed(SERVER_REDIS);
    watched_start(&watched, &(struct watched_options){
                                .replicas = 2, .sentinels = WATCHED_MOST, .password = "secret"});
    if (loses)
        watched_cut_replicas(&watched);
    begin_holders();
    begin_waiters();
    watched_listen(&watched);
    int64_t killed = monotonic_ns();
    server_kill9(watched.server[0]);
    int64_t announced = announced_at();
    print_message("# announced %.0f ms after kill -9\n", (double)(announced - killed) / 1e6);
    return announced;
}

static void test_kept(void **state)
{
    (void)state;
    start_and_fail(false);
    for (int64_t end = monotonic_ns() + SETTLED_MS * INT64_C(1000000); monotonic_ns() < end;)
        hear(20);
    int64_t released = monotonic_ns();
    order_release();
    AWAIT(end, 1, WORKERS, 2 * TTL_MS);
    print_message("# kept data: library | holder kept it | released to next grant | two held | "
                  "order\n");
    for (unsigned i = 0; i < LIBRARIES; i++) {
        const struct library *l = &libraries[i];
        struct verdict v = judge(l, released);
        if (!l->is_here)
            continue;
        bool is_kept = !l->worker[0].lost;
        print_message("# kept data: %-8s | %-3s | %6.0f ms | %6.0f ms | %s\n", l->name,
                      is_kept ? "yes" : "no", v.gap_ms, v.overlap_ms, v.order);
        if (i == 0) {
            assert_true(is_kept && v.is_in_order);
            assert_true(v.gap_ms >= 0 && v.gap_ms <= SERVED_MS);
            assert_true(v.overlap_ms == 0);
        }
    }
}

static void test_lost(void **state)
{
    (void)state;
    int64_t announced = start_and_fail(true);
    AWAIT(lost, 0, 1, 2 * TTL_MS);
    order_release();
    AWAIT(end, 0, WORKERS, 2 * TTL_MS);
    print_message("# lost grant: library | switch to told | switch to next grant | two held | "
                  "order\n");
    for (unsigned i = 0; i < LIBRARIES; i++) {
        const struct library *l = &libraries[i];
        struct verdict v = judge(l, announced);
        if (!l->is_here)
            continue;
        double told = l->worker[0].lost ? (double)(l->worker[0].lost - announced) / 1e6 : -1;
        print_message("# lost grant: %-8s | %6.0f ms | %6.0f ms | %6.0f ms | %s\n", l->name, told,
                      v.gap_ms, v.overlap_ms, v.order);
        if (i == 0) {
            assert_true(l->worker[0].lost && told <= TOLD_MS);
            assert_true(v.gap_ms <= SERVED_MS && v.overlap_ms <= TOLD_MS);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "a failover that keeps all data: the holder keeps the lock, waiters their order",
         .test_func = test_kept,
         .teardown_func = teardown},
        {.name = "a failover that loses the grant: its holder is told, the next one is served",
         .test_func = test_lost,
         .teardown_func = teardown},
    };
    signal(SIGPIPE, SIG_IGN); /* a worker that is done hears no orders */
    return cmocka_run_group_tests_name("failovers beside other libraries", tests, NULL, NULL);
}
