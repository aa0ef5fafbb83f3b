/* sys_robust_mutex.c - tests of mutexes that tell when their owner died. */
#include "lib/sentence.h"

#include "sys/clock.h"
#include "sys/process.h"
#include "sys/robust_mutex.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000LL

enum { PAGE = 4096, MUTEX_AT = 64, FAR_AT = 2 * PAGE + 128, FILE_SIZE = 3 * PAGE };

/* A file that children share: the first page has a mutex that is listed at start, the third one
 * that a slot lists. */
static char *file;
static int fd;
static struct robust_mutex *mutex, *far_mutex;
static futex_word *ready;
static struct robust_owner me;

static void start(struct robust_owner *owner)
{
    assert_int_equal(robust_owner_start(owner, fd, 1), 0);
    robust_owner_cover(owner, MUTEX_AT);
}

static int begin(void **state)
{
    (void)state;
    fd = memfd_create("mutexes", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, FILE_SIZE) != 0)
        return -1;
    file = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    mutex = (struct robust_mutex *)(void *)(file + MUTEX_AT);
    far_mutex = (struct robust_mutex *)(void *)(file + FAR_AT);
    ready = (futex_word *)(void *)(file + 2048);
    start(&me);
    return 0;
}

static int end(void **state)
{
    (void)state;
    robust_owner_stop(&me);
    close(fd);
    return munmap(file, FILE_SIZE);
}

/* The id that the child puts into the words that it locks. */
static uint32_t child_id(void)
{
    return atomic_load(ready);
}

/* A child that locks both mutexes and sleeps. */
static pid_t start_owner(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct robust_owner own;
        alarm(15);
        start(&own);
        if (robust_owner_cover_slot(&own, fd, 1, FAR_AT) != 0 ||
            robust_mutex_lock(&own, mutex, INT64_MAX) != ROBUST_MUTEX_LOCKED ||
            robust_mutex_try(&own, far_mutex) != ROBUST_MUTEX_LOCKED)
            _exit(1);
        atomic_store(ready, own.id);
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
    return atomic_load(&mutex->word);
}

static enum robust_mutex_result lock_for(int64_t ms)
{
    return robust_mutex_lock(&me, mutex, clock_boot() + ms * MS);
}

static void test_cycle(void **state)
{
    (void)state;
    assert_false(robust_mutex_held(word()));
    assert_int_equal(robust_mutex_owner(mutex), 0);
    assert_int_equal(robust_mutex_watch(mutex), 0);
    assert_int_equal(robust_mutex_lock(&me, mutex, INT64_MAX), ROBUST_MUTEX_LOCKED);
    assert_true(robust_mutex_held(word()));
    assert_true(robust_mutex_is_mine(&me, mutex));
    assert_int_equal(robust_mutex_owner(mutex), me.id);
    assert_int_equal(process_of_thread(me.id), getpid());
    robust_mutex_unlock(&me, mutex);
    assert_false(robust_mutex_held(word()));
    assert_false(robust_mutex_is_mine(&me, mutex));
    assert_int_equal(robust_mutex_try(&me, mutex), ROBUST_MUTEX_LOCKED);
    robust_mutex_unlock(&me, mutex);
    assert_int_equal(word(), 0);
}

static void test_held_by_another(void **state)
{
    (void)state;
    pid_t pid = start_owner();
    assert_int_equal(robust_mutex_try(&me, mutex), ROBUST_MUTEX_TIMEOUT);
    int64_t from = clock_boot();
    assert_int_equal(robust_mutex_lock(&me, mutex, from + 30 * MS), ROBUST_MUTEX_TIMEOUT);
    assert_true(clock_boot() - from >= 30 * MS - MS);
    assert_int_equal(robust_mutex_lock(&me, mutex, 0), ROBUST_MUTEX_TIMEOUT);
    assert_true(robust_mutex_held(word()));
    assert_false(robust_mutex_is_mine(&me, mutex));
    assert_int_equal(robust_mutex_owner(mutex), child_id());
    kill_owner(pid);
}

static void test_death(void **state)
{
    (void)state;
    pid_t pid = start_owner();
    kill_owner(pid);
    assert_true(word() & FUTEX_OWNER_DIED);
    assert_false(robust_mutex_held(word()));
    assert_int_equal(robust_mutex_watch(mutex), 0);
    assert_int_equal(lock_for(1000), ROBUST_MUTEX_OWNER_DIED);
    assert_true(robust_mutex_is_mine(&me, mutex));
    robust_mutex_make_consistent(mutex);
    robust_mutex_unlock(&me, mutex);
    assert_int_equal(robust_mutex_try(&me, mutex), ROBUST_MUTEX_LOCKED);
    robust_mutex_unlock(&me, mutex);
}

static void test_slot(void **state)
{
    (void)state;
    kill_owner(start_owner());
    assert_int_equal(atomic_load(&far_mutex->word), FUTEX_OWNER_DIED);
    assert_int_equal(robust_owner_cover_slot(&me, fd, 0, FAR_AT), 0);
    assert_int_equal(robust_mutex_try(&me, far_mutex), ROBUST_MUTEX_OWNER_DIED);
    robust_mutex_make_consistent(far_mutex);
    assert_int_equal(robust_owner_cover_slot(&me, fd, 0, 0), 0);
    robust_owner_stop(&me); /* the slot is empty: nobody marks the word */
    assert_true(robust_mutex_held(atomic_load(&far_mutex->word)));
    start(&me);
}

static void test_not_mended(void **state)
{
    (void)state;
    kill_owner(start_owner());
    assert_int_equal(robust_mutex_try(&me, mutex), ROBUST_MUTEX_OWNER_DIED);
    robust_mutex_unlock(&me, mutex);
    assert_int_equal(robust_mutex_try(&me, mutex), ROBUST_MUTEX_OWNER_DIED);
    robust_mutex_make_consistent(mutex);
    robust_mutex_unlock(&me, mutex);
}

/* Any value in the word: whoever may write the file chose it. */
static void test_planted_words(void **state)
{
    (void)state;
    static const uint32_t free_words[] = {FUTEX_WAITERS, FUTEX_OWNER_DIED,
                                          FUTEX_WAITERS | FUTEX_OWNER_DIED};
    for (size_t i = 0; i < sizeof free_words / sizeof *free_words; i++) {
        atomic_store(&mutex->word, free_words[i]);
        assert_int_not_equal(lock_for(1000), ROBUST_MUTEX_TIMEOUT);
        robust_mutex_make_consistent(mutex);
        robust_mutex_unlock(&me, mutex);
        assert_int_equal(word(), 0);
    }
    static const uint32_t nobody[] = {FUTEX_TID_MASK, FUTEX_TID_MASK | FUTEX_WAITERS, UINT32_MAX};
    for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++) {
        atomic_store(&mutex->word, nobody[i]);
        assert_int_equal(lock_for(2000), ROBUST_MUTEX_OWNER_DIED);
        robust_mutex_make_consistent(mutex);
        robust_mutex_unlock(&me, mutex);
        assert_int_equal(word(), 0);
    }
    static const uint32_t living[] = {1, 1 | FUTEX_WAITERS};
    for (size_t i = 0; i < sizeof living / sizeof *living; i++) {
        atomic_store(&mutex->word, living[i]);
        int64_t from = clock_boot();
        assert_int_equal(lock_for(60), ROBUST_MUTEX_TIMEOUT);
        assert_true(clock_boot() - from < 1000 * MS);
    }
}

/* The word is changed under its owner; unlocking leaves a mutex that can be locked. */
static void test_changed_while_held(void **state)
{
    (void)state;
    static const uint32_t planted[] = {0, 1, FUTEX_WAITERS, UINT32_MAX};
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        atomic_store(&mutex->word, 0);
        assert_int_equal(robust_mutex_try(&me, mutex), ROBUST_MUTEX_LOCKED);
        atomic_store(&mutex->word, planted[i]);
        robust_mutex_unlock(&me, mutex);
        assert_int_not_equal(lock_for(1000), ROBUST_MUTEX_TIMEOUT);
        robust_mutex_make_consistent(mutex);
        robust_mutex_unlock(&me, mutex);
    }
}

/* The shared pages contain words and nothing else. */
static void test_no_address(void **state)
{
    (void)state;
    pid_t pid = start_owner();
    uint64_t sum = 0;
    for (size_t at = 0; at < FILE_SIZE; at += 4)
        sum += *(const uint32_t *)(const void *)(file + at);
    assert_int_equal(sum, (uint64_t)child_id() * 3); /* two mutexes, and `ready` */
    kill_owner(pid);
}

/* Dies while the watcher sleeps: without the watch nobody would be woken. */
static void *kill_when_watched(void *arg)
{
    int64_t watcher = *(int64_t *)arg;
    while (process_state(watcher) != 'S')
        usleep(1000);
    kill((pid_t)process_of_thread(robust_mutex_owner(mutex)), SIGKILL);
    return NULL;
}

static void test_watch(void **state)
{
    (void)state;
    pid_t pid = start_owner();
    uint32_t value = robust_mutex_watch(mutex);
    assert_true(value & FUTEX_WAITERS);
    assert_int_equal(value & FUTEX_TID_MASK, child_id());
    assert_int_equal(robust_mutex_watch(mutex), value);
    pthread_t killer;
    int64_t self = gettid();
    assert_int_equal(pthread_create(&killer, NULL, kill_when_watched, &self), 0);
    int64_t limit = clock_boot() + 10000 * MS;
    while (robust_mutex_held(word()) && clock_boot() < limit)
        futex_wait(&mutex->word, value, limit);
    assert_true(clock_boot() < limit);
    assert_false(robust_mutex_held(word()));
    pthread_join(killer, NULL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

enum { THREADS = 4, ROUNDS = 20000 };
static unsigned counter; /* guarded by the mutex */

static void *count_up(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(robust_mutex_lock(&me, mutex, INT64_MAX), ROBUST_MUTEX_LOCKED);
        counter++;
        robust_mutex_unlock(&me, mutex);
    }
    return NULL;
}

/* Threads of one process have the same id in the word and still exclude each other. */
static void test_threads(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    counter = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(counter, THREADS * ROUNDS);
}

static void test_owner_stops(void **state)
{
    (void)state;
    struct robust_owner other;
    start(&other);
    assert_int_equal(robust_mutex_try(&other, mutex), ROBUST_MUTEX_LOCKED);
    robust_owner_stop(&other);
    assert_false(robust_mutex_held(word()));
    assert_int_equal(lock_for(1000), ROBUST_MUTEX_OWNER_DIED);
    robust_mutex_make_consistent(mutex);
    robust_mutex_unlock(&me, mutex);
}

#define ROBUST(text, function)                                                                     \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = begin, .teardown_func = end             \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROBUST("the word says who holds the mutex, from the lock to the unlock", test_cycle),
        ROBUST("a mutex that another process holds is waited for until the time is over",
               test_held_by_another),
        ROBUST("a death inside is seen by the word and by the next lock, and can be mended",
               test_death),
        ROBUST("a mutex that was not mended stays marked", test_not_mended),
        ROBUST("a mutex anywhere in the file is marked if a slot lists it", test_slot),
        ROBUST("whoever watches the word is woken by the owner's death", test_watch),
        ROBUST("threads of one process exclude each other", test_threads),
        ROBUST("an owner that stops counts as dead", test_owner_stops),
        ROBUST("a word with any value is locked or waited for until the time is over",
               test_planted_words),
        ROBUST("a word that changes while it is locked can be unlocked and locked again",
               test_changed_while_held),
        ROBUST("no address of the owner lies in the shared file", test_no_address),
    };
    return cmocka_run_group_tests_name("sys/robust", tests, NULL, NULL);
}
