/* wire_stage.h - the scene of the tests of the driver that lets whoever waits read for all: a toy engine behind it, a
 * server in a thread of the test at the other end, a background thread, and callers that block. */
#pragma once
#include "toy_engine.h"
#include "wire_counts.h"

#include "base/settings.h"
#include "sys/clock.h"
#include "sys/process.h"

#define PATIENCE HF_MS(60000) /* nobody waits that long unless a wake-up was lost, even with TSan on a busy machine */

/* ---- The client ---- */

/* An ask and what became of it. By the bell the keeper notes it here. */
struct order {
    struct hf_ask ask;
    struct order *next; /* nudged about */
    bool nudged;
    enum hf_cue cue[32];
    _Atomic int news;
    pthread_mutex_t lock; /* as a lease has one: who asks and who looks exclude each other */
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

static inline void nudge(void *ctx, struct hf_ask *ask)
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

static inline void recheck(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&stage.rechecks, 1);
}

static inline struct order *next_nudged(void)
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

static inline void look(struct order *order)
{
    struct hf_news news;
    pthread_mutex_lock(&order->lock);
    while (hf_wire_peek(stage.wire, &order->ask, hf_clock_boot(), &news)) {
        int n = atomic_load(&order->news);
        order->cue[n] = news.cue;
        if (news.token != order->ask.token)
            abort();
        atomic_store(&order->news, n + 1);
    }
    pthread_mutex_unlock(&order->lock);
}

static inline void *keep(void *arg)
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
static inline void await_sleep(int64_t thread)
{
    while (hf_process_state(thread) != 'S')
        usleep(500);
}

static inline int set_up_with(int64_t spin_us)
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

static inline int set_up(void **state)
{
    (void)state;
    return set_up_with(0);
}

static inline int tear_down(void **state)
{
    (void)state;
    atomic_store(&stage.stop, true);
    hf_wire_attend_wake(stage.wire);
    assert_int_equal(pthread_join(stage.keeper, NULL), 0);
    hf_wire_close(stage.wire);
    toy_stop(&stage.server);
    return 0;
}

#define ON_STAGE(text, function)                                                                                       \
    {                                                                                                                  \
        .name = text, .test_func = function, .setup_func = set_up, .teardown_func = tear_down                          \
    }

/* ---- Asking ---- */

static inline struct order an_order(void)
{
    static _Atomic uint64_t token = 1000;
    return (struct order){.lock = PTHREAD_MUTEX_INITIALIZER,
                          .ask = {.verb = HF_V_ACQUIRE, .token = atomic_fetch_add(&token, 1)}};
}

static inline bool submit(struct order *order, enum hf_verb verb, bool bell, struct hf_news *news)
{
    hf_nanos now = hf_clock_boot();
    pthread_mutex_lock(&order->lock);
    order->ask.verb = verb;
    order->ask.bell = bell;
    order->ask.until = now + PATIENCE;
    bool answered = hf_wire_submit(stage.wire, &order->ask, now, news);
    pthread_mutex_unlock(&order->lock);
    return answered;
}

static inline void park(struct order *order, hf_nanos patience)
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

static inline void forget(struct order *order)
{
    hf_wire_forget(stage.wire, &order->ask);
    assert_int_equal(order->ask.slot, 0);
}

/* One blocking cycle. */
static inline void cycle(struct order *order)
{
    assert_int_equal(ask(order, HF_V_ACQUIRE), HF_N_GRANTED);
    assert_int_equal(ask(order, HF_V_RELEASE), HF_N_RELEASED);
}

static inline void await_told(const struct order *order, int news)
{
    while (atomic_load(&order->news) < news)
        usleep(200);
}

static inline void await_heard(uint64_t lines)
{
    while (toy_heard(&stage.server) < lines)
        usleep(200);
}

/* Both lines are up and all memory is there. */
static inline void warm_up(void)
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
    struct counts *counts; /* its own, good until it is over */
    _Atomic bool over;
    enum hf_cue cue;
    uint64_t polls, sleeps;
};

static inline void *block(void *arg)
{
    struct blocked *b = arg;
    b->counts = &mine;
    atomic_store(&b->id, gettid());
    b->cue = ask(&b->order, b->verb);
    if (b->cue == HF_N_QUEUED)
        b->cue = await_news(&b->order);
    b->polls = atomic_load(&mine.polls);
    b->sleeps = atomic_load(&mine.sleeps);
    forget(&b->order);
    atomic_store(&b->over, true);
    return NULL;
}

static inline void start_blocked(struct blocked *b, bool queue)
{
    *b = (struct blocked){.order = an_order(), .verb = HF_V_ACQUIRE};
    b->order.ask.queue = queue;
    assert_int_equal(pthread_create(&b->thread, NULL, block, b), 0);
}

/* It sleeps in a recv, a poll or on its word. */
static inline void await_doze(const struct blocked *b)
{
    while (!atomic_load(&b->id))
        usleep(200);
    await_sleep(atomic_load(&b->id));
}

/* It sleeps where it can be roused: who dozes cannot, and does so for a moment. */
static inline void await_blocked(const struct blocked *b)
{
    while (!atomic_load(&b->id) || (!atomic_load(&b->counts->polls) && !atomic_load(&b->counts->sleeps)))
        usleep(200);
    await_sleep(atomic_load(&b->id));
}

static inline void join(struct blocked *b, enum hf_cue cue)
{
    assert_int_equal(pthread_join(b->thread, NULL), 0);
    assert_int_equal(b->cue, cue);
}

static inline void push(const struct order *order)
{
    toy_order(&stage.server);
    snprintf(stage.server.push, sizeof stage.server.push, "g %llu\n", (unsigned long long)order->ask.token);
    toy_go(&stage.server);
}

/* ---- Many cycles ---- */

enum { CYCLES = 300 };

enum { ROUNDS = 400 };

static inline void *run_cycles(void *arg)
{
    struct order order = an_order();
    (void)arg;
    for (int i = 0; i < ROUNDS; i++)
        cycle(&order);
    forget(&order);
    return NULL;
}

static inline void assert_cheap_cycles(void)
{
    struct order order = an_order();
    cycle(&order);
    uint64_t keeper_polls = atomic_load(&stage.keeper_counts->polls);
    struct counts before = mine;
    for (int i = 0; i < CYCLES; i++)
        cycle(&order);
    assert_int_equal(mine.sends - before.sends, 2 * CYCLES);
    assert_int_equal(mine.receives - before.receives, 2 * CYCLES);
    assert_int_equal(mine.polls - before.polls, 0);
    assert_int_equal(mine.writes - before.writes, 0);
    assert_int_equal(mine.futexes - before.futexes, 0);
    assert_int_equal(mine.allocations - before.allocations, 0);
    assert_int_equal(atomic_load(&stage.keeper_counts->polls), keeper_polls);
    forget(&order);
}
