/* redis_lines.c - the engine for one server on connections of the test's own: what cannot be sent, and what no server
 * says. */
#include "sentence.h"

#include "base/settings.h"
#include "base/url.h"
#include "engines/redis/member.h"
#include "engines/redis/scripts.h"
#include "engines/wire.h"

#include <string.h>

enum { COMMANDS, WAKE, STRONG }; /* lines, as in redis.h */

static struct {
    void *engine;
    struct hf_wire_host host;
    hf_nanos now;
    unsigned sent, waits, loads, hung_up, told[HF_N_CUES];
    unsigned refuse_from; /* loads: that one cannot be sent; 0: all can */
    int loaded;           /* the script that was sent last; -1: none */
    bool refuse, refuse_wait;
    hf_status status; /* of the last news */
    hf_nanos retry_at;
    unsigned dialled, buried; /* how often it was dialled; how many were to leave a tombstone */
} t;

/* ---- The connections ---- */

static void dial(void *ctx, unsigned line, const struct hf_address *to)
{
    (void)ctx, (void)line, (void)to;
    t.dialled++;
}

static bool send_bytes(void *ctx, unsigned line, const void *bytes, size_t len)
{
    (void)ctx, (void)line;
    bool waits = memmem(bytes, len, "\r\nWAIT\r\n", 8), loads = memmem(bytes, len, "\r\nLOAD\r\n", 8);
    t.sent++;
    t.waits += waits;
    t.buried += memmem(bytes, len, "\r\nr 60000 0 ", 12) != NULL;
    t.loads += loads;
    for (int i = 0; loads && i < HF_SCRIPTS; i++)
        if (memmem(bytes, len, hf_scripts[i].text, hf_scripts[i].len))
            t.loaded = i;
    return !t.refuse && !(waits && t.refuse_wait) && !(loads && t.loads == t.refuse_from);
}

static void hang_up(void *ctx, unsigned line)
{
    (void)ctx, (void)line;
    t.hung_up++;
}

static void tell(void *ctx, struct hf_ask *ask, const struct hf_news *news)
{
    (void)ctx, (void)ask;
    t.told[news->cue]++;
    t.status = news->status;
    t.retry_at = news->retry_at;
}

static void recheck(void *ctx)
{
    (void)ctx;
}

static uint32_t draw(void *ctx)
{
    (void)ctx;
    return 4; /* by dice */
}

static void open_engine(int64_t replicas)
{
    struct hf_settings settings;
    struct hf_url url;
    memset(&t, 0, sizeof t);
    t.now = HF_MS(1000000);
    t.host = (struct hf_wire_host){
        .dial = dial, .send = send_bytes, .hang_up = hang_up, .tell = tell, .recheck = recheck, .random = draw};
    hf_settings_defaults(&settings);
    settings.value[HF_SET_REPLICAS] = replicas;
    assert_int_equal(hf_url_parse(&url, "redis://127.0.0.1:6379"), HF_OK);
    assert_int_equal(hf_wire_redis.open(&t.engine, &url, &settings, &t.host), HF_OK);
}

static void hear(unsigned line, const char *text)
{
    hf_wire_redis.line_bytes(t.engine, line, text, strlen(text), t.now);
}

/* The server says yes to the next that many. */
static void nod(unsigned line, unsigned times)
{
    while (times--)
        hear(line, "+OK\r\n");
}

/* The line comes up, and the server says yes to all that the greeting asks: then it gets all scripts, whatever it has.
 */
static void come_up(unsigned line)
{
    unsigned before = t.sent;
    hf_wire_redis.line_up(t.engine, line, t.now);
    nod(line, t.sent - before);
    if (line != WAKE)
        nod(line, HF_SCRIPTS);
}

static struct hf_ask ask_for(enum hf_verb verb, uint8_t id)
{
    struct hf_ask ask = {
        .verb = verb, .name = "x", .name_len = 1, .units = 1, .capacity = 1, .ttl_ms = 10000, .label = ""};
    ask.attempt.b[0] = ask.owner.b[0] = id;
    return ask;
}

/* ---- The tests ---- */

/* The server was gone when the WAIT was to be sent: whoever it was for hears so, and the next one is sent again. */
static void test_unsent_wait(void **state)
{
    (void)state;
    open_engine(1);
    struct hf_ask first = ask_for(HF_V_ACQUIRE, 1), second = ask_for(HF_V_ACQUIRE, 2);
    hf_wire_redis.submit(t.engine, &first, t.now);
    come_up(STRONG);
    t.refuse_wait = true;
    hear(STRONG, "$16\r\n1794758423761557\r\n");
    assert_int_equal(t.waits, 1);
    assert_int_equal(t.told[HF_N_CUT], 1);
    assert_int_equal(t.told[HF_N_GRANTED], 0);
    t.refuse_wait = false;
    t.now += HF_MS(5000);
    hf_wire_redis.submit(t.engine, &second, t.now);
    come_up(STRONG);
    hear(STRONG, "$16\r\n1794758423761558\r\n");
    assert_int_equal(t.waits, 2);
    hear(STRONG, ":1\r\n");
    assert_int_equal(t.told[HF_N_GRANTED], 1);
    hf_wire_redis.close(t.engine);
}

/* The connection broke, and that is yet to be read: it is not memory that is lacking. */
static void test_dead_connection(void **state)
{
    (void)state;
    open_engine(0);
    struct hf_ask ask = ask_for(HF_V_ACQUIRE, 1);
    hf_wire_redis.submit(t.engine, &ask, t.now);
    come_up(COMMANDS);
    hear(COMMANDS, "$16\r\n1794758423761557\r\n");
    assert_int_equal(t.told[HF_N_GRANTED], 1);
    t.refuse = true;
    ask.verb = HF_V_EXTEND;
    hf_wire_redis.submit(t.engine, &ask, t.now);
    assert_int_equal(t.told[HF_N_FAILED], 1);
    assert_int_equal(t.status, HF_UNAVAILABLE);
    hf_wire_redis.close(t.engine);
}

/* It is given back by one who has not read yet that its ask went under with the connection. */
static void test_unread_cut(void **state)
{
    (void)state;
    open_engine(0);
    struct hf_ask first = ask_for(HF_V_ACQUIRE, 1), second = ask_for(HF_V_ACQUIRE, 2);
    hf_wire_redis.submit(t.engine, &first, t.now);
    come_up(COMMANDS);
    hf_wire_redis.line_down(t.engine, COMMANDS, HF_UNAVAILABLE, "reset", t.now);
    assert_int_equal(t.told[HF_N_CUT], 1);
    t.now += HF_MS(5000);
    hf_wire_redis.submit(t.engine, &second, t.now);
    first.verb = HF_V_RELEASE;
    hf_wire_redis.submit(t.engine, &first, t.now);
    come_up(COMMANDS);
    assert_int_equal(t.buried, 1);
    second.verb = HF_V_RELEASE; /* behind its ask, on the same connection */
    hf_wire_redis.submit(t.engine, &second, t.now);
    assert_int_equal(t.buried, 1);
    hf_wire_redis.close(t.engine);
}

/* Who asks while a line rests hears until when: who asks then is heard, and nobody waits for longer than the line does.
 */
static void test_resting_line(void **state)
{
    (void)state;
    open_engine(0);
    struct hf_ask ask = ask_for(HF_V_ACQUIRE, 1);
    for (unsigned i = 1; i <= 8; i++) {
        hf_wire_redis.submit(t.engine, &ask, t.now);
        assert_int_equal(t.dialled, i);
        hf_wire_redis.line_down(t.engine, COMMANDS, HF_UNAVAILABLE, "refused", t.now);
        assert_int_equal(t.told[HF_N_FAILED], 2 * i - 1);
        assert_true(t.retry_at > t.now && t.retry_at < t.now + HF_MS(2000));
        hf_nanos until = t.retry_at;
        t.now = until - 1;
        hf_wire_redis.submit(t.engine, &ask, t.now);
        assert_int_equal(t.told[HF_N_FAILED], 2 * i);
        assert_int_equal(t.retry_at, until);
        t.now = until;
    }
    hf_wire_redis.close(t.engine);
}

/* A lock is asked for on a new line, which the server lets come up as far as the question for the scripts. */
static void come_up_to_scripts(struct hf_ask *ask)
{
    open_engine(0);
    t.loaded = -1;
    hf_wire_redis.submit(t.engine, ask, t.now);
    hf_wire_redis.line_up(t.engine, COMMANDS, t.now);
    assert_int_equal(t.sent, 3); /* its name, who the server is, and the scripts */
    nod(COMMANDS, 2);
}

/* What the server says, and how many scripts it gets then; the ask is sent behind them, and not before. */
static void test_missing_scripts(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        unsigned loads;
        int last;
    } rows[] = {
        {"*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n", 0, -1},
        {"*7\r\n:1\r\n:1\r\n:0\r\n:1\r\n:1\r\n:1\r\n:1\r\n", 1, HF_SCRIPT_RELEASE},
        {"*7\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n", 7, HF_SCRIPT_INSPECT},
        {"*9\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:0\r\n:0\r\n:0\r\n", 1, HF_SCRIPT_INSPECT},
        {"*3\r\n:1\r\n$1\r\n1\r\n:2\r\n", 6, HF_SCRIPT_INSPECT},
        {"*0\r\n", 7, HF_SCRIPT_INSPECT},
        {"$-1\r\n", 7, HF_SCRIPT_INSPECT},
        {"-NOPERM User x has no permissions to run the 'script|exists' command\r\n", 7, HF_SCRIPT_INSPECT},
        {"-ERR unknown command 'SCRIPT'\r\n", 7, HF_SCRIPT_INSPECT},
    };
    assert_int_equal(HF_SCRIPTS, 7);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hf_ask ask = ask_for(HF_V_ACQUIRE, 1);
        come_up_to_scripts(&ask);
        hear(COMMANDS, rows[i].answer);
        assert_int_equal(t.loads, rows[i].loads);
        assert_int_equal(t.loaded, rows[i].last);
        assert_int_equal(t.sent, 3 + rows[i].loads + (rows[i].loads == 0));
        nod(COMMANDS, rows[i].loads);
        assert_int_equal(t.sent, 4 + rows[i].loads);
        hear(COMMANDS, "$16\r\n1794758423761557\r\n");
        assert_int_equal(t.told[HF_N_GRANTED], 1);
        assert_int_equal(t.hung_up, 0);
        hf_wire_redis.close(t.engine);
    }
}

/* The connection breaks in the middle of the scripts, or the server refuses one: whoever asked hears of it. The time
 * that a greeting may take counts for both steps. */
static void test_scripts_fail(void **state)
{
    (void)state;
    struct hf_ask ask[3] = {ask_for(HF_V_ACQUIRE, 1), ask_for(HF_V_ACQUIRE, 2), ask_for(HF_V_ACQUIRE, 3)};
    come_up_to_scripts(&ask[0]);
    t.refuse_from = 3;
    hear(COMMANDS, "*7\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n");
    assert_int_equal(t.loads, 3);
    assert_int_equal(t.told[HF_N_FAILED], 1);
    assert_int_equal(t.status, HF_UNAVAILABLE);
    hf_wire_redis.close(t.engine);

    come_up_to_scripts(&ask[1]);
    hear(COMMANDS, "*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:0\r\n");
    hear(COMMANDS, "-NOPERM User x has no permissions to run the 'script|load' command\r\n");
    assert_int_equal(t.told[HF_N_FAILED], 1);
    assert_int_equal(t.status, HF_DENIED);
    hf_wire_redis.close(t.engine);

    come_up_to_scripts(&ask[2]);
    hf_nanos due = hf_wire_redis.tick(t.engine, t.now);
    t.now += HF_MS(900);
    hear(COMMANDS, "*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:0\r\n");
    assert_int_equal(hf_wire_redis.tick(t.engine, t.now), due);
    hf_wire_redis.tick(t.engine, due);
    assert_int_equal(t.told[HF_N_FAILED], 1);
    assert_int_equal(t.status, HF_UNAVAILABLE);
    hf_wire_redis.close(t.engine);
}

/* A message whose channel is no text. */
static void test_message_without_channel(void **state)
{
    (void)state;
    open_engine(0);
    hf_quorum_member_join(t.engine);
    struct hf_ask ear = ask_for(HF_V_LISTEN, 1);
    hf_wire_redis.submit(t.engine, &ear, t.now);
    come_up(WAKE);
    hear(WAKE, "*3\r\n$9\r\nsubscribe\r\n$10\r\n{lock:x}:f\r\n:1\r\n");
    assert_int_equal(t.hung_up, 0);
    hear(WAKE, "*3\r\n$7\r\nmessage\r\n:5\r\n$1\r\nx\r\n");
    assert_int_equal(t.hung_up, 1);
    hf_wire_redis.close(t.engine);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        SENTENCE("a WAIT that cannot be sent fails its grant, and no later one", test_unsent_wait),
        SENTENCE("who sends on a dead connection hears that the server is unavailable", test_dead_connection),
        SENTENCE("who gives back what it asked for on a lost connection leaves a tombstone, also unknowingly",
                 test_unread_cut),
        SENTENCE("who asks while the line rests hears when it will be dialled again", test_resting_line),
        SENTENCE("a server gets the scripts that it lacks, and all if it does not say which", test_missing_scripts),
        SENTENCE("a greeting that fails at its second step says so, and has no more time for both", test_scripts_fail),
        SENTENCE("a message without a channel ends the connection, and nothing else", test_message_without_channel),
    };
    return cmocka_run_group_tests_name("redis: lines", tests, NULL, NULL);
}
