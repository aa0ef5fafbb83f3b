/* sys_robust.c - tests of mutexes that tell when their owner died. */
#include "sentence.h"

#include "sys/clock.h"
#include "sys/process.h"
#include "sys/robust.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000LL

static pthread_mutex_t *mutex; /* in memory that children share */
static hf_word *ready;

static int begin(void **state)
{
    (void)state;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mutex = (pthread_mutex_t *)(void *)page;
    ready = (hf_word *)(void *)(page + 2048);
    return page == MAP_FAILED ? -1 : hf_robust_init(mutex);
}

static int end(void **state)
{
    (void)state;
    return munmap(mutex, 4096);
}

/* A child that locks the mutex and sleeps in it. */
static pid_t start_owner(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(15);
        if (hf_robust_lock(mutex, INT64_MAX) != HF_ROBUST_LOCKED)
            _exit(1);
        atomic_store(ready, 1);
        for (;;)
            pause();
    }
    while (atomic_load(ready) == 0)
        usleep(1000);
    return pid;
}

static void kill_owner(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static uint32_t word(void)
{
    return atomic_load(hf_robust_word(mutex));
}

static void test_cycle(void **state)
{
    (void)state;
    assert_false(hf_robust_held(word()));
    assert_int_equal(hf_robust_owner(mutex), 0);
    assert_int_equal(hf_robust_watch(mutex), 0);
    assert_int_equal(hf_robust_lock(mutex, INT64_MAX), HF_ROBUST_LOCKED);
    assert_true(hf_robust_held(word()));
    assert_true(hf_robust_mine(mutex));
    assert_int_equal(hf_robust_owner(mutex), gettid());
    hf_robust_unlock(mutex);
    assert_false(hf_robust_held(word()));
    assert_false(hf_robust_mine(mutex));
    assert_int_equal(hf_robust_try(mutex), HF_ROBUST_LOCKED);
    hf_robust_unlock(mutex);
}

static void test_held_by_another(void **state)
{
    (void)state;
    pid_t pid = start_owner();
    assert_int_equal(hf_robust_try(mutex), HF_ROBUST_TIMEOUT);
    int64_t from = hf_clock_boot();
    assert_int_equal(hf_robust_lock(mutex, from + 30 * MS), HF_ROBUST_TIMEOUT);
    assert_true(hf_clock_boot() - from >= 30 * MS - MS);
    assert_int_equal(hf_robust_lock(mutex, 0), HF_ROBUST_TIMEOUT);
    assert_true(hf_robust_held(word()));
    assert_false(hf_robust_mine(mutex));
    assert_int_equal(hf_robust_owner(mutex), pid);
    kill_owner(pid);
}

static void test_death(void **state)
{
    (void)state;
    pid_t pid = start_owner();
    kill_owner(pid);
    assert_true(word() & FUTEX_OWNER_DIED);
    assert_false(hf_robust_held(word()));
    assert_int_equal(hf_robust_watch(mutex), 0);
    assert_int_equal(hf_robust_lock(mutex, hf_clock_boot() + 1000 * MS), HF_ROBUST_OWNER_DIED);
    assert_true(hf_robust_mine(mutex));
    hf_robust_mend(mutex);
    hf_robust_unlock(mutex);
    assert_int_equal(hf_robust_try(mutex), HF_ROBUST_LOCKED);
    hf_robust_unlock(mutex);
}

static void test_not_mended(void **state)
{
    (void)state;
    kill_owner(start_owner());
    assert_int_equal(hf_robust_try(mutex), HF_ROBUST_OWNER_DIED);
    hf_robust_unlock(mutex);
    assert_int_equal(hf_robust_try(mutex), HF_ROBUST_BROKEN);
}

/* Dies while the watcher sleeps: without the watch nobody would be woken. */
static void *kill_when_watched(void *arg)
{
    int64_t watcher = *(int64_t *)arg;
    while (hf_process_state(watcher) != 'S')
        usleep(1000);
    kill((pid_t)hf_robust_owner(mutex), SIGKILL);
    return NULL;
}

static void test_watch(void **state)
{
    (void)state;
    pid_t pid = start_owner();
    uint32_t value = hf_robust_watch(mutex);
    assert_true(value & FUTEX_WAITERS);
    assert_int_equal(value & FUTEX_TID_MASK, pid);
    assert_int_equal(hf_robust_watch(mutex), value);
    pthread_t killer;
    int64_t self = gettid();
    assert_int_equal(pthread_create(&killer, NULL, kill_when_watched, &self), 0);
    int64_t limit = hf_clock_boot() + 10000 * MS;
    while (hf_robust_held(word()) && hf_clock_boot() < limit)
        hf_futex_wait(hf_robust_word(mutex), value, limit);
    assert_true(hf_clock_boot() < limit);
    assert_false(hf_robust_held(word()));
    pthread_join(killer, NULL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void *lock_and_return(void *arg)
{
    *(enum hf_robust_result *)arg = hf_robust_try(mutex);
    return NULL;
}

static void test_thread_returns(void **state)
{
    (void)state;
    pthread_t thread;
    enum hf_robust_result got = HF_ROBUST_BROKEN;
    assert_int_equal(pthread_create(&thread, NULL, lock_and_return, &got), 0);
    pthread_join(thread, NULL);
    assert_int_equal(got, HF_ROBUST_LOCKED);
    assert_false(hf_robust_held(word()));
    assert_int_equal(hf_robust_lock(mutex, hf_clock_boot() + 1000 * MS), HF_ROBUST_OWNER_DIED);
    hf_robust_mend(mutex);
    hf_robust_unlock(mutex);
}

#define ROBUST(text, function)                                                                                         \
    {                                                                                                                  \
        .name = text, .test_func = function, .setup_func = begin, .teardown_func = end                                 \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROBUST("the word says who holds the mutex, from the lock to the unlock", test_cycle),
        ROBUST("a mutex that another process holds is waited for until the time is over", test_held_by_another),
        ROBUST("a death inside is seen by the word and by the next lock, and can be mended", test_death),
        ROBUST("a mutex that was not mended is broken", test_not_mended),
        ROBUST("whoever watches the word is woken by the owner's death", test_watch),
        ROBUST("a thread that returns counts as dead", test_thread_returns),
    };
    return cmocka_run_group_tests_name("sys/robust", tests, NULL, NULL);
}
