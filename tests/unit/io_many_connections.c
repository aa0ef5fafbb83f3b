/* io_many_connections.c - more connections than a word has bits: each is read, although several
 * share a bit in sets of connections. */
#include "io_fixture.h"

enum { MANY = 200, MANY_PENDING = 64, SHARED = CONNECTION_GROUPS };

/* An op is a line on the connection whose number is op->units; the server sends it back. */
struct many_connection {
    bool is_dialled, is_up;
    struct engine_op *pending[MANY_PENDING]; /* NULL: forgotten */
    unsigned first, count;
    char text[64];
    size_t text_len;
};

static struct many_engine {
    struct wire_engine_host host;
    struct endpoint address;
    struct many_connection connection[MANY];
    _Atomic int listens_to; /* -1: none */
} many;

static void many_reply(struct engine_op *op, enum reply_kind kind, nanos now)
{
    struct engine_reply reply = {
        .kind = kind, .asked_at = now, .token = op->token, .retry_at = TIME_NEVER};
    op->connections = 0;
    many.host.on_reply(many.host.ctx, op, &reply);
}

static void many_send(unsigned number, const struct engine_op *op)
{
    char text[64];
    int len = snprintf(text, sizeof text, "a %llu\n", (unsigned long long)op->token);
    assert_true(many.host.send(many.host.ctx, number, text, (size_t)len));
}

static hf_status many_open(void **self, const struct url *url, const struct settings *settings,
                           const struct wire_engine_host *host)
{
    (void)url;
    (void)settings;
    many = (struct many_engine){.host = *host, .listens_to = -1};
    assert_true(host->reserve(host->ctx, MANY));
    *self = &many;
    return HF_OK;
}

static void many_submit(void *self, struct engine_op *op, nanos now)
{
    struct many_connection *c = &many.connection[op->units];
    (void)self;
    (void)now;
    assert_true(c->count < MANY_PENDING);
    c->pending[(c->first + c->count++) % MANY_PENDING] = op;
    op->connections = connection_set_of(op->units);
    if (!c->is_dialled)
        many.host.dial(many.host.ctx, op->units, &many.address);
    c->is_dialled = true;
    if (c->is_up)
        many_send(op->units, op);
}

static void many_forget(void *self, struct engine_op *op)
{
    struct many_connection *c = &many.connection[op->units];
    (void)self;
    for (unsigned i = 0; i < c->count; i++)
        if (c->pending[(c->first + i) % MANY_PENDING] == op)
            c->pending[(c->first + i) % MANY_PENDING] = NULL;
    op->connections = 0;
}

static void many_up(void *self, unsigned number, nanos now)
{
    struct many_connection *c = &many.connection[number];
    char text[32];
    int len = snprintf(text, sizeof text, "hello %u\n", number);
    (void)self;
    (void)now;
    c->is_up = true;
    many.host.send(many.host.ctx, number, text, (size_t)len);
    for (unsigned i = 0; i < c->count; i++)
        many_send(number, c->pending[(c->first + i) % MANY_PENDING]);
}

static struct engine_op *many_next(struct many_connection *c)
{
    assert_true(c->count > 0);
    struct engine_op *op = c->pending[c->first];
    c->first = (c->first + 1) % MANY_PENDING;
    c->count--;
    return op;
}

static void many_bytes(void *self, unsigned number, const char *bytes, size_t len, nanos now)
{
    struct many_connection *c = &many.connection[number];
    (void)self;
    for (size_t i = 0; i < len; i++) {
        c->text[c->text_len++] = bytes[i];
        assert_true(c->text_len < sizeof c->text);
        if (bytes[i] != '\n')
            continue;
        c->text[c->text_len] = 0;
        c->text_len = 0;
        struct engine_op *op = many_next(c);
        if (op) {
            assert_int_equal(strtoull(c->text + 2, NULL, 10), op->token);
            many_reply(op, op->verb == OP_ACQUIRE ? REPLY_GRANTED : REPLY_RELEASED, now);
        }
    }
}

static void many_down(void *self, unsigned number, hf_status status, const char *why, nanos now)
{
    struct many_connection *c = &many.connection[number];
    (void)self;
    (void)status;
    (void)why;
    c->is_dialled = c->is_up = false;
    while (c->count) {
        struct engine_op *op = many_next(c);
        if (op)
            many_reply(op, REPLY_UNKNOWN, now);
    }
}

static connection_set many_due(void *self)
{
    connection_set set = 0;
    (void)self;
    for (unsigned i = 0; i < MANY; i++)
        for (unsigned k = 0; k < many.connection[i].count; k++)
            if (!many.connection[i].pending[(many.connection[i].first + k) % MANY_PENDING])
                set |= connection_set_of(i);
    return set;
}

static connection_set many_listening(void *self)
{
    int number = atomic_load(&many.listens_to);
    (void)self;
    return number < 0 ? 0 : connection_set_of((unsigned)number);
}

static nanos many_tick(void *self, nanos now)
{
    (void)self;
    (void)now;
    return TIME_NEVER;
}

static void many_close(void *self)
{
    (void)self;
    for (unsigned i = 0; i < MANY; i++)
        many.host.hang_up(many.host.ctx, i);
}

static const struct wire_engine_type many_type = {
    .open = many_open,
    .submit = many_submit,
    .forget = many_forget,
    .connection_up = many_up,
    .connection_bytes = many_bytes,
    .connection_down = many_down,
    .connections = many_due,
    .listening_connections = many_listening,
    .tick = many_tick,
    .close = many_close,
};

static int set_up_many(void **state)
{
    (void)state;
    set_up_type(&many_type, 0);
    strcpy(many.address.host, "127.0.0.1");
    strcpy(many.address.port, stage.server.port);
    return 0;
}

static struct order order_on(unsigned number)
{
    struct order order = an_order();
    order.op.units = number;
    return order;
}

/* ---- Tests ---- */

static void *walk_all(void *arg)
{
    struct order order = an_order();
    for (unsigned i = 0; i < MANY; i++) {
        order.op.units = (i * 7 + *(unsigned *)arg) % MANY;
        cycle(&order);
    }
    forget(&order);
    return NULL;
}

static void test_callers(void **state)
{
    enum { THREADS = 8 };
    pthread_t thread[THREADS];
    unsigned from[THREADS];
    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        from[i] = i * SHARED;
        assert_int_equal(pthread_create(&thread[i], NULL, walk_all, &from[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(toy_greetings(&stage.server, (int)i), 1);
}

static void test_in_background(void **state)
{
    static struct order order[MANY];
    struct engine_reply reply;
    (void)state;
    for (int round = 1; round <= 5; round++)
        for (unsigned i = 0; i < MANY; i++) {
            if (round == 1)
                order[i] = order_on(i);
            else
                await_replies(&order[i], round - 1);
            assert_false(submit(&order[i], OP_ACQUIRE, true, &reply));
        }
    for (unsigned i = 0; i < MANY; i++) {
        await_replies(&order[i], 5);
        forget(&order[i]);
    }
}

/* The background thread always polls connection 0, and others beside it. */
static void test_beside_listening(void **state)
{
    static struct order order[MANY];
    struct engine_reply reply;
    (void)state;
    struct order first = order_on(0);
    cycle(&first);
    atomic_store(&many.listens_to, 0);
    cycle(&first); /* the driver asks the engine after every call */
    for (unsigned i = 1; i < MANY; i++) {
        order[i] = order_on(i);
        assert_false(submit(&order[i], OP_ACQUIRE, true, &reply));
        await_replies(&order[i], 1);
        forget(&order[i]);
    }
    forget(&first);
}

/* The caller sleeps on connection 3. Connection 67 shares its bit, and is dialled meanwhile. */
static void test_beside_a_caller(void **state)
{
    struct blocked waiting;
    struct engine_reply reply;
    (void)state;
    struct order first = order_on(3), beside = order_on(3 + SHARED);
    cycle(&first);
    forget(&first);
    toy_hold_back(&stage.server, true);

    waiting = (struct blocked){.order = order_on(3), .verb = OP_ACQUIRE};
    assert_int_equal(pthread_create(&waiting.thread, NULL, block, &waiting), 0);
    await_blocked(&waiting);
    assert_false(submit(&beside, OP_ACQUIRE, true, &reply));
    await_received(4);
    toy_hold_back(&stage.server, false);
    await_replies(&beside, 1);
    join(&waiting, REPLY_GRANTED);
    forget(&beside);
}

static void test_cut_beside_a_caller(void **state)
{
    struct blocked waiting;
    (void)state;
    struct order order = order_on(3), beside = order_on(3 + SHARED);
    cycle(&order);
    cycle(&beside);
    toy_hold_back(&stage.server, true);
    uint64_t received = toy_received(&stage.server);
    waiting = (struct blocked){.order = order_on(3), .verb = OP_ACQUIRE};
    assert_int_equal(pthread_create(&waiting.thread, NULL, block, &waiting), 0);
    await_received(received + 1);
    await_blocked(&waiting);

    toy_order(&stage.server);
    stage.server.cut = 3 + SHARED;
    toy_go(&stage.server);
    usleep(20000);
    assert_false(atomic_load(&waiting.over));
    toy_hold_back(&stage.server, false);
    join(&waiting, REPLY_GRANTED);
    cycle(&beside); /* it is dialled again */
    assert_int_equal(toy_greetings(&stage.server, 3 + SHARED), 2);
    forget(&order);
    forget(&beside);
}

/* Closing waits for the reply that nobody waits for, and not for the one where a server may speak:
 * two questions. */
static nanos time_to_finish(void)
{
    atomic_store(&stage.stop, true);
    io_background_wake(stage.io);
    assert_int_equal(pthread_join(stage.background, NULL), 0);
    nanos begun = clock_boot();
    io_finish(stage.io, begun + PATIENCE);
    nanos took = clock_boot() - begun;
    io_close(stage.io);
    toy_stop(&stage.server);
    return took;
}

static void test_closing_waits(void **state)
{
    struct engine_reply reply;
    (void)state;
    struct order order = order_on(150);
    cycle(&order);
    toy_hold_back(&stage.server, true);
    uint64_t received = toy_received(&stage.server);
    assert_false(submit(&order, OP_RELEASE, true, &reply));
    await_received(received + 1);
    forget(&order);
    assert_true(time_to_finish() >= NANOS_OF_MS(450));
}

static void test_closing_does_not_wait(void **state)
{
    (void)state;
    struct order order = order_on(150);
    cycle(&order);
    atomic_store(&many.listens_to, 150);
    cycle(&order);
    forget(&order);
    assert_true(time_to_finish() < NANOS_OF_MS(250));
}

#define WITH_MANY(text, function)                                                                  \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = set_up_many, .teardown_func = tear_down \
    }
#define CLOSING(text, function)                                                                    \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = set_up_many                             \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_MANY("eight callers use two hundred connections each", test_callers),
        WITH_MANY("the background thread reads two hundred connections", test_in_background),
        WITH_MANY("each is read beside one where a server may speak", test_beside_listening),
        WITH_MANY("a connection is dialled and read beside a caller on its bit",
                  test_beside_a_caller),
        WITH_MANY("a cut of one does not reach a caller on another of its bit",
                  test_cut_beside_a_caller),
        CLOSING("closing waits for a reply that nobody waits for", test_closing_waits),
        CLOSING("closing does not wait for a server that may speak", test_closing_does_not_wait),
    };
    return cmocka_run_group_tests_name("many connections", tests, NULL, NULL);
}
