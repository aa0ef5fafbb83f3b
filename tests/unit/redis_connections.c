/* redis_connections.c - the engine for one server on connections of the test's own: what cannot be
 * sent, and what no server says. Dialogues that can be written down are in tests/transcripts. */
#include "lib/sentence.h"
#include "lib/setting_ids.h"

#include "base/settings.h"
#include "base/url.h"
#include "engines/admin.h"
#include "engines/engine.h"
#include "engines/redis/quorum_member.h"
#include "engines/redis/scripts.h"
#include "engines/wire_engine.h"

#include <stdio.h>
#include <string.h>

enum { COMMANDS, WAKE, STRONG }; /* lines, as in redis.h */

static struct {
    void *engine;
    struct wire_engine_host host;
    nanos now;
    unsigned sent, waits, loads, hung_up, told[REPLY_KINDS];
    unsigned refuse_from; /* loads: that one cannot be sent; 0: all can */
    int loaded;           /* the text that was sent last; -1: none */
    unsigned replaces;    /* of the library */
    bool by_scripts;      /* the last request was an EVALSHA */
    bool refuse, refuse_wait;
    hf_status status; /* of the last news */
    bool outcome_unknown;
    uint64_t token;
    char text[600];
    nanos retry_at;
    unsigned dialled; /* how often it was dialled */
} t;

/* ---- The connections ---- */

static void dial(void *ctx, unsigned connection, const struct endpoint *to)
{
    (void)ctx, (void)connection, (void)to;
    t.dialled++;
}

static bool send_bytes(void *ctx, unsigned connection, const void *bytes, size_t len)
{
    (void)ctx, (void)connection;
    bool waits = memmem(bytes, len, "\r\nWAIT\r\n", 8),
         loads = memmem(bytes, len, "\r\nLOAD\r\n", 8);
    t.sent++;
    t.waits += waits;
    t.loads += loads;
    for (int i = 0; loads && i < SCRIPT_TEXTS; i++)
        if (memmem(bytes, len, redis_script_texts[i].head, strlen(redis_script_texts[i].head)))
            t.loaded = i;
    t.replaces += memmem(bytes, len, "\r\nREPLACE\r\n", 11) != NULL;
    t.by_scripts = memmem(bytes, len, "\r\nEVALSHA\r\n", 11) != NULL;
    return !t.refuse && !(waits && t.refuse_wait) && !(loads && t.loads == t.refuse_from);
}

static void hang_up(void *ctx, unsigned connection)
{
    (void)ctx, (void)connection;
    t.hung_up++;
}

static void on_reply(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    (void)ctx, (void)op;
    t.told[reply->kind]++;
    t.status = reply->status;
    t.outcome_unknown = reply->outcome_unknown;
    t.token = reply->token;
    snprintf(t.text, sizeof t.text, "%s", reply->text ? reply->text : "");
    t.retry_at = reply->retry_at;
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
    settings.value[SETTING_REPLICAS] = replicas;
    assert_int_equal(url_parse(&url, "redis://127.0.0.1:6379"), HF_OK);
    assert_int_equal(redis_wire_engine.open(&t.engine, &url, &settings, &t.host), HF_OK);
}

static void hear(unsigned connection, const char *text)
{
    redis_wire_engine.connection_bytes(t.engine, connection, text, strlen(text), t.now);
}

/* The server says yes to the next that many. */
static void nod(unsigned connection, unsigned times)
{
    while (times--)
        hear(connection, "+OK\r\n");
}

/* The line comes up, and the server says yes to all that the greeting asks. */
static void come_up(unsigned connection)
{
    unsigned before = t.sent;
    redis_wire_engine.connection_up(t.engine, connection, t.now);
    nod(connection, t.sent - before);
}

static struct engine_op ask_for(enum op_verb verb, uint8_t id)
{
    struct engine_op op = {.verb = verb,
                           .name = "x",
                           .name_len = 1,
                           .units = 1,
                           .capacity = 1,
                           .ttl_ms = 10000,
                           .label = ""};
    op.attempt.b[0] = op.owner.b[0] = id;
    return op;
}

/* ---- The tests ---- */

/* The server was gone when the WAIT was to be sent: whoever it was for hears so, and the next one
 * is sent again. */
static void test_unsent_wait(void **state)
{
    (void)state;
    open_engine(1);
    struct engine_op first = ask_for(OP_ACQUIRE, 1), second = ask_for(OP_ACQUIRE, 2);
    redis_wire_engine.submit(t.engine, &first, t.now);
    come_up(STRONG);
    t.refuse_wait = true;
    hear(STRONG, "$16\r\n1794758423761557\r\n");
    assert_int_equal(t.waits, 1);
    assert_int_equal(t.told[REPLY_UNKNOWN], 1);
    assert_int_equal(t.told[REPLY_GRANTED], 0);
    t.refuse_wait = false;
    t.now += NANOS_OF_MS(5000);
    redis_wire_engine.submit(t.engine, &second, t.now);
    come_up(STRONG);
    hear(STRONG, "$16\r\n1794758423761558\r\n");
    assert_int_equal(t.waits, 2);
    hear(STRONG, ":1\r\n");
    assert_int_equal(t.told[REPLY_GRANTED], 1);
    redis_wire_engine.close(t.engine);
}

/* The connection broke, and that is yet to be read: it is not memory that is lacking. */
static void test_dead_connection(void **state)
{
    (void)state;
    open_engine(0);
    struct engine_op op = ask_for(OP_ACQUIRE, 1);
    redis_wire_engine.submit(t.engine, &op, t.now);
    come_up(COMMANDS);
    hear(COMMANDS, "$16\r\n1794758423761557\r\n");
    assert_int_equal(t.told[REPLY_GRANTED], 1);
    t.refuse = true;
    op.verb = OP_EXTEND;
    redis_wire_engine.submit(t.engine, &op, t.now);
    assert_int_equal(t.told[REPLY_FAILED], 1);
    assert_int_equal(t.status, HF_UNAVAILABLE);
    redis_wire_engine.close(t.engine);
}

/* Who asks while a line rests hears until when: who asks then is heard, and nobody waits for longer
 * than the line does.
 */
static void test_resting_line(void **state)
{
    (void)state;
    open_engine(0);
    struct engine_op op = ask_for(OP_ACQUIRE, 1);
    for (unsigned i = 1; i <= 8; i++) {
        redis_wire_engine.submit(t.engine, &op, t.now);
        assert_int_equal(t.dialled, i);
        redis_wire_engine.connection_down(t.engine, COMMANDS, HF_UNAVAILABLE, "refused", t.now);
        assert_int_equal(t.told[REPLY_FAILED], 2 * i - 1);
        assert_true(t.retry_at > t.now && t.retry_at < t.now + NANOS_OF_MS(2000));
        nanos until = t.retry_at;
        t.now = until - 1;
        redis_wire_engine.submit(t.engine, &op, t.now);
        assert_int_equal(t.told[REPLY_FAILED], 2 * i);
        assert_int_equal(t.retry_at, until);
        t.now = until;
    }
    redis_wire_engine.close(t.engine);
}

#define NOT_FOUND "-ERR Function not found\r\n"
#define NO_FUNCTIONS "-ERR unknown command 'FCALL', with args beginning with: \r\n"
#define KNOWS_ALL "*3\r\n:1\r\n:1\r\n:1\r\n"

/* A lock is asked for on a new line, which the server lets come up as far as the first call of the
 * library. */
static void come_up_to_library(struct engine_op *op)
{
    open_engine(0);
    t.loaded = -1;
    redis_wire_engine.submit(t.engine, op, t.now);
    redis_wire_engine.connection_up(t.engine, COMMANDS, t.now);
    assert_int_equal(t.sent, 3); /* its name, who the server is, and the rights */
    nod(COMMANDS, 2);
}

/* And the server has no functions: as far as the question for the scripts. */
static void come_up_to_scripts(struct engine_op *op)
{
    come_up_to_library(op);
    hear(COMMANDS, NO_FUNCTIONS);
    assert_int_equal(t.sent, 5); /* which scripts it has, and the rights once more */
}

/* What the server says to the first calls, and what it is sent then: how many texts, how many of
 * them as replacement, and whether the ask goes by EVALSHA in the end. */
static void test_library(void **state)
{
    (void)state;
    static const struct {
        const char *answers;
        unsigned loads, replaces;
        bool by_scripts;
    } rows[] = {
        {"*0\r\n", 0, 0, false},
        {NOT_FOUND "$17\r\nholdfast_01234567\r\n*0\r\n", 1, 0, false},
        {NOT_FOUND "-ERR Library 'holdfast_01234567' already exists\r\n*0\r\n", 1, 0, false},
        {NOT_FOUND "-ERR Library 'holdfast_01234567' already exists\r\n" NOT_FOUND
                   "$17\r\nholdfast_01234567\r\n*0\r\n",
         2, 1, false},
        {NOT_FOUND
         "-NOPERM User x has no permissions to run the 'function|load' command\r\n" NOT_FOUND
             KNOWS_ALL "*0\r\n",
         1, 0, true},
        {NOT_FOUND
         "-OOM command not allowed when used memory > 'maxmemory'.\r\n" NOT_FOUND KNOWS_ALL
         "*0\r\n",
         1, 0, true},
        {"-NOPERM User x has no permissions to run the 'fcall' command\r\n" KNOWS_ALL "*0\r\n", 0,
         0, true},
        {NO_FUNCTIONS KNOWS_ALL "*0\r\n", 0, 0, true},
        /* It forgets whatever it is told. */
        {NOT_FOUND "+OK\r\n" NOT_FOUND "+OK\r\n" NOT_FOUND "+OK\r\n" NOT_FOUND
                   "+OK\r\n+OK\r\n+OK\r\n*0\r\n",
         6, 2, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engine_op op = ask_for(OP_ACQUIRE, 1);
        come_up_to_library(&op);
        hear(COMMANDS, rows[i].answers);
        assert_int_equal(t.loads, rows[i].loads);
        assert_int_equal(t.replaces, rows[i].replaces);
        assert_int_equal(t.by_scripts, rows[i].by_scripts);
        hear(COMMANDS, "$16\r\n1794758423761557\r\n");
        assert_int_equal(t.told[REPLY_GRANTED], 1);
        assert_int_equal(t.hung_up, 0);
        redis_wire_engine.close(t.engine);
    }
}

/* Somebody flushes functions while a lock is held, again and again: a server that goes on to forget
 * is left. */
static void test_library_vanishes(void **state)
{
    (void)state;
    struct engine_op op = ask_for(OP_ACQUIRE, 1), other = ask_for(OP_ACQUIRE, 2);
    come_up_to_library(&op);
    hear(COMMANDS, "*0\r\n" NOT_FOUND);
    assert_int_equal(t.loads, 1);
    hear(COMMANDS, "$17\r\nholdfast_01234567\r\n$16\r\n1794758423761557\r\n");
    assert_int_equal(t.told[REPLY_GRANTED], 1);
    redis_wire_engine.submit(t.engine, &other, t.now);
    for (int i = 0; i < 20 && !t.hung_up; i++)
        hear(COMMANDS, t.by_scripts ? "-NOSCRIPT x\r\n+OK\r\n+OK\r\n+OK\r\n"
                                    : NOT_FOUND "$17\r\nholdfast_01234567\r\n");
    assert_int_equal(t.hung_up, 1);
    redis_wire_engine.close(t.engine);
}

/* Which scripts the server has, and how many it gets then; the ask is sent behind them, and not
 * before. */
static void test_missing_scripts(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        unsigned loads;
        int last;
    } rows[] = {
        {KNOWS_ALL, 0, -1},
        {"*3\r\n:1\r\n:0\r\n:1\r\n", 1, SCRIPT_KEEPING},
        {"*3\r\n:0\r\n:0\r\n:0\r\n", 3, SCRIPT_READING},
        {"*5\r\n:1\r\n:1\r\n:0\r\n:0\r\n:0\r\n", 1, SCRIPT_READING},
        {"*3\r\n:1\r\n$1\r\n1\r\n:2\r\n", 2, SCRIPT_READING},
        {"*0\r\n", 3, SCRIPT_READING},
        {"$-1\r\n", 3, SCRIPT_READING},
        {"-NOPERM User x has no permissions to run the 'script|exists' command\r\n", 3,
         SCRIPT_READING},
        {"-ERR unknown command 'SCRIPT'\r\n", 3, SCRIPT_READING},
    };
    assert_int_equal(SCRIPT_TEXTS - SCRIPT_CLAIMING, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engine_op op = ask_for(OP_ACQUIRE, 1);
        come_up_to_scripts(&op);
        hear(COMMANDS, rows[i].answer);
        assert_int_equal(t.loads, rows[i].loads);
        assert_int_equal(t.loaded, rows[i].last);
        assert_int_equal(t.sent, 5 + rows[i].loads);
        hear(COMMANDS, "*0\r\n");
        nod(COMMANDS, rows[i].loads);
        assert_int_equal(t.sent, 6 + rows[i].loads);
        assert_true(t.by_scripts);
        hear(COMMANDS, "$16\r\n1794758423761557\r\n");
        assert_int_equal(t.told[REPLY_GRANTED], 1);
        assert_int_equal(t.hung_up, 0);
        redis_wire_engine.close(t.engine);
    }
}

/* The connection breaks in the middle of the scripts, or the server refuses one: whoever asked
 * hears of it. The time that a greeting may take counts for both steps. */
static void test_scripts_fail(void **state)
{
    (void)state;
    struct engine_op op[3] = {ask_for(OP_ACQUIRE, 1), ask_for(OP_ACQUIRE, 2),
                              ask_for(OP_ACQUIRE, 3)};
    come_up_to_scripts(&op[0]);
    t.refuse_from = 2;
    hear(COMMANDS, "*3\r\n:0\r\n:0\r\n:0\r\n");
    assert_int_equal(t.loads, 2);
    assert_int_equal(t.told[REPLY_FAILED], 1);
    assert_int_equal(t.status, HF_UNAVAILABLE);
    redis_wire_engine.close(t.engine);

    come_up_to_scripts(&op[1]);
    hear(COMMANDS, "*3\r\n:1\r\n:1\r\n:0\r\n");
    hear(COMMANDS, "*0\r\n");
    hear(COMMANDS, "-NOPERM User x has no permissions to run the 'script|load' command\r\n");
    assert_int_equal(t.told[REPLY_FAILED], 1);
    assert_int_equal(t.status, HF_DENIED);
    redis_wire_engine.close(t.engine);

    come_up_to_scripts(&op[2]);
    nanos due = redis_wire_engine.tick(t.engine, t.now);
    t.now += NANOS_OF_MS(900);
    hear(COMMANDS, "*3\r\n:1\r\n:1\r\n:0\r\n");
    assert_int_equal(redis_wire_engine.tick(t.engine, t.now), due);
    redis_wire_engine.tick(t.engine, due);
    assert_int_equal(t.told[REPLY_FAILED], 1);
    assert_int_equal(t.status, HF_UNAVAILABLE);
    redis_wire_engine.close(t.engine);
}

#define GRANTED "$16\r\n1794758423761557\r\n"

/* An answer to the question for rights, and what becomes of the ask that waits for it. */
static void test_rights_at_the_greeting(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        bool refused;
        const char *words;
    } rows[] = {
        {"*0\r\n", false, NULL},
        {"*1\r\n$4\r\nzadd\r\n", true, "+zadd"},
        {"*2\r\n$4\r\nzadd\r\n$6\r\nexists\r\n", true, "+zadd +exists"},
        {"*1\r\n$9\r\nsubscribe\r\n", true, "&{lock:* or +subscribe"},
        {"-NOPERM User x has no permissions to run the 'evalsha' command\r\n", true, "+fcall"},
        {"-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
         false, NULL},
        {"-ERR a proxy that knows no scripts\r\n", false, NULL},
        {":1\r\n", false, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engine_op op = ask_for(OP_ACQUIRE, 1);
        come_up_to_scripts(&op);
        hear(COMMANDS, KNOWS_ALL);
        hear(COMMANDS, rows[i].answer);
        assert_int_equal(t.sent, 5 + !rows[i].refused);
        assert_int_equal(t.told[REPLY_FAILED], rows[i].refused);
        assert_int_equal(t.hung_up, 0);
        if (rows[i].refused) {
            assert_int_equal(t.status, HF_DENIED);
            assert_false(t.outcome_unknown);
            assert_non_null(strstr(t.text, rows[i].words));
        }
        redis_wire_engine.close(t.engine);
    }
}

static void test_right_given_back(void **state)
{
    (void)state;
    struct engine_op op = ask_for(OP_ACQUIRE, 1), other = ask_for(OP_ACQUIRE, 2),
                     given = ask_for(OP_RELEASE, 3);
    come_up_to_scripts(&op);
    hear(COMMANDS, KNOWS_ALL "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    assert_int_equal(t.sent, 9); /* three scripts, and the question once more */
    nod(COMMANDS, 3);
    hear(COMMANDS, "*1\r\n$4\r\nzrem\r\n");
    assert_int_equal(t.told[REPLY_FAILED], 1);
    given.may_be_in_flight = true;
    redis_wire_engine.submit(t.engine, &given, t.now); /* what gives back is tried in any case */
    assert_int_equal(t.sent, 10);
    hear(COMMANDS, ":0\r\n");
    redis_wire_engine.submit(t.engine, &op, t.now);
    redis_wire_engine.submit(t.engine, &other, t.now);
    assert_int_equal(t.sent, 11); /* one question for both */
    hear(COMMANDS, "*0\r\n");
    assert_int_equal(t.sent, 13);
    hear(COMMANDS, GRANTED GRANTED);
    assert_int_equal(t.told[REPLY_GRANTED], 2);
    assert_int_equal(t.told[REPLY_FAILED], 1);
    redis_wire_engine.close(t.engine);
}

/* The place behind the words says that the script had begun. */
static void test_half_way(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        bool outcome_unknown;
    } rows[] = {
        {"-NOPERM User x has no permissions to run the 'zadd' command\r\n", false},
        {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", false},
        {"-WRONGTYPE the key of this lock holds something else\r\n", false},
        {"-ERR ACL failure in script: x script: 0123, on @user_script:12.\r\n", true},
        {"-WRONGTYPE Operation against a key script: 0123, on @user_script:12.\r\n", true},
        {"-ERR x script: holdfast_0_acquire, on @user_function:12.\r\n", true},
        {"-ERR upstream failure\r\n", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engine_op op = ask_for(OP_ACQUIRE, 1);
        come_up_to_scripts(&op);
        hear(COMMANDS, KNOWS_ALL "*0\r\n");
        hear(COMMANDS, rows[i].answer);
        assert_int_equal(t.told[REPLY_FAILED], 1);
        assert_int_equal(t.outcome_unknown, rows[i].outcome_unknown);
        redis_wire_engine.close(t.engine);
    }
}

/* A message whose channel is no text. */
static void test_message_without_channel(void **state)
{
    (void)state;
    open_engine(0);
    redis_quorum_member_join(t.engine);
    struct quorum_member_op ear = {.op = ask_for(OP_NONE, 1)};
    redis_quorum_member_listen(t.engine, &ear, t.now);
    come_up(WAKE);
    hear(WAKE, "*3\r\n$9\r\nsubscribe\r\n$10\r\n{lock:x}:f\r\n:1\r\n");
    assert_int_equal(t.hung_up, 0);
    hear(WAKE, "*3\r\n$7\r\nmessage\r\n:5\r\n$1\r\nx\r\n");
    assert_int_equal(t.hung_up, 1);
    redis_wire_engine.close(t.engine);
}

static void find(void *ctx, struct engine_op *op, const struct hf_finding *finding)
{
    (void)ctx, (void)op, (void)finding;
}

/* Several questions are in flight for one op, and the server may answer some of them. */
static void test_cut_diagnosis(void **state)
{
    (void)state;
    for (unsigned answered = 0; answered < 4; answered++) {
        open_engine(0);
        t.host.find = find;
        struct admin_op op = {.op = ask_for(OP_ADMIN, 1), .verb = ADMIN_DIAGNOSE};
        redis_wire_engine.submit(t.engine, &op.op, t.now);
        come_up(COMMANDS);
        nod(COMMANDS, answered);
        redis_wire_engine.connection_down(t.engine, COMMANDS, HF_UNAVAILABLE, "cut", t.now);
        assert_int_equal(t.told[REPLY_FAILED], 1);
        assert_int_equal(t.told[REPLY_RELEASED], 0);
        assert_string_equal(t.text, "cut");
        redis_wire_engine.close(t.engine);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        SENTENCE("a diagnosis that is cut gets one reply, however many questions were in flight",
                 test_cut_diagnosis),
        SENTENCE("a WAIT that cannot be sent fails its grant, and no later one", test_unsent_wait),
        SENTENCE("who sends on a dead connection hears that the server is unavailable",
                 test_dead_connection),
        SENTENCE("who asks while the line rests hears when it will be dialled again",
                 test_resting_line),
        SENTENCE("an ask is refused unsent if the user lacks a right, which is named",
                 test_rights_at_the_greeting),
        SENTENCE(
            "rights are asked for again before the next ask, and a release is sent in any case",
            test_right_given_back),
        SENTENCE("an error inside a script says that part of it may have been done", test_half_way),
        SENTENCE("a server that lacks the library gets it, and scripts if it takes none",
                 test_library),
        SENTENCE("a library that vanishes is loaded again, and a server that only forgets is left",
                 test_library_vanishes),
        SENTENCE("a server gets the scripts that it lacks, and all if it does not say which",
                 test_missing_scripts),
        SENTENCE("a greeting that fails at its second step says so, and has no more time for both",
                 test_scripts_fail),
        SENTENCE("a message without a channel ends the connection, and nothing else",
                 test_message_without_channel),
    };
    return cmocka_run_group_tests_name("redis: lines", tests, NULL, NULL);
}
