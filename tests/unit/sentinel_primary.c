/* sentinel_primary.c - which server the sentinel engine follows, on connections of the test's own:
 * the answers and announcements of sentinels in every order that matters (G42, G43). */
#include "lib/sentence.h"

#include "base/settings.h"
#include "base/url.h"
#include "engines/engine.h"
#include "engines/sentinel/sentinel.h"

#include <stdio.h>
#include <string.h>

enum { COMMANDS = 0, QUERY = REDIS_CONNECTIONS, LISTEN = QUERY + SENTINELS_MAX, NUMBERS = 32 };

static struct {
    struct sentinel *engine;
    struct wire_engine_host host;
    struct engine_op op;
    nanos now;
    unsigned dials[NUMBERS];
    char to[NUMBERS][16]; /* port that was dialled last */
    unsigned requests;    /* for the lock */
    unsigned failed;
    hf_status status;
    char text[900];
} t;

/* ---- The connections ---- */

static void dial(void *ctx, unsigned connection, const struct endpoint *to)
{
    (void)ctx;
    t.dials[connection]++;
    snprintf(t.to[connection], sizeof t.to[connection], "%s", to->port);
}

static bool send_bytes(void *ctx, unsigned connection, const void *bytes, size_t len)
{
    (void)ctx;
    t.requests += connection == COMMANDS && memmem(bytes, len, "lock:x", 6) != NULL;
    return true;
}

static void hang_up(void *ctx, unsigned connection)
{
    (void)ctx, (void)connection;
}

static void on_reply(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    (void)ctx, (void)op;
    t.failed += reply->kind == REPLY_FAILED;
    t.status = reply->status;
    snprintf(t.text, sizeof t.text, "%s", reply->text ? reply->text : "");
}

static void recheck(void *ctx)
{
    (void)ctx;
}

static uint32_t draw(void *ctx)
{
    (void)ctx;
    return 4;
}

/* ---- What sentinels say ---- */

static void hear(unsigned connection, const char *text)
{
    sentinel_wire_engine.connection_bytes(t.engine, connection, text, strlen(text), t.now);
}

static void come_up(unsigned connection)
{
    sentinel_wire_engine.connection_up(t.engine, connection, t.now);
}

static void answer(unsigned node, const char *port, unsigned epoch)
{
    char text[300], number[16];
    snprintf(number, sizeof number, "%u", epoch);
    snprintf(text, sizeof text,
             "*6\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n$4\r\n%s\r\n"
             "$12\r\nconfig-epoch\r\n$%zu\r\n%s\r\n",
             port, strlen(number), number);
    come_up(QUERY + node);
    hear(QUERY + node, text);
}

static void announce(unsigned node, const char *channel, const char *message)
{
    char text[300];
    snprintf(text, sizeof text, "*3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
             strlen(channel), channel, strlen(message), message);
    hear(LISTEN + node, text);
}

static void pass(int64_t ms)
{
    t.now += NANOS_OF_MS(ms);
    sentinel_wire_engine.tick(t.engine, t.now);
}

/* The primary cannot be reached: the sentinels are asked again. */
static void lose_primary(void)
{
    sentinel_wire_engine.connection_down(t.engine, COMMANDS, HF_UNAVAILABLE, "refused", t.now);
    pass(150);
}

/* ---- The scene: one lock is asked for ---- */

static int setup(void **state)
{
    (void)state;
    struct settings settings;
    struct url url;
    memset(&t, 0, sizeof t);
    t.now = NANOS_OF_MS(1000000);
    t.host = (struct wire_engine_host){.dial = dial,
                                       .send = send_bytes,
                                       .hang_up = hang_up,
                                       .on_reply = on_reply,
                                       .recheck = recheck,
                                       .random = draw};
    settings_defaults(&settings, engine_settings());
    assert_int_equal(url_parse(&url, "redis+sentinel://a:1001,b:1002,c:1003/mymaster"), HF_OK);
    void *engine;
    assert_int_equal(sentinel_wire_engine.open(&engine, &url, &settings, &t.host), HF_OK);
    t.engine = engine;
    t.op = (struct engine_op){.verb = OP_ACQUIRE,
                              .name = "x",
                              .name_len = 1,
                              .units = 1,
                              .capacity = 1,
                              .ttl_ms = 10000,
                              .label = ""};
    t.op.attempt.b[0] = t.op.owner.b[0] = 1;
    sentinel_wire_engine.submit(t.engine, &t.op, t.now);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sentinel_wire_engine.forget(t.engine, &t.op);
    sentinel_wire_engine.close(t.engine);
    return 0;
}

#define ASKED(text, function)                                                                      \
    {                                                                                              \
        .name = text, .test_func = function, .setup_func = setup, .teardown_func = teardown        \
    }

/* ---- Finding it ---- */

static void test_first_answer(void **state)
{
    (void)state;
    assert_int_equal(t.dials[QUERY], 1);
    assert_int_equal(t.dials[QUERY + 1], 0);
    assert_int_equal(t.dials[COMMANDS], 0);
    answer(0, "7000", 3);
    assert_string_equal(t.to[COMMANDS], "7000");
}

static void test_silent_sentinels(void **state)
{
    (void)state;
    pass(50);
    assert_int_equal(t.dials[QUERY + 1], 1);
    assert_int_equal(t.dials[QUERY + 2], 0);
    pass(50);
    assert_int_equal(t.dials[QUERY + 2], 1);
    answer(2, "7000", 3);
    assert_string_equal(t.to[COMMANDS], "7000");
}

static void test_refusing_sentinels(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(t.dials[QUERY + i], 1); /* at once, not after 50 ms */
        sentinel_wire_engine.connection_down(t.engine, QUERY + i, HF_UNAVAILABLE, "refused", t.now);
    }
    pass(2100);
    assert_int_equal(t.failed, 1);
    assert_int_equal(t.status, HF_UNAVAILABLE);
    assert_non_null(strstr(t.text, "a:1001: refused; b:1002: refused; c:1003: refused"));
}

static void test_unknown_name(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        come_up(QUERY + i);
        hear(QUERY + i, "-ERR No such master with that name\r\n");
        hear(QUERY + i, "*1\r\n*2\r\n$4\r\nname\r\n$5\r\nother\r\n");
    }
    assert_int_equal(t.failed, 1);
    assert_int_equal(t.status, HF_CONFIG);
    assert_non_null(strstr(t.text, "it watches other"));
}

/* ---- Following it ---- */

static void test_epochs(void **state)
{
    (void)state;
    answer(0, "7000", 3);
    lose_primary();
    answer(1, "7001", 2); /* cut off for long: a lower epoch */
    assert_string_equal(t.to[COMMANDS], "7000");
    lose_primary();
    answer(2, "7002", 3); /* nobody names two servers with one epoch */
    assert_string_equal(t.to[COMMANDS], "7000");
    lose_primary();
    pass(1000);
    answer(1, "7001", 4);
    assert_string_equal(t.to[COMMANDS], "7001");
}

static void listen_to_all(void)
{
    answer(0, "7000", 3);
    t.engine->listen_from = t.now; /* as if the primary had been up for a second */
    pass(1);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(t.dials[LISTEN + i], 1);
        come_up(LISTEN + i);
    }
}

/* An announcement has no epoch: the sentinels are asked, without a pause. */
static void test_switch(void **state)
{
    (void)state;
    listen_to_all();
    answer(0, "7000", 3); /* what each subscription asked */
    pass(200);
    answer(0, "7000", 3);
    unsigned queries = t.dials[QUERY + 1];
    announce(0, "+switch-master", "other 127.0.0.1 7000 127.0.0.1 7009");
    assert_int_equal(t.dials[QUERY + 1], queries);
    announce(1, "+switch-master", "mymaster 127.0.0.1 7000 127.0.0.1 7001");
    assert_int_equal(t.dials[QUERY + 1], queries + 1);
    assert_string_equal(t.to[COMMANDS], "7000");
    answer(1, "7001", 4);
    assert_string_equal(t.to[COMMANDS], "7001");
    unsigned dials = t.dials[COMMANDS];
    queries = t.dials[QUERY + 1];
    announce(2, "+switch-master", "mymaster 127.0.0.1 7000 127.0.0.1 7001"); /* the same again */
    assert_int_equal(t.dials[COMMANDS], dials);
    assert_int_equal(t.dials[QUERY + 1], queries);
}

/* A failover to 7001, and one back to 7000. Late news of the first changes nothing. */
static void test_late_switch(void **state)
{
    (void)state;
    listen_to_all();
    answer(0, "7000", 5);
    announce(1, "+switch-master", "mymaster 127.0.0.1 7000 127.0.0.1 7001");
    pass(200);
    answer(1, "7001", 4);
    assert_string_equal(t.to[COMMANDS], "7000");
    answer(2, "7000", 5);
    assert_string_equal(t.to[COMMANDS], "7000");
}

/* ---- A failover in progress ---- */

/* The primary says yes to all that the greeting asks. */
static void greet(void)
{
    come_up(COMMANDS);
    for (int i = 0; i < 64 && !redis_follow_is_up(t.engine->redis); i++)
        hear(COMMANDS, "+OK\r\n");
    assert_true(redis_follow_is_up(t.engine->redis));
}

/* So the very first answer is believed alone for a second at most. */
static void test_listening_begins(void **state)
{
    (void)state;
    answer(0, "7000", 3);
    greet();
    pass(999);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(t.dials[LISTEN + i], 0);
    pass(1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(t.dials[LISTEN + i], 1);
}

/* The primary is named, works, and is replaced before this client listens. */
static void test_before_listening(void **state)
{
    (void)state;
    answer(0, "7000", 3);
    greet();
    t.engine->listen_from = t.now; /* as if the primary had been up for a second */
    pass(1);
    assert_int_equal(t.dials[QUERY + 1], 0);
    come_up(LISTEN);
    pass(200); /* the pause between two searches */
    assert_int_equal(t.dials[QUERY + 1], 1);
    answer(0, "7000", 3); /* a sentinel that was cut off */
    answer(1, "7001", 4);
    assert_string_equal(t.to[COMMANDS], "7001");
}

/* A subscription that begins during a search: its answers may be older. */
static void test_listening_begins_later(void **state)
{
    (void)state;
    answer(0, "7000", 3);
    greet();
    t.engine->listen_from = t.now; /* as if the primary had been up for a second */
    pass(1);
    come_up(LISTEN);
    for (unsigned i = 0; i < 3; i++)
        answer(i, "7000", 3);
    come_up(LISTEN + 2);
    pass(200);
    answer(2, "7001", 4);
    assert_string_equal(t.to[COMMANDS], "7001");
}

static void choose(void)
{
    listen_to_all();
    announce(0, "+selected-slave", "slave 127.0.0.1:7001 127.0.0.1 7001 @ mymaster 127.0.0.1 7000");
    greet();
    assert_int_equal(t.requests, 0);
}

static void test_held_back(void **state)
{
    (void)state;
    choose();
    pass(2900);
    assert_int_equal(t.requests, 0);
    pass(200);
    assert_int_equal(t.requests, 1);
}

static void test_given_up(void **state)
{
    (void)state;
    choose();
    announce(1, "-failover-abort-no-good-slave", "master mymaster 127.0.0.1 7000");
    assert_int_equal(t.requests, 1);
}

static void test_other_choice(void **state)
{
    (void)state;
    listen_to_all();
    announce(0, "+selected-slave", "slave 127.0.0.1:1 127.0.0.1 1 @ other 127.0.0.1 7000");
    greet();
    assert_int_equal(t.requests, 1);
}

static void test_nonsense(void **state)
{
    (void)state;
    listen_to_all();
    announce(0, "+switch-master", "mymaster 127.0.0.1");
    announce(0, "+switch-master", "");
    announce(0, "+selected-slave", "slave");
    hear(LISTEN + 1, "*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n");
    hear(LISTEN + 2, "what is this\r\n");
    assert_string_equal(t.to[COMMANDS], "7000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ASKED("the first sentinel that answers is believed", test_first_answer),
        ASKED("a silent sentinel is passed over after 50 ms", test_silent_sentinels),
        ASKED("sentinels that refuse are named in the error", test_refusing_sentinels),
        ASKED("a name that they do not know is a mistake in the URL", test_unknown_name),
        ASKED("only a higher epoch replaces the primary", test_epochs),
        ASKED("an announced primary is dialled at once, and once", test_switch),
        ASKED("the announcement of an older failover changes nothing", test_late_switch),
        ASKED("a client listens to all sentinels a second after the primary is up",
              test_listening_begins),
        ASKED("a failover before the subscriptions is not missed", test_before_listening),
        ASKED("nor one between two subscriptions", test_listening_begins_later),
        ASKED("between choice and announcement no new lock is asked for, for 3 s", test_held_back),
        ASKED("a failover that was given up holds nothing back", test_given_up),
        ASKED("nor does the failover of another primary", test_other_choice),
        ASKED("nonsense changes nothing", test_nonsense),
    };
    return cmocka_run_group_tests_name("sentinel: primary", tests, NULL, NULL);
}
