/* postgres_bars.c - locks in one PostgreSQL server, side by side: Holdfast, advisory locks through
 * libpq, and the two ways of libraries that poll (SELECT ... FOR UPDATE NOWAIT, and a row that is
 * inserted). bench/postgres runs it.
 *
 *     postgres_bars PORT WAY WORKERS SECONDS      one line: figures as NAME=VALUE
 *     postgres_bars PORT WAY idle SECONDS         100 clients that wait: only statements
 *
 * WAY: durable, memory, poll (as memory, and polling), advisory, select, insert. The workers are
 * processes that take turns; a turn has no length. */
#include <holdfast.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS_MAX = 200, SAMPLES = 4000, IDLE = 100, POLL_US = 10000 };

/* Shared by the processes. */
static struct page {
    _Atomic int inside, ready;
    _Atomic uint32_t overlaps;
    _Atomic int64_t released_at; /* time when the last release began */
    int64_t begin, end;
    struct {
        uint64_t turns;
        double cpu_us;
        uint32_t samples;
        int64_t handoff[SAMPLES]; /* times from the beginning of a release to the next grant */
    } worker[WORKERS_MAX];
} * page;

static const char *way;
static int port;
static PGconn *connection;
static hf_client *client;
static hf_lease *lease;

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "postgres_bars: %s: %s\n", what, why);
    exit(70);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static double cpu_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* ---- The ways ---- */

static PGconn *connect_to_server(void)
{
    char info[100];
    snprintf(info, sizeof info, "host=127.0.0.1 port=%d user=postgres dbname=postgres", port);
    PGconn *one = PQconnectdb(info);
    if (PQstatus(one) != CONNECTION_OK)
        fail("connect", PQerrorMessage(one));
    return one;
}

/* Returns true if the statement succeeded and, if it returns rows or changes them, there was at
 * least one. */
static bool does(const char *statement, const char *sql)
{
    PGresult *result = sql ? PQprepare(connection, statement, sql, 0, NULL)
                           : PQexecPrepared(connection, statement, 0, NULL, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool is_busy = state && strcmp(state, "55P03") == 0;
    bool done = status == PGRES_COMMAND_OK ? strcmp(PQcmdTuples(result), "0") != 0
                                           : status == PGRES_TUPLES_OK;
    if (status == PGRES_FATAL_ERROR && !is_busy)
        fail(statement, PQerrorMessage(connection));
    PQclear(result);
    return done;
}

static bool is_ours(void)
{
    return strcmp(way, "durable") == 0 || strcmp(way, "memory") == 0 || strcmp(way, "poll") == 0;
}

static void open_way(void)
{
    if (is_ours()) {
        char url[200];
        snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres?memory=%d&wake=%s",
                 port, strcmp(way, "durable") != 0, strcmp(way, "poll") == 0 ? "poll" : "notify");
        if (hf_open(url, NULL, &client) != HF_OK)
            fail("hf_open", hf_error_text());
        return;
    }
    connection = connect_to_server();
    does("begin", "BEGIN");
    does("commit", "COMMIT");
    does("rollback", "ROLLBACK");
    does("lock", "SELECT pg_advisory_lock(4711)");
    does("unlock", "SELECT pg_advisory_unlock(4711)");
    does("select", "SELECT name FROM bars WHERE name = 'busy' FOR UPDATE NOWAIT");
    does("insert", "INSERT INTO bars VALUES ('inserted') ON CONFLICT DO NOTHING");
    does("delete", "DELETE FROM bars WHERE name = 'inserted'");
}

static bool try_select(void)
{
    does("begin", NULL);
    if (does("select", NULL))
        return true;
    does("rollback", NULL);
    return false;
}

static void take(void)
{
    if (is_ours()) {
        struct hf_request want = {.size = sizeof want, .name = "bars", .wait_ms = 60000};
        if (hf_acquire(client, &want, &lease) != HF_OK)
            fail("hf_acquire", hf_error_text());
    } else if (way[0] == 'a') {
        does("lock", NULL);
    } else {
        while (!(way[0] == 's' ? try_select() : does("insert", NULL)))
            usleep(POLL_US);
    }
}

static void give(void)
{
    if (is_ours()) {
        if (hf_release(lease) != HF_OK)
            fail("hf_release", hf_error_text());
        hf_lease_free(lease);
    } else if (way[0] == 'a') {
        does("unlock", NULL);
    } else {
        does(way[0] == 's' ? "commit" : "delete", NULL);
    }
}

/* ---- Turns ---- */

static void work(int number)
{
    open_way();
    take();
    give();
    page->ready++;
    while (!page->begin)
        usleep(1000);
    double before = cpu_us();
    while (now_ns() < page->end) {
        take();
        int64_t now = now_ns(), released = page->released_at;
        page->overlaps += atomic_fetch_add(&page->inside, 1) != 0;
        uint32_t at = page->worker[number].samples;
        if (released && at < SAMPLES) {
            page->worker[number].handoff[at] = now - released;
            page->worker[number].samples++;
        }
        page->worker[number].turns++;
        page->inside--;
        page->released_at = now_ns();
        give();
    }
    page->worker[number].cpu_us = cpu_us() - before;
    _exit(0); /* no close: what this process has left behind ends with its ttl */
}

/* Returns the number of statements so far; 0 without pg_stat_statements, which is off by default
 * because it takes time itself. Counting transactions instead would be wrong: every notification
 * counts as one in each session that listens. */
static int64_t statements(PGconn *one)
{
    PGresult *result = PQexec(one, "SELECT sum(calls) FROM pg_stat_statements");
    bool is_there = PQresultStatus(result) == PGRES_TUPLES_OK;
    int64_t count = is_there ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
    PQclear(result);
    return count;
}

static int by_length(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median_handoff(int workers)
{
    static int64_t all[WORKERS_MAX * SAMPLES];
    size_t count = 0;
    for (int i = 0; i < workers; i++)
        for (uint32_t k = 0; k < page->worker[i].samples; k++)
            all[count++] = page->worker[i].handoff[k];
    qsort(all, count, sizeof *all, by_length);
    return count ? all[count / 2] : 0;
}

static void run(int workers, double seconds)
{
    for (int i = 0; i < workers; i++)
        if (fork() == 0)
            work(i);
    while (page->ready < workers)
        usleep(10000);
    PGconn *watcher = connect_to_server();
    int64_t before = statements(watcher);
    int64_t begin = now_ns();
    page->end = begin + (int64_t)(seconds * 1e9);
    page->begin = begin;
    while (wait(NULL) > 0)
        ;
    double lasted = (double)(now_ns() - begin) / 1e9, sum = 0, squares = 0, cpu = 0;
    for (int i = 0; i < workers; i++) {
        double turns = (double)page->worker[i].turns;
        sum += turns;
        squares += turns * turns;
        cpu += page->worker[i].cpu_us;
    }
    printf("%s workers=%d per_s=%.0f statements=%.2f client_us=%.1f handoff_us=%.0f jain=%.4f "
           "overlaps=%u\n",
           way, workers, sum / lasted, (double)(statements(watcher) - before) / sum, cpu / sum,
           (double)median_handoff(workers) / 1e3, sum * sum / (workers * squares), page->overlaps);
}

/* ---- Waiting ---- */

static void run_idle(double seconds)
{
    open_way();
    take();
    pid_t waiter[IDLE];
    for (int i = 0; i < IDLE; i++) {
        waiter[i] = fork();
        if (waiter[i] == 0) {
            open_way();
            page->ready++;
            take();
            _exit(0);
        }
    }
    while (page->ready < IDLE)
        usleep(10000);
    PGconn *watcher = connect_to_server();
    sleep(3);
    int64_t before = statements(watcher), begin = now_ns();
    usleep((useconds_t)(seconds * 1e6));
    int64_t count = statements(watcher) - before;
    printf("%s waiting=%d statements_per_s=%.1f\n", way, IDLE,
           (double)count / ((double)(now_ns() - begin) / 1e9));
    for (int i = 0; i < IDLE; i++)
        kill(waiter[i], SIGKILL);
    exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        fail("arguments", "PORT WAY WORKERS|idle SECONDS");
    port = atoi(argv[1]);
    way = argv[2];
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        fail("mmap", "no memory");
    if (strcmp(argv[3], "idle") == 0)
        run_idle(atof(argv[4]));
    else
        run(atoi(argv[3]), atof(argv[4]));
    return 0;
}
