/* local_bare.c - the ceilings of one machine, and locks that programs use there without a library:
 * a robust mutex, a ring of futexes, flock(2), threads that sleep. Measures the one that --who
 * names, or all that can run the workload. */
#include "local.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>

static void must(int error, const char *what)
{
    if (error != 0)
        bench_fail("%s: %s", what, strerror(error));
}

/* ---- A ring: one futex word for each worker; the lock goes from each worker to the next ---- */

enum { EMPTY, HERE, GONE };

struct slot {
    _Alignas(64) _Atomic uint32_t word;
};

static struct slot *ring; /* shared; slot 0 has the lock first */

struct place {
    struct slot *mine;
    int me, workers;
};

static void *ring_open(const struct bench *b, int worker)
{
    struct place *place = malloc(sizeof *place);
    if (!place)
        bench_fail("no memory");
    spread(b, worker);
    *place = (struct place){&ring[worker], worker, b->workers};
    return place;
}

static void ring_take(void *lock)
{
    struct place *place = lock;
    while (atomic_load_explicit(&place->mine->word, memory_order_acquire) != HERE)
        syscall(SYS_futex, &place->mine->word, FUTEX_WAIT, EMPTY, NULL, NULL, 0);
    atomic_store_explicit(&place->mine->word, EMPTY, memory_order_relaxed);
}

/* Passes the lock to the next worker that has not left; at the end of the run there may be none. */
static void ring_give(void *lock)
{
    struct place *place = lock;
    for (int i = 1; i <= place->workers; i++) {
        struct slot *next = &ring[(place->me + i) % place->workers];
        uint32_t empty = EMPTY;
        if (atomic_compare_exchange_strong(&next->word, &empty, HERE)) {
            syscall(SYS_futex, &next->word, FUTEX_WAKE, 1, NULL, NULL, 0);
            return;
        }
    }
}

/* If the worker was given the lock just before it leaves, it passes the lock on. */
static void ring_close(void *lock)
{
    struct place *place = lock;
    if (atomic_exchange(&place->mine->word, GONE) == HERE)
        ring_give(place);
    free(place);
}

static int run_ring(const struct bench *b, const char *who)
{
    struct lock_kind kind = {.who = who,
                             .engine = "local",
                             .open = ring_open,
                             .take = ring_take,
                             .give = ring_give,
                             .close = ring_close};
    int slots = b->workers ? b->workers : workload_number(b->workload, "local-contended-");

    ring = share((size_t)(slots > 2 ? slots : 2) * sizeof *ring);
    atomic_store(&ring[0].word, HERE);
    return run_local_workload(b, &kind);
}

/* ---- flock(2) ---- */

static char flock_path[PATH_MAX]; /* each worker opens the file itself: workers that share an open
                                     file do not exclude each other */

static int *flock_file(void)
{
    int *fd = malloc(sizeof *fd);
    if (!fd)
        bench_fail("no memory");
    *fd = open(flock_path, O_RDWR | O_CLOEXEC);
    must(*fd < 0 ? errno : 0, flock_path);
    return fd;
}

static void *flock_open(const struct bench *b, int worker)
{
    spread(b, worker);
    return flock_file();
}

static void flock_take(void *lock)
{
    must(flock(*(int *)lock, LOCK_EX) ? errno : 0, "flock");
}

static void flock_give(void *lock)
{
    must(flock(*(int *)lock, LOCK_UN) ? errno : 0, "flock");
}

static void flock_pair(void *lock)
{
    flock_take(lock);
    flock_give(lock);
}

static void flock_close(void *lock)
{
    close(*(int *)lock);
    free(lock);
}

static void make_flock_file(void)
{
    const char *folder = getenv("TMPDIR");
    snprintf(flock_path, sizeof flock_path, "%s/bench-flock-XXXXXX", folder ? folder : "/tmp");
    int fd = mkostemp(flock_path, O_CLOEXEC);
    must(fd < 0 ? errno : 0, flock_path);
    close(fd);
}

static int run_flock_workload(const struct bench *b, const char *who)
{
    struct lock_kind kind = {.who = who,
                             .engine = "local",
                             .open = flock_open,
                             .take = flock_take,
                             .give = flock_give,
                             .close = flock_close};
    make_flock_file();
    int code = run_local_workload(b, &kind);
    unlink(flock_path);

    return code;
}

static int run_flock_pairs(const struct bench *b, const char *who)
{
    struct result result = result_of(b, who, "local");
    make_flock_file();
    pin(b->cpu);
    void *lock = flock_file();
    unlink(flock_path);
    measure_pairs(b, &result, flock_pair, lock);
    flock_close(lock);
    result_print(&result);

    return 0;
}

/* ---- A robust mutex in shared memory ---- */

static void mutex_pair(void *lock)
{
    if (pthread_mutex_lock(lock) != 0 || pthread_mutex_unlock(lock) != 0)
        bench_fail("the mutex failed");
}

static int run_mutex_pairs(const struct bench *b, const char *who)
{
    struct result result = result_of(b, who, "local");
    pthread_mutex_t *mutex = share(sizeof *mutex);
    pthread_mutexattr_t robust;

    must(pthread_mutexattr_init(&robust), "mutex");
    must(pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED), "mutex");
    must(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST), "mutex");
    must(pthread_mutex_init(mutex, &robust), "mutex");
    pin(b->cpu);
    measure_pairs(b, &result, mutex_pair, mutex);
    result_print(&result);

    return 0;
}

static const struct {
    const char *workload, *who;
    int (*run)(const struct bench *b, const char *who);
} MEASURED[] = {
    {"local-uncontended", "robust-mutex", run_mutex_pairs},
    {"local-uncontended", "flock2", run_flock_pairs},
    {"local-contended-", "futex-ring", run_ring},
    {"local-contended-", "flock2", run_flock_workload},
    {"local-handoff", "futex-ping-pong", run_ring},
    {"threads-", "sleepers", run_sleepers},
};

int main(int argc, char **argv)
{
    struct bench b = bench_arguments(argc, argv);
    int done = 0, code = 0;

    for (size_t i = 0; i < sizeof MEASURED / sizeof *MEASURED && code == 0; i++) {
        if (!is_workload(b.workload, MEASURED[i].workload) ||
            (b.who && strcmp(b.who, MEASURED[i].who) != 0))
            continue;
        done++;
        code = MEASURED[i].run(&b, MEASURED[i].who);
    }

    if (done == 0)
        bench_fail("%s: not a workload of this program%s%s", b.workload, b.who ? " for " : "",
                   b.who ? b.who : "");

    return code;
}
