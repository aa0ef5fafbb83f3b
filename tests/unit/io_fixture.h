/* io_fixture.h - the fixture for tests of the I/O driver: a toy engine behind it, a server in a
 * thread of the test, a background thread, and callers that block. */
#pragma once
#include "io_call_counts.h"
#include "toy_engine.h"

#include "base/settings.h"
#include "sys/clock.h"
#include "sys/process.h"

#define PATIENCE                                                                                   \
    NANOS_OF_MS(60000) /* nobody waits that long unless a wake-up was lost, even with TSan on a    \
                          busy machine */

/* ---- The client ---- */

/* An op and its replies. The background thread notes replies to ops without a caller here. */
struct order {
    struct engine_op op;
    struct order *next; /* in stage.first: the client was notified */
    bool notified;
    enum reply_kind kind[32];
    _Atomic int reply;
    pthread_mutex_t lock; /* as a lease has one: excludes submitting and taking replies at once */
};

static struct {
    struct toy_server server;
    void *io;
    struct engine_host host;
    pthread_t background;
    struct counts *background_counts;
    _Atomic int64_t background_tid;
    _Atomic bool stop;
    _Atomic uint64_t returns, notifications, rechecks;
    pthread_mutex_t lock;
    struct order *first;
} stage;

static inline void notify(void *ctx, struct engine_op *op)
{
    struct order *order = (struct order *)(void *)op;
    (void)ctx;
    atomic_fetch_add(&stage.notifications, 1);
    pthread_mutex_lock(&stage.lock);
    if (!order->notified) {
        order->notified = true;
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

static inline struct order *next_notified(void)
{
    pthread_mutex_lock(&stage.lock);
    struct order *order = stage.first;
    if (order) {
        stage.first = order->next;
        order->notified = false;
    }
    pthread_mutex_unlock(&stage.lock);
    return order;
}

static inline void take_replies(struct order *order)
{
    struct engine_reply reply;
    pthread_mutex_lock(&order->lock);
    while (io_take_reply(stage.io, &order->op, clock_boot(), &reply)) {
        int n = atomic_load(&order->reply);
        order->kind[n] = reply.kind;
        if (reply.token != order->op.token)
            abort();
        atomic_store(&order->reply, n + 1);
    }
    pthread_mutex_unlock(&order->lock);
}

static inline void *run_background(void *arg)
{
    (void)arg;
    stage.background_counts = &mine;
    if (io_enter(stage.io) != HF_OK)
        abort();
    atomic_store(&stage.background_tid, gettid());
    while (!atomic_load(&stage.stop)) {
        io_background_park(stage.io, TIME_NEVER);
        atomic_fetch_add(&stage.returns, 1);
        for (struct order *order; (order = next_notified()) != NULL;)
            take_replies(order);
    }
    io_leave(stage.io);
    return NULL;
}

/* Until a thread sleeps in the kernel. */
static inline void await_sleep(int64_t thread)
{
    while (process_state(thread) != 'S')
        usleep(500);
}

static inline void set_up_type(const struct wire_engine_type *type, int64_t spin_us)
{
    static const struct url *const some_url = (const void *)"";
    struct settings settings = {.value[SETTING_SPIN] = spin_us};
    toy_start(&stage.server);
    stage.host = (struct engine_host){.notify = notify, .recheck = recheck};
    atomic_store(&stage.stop, false);
    atomic_store(&stage.background_tid, 0);
    atomic_store(&stage.notifications, 0);
    assert_int_equal(io_open(&stage.io, some_url, &settings, &stage.host, type), HF_OK);
    assert_int_equal(pthread_create(&stage.background, NULL, run_background, NULL), 0);
    while (!atomic_load(&stage.background_tid))
        usleep(500);
    await_sleep(atomic_load(&stage.background_tid));
}

static inline int set_up_with(int64_t spin_us)
{
    set_up_type(&toy_type, spin_us);
    strcpy(toy->address.host, "127.0.0.1");
    strcpy(toy->address.port, stage.server.port);
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
    io_background_wake(stage.io);
    assert_int_equal(pthread_join(stage.background, NULL), 0);
    io_close(stage.io);
    toy_stop(&stage.server);
    return 0;
}

#define ON_STAGE(text, function)                                                                   \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = set_up, .teardown_func = tear_down      \
    }

/* ---- Submitting ---- */

static inline struct order an_order(void)
{
    static _Atomic uint64_t token = 1000;
    return (struct order){.lock = PTHREAD_MUTEX_INITIALIZER,
                          .op = {.verb = OP_ACQUIRE, .token = atomic_fetch_add(&token, 1)}};
}

static inline bool submit(struct order *order, enum op_verb verb, bool in_background,
                          struct engine_reply *reply)
{
    nanos now = clock_boot();
    pthread_mutex_lock(&order->lock);
    order->op.verb = verb;
    order->op.in_background = in_background;
    order->op.until = now + PATIENCE;
    bool answered = io_submit(stage.io, &order->op, now, reply);
    pthread_mutex_unlock(&order->lock);
    return answered;
}

static inline void park(struct order *order, nanos patience)
{
    io_park(stage.io, order->op.slot, order->op.seen, clock_boot() + patience);
}

/* The next reply to an op with a caller. */
static enum reply_kind await_reply(struct order *order)
{
    struct engine_reply reply;
    for (nanos begun = clock_boot(); clock_boot() - begun < PATIENCE / 2;) {
        park(order, PATIENCE / 2);
        if (io_take_reply(stage.io, &order->op, clock_boot(), &reply)) {
            assert_int_equal(reply.token, order->op.token);
            return reply.kind;
        }
    }
    fail_msg("no reply came");
    return REPLY_KINDS;
}

static enum reply_kind submit_and_wait(struct order *order, enum op_verb verb)
{
    struct engine_reply reply;
    return submit(order, verb, false, &reply) ? reply.kind : await_reply(order);
}

static inline void forget(struct order *order)
{
    io_forget(stage.io, &order->op);
    assert_int_equal(order->op.slot, 0);
}

/* One blocking cycle. */
static inline void cycle(struct order *order)
{
    assert_int_equal(submit_and_wait(order, OP_ACQUIRE), REPLY_GRANTED);
    assert_int_equal(submit_and_wait(order, OP_RELEASE), REPLY_RELEASED);
}

static inline void await_replies(const struct order *order, int reply)
{
    while (atomic_load(&order->reply) < reply)
        usleep(200);
}

static inline void await_received(uint64_t connections)
{
    while (toy_received(&stage.server) < connections)
        usleep(200);
}

/* Afterwards both connections are up and all memory is there. */
static inline void warm_up(void)
{
    struct order order = an_order();
    for (int i = 0; i < 20; i++)
        cycle(&order);
    order.op.queue = true; /* so that connection 1 is read until it is up */
    assert_int_equal(submit_and_wait(&order, OP_ACQUIRE), REPLY_QUEUED);
    nanos begun = clock_boot();
    while (toy_greetings(&stage.server, 1) == 0 && clock_boot() - begun < PATIENCE)
        park(&order, NANOS_OF_MS(5));
    assert_int_equal(toy_greetings(&stage.server, 1), 1);
    forget(&order);
}

/* ---- A thread that blocks ---- */

struct blocked {
    struct order order;
    enum op_verb verb;
    pthread_t thread;
    _Atomic int64_t id;
    struct counts *counts; /* its own, good until it is over */
    _Atomic bool over;
    enum reply_kind kind;
    uint64_t polls, sleeps, receives;
};

static inline void *block(void *arg)
{
    struct blocked *b = arg;
    b->counts = &mine;
    atomic_store(&b->id, gettid());
    b->kind = submit_and_wait(&b->order, b->verb);
    if (b->kind == REPLY_QUEUED)
        b->kind = await_reply(&b->order);
    b->polls = atomic_load(&mine.polls);
    b->sleeps = atomic_load(&mine.sleeps);
    b->receives = atomic_load(&mine.receives);
    forget(&b->order);
    atomic_store(&b->over, true);
    return NULL;
}

static inline void start_blocked(struct blocked *b, bool queue)
{
    *b = (struct blocked){.order = an_order(), .verb = OP_ACQUIRE};
    b->order.op.queue = queue;
    assert_int_equal(pthread_create(&b->thread, NULL, block, b), 0);
}

/* Until it sleeps in a recv, a poll or on its word. */
static inline void await_asleep(const struct blocked *b)
{
    while (!atomic_load(&b->id))
        usleep(200);
    await_sleep(atomic_load(&b->id));
}

/* Until it sleeps where it can be woken. A thread in recv() cannot, and stays there for 20 ms. */
static inline void await_blocked(const struct blocked *b)
{
    while (!atomic_load(&b->id) ||
           (!atomic_load(&b->counts->polls) && !atomic_load(&b->counts->sleeps)))
        usleep(200);
    await_sleep(atomic_load(&b->id));
}

static inline void join(struct blocked *b, enum reply_kind kind)
{
    assert_int_equal(pthread_join(b->thread, NULL), 0);
    assert_int_equal(b->kind, kind);
}

static inline void push(const struct order *order)
{
    toy_order(&stage.server);
    snprintf(stage.server.push, sizeof stage.server.push, "g %llu\n",
             (unsigned long long)order->op.token);
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
    uint64_t keeper_polls = atomic_load(&stage.background_counts->polls);
    struct counts before = mine;
    for (int i = 0; i < CYCLES; i++)
        cycle(&order);
    assert_int_equal(mine.sends - before.sends, 2 * CYCLES);
    assert_int_equal(mine.receives - before.receives, 2 * CYCLES);
    assert_int_equal(mine.polls - before.polls, 0);
    assert_int_equal(mine.writes - before.writes, 0);
    assert_int_equal(mine.futexes - before.futexes, 0);
    assert_int_equal(mine.allocations - before.allocations, 0);
    assert_int_equal(atomic_load(&stage.background_counts->polls), keeper_polls);
    forget(&order);
}
