/* sys_futex.c - tests of sleeping on words in memory. */
#include "lib/sentence.h"

#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/process.h"
#include "sys/small_mutex.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000LL

struct sleeper {
    futex_word a, b;
    _Atomic int64_t thread;
    _Atomic bool awake;
    bool two;
};

/* Returns when a word has changed: the sleep itself may end for no reason. */
static void *sleep_on_words(void *arg)
{
    struct sleeper *s = arg;
    atomic_store(&s->thread, gettid());
    while (atomic_load(&s->a) == 0 && atomic_load(&s->b) == 0)
        if (!s->two)
            futex_wait(&s->a, 0, INT64_MAX);
        else if (!futex_wait_two(&s->a, 0, &s->b, 0, INT64_MAX))
            break;
    atomic_store(&s->awake, true);
    return NULL;
}

static void await_sleep(struct sleeper *s)
{
    while (!atomic_load(&s->thread) || process_state(atomic_load(&s->thread)) != 'S')
        usleep(1000);
}

static void wake_through(struct sleeper *s, futex_word *word)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, sleep_on_words, s), 0);
    await_sleep(s);
    assert_false(atomic_load(&s->awake));
    atomic_store(word, 1);
    futex_wake(word, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&s->awake));
}

static void test_one(void **state)
{
    (void)state;
    struct sleeper s = {.two = false};
    wake_through(&s, &s.a);
}

static void test_first(void **state)
{
    (void)state;
    struct sleeper s = {.two = true};
    wake_through(&s, &s.a);
    assert_int_equal(atomic_load(&s.b), 0);
}

static void test_second(void **state)
{
    (void)state;
    struct sleeper s = {.two = true};
    wake_through(&s, &s.b);
    assert_int_equal(atomic_load(&s.a), 0);
}

/* How long a wait that nobody wakes lasts, in nanoseconds; early ends for no reason are waited
 * through. */
static int64_t wait_out(bool two, int64_t until)
{
    futex_word a = 7, b = 8;
    int64_t from = clock_boot();
    do
        if (two)
            assert_true(futex_wait_two(&a, 7, &b, 8, until));
        else
            futex_wait(&a, 7, until);
    while (clock_boot() < until);
    return clock_boot() - from;
}

static void test_timeout(void **state)
{
    (void)state;
    for (int two = 0; two < 2; two++) {
        int64_t took = wait_out(two, clock_boot() + 50 * MS);
        assert_true(took >= 50 * MS - MS);
        assert_true(took < 5000 * MS);
        assert_true(wait_out(two, clock_boot() - 1000 * MS) < 1000 * MS);
        assert_true(wait_out(two, 0) < 1000 * MS);
    }
}

static void test_other_value(void **state)
{
    (void)state;
    futex_word a = 1, b = 1;
    futex_wait(&a, 0, INT64_MAX);
    assert_true(futex_wait_two(&a, 0, &b, 1, INT64_MAX));
    assert_true(futex_wait_two(&a, 1, &b, 0, INT64_MAX));
}

/* Words in shared memory wake across processes. */
static void test_processes(void **state)
{
    (void)state;
    struct sleeper *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(s, MAP_FAILED);
    s->two = true;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(15);
        sleep_on_words(s);
        _exit(0);
    }
    await_sleep(s);
    atomic_store(&s->b, 1);
    futex_wake(&s->b, 1);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    munmap(s, sizeof *s);
}

/* ---- The clock that waits are counted on ---- */

static void test_lately(void **state)
{
    (void)state;
    clock_tune();
    for (int i = 0; i < 100000; i++) {
        int64_t before = clock_boot(), lately = clock_boot_lately(), after = clock_boot();
        assert_true(lately <= after);
        assert_true(lately > before - 500 * MS);
    }
}

/* ---- The latch, which is made of a word ---- */

enum { CROWD = 4, ROUNDS = 20000 };

struct room {
    small_mutex mutex;
    int inside, most, visits; /* under the latch */
    _Atomic int64_t thread[CROWD];
    _Atomic int arrived;
};

static void visit(struct room *room)
{
    small_mutex_lock(&room->mutex);
    room->inside++;
    room->most = room->inside > room->most ? room->inside : room->most;
    room->visits++;
    room->inside--;
    small_mutex_unlock(&room->mutex);
}

static void *visit_once(void *arg)
{
    struct room *room = arg;
    atomic_store(&room->thread[atomic_fetch_add(&room->arrived, 1)], gettid());
    visit(room);
    return NULL;
}

static void *visit_often(void *arg)
{
    for (int i = 0; i < ROUNDS; i++)
        visit(arg);
    return NULL;
}

static void start_crowd(struct room *room, pthread_t crowd[CROWD], void *(*run)(void *))
{
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&crowd[i], NULL, run, room), 0);
}

static void join_crowd(pthread_t crowd[CROWD])
{
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_join(crowd[i], NULL), 0);
}

static void test_mutex_alone(void **state)
{
    (void)state;
    struct room room = {0};
    pthread_t crowd[CROWD];
    alarm(60);
    start_crowd(&room, crowd, visit_often);
    join_crowd(crowd);
    alarm(0);
    assert_int_equal(room.most, 1);
    assert_int_equal(room.visits, CROWD * ROUNDS);
    assert_true(small_mutex_try(&room.mutex));
    assert_false(small_mutex_try(&room.mutex));
}

/* All of them sleep when it is let go, once: each that wakes must remember the others. */
static void test_mutex_all_wake(void **state)
{
    (void)state;
    struct room room = {0};
    pthread_t crowd[CROWD];
    small_mutex_begin_held(&room.mutex);
    start_crowd(&room, crowd, visit_once);
    for (int i = 0; i < CROWD; i++)
        while (!atomic_load(&room.thread[i]) || process_state(atomic_load(&room.thread[i])) != 'S')
            usleep(1000);
    assert_int_equal(room.visits, 0);
    alarm(60);
    small_mutex_unlock(&room.mutex);
    join_crowd(crowd);
    alarm(0);
    assert_int_equal(room.visits, CROWD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a sleep on one word ends when it is woken", test_one),
        SENTENCE("a sleep on two words ends when the first is woken", test_first),
        SENTENCE("a sleep on two words ends when the second is woken", test_second),
        SENTENCE("a sleep ends at its time, and at once when that is over", test_timeout),
        SENTENCE("the time of the last tick is never ahead of the clock, and little behind",
                 test_lately),
        SENTENCE("a word that has another value is not slept on", test_other_value),
        SENTENCE("a word in shared memory wakes another process", test_processes),
        SENTENCE("a latch lets in one at a time", test_mutex_alone),
        SENTENCE("a latch that is let go once wakes all who sleep, one after the other",
                 test_mutex_all_wake),
    };
    return cmocka_run_group_tests_name("sys/futex", tests, NULL, NULL);
}
