/* workers.c - worker processes share a semaphore of five for a service outside; some of them are
 * killed and replaced.
 *
 *     workers [URL]
 *
 * Then a thousand tries at the same instant: five are granted, the others refused, and all permits
 * are there again. */
#include <holdfast.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PERMITS = 5, WORKERS = 12, KILLS = 8, CALLS = 300, TTL_MS = 2000 };
enum { CROWDS = 20, TRIES_EACH = 50, TRIES = CROWDS * TRIES_EACH };

static const char *url;

/* What everybody sees. */
static struct shared {
    _Atomic int inside[WORKERS]; /* is that worker in the service at this moment? */
    _Atomic int most, calls;     /* the most that ever were inside at once; calls that were made */
    _Atomic int
        replaced; /* workers that were killed and have a successor; nobody goes home before */
    _Atomic int decided, granted, refused, failed;
} * shared;

static void fail(const char *why)
{
    fprintf(stderr, "workers: %s\n", why);
    exit(1);
}

static void must(hf_status status)
{
    if (status != HF_OK)
        fail(hf_error_text());
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static hf_client *open_client(void)
{
    hf_client *client;
    must(hf_open(url, NULL, &client));
    return client;
}

static pid_t fork_or_fail(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        fail("no process");
    return pid;
}

/* ---- Workers ---- */

/* The service: it would refuse a sixth. */
static void call_service(int worker)
{
    int now = 0;
    shared->inside[worker] = 1;
    for (int i = 0; i < WORKERS; i++)
        now += shared->inside[i];
    for (int most = shared->most;
         now > most && !atomic_compare_exchange_weak(&shared->most, &most, now);)
        continue;
    nap_ms(5);
    shared->calls++;
    shared->inside[worker] = 0;
}

static void work(int worker)
{
    struct hf_request want = {.size = sizeof want,
                              .name = "geocoder",
                              .kind = HF_SEMAPHORE,
                              .capacity = PERMITS,
                              .ttl_ms = TTL_MS,
                              .wait_ms = HF_FOREVER,
                              .flags = HF_AUTO_RENEW};
    hf_client *client = open_client();
    while (shared->calls < CALLS || shared->replaced < KILLS) {
        hf_lease *lease;
        must(hf_acquire(client, &want, &lease));
        if (hf_lease_ok(lease))
            call_service(worker);
        hf_lease_free(lease); /* releases */
    }
    must(hf_close(client, 5000));
}

static pid_t hire(int worker)
{
    pid_t pid = fork_or_fail();
    if (pid == 0) {
        work(worker);
        exit(0);
    }
    return pid;
}

/* Stopped first, so that it leaves the service before its permit can go on to somebody else. */
static void kill_worker(pid_t pid, int worker)
{
    int status;
    if (kill(pid, SIGSTOP) != 0 || waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        fail("a worker cannot be stopped");
    shared->inside[worker] = 0;
    if (kill(pid, SIGKILL) != 0 || waitpid(pid, &status, 0) != pid)
        fail("a worker cannot be killed");
}

static void await_success(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        fail("a process failed");
}

/* All five at once: that there are no fewer shows that none was lost. */
static void take_all(void)
{
    struct hf_request want = {.size = sizeof want,
                              .name = "geocoder",
                              .kind = HF_SEMAPHORE,
                              .capacity = PERMITS,
                              .units = PERMITS,
                              .wait_ms = 10 * TTL_MS};
    hf_lease *lease;
    hf_client *client = open_client();
    must(hf_acquire(client, &want, &lease));
    must(hf_release(lease));
    hf_lease_free(lease);
    must(hf_close(client, 1000));
}

static void run_workers(void)
{
    pid_t worker[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        worker[i] = hire(i);
    for (int i = 0; i < KILLS; i++) {
        while (shared->calls < (i + 1) * CALLS / (KILLS + 2))
            nap_ms(1);
        kill_worker(worker[i], i);
        worker[i] = hire(i);
        shared->replaced++;
    }
    for (int i = 0; i < WORKERS; i++)
        await_success(worker[i]);
    take_all();
    printf("%d workers, %d killed and replaced, %d calls, at most %d at once, %d permits free "
           "afterwards\n",
           WORKERS, KILLS, shared->calls, shared->most, PERMITS);
    if (shared->most > PERMITS || shared->most < 2)
        fail("that is not what a semaphore of five is for");
}

/* ---- A thousand tries ---- */

static void note(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)arg;
    atomic_fetch_add(outcome == HF_OK     ? &shared->granted
                     : outcome == HF_BUSY ? &shared->refused
                                          : &shared->failed,
                     1);
    shared->decided++;
}

/* Tries fifty times at once, and keeps what it got until all have tried. */
static void be_a_crowd(int start)
{
    struct hf_request want = {
        .size = sizeof want, .name = "rush", .kind = HF_SEMAPHORE, .capacity = PERMITS};
    hf_lease *lease[TRIES_EACH];
    char none;
    hf_client *client = open_client();
    while (read(start, &none, 1) > 0)
        continue;
    for (int i = 0; i < TRIES_EACH; i++)
        must(hf_acquire_start(client, &want, note, NULL, &lease[i]));
    while (shared->decided < TRIES)
        nap_ms(1);
    for (int i = 0; i < TRIES_EACH; i++)
        hf_lease_free(lease[i]);
    must(hf_close(client, 5000));
}

static void count_used(void *used, const struct hf_row *row)
{
    *(int *)used = (int)row->used;
}

static void run_rush(void)
{
    pid_t crowd[CROWDS];
    int start[2], used = 0;
    if (pipe(start) != 0)
        fail("no pipe");
    for (int i = 0; i < CROWDS; i++) {
        crowd[i] = fork_or_fail();
        if (crowd[i] == 0) {
            close(start[1]);
            be_a_crowd(start[0]);
            exit(0);
        }
    }
    close(start[0]);
    close(start[1]); /* now */
    for (int i = 0; i < CROWDS; i++)
        await_success(crowd[i]);
    hf_client *client = open_client();
    must(hf_show(client, "rush", count_used, &used));
    must(hf_close(client, 1000));
    printf("tried  granted  refused  failed  free afterwards\n%5d  %7d  %7d  %6d  %15d\n",
           shared->decided, shared->granted, shared->refused, shared->failed, PERMITS - used);
    if (shared->granted != PERMITS || shared->refused != TRIES - PERMITS || used != 0)
        fail("that is not five of a thousand");
}

int main(int argc, char **argv)
{
    url = argc > 1 ? argv[1] : NULL;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("no memory to share");
    run_workers();
    run_rush();
    printf("proved: never more than %d at once, %d workers killed and no permit lost; of %d tries "
           "%d were granted\n",
           PERMITS, KILLS, TRIES, shared->granted);
    return 0;
}
