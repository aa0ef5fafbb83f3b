/* local_sleepers.c - the ceiling of blocking threads. Twice in a cycle a thread hands in a request
 * and sleeps until it is answered; one thread answers all requests that it finds. Without a server
 * and a lock this measures only the cost of waking threads. */
#include "local.h"
#include "span.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { SLEEPERS_MOST = 256, ASKED = 0, ANSWERED, LAST };

static struct sleeper {
    _Alignas(64) _Atomic uint32_t word;
    uint64_t sleeps;
    pthread_t thread;
} sleepers[SLEEPERS_MOST];

static struct {
    pthread_mutex_t lock;
    struct sleeper *asked[SLEEPERS_MOST];
    int count;
    _Atomic uint32_t wake_fd; /* futex; 1: there is a request */
} desk = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
    while (atomic_load(word) == value)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void set_and_wake(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Adds a request. The first one wakes the answering thread. */
static void hand_in(struct sleeper *me)
{
    pthread_mutex_lock(&desk.lock);
    desk.asked[desk.count++] = me;
    bool first = desk.count == 1;
    pthread_mutex_unlock(&desk.lock);
    if (first)
        set_and_wake(&desk.wake_fd, 1);
}

static void *run_sleeper(void *self)
{
    struct sleeper *me = self;
    while (atomic_load(&me->word) != LAST) {
        atomic_store(&me->word, ASKED);
        hand_in(me);
        sleep_on(&me->word, ASKED);
        me->sleeps++;
    }

    return NULL;
}

static int take_all(struct sleeper *taken[SLEEPERS_MOST])
{
    sleep_on(&desk.wake_fd, 0);
    pthread_mutex_lock(&desk.lock);
    int count = desk.count;
    memcpy(taken, desk.asked, (size_t)count * sizeof *taken);
    desk.count = 0;
    atomic_store(&desk.wake_fd, 0);
    pthread_mutex_unlock(&desk.lock);

    return count;
}

/* Answers requests until each of `left` threads has had its last answer. */
static void answer_all(int64_t end, int left)
{
    while (left > 0) {
        struct sleeper *taken[SLEEPERS_MOST];
        int count = take_all(taken);
        bool is_last = now_ns() >= end;
        for (int i = 0; i < count; i++)
            set_and_wake(&taken[i]->word, is_last ? LAST : ANSWERED);
        left -= is_last ? count : 0;
    }
}

int run_sleepers(const struct bench *b, const char *who)
{
    struct result result = result_of(b, who, "local");
    int workers = b->workers ? b->workers : workload_number(b->workload, "threads-");
    uint64_t sleeps = 0;
    if (workers < 1 || workers > SLEEPERS_MOST)
        bench_fail("%s: needs 1 to %d workers", b->workload, SLEEPERS_MOST);

    pin(b->cpu);
    struct span span = span_begin(b, NULL);
    for (int i = 0; i < workers; i++)
        if (pthread_create(&sleepers[i].thread, NULL, run_sleeper, &sleepers[i]) != 0)
            bench_fail("no thread");

    answer_all(span.from_ns + (int64_t)(b->seconds * 1e9), workers);
    for (int i = 0; i < workers; i++) {
        pthread_join(sleepers[i].thread, NULL);
        sleeps += sleepers[i].sleeps;
    }

    span_end(&span, (double)sleeps / 2, &result);
    result.workers = workers;
    result_print(&result);
    return 0;
}
