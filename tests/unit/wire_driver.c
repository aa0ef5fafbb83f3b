/* wire_driver.c - tests of the driver that lets whoever waits read for all: a toy engine behind it, a server in a
 * thread of the test at the other end. What the library calls is counted for each thread. */
#include "toy_engine.h"

#include "base/settings.h"
#include "engines/wire/spin.h"
#include "sys/clock.h"
#include "sys/process.h"

#include <dirent.h>
#include <stdarg.h>
#include <sys/syscall.h>

#define PATIENCE HF_MS(60000) /* nobody waits that long unless a wake-up was lost, even with TSan on a busy machine */

/* ---- What a thread calls ---- */

struct counts {
    _Atomic uint64_t sends, short_sends, receives, polls, writes, futexes, allocations;
    _Atomic uint64_t looks; /* polls that do not sleep */
};
static _Thread_local struct counts mine;

static void count(_Atomic uint64_t *what)
{
    atomic_fetch_add_explicit(what, 1, memory_order_relaxed);
}

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    count(&mine.sends);
    ssize_t sent = __real_send(fd, bytes, len, flags);
    if (sent < (ssize_t)len)
        count(&mine.short_sends);
    return sent;
}

ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    count(&mine.receives);
    return __real_recv(fd, bytes, size, flags);
}

int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    count(timeout ? &mine.polls : &mine.looks);
    return __real_poll(fds, n, timeout);
}

ssize_t __real_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    count(&mine.writes);
    return __real_write(fd, bytes, len);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_futex)
        count(&mine.futexes);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    count(&mine.allocations);
    return __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    count(&mine.allocations);
    return __real_calloc(n, size);
}

void *__real_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size)
{
    count(&mine.allocations);
    return __real_realloc(block, size);
}

/* ---- The client ---- */

/* An ask and what became of it. By the bell the keeper notes it here. */
struct order {
    struct hf_ask ask;
    struct order *next; /* nudged about */
    bool nudged;
    enum hf_cue cue[32];
    _Atomic int news;
};

static struct {
    struct toy_server server;
    void *wire;
    struct hf_host host;
    pthread_t keeper;
    struct counts *keeper_counts;
    _Atomic int64_t keeper_thread;
    _Atomic bool stop;
    _Atomic uint64_t attends, nudges, rechecks;
    pthread_mutex_t lock;
    struct order *first;
} stage;

static void nudge(void *ctx, struct hf_ask *ask)
{
    struct order *order = (struct order *)(void *)ask;
    (void)ctx;
    atomic_fetch_add(&stage.nudges, 1);
    pthread_mutex_lock(&stage.lock);
    if (!order->nudged) {
        order->nudged = true;
        order->next = stage.first;
        stage.first = order;
    }
    pthread_mutex_unlock(&stage.lock);
}

static void recheck(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&stage.rechecks, 1);
}

static struct order *next_nudged(void)
{
    pthread_mutex_lock(&stage.lock);
    struct order *order = stage.first;
    if (order) {
        stage.first = order->next;
        order->nudged = false;
    }
    pthread_mutex_unlock(&stage.lock);
    return order;
}

static void look(struct order *order)
{
    struct hf_news news;
    while (hf_wire_peek(stage.wire, &order->ask, hf_clock_boot(), &news)) {
        int n = atomic_load(&order->news);
        order->cue[n] = news.cue;
        if (news.token != order->ask.token)
            abort();
        atomic_store(&order->news, n + 1);
    }
}

static void *keep(void *arg)
{
    (void)arg;
    stage.keeper_counts = &mine;
    if (hf_wire_enter(stage.wire) != HF_OK)
        abort();
    atomic_store(&stage.keeper_thread, gettid());
    while (!atomic_load(&stage.stop)) {
        hf_wire_attend(stage.wire, HF_NEVER);
        atomic_fetch_add(&stage.attends, 1);
        for (struct order *order; (order = next_nudged()) != NULL;)
            look(order);
    }
    hf_wire_leave(stage.wire);
    return NULL;
}

/* Until a thread sleeps in the kernel. */
static void await_sleep(int64_t thread)
{
    while (hf_process_state(thread) != 'S')
        usleep(500);
}

static int set_up_with(int64_t spin_us)
{
    static const struct hf_url *const some_url = (const void *)"";
    struct hf_settings settings = {.value[HF_SET_SPIN] = spin_us};
    toy_start(&stage.server);
    stage.host = (struct hf_host){.nudge = nudge, .recheck = recheck};
    atomic_store(&stage.stop, false);
    atomic_store(&stage.keeper_thread, 0);
    atomic_store(&stage.nudges, 0);
    assert_int_equal(hf_wire_open(&stage.wire, some_url, &settings, &stage.host, &toy_type), HF_OK);
    strcpy(toy->address.host, "127.0.0.1");
    strcpy(toy->address.port, stage.server.port);
    assert_int_equal(pthread_create(&stage.keeper, NULL, keep, NULL), 0);
    while (!atomic_load(&stage.keeper_thread))
        usleep(500);
    await_sleep(atomic_load(&stage.keeper_thread));
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return set_up_with(0);
}

static int set_up_to_spin(void **state)
{
    (void)state;
    return set_up_with(1000000); /* however busy the machine is */
}

static int tear_down(void **state)
{
    (void)state;
    atomic_store(&stage.stop, true);
    hf_wire_attend_wake(stage.wire);
    assert_int_equal(pthread_join(stage.keeper, NULL), 0);
    hf_wire_close(stage.wire);
    toy_stop(&stage.server);
    return 0;
}

static struct order an_order(void)
{
    static _Atomic uint64_t token = 1000;
    return (struct order){.ask = {.verb = HF_V_ACQUIRE, .token = atomic_fetch_add(&token, 1)}};
}

static bool submit(struct order *order, enum hf_verb verb, bool bell, struct hf_news *news)
{
    hf_nanos now = hf_clock_boot();
    order->ask.verb = verb;
    order->ask.bell = bell;
    order->ask.until = now + PATIENCE;
    return hf_wire_submit(stage.wire, &order->ask, now, news);
}

static void park(struct order *order, hf_nanos patience)
{
    hf_wire_park(stage.wire, order->ask.slot, order->ask.seen, hf_clock_boot() + patience);
}

/* The next news of an order that was submitted without the bell. */
static enum hf_cue await_news(struct order *order)
{
    struct hf_news news;
    for (hf_nanos begun = hf_clock_boot(); hf_clock_boot() - begun < PATIENCE / 2;) {
        park(order, PATIENCE / 2);
        if (hf_wire_peek(stage.wire, &order->ask, hf_clock_boot(), &news)) {
            assert_int_equal(news.token, order->ask.token);
            return news.cue;
        }
    }
    fail_msg("no news came");
    return HF_N_CUES;
}

static enum hf_cue ask(struct order *order, enum hf_verb verb)
{
    struct hf_news news;
    return submit(order, verb, false, &news) ? news.cue : await_news(order);
}

static void forget(struct order *order)
{
    hf_wire_forget(stage.wire, &order->ask);
    assert_int_equal(order->ask.slot, 0);
}

/* One blocking cycle. */
static void cycle(struct order *order)
{
    assert_int_equal(ask(order, HF_V_ACQUIRE), HF_N_GRANTED);
    assert_int_equal(ask(order, HF_V_RELEASE), HF_N_RELEASED);
}

static void await_told(const struct order *order, int news)
{
    while (atomic_load(&order->news) < news)
        usleep(200);
}

static void await_heard(uint64_t lines)
{
    while (toy_heard(&stage.server) < lines)
        usleep(200);
}

static int open_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Both lines are up and all memory is there. */
static void warm_up(void)
{
    struct order order = an_order();
    for (int i = 0; i < 20; i++)
        cycle(&order);
    order.ask.queue = true; /* so that line 1 is read until it is up */
    assert_int_equal(ask(&order, HF_V_ACQUIRE), HF_N_QUEUED);
    hf_nanos begun = hf_clock_boot();
    while (toy_greetings(&stage.server, 1) == 0 && hf_clock_boot() - begun < PATIENCE)
        park(&order, HF_MS(5));
    assert_int_equal(toy_greetings(&stage.server, 1), 1);
    forget(&order);
}

/* ---- A thread that blocks ---- */

struct blocked {
    struct order order;
    enum hf_verb verb;
    pthread_t thread;
    _Atomic int64_t id;
    _Atomic bool over;
    enum hf_cue cue;
    uint64_t polls, futexes;
};

static void *block(void *arg)
{
    struct blocked *b = arg;
    atomic_store(&b->id, gettid());
    b->cue = ask(&b->order, b->verb);
    if (b->cue == HF_N_QUEUED)
        b->cue = await_news(&b->order);
    b->polls = atomic_load(&mine.polls);
    b->futexes = atomic_load(&mine.futexes);
    forget(&b->order);
    atomic_store(&b->over, true);
    return NULL;
}

static void start_blocked(struct blocked *b, bool queue)
{
    *b = (struct blocked){.order = an_order(), .verb = HF_V_ACQUIRE};
    b->order.ask.queue = queue;
    assert_int_equal(pthread_create(&b->thread, NULL, block, b), 0);
}

static void await_blocked(const struct blocked *b)
{
    while (!atomic_load(&b->id))
        usleep(200);
    await_sleep(atomic_load(&b->id));
}

static void join(struct blocked *b, enum hf_cue cue)
{
    assert_int_equal(pthread_join(b->thread, NULL), 0);
    assert_int_equal(b->cue, cue);
}

static void push(const struct order *order)
{
    toy_order(&stage.server);
    snprintf(stage.server.push, sizeof stage.server.push, "g %llu\n", (unsigned long long)order->ask.token);
    toy_go(&stage.server);
}

/* ---- What a cycle costs ---- */

enum { CYCLES = 300 };

static void assert_cheap_cycles(void)
{
    struct order order = an_order();
    cycle(&order);
    uint64_t keeper_polls = atomic_load(&stage.keeper_counts->polls);
    struct counts before = mine;
    for (int i = 0; i < CYCLES; i++)
        cycle(&order);
    assert_int_equal(mine.sends - before.sends, 2 * CYCLES);
    assert_int_equal(mine.receives - before.receives, 2 * CYCLES);
    assert_int_equal(mine.polls - before.polls, 2 * CYCLES);
    assert_int_equal(mine.writes - before.writes, 0);
    assert_int_equal(mine.futexes - before.futexes, 0);
    assert_int_equal(mine.allocations - before.allocations, 0);
    assert_int_equal(atomic_load(&stage.keeper_counts->polls), keeper_polls);
    forget(&order);
}

static void test_costs(void **state)
{
    (void)state;
    warm_up();
    assert_true(mine.allocations > 0 && mine.sends > 0); /* the counters count */
    assert_cheap_cycles();
}

/* Where the machine has one CPU, nobody looks. */
static void test_looks_first(void **state)
{
    (void)state;
    warm_up();
    struct order order = an_order();
    struct counts before = mine;
    for (int i = 0; i < CYCLES; i++)
        cycle(&order);
    bool looks = hf_machine_cpus() > 1;
    assert_int_equal(mine.polls - before.polls, looks ? 0 : 2 * CYCLES);
    assert_true(looks ? mine.looks - before.looks >= 2 * CYCLES : mine.looks == before.looks);
    assert_in_range(mine.receives - before.receives, 2 * CYCLES, 3 * CYCLES); /* half an answer now and then */
    forget(&order);
}

static void test_spin_learns(void **state)
{
    (void)state;
    struct hf_spin spin = {0};
    int looks = 0;
    for (int wait = 0; wait < 100 << HF_SPIN_RESTS; wait++)
        if (hf_spin_pays(&spin)) {
            looks++;
            hf_spin_learn(&spin, false);
        }
    assert_in_range(looks, 100, 100 + HF_SPIN_RESTS); /* in vain: one wait in 2^RESTS */
    hf_spin_learn(&spin, true);
    assert_true(hf_spin_pays(&spin));
    hf_spin_learn(&spin, false);
    assert_false(hf_spin_pays(&spin));
    assert_true(hf_spin_pays(&spin)); /* one that was in vain costs one */
}

static void test_queue_slows_nobody(void **state)
{
    (void)state;
    struct blocked waiter;
    warm_up();
    start_blocked(&waiter, true);
    await_heard(42);
    await_blocked(&waiter);
    assert_cheap_cycles();
    assert_false(atomic_load(&waiter.over));
    push(&waiter.order);
    join(&waiter, HF_N_GRANTED);
}

/* ---- Many at once ---- */

enum { THREADS = 8, ROUNDS = 400 };

static void *run_cycles(void *arg)
{
    struct order order = an_order();
    (void)arg;
    for (int i = 0; i < ROUNDS; i++)
        cycle(&order);
    forget(&order);
    return NULL;
}

/* Every other one by the bell, in batches. */
static void *run_bells(void *arg)
{
    enum { BATCH = 16 };
    struct order orders[BATCH];
    struct hf_news news;
    (void)arg;
    for (int i = 0; i < BATCH; i++)
        orders[i] = an_order();
    for (int round = 0; round < ROUNDS / BATCH; round++) {
        for (int i = 0; i < BATCH; i++) {
            atomic_store(&orders[i].news, 0);
            assert_false(submit(&orders[i], round % 2 ? HF_V_RELEASE : HF_V_ACQUIRE, true, &news));
        }
        for (int i = 0; i < BATCH; i++) {
            await_told(&orders[i], 1);
            assert_int_equal(orders[i].cue[0], round % 2 ? HF_N_RELEASED : HF_N_GRANTED);
        }
    }
    for (int i = 0; i < BATCH; i++)
        forget(&orders[i]);
    return NULL;
}

enum { CROWD = 40, CROWD_ROUNDS = 100 };

static void *run_crowd(void *sends)
{
    struct order order = an_order();
    for (int i = 0; i < CROWD_ROUNDS; i++)
        cycle(&order);
    forget(&order);
    atomic_fetch_add((_Atomic uint64_t *)sends, mine.sends);
    return NULL;
}

static void test_together(void **state)
{
    (void)state;
    pthread_t threads[CROWD];
    _Atomic uint64_t sends = 0;
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &sends), 0);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(toy_heard(&stage.server), CROWD * CROWD_ROUNDS * 2);
    assert_true(sends < CROWD * CROWD_ROUNDS * 2);
}

static void test_many(void **state)
{
    (void)state;
    pthread_t threads[THREADS + 2];
    for (int i = 0; i < THREADS + 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < THREADS ? run_cycles : run_bells, NULL), 0);
    for (int i = 0; i < THREADS + 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(toy_heard(&stage.server), THREADS * ROUNDS * 2 + 2 * ROUNDS);
    assert_int_equal(toy->downs, 0);
}

/* ---- Handing on ---- */

static void test_leaving_driver(void **state)
{
    (void)state;
    struct blocked driver, sleeper;
    struct hf_news news;
    struct order late = an_order(), late_too = an_order();
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t heard = toy_heard(&stage.server);
    start_blocked(&driver, false);
    await_heard(heard + 1);
    await_blocked(&driver);
    toy_hold_back(&stage.server, false);
    join(&driver, HF_N_GRANTED);
    assert_true(driver.polls > 0);

    /* The second one sleeps on a word while the first drives, and drives when that leaves: its answer comes after. */
    toy_hold_back(&stage.server, true);
    start_blocked(&driver, true);
    await_heard(heard + 2);
    await_blocked(&driver);
    start_blocked(&sleeper, false);
    await_blocked(&sleeper);
    toy_hold_back(&stage.server, false);
    join(&sleeper, HF_N_GRANTED);
    push(&driver.order);
    join(&driver, HF_N_GRANTED);

    /* Nobody else parks: what comes by the bell is left to the background thread. */
    toy_hold_back(&stage.server, true);
    start_blocked(&driver, false);
    await_heard(heard + 4);
    await_blocked(&driver);
    assert_false(submit(&late, HF_V_ACQUIRE, true, &news));
    hf_wire_wake(stage.wire, driver.order.ask.slot); /* comes back at once, and drives again */
    assert_false(submit(&late_too, HF_V_ACQUIRE, true, &news));
    await_heard(heard + 6);
    assert_int_equal(atomic_load(&stage.nudges), 0);
    toy_hold_back(&stage.server, false);
    join(&driver, HF_N_GRANTED);
    await_told(&late, 1);
    await_told(&late_too, 1);
    forget(&late);
    forget(&late_too);
}

/* Each leaves when it has its answer, before the next one's comes; the last answer is for the bell. */
static void test_chain_of_drivers(void **state)
{
    (void)state;
    struct blocked chain[THREADS];
    struct order by_bell = an_order();
    struct hf_news news;
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t heard = toy_heard(&stage.server), slept = 0;
    for (int i = 0; i < THREADS; i++) {
        start_blocked(&chain[i], false);
        await_heard(heard + (uint64_t)i + 1);
        await_blocked(&chain[i]);
    }
    assert_false(submit(&by_bell, HF_V_ACQUIRE, true, &news));
    for (int i = 0; i < THREADS; i++) {
        toy_answer_one(&stage.server);
        join(&chain[i], HF_N_GRANTED);
        slept += chain[i].futexes;
    }
    assert_true(slept > 0);
    assert_int_equal(atomic_load(&stage.nudges), 0);
    toy_answer_one(&stage.server);
    await_told(&by_bell, 1);
    forget(&by_bell);
    toy_hold_back(&stage.server, false);
}

/* ---- Waking, times ---- */

static void *park_for_long(void *arg)
{
    struct blocked *b = arg;
    atomic_store(&b->id, gettid());
    park(&b->order, PATIENCE);
    b->polls = atomic_load(&mine.polls);
    b->futexes = atomic_load(&mine.futexes);
    atomic_store(&b->over, true);
    return NULL;
}

static void start_parked(struct blocked *b)
{
    assert_int_equal(pthread_create(&b->thread, NULL, park_for_long, b), 0);
    await_blocked(b);
    assert_false(atomic_load(&b->over));
}

static void test_wake(void **state)
{
    (void)state;
    struct hf_news news;
    warm_up();
    struct blocked driver = {.order = an_order()}, sleeper = {.order = an_order()};
    toy_hold_back(&stage.server, true);
    assert_false(submit(&driver.order, HF_V_ACQUIRE, false, &news));
    assert_false(submit(&sleeper.order, HF_V_ACQUIRE, false, &news));
    start_parked(&driver);
    start_parked(&sleeper);
    hf_nanos begun = hf_clock_boot();
    hf_wire_wake(stage.wire, sleeper.order.ask.slot);
    assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
    hf_wire_wake(stage.wire, driver.order.ask.slot);
    assert_int_equal(pthread_join(driver.thread, NULL), 0);
    assert_true(hf_clock_boot() - begun < PATIENCE / 2);
    assert_true(driver.polls > 0 && driver.futexes == 0);
    assert_true(sleeper.polls == 0 && sleeper.futexes > 0);

    begun = hf_clock_boot();
    hf_wire_wake(stage.wire, driver.order.ask.slot); /* before it parks: counts once */
    park(&driver.order, PATIENCE);
    assert_true(hf_clock_boot() - begun < PATIENCE / 2);
    begun = hf_clock_boot();
    park(&driver.order, HF_MS(50));
    assert_true(hf_clock_boot() - begun >= HF_MS(50));
    toy_hold_back(&stage.server, false);
    assert_int_equal(await_news(&driver.order), HF_N_GRANTED);
    assert_int_equal(await_news(&sleeper.order), HF_N_GRANTED);
    forget(&driver.order);
    forget(&sleeper.order);
    hf_wire_wake(stage.wire, 1); /* a slot that nobody has */
    hf_wire_park(stage.wire, 1, 0, HF_NEVER);
}

static void test_forgotten_while_parked(void **state)
{
    (void)state;
    struct hf_news news;
    warm_up();
    struct blocked driver = {.order = an_order()}, sleeper = {.order = an_order()};
    toy_hold_back(&stage.server, true);
    assert_false(submit(&driver.order, HF_V_ACQUIRE, false, &news));
    assert_false(submit(&sleeper.order, HF_V_ACQUIRE, false, &news));
    start_parked(&driver);
    start_parked(&sleeper);
    uint64_t old = driver.order.ask.slot;
    forget(&driver.order);
    forget(&sleeper.order);
    assert_int_equal(pthread_join(driver.thread, NULL), 0);
    assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
    struct order next = an_order(), after = an_order(); /* take the same records */
    assert_false(submit(&next, HF_V_ACQUIRE, false, &news));
    assert_false(submit(&after, HF_V_ACQUIRE, false, &news));
    assert_int_not_equal(next.ask.slot, old);
    assert_int_not_equal(after.ask.slot, old);
    hf_wire_park(stage.wire, old, 0, HF_NEVER);
    toy_hold_back(&stage.server, false);
    assert_int_equal(await_news(&next), HF_N_GRANTED);
    assert_int_equal(await_news(&after), HF_N_GRANTED);
    forget(&next);
    forget(&after);
}

/* The engine gives up an ask at its time, whether a caller waits for it or nobody does. */
static void test_ticks(void **state)
{
    (void)state;
    struct order blocking = an_order(), by_bell = an_order();
    struct hf_news news;
    warm_up();
    toy_hold_back(&stage.server, true);
    hf_nanos begun = hf_clock_boot();
    blocking.ask.until = by_bell.ask.until = begun + HF_MS(60);
    by_bell.ask.bell = true;
    assert_false(hf_wire_submit(stage.wire, &blocking.ask, begun, &news));
    assert_false(hf_wire_submit(stage.wire, &by_bell.ask, begun, &news));
    park(&blocking, PATIENCE);
    assert_true(hf_wire_peek(stage.wire, &blocking.ask, hf_clock_boot(), &news));
    assert_int_equal(news.cue, HF_N_FAILED);
    assert_string_equal(news.text, "the toy has no answer");
    await_told(&by_bell, 1);
    assert_int_equal(by_bell.cue[0], HF_N_FAILED);
    hf_nanos took = hf_clock_boot() - begun;
    assert_true(took >= HF_MS(60) && took < PATIENCE / 2);

    atomic_store(&by_bell.news, 0);
    by_bell.ask.until = hf_clock_boot() + HF_MS(30);
    assert_false(hf_wire_submit(stage.wire, &by_bell.ask, hf_clock_boot(), &news));
    await_told(&by_bell, 1); /* by the background thread alone */
    assert_int_equal(by_bell.cue[0], HF_N_FAILED);
    toy_hold_back(&stage.server, false);
    forget(&blocking);
    forget(&by_bell);
}

/* ---- By the bell ---- */

static void test_bell(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    order.ask.queue = true;
    assert_false(submit(&order, HF_V_ACQUIRE, true, &news));
    await_told(&order, 1);
    assert_int_equal(order.cue[0], HF_N_QUEUED);
    while (toy_greetings(&stage.server, 1) == 0) /* the background thread drives line 1 from now on */
        usleep(200);
    push(&order);
    await_told(&order, 2);
    assert_int_equal(order.cue[1], HF_N_GRANTED);
    assert_int_equal(atomic_load(&stage.nudges), 2);
    forget(&order);
}

static void test_unattend(void **state)
{
    (void)state;
    struct order unread = an_order(), later = an_order();
    struct hf_news news;
    warm_up();
    assert_false(submit(&unread, HF_V_ACQUIRE, false, &news));
    park(&unread, PATIENCE); /* has its answer, and does not look */
    assert_int_equal(atomic_load(&stage.nudges), 0);
    hf_wire_unattend(stage.wire, &unread.ask);
    await_told(&unread, 1);
    assert_int_equal(unread.cue[0], HF_N_GRANTED);

    uint64_t heard = toy_heard(&stage.server);
    assert_false(submit(&later, HF_V_ACQUIRE, false, &news));
    usleep(20000);
    assert_int_equal(toy_heard(&stage.server), heard); /* it waits for the park */
    hf_wire_unattend(stage.wire, &later.ask);
    await_told(&later, 1);
    assert_int_equal(later.cue[0], HF_N_GRANTED);
    forget(&unread);
    forget(&later);
}

static void test_at_once(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    for (int bell = 0; bell < 2; bell++) {
        assert_true(submit(&order, HF_V_CHECK, bell, &news));
        assert_int_equal(news.cue, HF_N_EXTENDED);
        assert_false(hf_wire_peek(stage.wire, &order.ask, hf_clock_boot(), &news));
    }
    assert_int_equal(atomic_load(&stage.nudges), 0);
    forget(&order);
}

static void test_full_box(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    int hints = 0;
    assert_false(submit(&order, HF_V_LEAVE, false, &news)); /* RELEASED and ten hints: more than fits */
    assert_true(hf_wire_peek(stage.wire, &order.ask, hf_clock_boot(), &news));
    assert_int_equal(news.cue, HF_N_RELEASED);
    for (hf_nanos begun = hf_clock_boot(); hints < 7; hints++) {
        park(&order, PATIENCE); /* not for long: there is something unread */
        assert_true(hf_clock_boot() - begun < PATIENCE / 2);
        assert_true(hf_wire_peek(stage.wire, &order.ask, hf_clock_boot(), &news));
        assert_int_equal(news.cue, HF_N_HINT);
    }
    assert_false(hf_wire_peek(stage.wire, &order.ask, hf_clock_boot(), &news));
    hf_nanos begun = hf_clock_boot();
    park(&order, HF_MS(30)); /* all is seen, those too that gave way */
    assert_true(hf_clock_boot() - begun >= HF_MS(30));
    forget(&order);
}

static void test_flush(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    warm_up();
    uint64_t heard = toy_heard(&stage.server);
    assert_false(submit(&order, HF_V_ACQUIRE, false, &news));
    hf_wire_flush(stage.wire);
    await_heard(heard + 1);
    assert_int_equal(await_news(&order), HF_N_GRANTED);
    forget(&order);
}

static void test_orphans(void **state)
{
    (void)state;
    struct order order = an_order();
    struct hf_news news;
    warm_up();
    int answers = atomic_load(&toy->answers);
    assert_false(submit(&order, HF_V_ACQUIRE, false, &news));
    forget(&order);
    while (atomic_load(&toy->answers) == answers)
        usleep(200);
    assert_int_equal(atomic_load(&stage.nudges), 0);
    assert_cheap_cycles(); /* and it lets go of the line */
}

static void test_recheck(void **state)
{
    (void)state;
    struct order order = an_order();
    warm_up();
    uint64_t attends = atomic_load(&stage.attends);
    assert_int_equal(atomic_load(&stage.rechecks), 0);
    atomic_store(&toy->wants_recheck, true); /* at its next tick, which is the caller's */
    cycle(&order);
    while (atomic_load(&stage.attends) == attends)
        usleep(200);
    assert_int_equal(atomic_load(&stage.rechecks), 1);
    forget(&order);
}

/* ---- Lines that go ---- */

static void test_hung_up_while_polled(void **state)
{
    (void)state;
    struct blocked quick, queued;
    struct order breaker = an_order();
    struct hf_news news;
    warm_up();
    int descriptors = open_descriptors();
    for (int i = 0; i < 20; i++) {
        uint64_t heard = toy_heard(&stage.server);
        start_blocked(&queued, true);
        await_heard(heard + 1);
        await_blocked(&queued);
        toy_hold_back(&stage.server, true);
        start_blocked(&quick, false);
        await_heard(heard + 2);
        await_blocked(&quick);
        /* Twice: what was dialled in between is polled by nobody yet. */
        assert_true(submit(&breaker, HF_V_DOWNGRADE, false, &news));
        assert_true(submit(&breaker, HF_V_DOWNGRADE, false, &news));
        join(&quick, HF_N_CUT);
        join(&queued, HF_N_CUT);
        toy_hold_back(&stage.server, false);
        run_cycles(NULL);
    }
    assert_int_equal(open_descriptors(), descriptors);
    assert_int_equal(toy->downs, 0);
    forget(&breaker);
}

static void test_cut_by_the_server(void **state)
{
    (void)state;
    struct blocked waiting;
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t heard = toy_heard(&stage.server);
    start_blocked(&waiting, false);
    await_heard(heard + 1);
    toy_order(&stage.server);
    stage.server.cut = 0;
    toy_go(&stage.server);
    join(&waiting, HF_N_CUT);
    assert_int_equal(toy->downs, 1);
    assert_int_equal(toy->down_status, HF_UNAVAILABLE);
    assert_non_null(strstr(toy->down_why, "the server closed the connection"));
    toy_hold_back(&stage.server, false);
    struct order order = an_order(); /* dialled again at its tick */
    cycle(&order);
    assert_int_equal(toy_greetings(&stage.server, 0), 2);
    forget(&order);
}

static void test_closed_while_idle(void **state)
{
    (void)state;
    struct order order = an_order();
    warm_up();
    toy_order(&stage.server);
    stage.server.cut = 0;
    toy_go(&stage.server);
    usleep(1100000); /* what is idle for less is not looked at */
    cycle(&order);
    assert_int_equal(atomic_load(&toy->downs), 1);
    assert_int_equal(toy_greetings(&stage.server, 0), 2);
    forget(&order);
}

static void test_dialled_by_another(void **state)
{
    (void)state;
    struct blocked waiter;
    struct order order = an_order();
    warm_up();
    atomic_store(&toy->patient, true);
    start_blocked(&waiter, true);
    await_heard(42);
    await_blocked(&waiter);
    toy_order(&stage.server);
    stage.server.cut = 1;
    toy_go(&stage.server);
    while (atomic_load(&toy->downs) == 0)
        usleep(200);
    await_blocked(&waiter);
    cycle(&order);
    while (toy_greetings(&stage.server, 1) < 2)
        usleep(200);
    push(&waiter.order);
    join(&waiter, HF_N_GRANTED);
    forget(&order);
}

static void test_refused_dial(void **state)
{
    (void)state;
    struct order order = an_order(), by_bell = an_order();
    struct hf_news news;
    strcpy(toy->address.port, "1");
    assert_int_equal(ask(&order, HF_V_ACQUIRE), HF_N_CUT);
    assert_string_equal(toy->down_why, "127.0.0.1:1: connection refused");
    toy->address.tls = true; /* fails inside the dial */
    strcpy(toy->address.ca, "/nonexistent/ca");
    assert_int_equal(ask(&order, HF_V_ACQUIRE), HF_N_CUT);
    assert_int_equal(toy->down_status, HF_CONFIG);
    assert_false(submit(&by_bell, HF_V_ACQUIRE, true, &news));
    await_told(&by_bell, 1);
    assert_int_equal(by_bell.cue[0], HF_N_CUT);
    forget(&by_bell);
    forget(&order);
}

/* ---- More than the socket takes ---- */

static void test_back_pressure(void **state)
{
    (void)state;
    enum { BALLAST = 6 << 20 };
    struct blocked driver;
    struct order heavy = an_order();
    struct hf_news news;
    char *ballast = malloc(BALLAST);
    memset(ballast, 'x', BALLAST);
    warm_up();
    toy_hold_back(&stage.server, true);
    uint64_t heard = toy_heard(&stage.server);
    start_blocked(&driver, false); /* polls for reading alone */
    await_heard(heard + 1);
    await_blocked(&driver);
    toy_order(&stage.server);
    stage.server.deaf = true;
    toy_go(&stage.server);
    heavy.ask.label = ballast;
    heavy.ask.label_len = BALLAST;
    uint64_t short_sends = mine.short_sends;
    assert_false(submit(&heavy, HF_V_ACQUIRE, true, &news));
    assert_true(mine.short_sends > short_sends); /* it did not fit */
    toy_order(&stage.server);
    stage.server.deaf = false;
    toy_go(&stage.server);
    await_heard(heard + 2); /* all of it, sent by the driver, whose own answer is not there yet */
    assert_false(atomic_load(&driver.over));
    toy_hold_back(&stage.server, false);
    join(&driver, HF_N_GRANTED);
    await_told(&heavy, 1);
    assert_int_equal(heavy.cue[0], HF_N_GRANTED);
    forget(&heavy);
    free(ballast);
}

/* ---- Errands ---- */

static void count_row(void *arg, const struct hf_row *row)
{
    assert_string_equal(row->name, "row");
    ++*(int *)arg;
}

static void test_errands(void **state)
{
    (void)state;
    int rows = 0;
    hf_nanos now = hf_clock_boot();
    struct hf_seen what = {.name = "a-lock", .len = 6, .until = now + PATIENCE};
    assert_int_equal(hf_wire_list(stage.wire, &what, now, count_row, &rows), HF_OK);
    assert_int_equal(rows, 3);
    assert_int_equal(hf_wire_break_hold(stage.wire, &what, 7, now), HF_OK);
    assert_int_equal(hf_wire_break_hold(stage.wire, &what, 8, now), HF_NOT_HELD);
    assert_string_equal(hf_why_text(), "a-lock: nobody holds it with that token");
    assert_int_equal(hf_wire_resize(stage.wire, &what, 3, now), HF_UNAVAILABLE);
    assert_string_equal(hf_why_text(), "the toy has no answer");
    toy_hold_back(&stage.server, true);
    what.until = hf_clock_boot() + HF_MS(30);
    assert_int_equal(hf_wire_break_hold(stage.wire, &what, 7, hf_clock_boot()), HF_UNAVAILABLE);
    toy_order(&stage.server);
    stage.server.cut = 0;
    toy_go(&stage.server);
    assert_int_equal(hf_wire_list(stage.wire, &what, hf_clock_boot(), count_row, &rows), HF_UNAVAILABLE);
    assert_int_equal(rows, 3);
    toy_hold_back(&stage.server, false);
}

static void test_watch(void **state)
{
    (void)state;
    uint32_t seen = 5;
    hf_nanos begun = hf_clock_boot();
    hf_wire_watch(stage.wire, &seen, 0);
    hf_wire_watch(stage.wire, &seen, begun + HF_MS(20));
    hf_nanos took = hf_clock_boot() - begun;
    assert_true(took >= HF_MS(20) && took < HF_MS(190));
    hf_wire_watch(stage.wire, &seen, HF_NEVER);
    assert_true(hf_clock_boot() - begun >= HF_MS(220));
    assert_int_equal(seen, 8);
}

static void test_refused_open(void **state)
{
    (void)state;
    void *wire = &stage;
    assert_int_equal(hf_wire_open(&wire, NULL, &(struct hf_settings){.value = {0}}, &stage.host, &toy_type), HF_CONFIG);
    assert_null(wire);
    assert_string_equal(hf_why_text(), "the toy wants a URL");
}

#define ON_STAGE(text, function)                                                                                       \
    {                                                                                                                  \
        .name = text, .test_func = function, .setup_func = set_up, .teardown_func = tear_down                          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE("a blocking cycle is two sends, two receives, two polls, and concerns no other thread", test_costs),
        {.name = "a caller that waits alone looks before it sleeps",
         .test_func = test_looks_first,
         .setup_func = set_up_to_spin,
         .teardown_func = tear_down},
        {.name = "looking in vain rests longer and longer, a hit begins anew", .test_func = test_spin_learns},
        ON_STAGE("forty callers send together", test_together),
        ON_STAGE("who waits in a queue on a line of its own slows nobody", test_queue_slows_nobody),
        ON_STAGE("eight blocking threads and two by the bell each hear their own answer, once", test_many),
        ON_STAGE("a driver that leaves hands its line on", test_leaving_driver),
        ON_STAGE("drivers that leave one after the other lose no answer", test_chain_of_drivers),
        ON_STAGE("a wake ends the park of a driver, of a sleeper, and of one that is about to park", test_wake),
        ON_STAGE("an ask that is forgotten ends its park, and its slot is not another's", test_forgotten_while_parked),
        ON_STAGE("the engine is ticked in time, by whoever is there", test_ticks),
        ON_STAGE("news by the bell come to the background thread, which drives when nobody else does", test_bell),
        ON_STAGE("from unattend on news come by the bell, those too that were not read", test_unattend),
        ON_STAGE("what is answered at once is told once", test_at_once),
        ON_STAGE("a full mailbox drops hints and keeps answers", test_full_box),
        ON_STAGE("a flush sends what was submitted", test_flush),
        ON_STAGE("an answer that nobody waits for is read by the background thread", test_orphans),
        ON_STAGE("a recheck reaches the background thread", test_recheck),
        ON_STAGE("a line that is hung up while it is polled is closed by its driver, once", test_hung_up_while_polled),
        ON_STAGE("a line that the server cuts is dialled again at its time", test_cut_by_the_server),
        ON_STAGE("a line that was closed while idle costs the next ask nothing", test_closed_while_idle),
        ON_STAGE("a line that another thread dials is driven by who waits for it", test_dialled_by_another),
        ON_STAGE("a dial that fails at once is told later, with the cause", test_refused_dial),
        ON_STAGE("a driver that polls is told to wait for room in the socket", test_back_pressure),
        ON_STAGE("errands list, break and resize, and end when no answer comes", test_errands),
        ON_STAGE("a watch looks after a fifth of a second, or earlier if told so", test_watch),
        ON_STAGE("an engine that does not open leaves nothing", test_refused_open),
    };
    return cmocka_run_group_tests_name("whoever waits, drives", tests, NULL, NULL);
}
