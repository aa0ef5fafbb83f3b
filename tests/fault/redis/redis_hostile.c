/* redis_hostile.c - a server that answers an ask with too little, too much, nonsense or nothing:
 * the caller gets a clear error within its time-outs, never a grant that was not given, and the
 * library neither hangs nor eats memory. */
#include "redis_hostile.h"

/* Without a wait a hostile answer is a doubt, which is compensated; the connection is not used
 * again. */
static struct call refused_at_once(const char *what, const struct reply_script *reply,
                                   const char *query)
{
    hf_client *client;
    struct call call =
        acquire_once_connected(&client, &(struct script){.ask = *reply, .hostile = 1}, query);
    must_be(&call, what, HF_IN_DOUBT);
    must_say(&call, what, ": ");
    assert_null(call.lease);
    await_number(&impostor.tombstones, 1, what);
    if (reply->behind != CLOSE)
        await_number(&impostor.hung_up, 1, what);
    assert_int_equal(atomic_load(&impostor.asks), 1);
    assert_int_equal(hf_close(client, 2000), HF_OK);
    assert_int_equal(atomic_load(&impostor.came), 2);
    impostor_end();
    return call;
}

/* With one it asks again, on another connection, and is granted what it is told then. */
static void granted_later(const char *what, const struct reply_script *reply)
{
    hf_lease *lease;
    impostor_start(&(struct script){.ask = *reply, .hostile = 1});
    hf_client *client = open_at("", "");
    struct call call = acquire(client, WAIT_MS, &lease);
    must_be(&call, what, HF_OK);
    assert_int_equal(hf_lease_token(lease), strtoull(TOKEN, NULL, 10));
    assert_in_range(hf_lease_left_ms(lease), 1, TTL_MS);
    assert_int_equal(atomic_load(&impostor.asks), 2);
    assert_int_equal(hf_release(lease), HF_OK);
    assert_int_equal(atomic_load(&impostor.tombstones), 1);
    hf_lease_free(lease);
    assert_int_equal(hf_close(client, 2000), HF_OK);
    impostor_end();
}

/* ---- Too little ---- */

static void test_cut_off(void **state)
{
    (void)state;
    static const char *const replies[] = {GRANT, "*2\r\n:0\r\n:900\r\n", QUEUED,
                                          "*3\r\n:-2\r\n$1\r\ns\r\n:5\r\n",
                                          "-OOM command not allowed\r\n"};
    unsigned cuts = 0;
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++)
        for (size_t len = 1; len < strlen(replies[i]); len++, cuts++) {
            struct reply_script reply = {.bytes = replies[i], .len = len, .behind = CLOSE};
            refused_at_once(replies[i], &reply, HASTY);
            if (len % 7 == 1)
                granted_later(replies[i], &reply);
        }
    print_message("# %u cuts\n", cuts);
}

static void test_silence(void **state)
{
    (void)state;
    struct reply_script silence = {.bytes = NULL};
    struct call call = refused_at_once("silence", &silence, "&op_timeout=50ms");
    if (!strstr(call.words, "no answer"))
        fail_msg("%s", call.words);
    granted_later("silence", &silence);
}

static void test_mute(void **state)
{
    (void)state;
    hf_lease *lease;
    impostor_start(&(struct script){.mute = true});
    hf_client *client = open_at("", "");
    struct call call = acquire(client, 0, &lease);
    must_be(&call, "a mute server", HF_UNAVAILABLE);
    must_say(&call, "a mute server", "");
    call = acquire(client, 300, &lease);
    must_be(&call, "a mute server", HF_UNAVAILABLE);
    must_say(&call, "a mute server", "");
    assert_in_range(call.took_ms, 300, 300 + CALL_MS + SLACK_MS);
    assert_int_equal(hf_close(client, 2000), HF_OK);
    impostor_end();
}

/* ---- Nonsense ---- */

#define DEEP "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:0\r\n"

static const char *const nonsense[] = {
    /* Another type than was asked for. */
    "+OK\r\n",
    ":1\r\n",
    ":0\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*0\r\n",
    "$0\r\n\r\n",
    "+" TOKEN "\r\n",
    ":" TOKEN "\r\n",
    /* No token. */
    "$1\r\n0\r\n",
    "$2\r\n-5\r\n",
    "$3\r\nabc\r\n",
    "$3\r\n1 2\r\n",
    "$4\r\n0x1f\r\n",
    "$3\r\n1.5\r\n",
    "$19\r\n9223372036854775807\r\n",
    "$30\r\n999999999999999999999999999999\r\n",
    "$16\r\n179473909158207\0\r\n",
    /* Another number of items, or other items. */
    "*1\r\n:0\r\n",
    "*3\r\n:0\r\n:1\r\n:2\r\n",
    "*5\r\n:0\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
    "*6\r\n:0\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n",
    "*8\r\n:0\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n",
    "*2\r\n$1\r\n0\r\n:1\r\n",
    "*2\r\n:0\r\n$1\r\n5\r\n",
    "*2\r\n:0\r\n$-1\r\n",
    "*2\r\n" GRANT ":900\r\n",
    "*1\r\n" GRANT,
    "*2\r\n:-1\r\n:0\r\n",
    "*1\r\n:-2\r\n",
    "*2\r\n:-2\r\n:5\r\n",
    "*2\r\n:-6\r\n:0\r\n",
    "*1\r\n:-7\r\n",
    "*1\r\n:5\r\n",
    "*1\r\n*1\r\n:0\r\n",
    "*7\r\n:0\r\n:900\r\n$-1\r\n$1\r\n1\r\n$1\r\n1\r\n:0\r\n:1\r\n",
    "*7\r\n:0\r\n:900\r\n:1\r\n*0\r\n*0\r\n:0\r\n:1\r\n",
    /* Numbers that cannot be. */
    "*7\r\n:0\r\n:900\r\n:-100\r\n$1\r\n1\r\n$1\r\n1\r\n:0\r\n:1\r\n",
    "*7\r\n:0\r\n:900\r\n:100\r\n$2\r\n-1\r\n$1\r\n1\r\n:0\r\n:1\r\n",
    "*7\r\n:0\r\n:900\r\n:100\r\n$1\r\n1\r\n$1\r\n1\r\n:-1\r\n:1\r\n",
    "*7\r\n:0\r\n" HUGE_NUMBER HUGE_NUMBER HUGE_NUMBER HUGE_NUMBER HUGE_NUMBER HUGE_NUMBER,
    "*7\r\n:0\r\n:900\r\n:100\r\n$1\r\n1\r\n$1\r\n1\r\n:0\r\n:-1\r\n",
    "*7\r\n:0\r\n:900\r\n:100000000\r\n$1\r\n1\r\n$1\r\n1\r\n:0\r\n:1\r\n",
    "*7\r\n:0\r\n:900\r\n:100\r\n$1\r\n1\r\n$1\r\n1\r\n" HUGE_NUMBER ":1\r\n",
    "*1\r\n" HUGE_NUMBER,
    "*1\r\n:-9223372036854775808\r\n",
    /* Not this protocol, or too deep, or lengths that cannot be. */
    DEEP,
    "\r\n",
    "hello\r\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "%1\r\n+a\r\n+b\r\n",
    "_\r\n",
    "#t\r\n",
    ",1.5\r\n",
    "(12345678901234567890\r\n",
    "~1\r\n:1\r\n",
    ">1\r\n:1\r\n",
    "$-2\r\n",
    "*-2\r\n",
    "$abc\r\n",
    "*abc\r\n",
    ":abc\r\n",
    ":99999999999999999999\r\n",
    "$99999999999999999999\r\n",
    "*99999999999999999999\r\n",
    "*2147483648\r\n",
    "$16\r\n" TOKEN "xx",
    "$4\r\n" TOKEN "\r\n",
    "\x15\x03\x01\x00\x02\x02\x28",
};

static void test_nonsense(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        refused_at_once(nonsense[i], &(struct reply_script){.bytes = nonsense[i]}, HASTY);
        granted_later(nonsense[i], &(struct reply_script){.bytes = nonsense[i]});
    }
    print_message("# %zu answers\n", sizeof nonsense / sizeof *nonsense);
}

/* "Others are still ahead: ask again at once" is asked again, and if it never ends, for no longer
 * than a call may take.
 */
static void test_unfinished(void **state)
{
    (void)state;
    const struct reply_script unfinished = {.bytes = "*1\r\n:-6\r\n"};
    hf_client *client;
    struct call call =
        acquire_once_connected(&client, &(struct script){.ask = unfinished, .hostile = 3}, "");
    must_be(&call, "unfinished three times", HF_OK);
    assert_int_equal(atomic_load(&impostor.asks), 4);
    assert_int_equal(hf_release(call.lease), HF_OK);
    hf_lease_free(call.lease);
    assert_int_equal(hf_close(client, 2000), HF_OK);
    impostor_end();
    call = acquire_once_connected(
        &client, &(struct script){.ask = unfinished, .hostile = UINT32_MAX}, HASTY);
    print_message("# unfinished for ever: %s after %lld ms and %u asks\n",
                  hf_status_name(call.status), (long long)call.took_ms,
                  atomic_load(&impostor.asks));
    must_be(&call, "unfinished for ever", HF_IN_DOUBT);
    assert_int_equal(hf_close(client, 2000), HF_OK);
    impostor_end();
}

/* A refusal in words is none of the above: nothing happened, and the connection is as good as
 * before. Of words that nobody knows that is not sure: what may have been done is taken back. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        hf_status status;
        unsigned tombstones;
    } refusals[] = {
        {"-ERR something\r\n", HF_INTERNAL, 1},
        {"-\r\n", HF_INTERNAL, 1},
        {"-OOM command not allowed\r\n", HF_FULL, 0},
        {"-NOPERM no\r\n", HF_DENIED, 0},
        {"-MOVED 1 127.0.0.1:1\r\n", HF_CONFIG, 0},
        {"-BUSY running a script\r\n", HF_UNAVAILABLE, 0},
        {"-MISCONF no disk\r\n", HF_UNAVAILABLE, 0},
        {"-WRONGTYPE no\r\n", HF_MISMATCH, 0},
        {"-NOPERM no script: 0123, on @user_script:12.\r\n", HF_DENIED, 1},
        {"-NOPERM no script: holdfast_0_acquire, on @user_function:12.\r\n", HF_DENIED, 1},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        hf_lease *lease;
        impostor_start(&(struct script){.ask = {.bytes = refusals[i].reply}, .hostile = 1});
        hf_client *client = open_at("", "");
        struct call call = acquire(client, 0, &lease);
        must_be(&call, refusals[i].reply, refusals[i].status);
        must_say(&call, refusals[i].reply, "");
        call = acquire(client, 0, &lease);
        must_be(&call, "the next one", HF_OK);
        assert_int_equal(hf_release(lease), HF_OK);
        hf_lease_free(lease);
        assert_int_equal(atomic_load(&impostor.came), 1);
        assert_int_equal(atomic_load(&impostor.tombstones), refusals[i].tombstones);
        assert_int_equal(hf_close(client, 2000), HF_OK);
        impostor_end();
    }
}

/* ---- Too much ---- */

static const struct {
    const char *what;
    struct reply_script reply;
    bool pours; /* what follows is so much that it must end by its size, not by the clock */
} floods[] = {
    {"a bulk string without end", {"$600000000\r\n", 0, POUR, "xxxxxxxxxxxxxxxx", 0}, true},
    {"a hundred million items", {"*100000000\r\n", 0, POUR, ":1\r\n", 0}, true},
    {"a hundred million items that do not come", {"*100000000\r\n", 0, STAY, NULL, 0}, false},
    {"600 million bytes that do not come", {"$600000000\r\n", 0, STAY, NULL, 0}, false},
    {"lists in lists",
     {"*100000000\r\n", 0, POUR, "*2\r\n*2\r\n:1\r\n:2\r\n*1\r\n$1\r\nx\r\n", 0},
     true},
    {"bulk strings without end", {"*2\r\n:0\r\n", 0, POUR, "$4\r\nxxxx\r\n", 0}, true},
    {"a hundred million texts",
     {"*100000000\r\n", 0, POUR, "$64\r\n" TOKEN TOKEN TOKEN TOKEN "\r\n", 0},
     true},
    {"an error line without end", {"-ERR ", 0, POUR, "really ", 0}, true},
    {"a status line without end", {"+", 0, POUR, "OK", 0}, true},
    {"a number without end", {":", 0, POUR, "1", 0}, true},
    {"a length without end", {"$", 0, POUR, "1", 0}, true},
    {"answers without end", {"*2\r\n:0\r\n:\r\n", 0, POUR, GRANT, 0}, true},
};

static void test_floods(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof floods / sizeof *floods; i++) {
        struct call call = refused_at_once(floods[i].what, &floods[i].reply, "");
        print_message("# %s: %lld ms, %ld KiB, %llu KiB were sent\n", floods[i].what,
                      (long long)call.took_ms, call.cost_kb,
                      (unsigned long long)atomic_load(&impostor.poured) / 1024);
        if (floods[i].pours)
            assert_null(strstr(call.words, "no answer"));
        granted_later(floods[i].what, &floods[i].reply);
    }
}

/* The first answer counts, and nothing behind it: the next ask goes to another connection. */
static void test_one_too_many(void **state)
{
    (void)state;
    static const char *const surplus[] = {GRANT GRANT, GRANT "+OK\r\n", GRANT "-ERR x\r\n",
                                          GRANT "$16\r\n1794"};
    for (size_t i = 0; i < sizeof surplus / sizeof *surplus; i++) {
        hf_lease *lease, *other;
        impostor_start(&(struct script){.ask = {.bytes = surplus[i]}, .hostile = 1});
        hf_client *client = open_at("", "");
        struct call call = acquire(client, 0, &lease);
        must_be(&call, surplus[i], HF_OK);
        nap_us(20000);
        call = acquire(client, WAIT_MS, &other);
        must_be(&call, surplus[i], HF_OK);
        assert_int_equal(atomic_load(&impostor.came), 2);
        hf_lease_free(lease);
        hf_lease_free(other);
        assert_int_equal(hf_close(client, 2000), HF_OK);
        impostor_end();
    }
}

/* ---- Too slow ---- */

/* Byte by byte is slow and right: it is granted, and counted from the time of asking. */
static void test_spelt(void **state)
{
    (void)state;
    hf_lease *lease;
    impostor_start(
        &(struct script){.ask = {.bytes = GRANT, .behind = SPELL, .pace_us = 1000}, .hostile = 1});
    hf_client *client = open_at("", "");
    struct call call = acquire(client, 0, &lease);
    must_be(&call, "a grant that is spelt", HF_OK);
    assert_true(call.took_ms >= (int64_t)strlen(GRANT) - 5);
    assert_true(hf_lease_left_ms(lease) <= TTL_MS - (int64_t)strlen(GRANT) + 5);
    hf_lease_free(lease);
    assert_int_equal(hf_close(client, 2000), HF_OK);
    impostor_end();
}

/* Always a little, and never an answer: silence is what it comes to. */
static void test_trickle(void **state)
{
    (void)state;
    static const struct reply_script trickles[] = {
        {"$600000000\r\n", 0, TRICKLE, "x", 5000},
        {"*100000000\r\n", 0, TRICKLE, ":1\r\n", 5000},
        {"-ERR ", 0, TRICKLE, "and ", 5000},
    };
    for (size_t i = 0; i < sizeof trickles / sizeof *trickles; i++)
        refused_at_once(trickles[i].bytes, &trickles[i], "&connect_timeout=200ms");
}

/* ---- Greetings ---- */

static const struct {
    const char *what, *user;
    struct script script;
    hf_status status;
    const char *words;
} greetings[] = {
    {"no password given",
     "",
     {.setname = "-NOAUTH Authentication required.\r\n",
      .info = "-NOAUTH Authentication required.\r\n",
      .rights = "-NOAUTH Authentication required.\r\n"},
     HF_DENIED,
     "asks for a password"},
    {"a wrong password",
     "somebody:wrong@",
     {.auth = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"},
     HF_DENIED,
     "refuses user or password"},
    {"a server that loads",
     "",
     {.setname = "-LOADING Redis is loading the dataset in memory\r\n",
      .rights = "-LOADING Redis is loading the dataset in memory\r\n"},
     HF_UNAVAILABLE,
     "is loading"},
    {"too many clients",
     "",
     {.hello = "-ERR max number of clients reached\r\n", .turns_away = true},
     HF_UNAVAILABLE,
     "too many connections"},
    {"too many clients, with a password",
     "me:secret@",
     {.hello = "-ERR max number of clients reached\r\n", .turns_away = true},
     HF_UNAVAILABLE,
     "too many connections"},
    {"an old server", "", {.info = INFO_OF("6.2.14", "master")}, HF_CONFIG, "too old"},
    {"a replica", "", {.info = INFO_OF("7.0.15", "slave")}, HF_UNAVAILABLE, "replica"},
    {"no right to load anything",
     "",
     {.rights = "-ERR Function not found\r\n", .load = "-NOPERM no\r\n"},
     HF_DENIED,
     "lacks a right"},
    {"another protocol",
     "",
     {.hello = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", .turns_away = true},
     HF_UNAVAILABLE,
     "not the protocol of Redis"},
    {"one that hangs up", "", {.turns_away = true}, HF_UNAVAILABLE, "connection"},
};

static void test_greetings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof greetings / sizeof *greetings; i++) {
        hf_lease *lease;
        impostor_start(&greetings[i].script);
        hf_client *client = open_at(greetings[i].user, "");
        struct call call = acquire(client, 0, &lease);
        must_be(&call, greetings[i].what, greetings[i].status);
        must_say(&call, greetings[i].what, greetings[i].words);
        assert_null(strstr(call.words, "secret"));
        call = acquire(client, 200, &lease);
        must_be(&call, greetings[i].what, greetings[i].status);
        must_say(&call, greetings[i].what, greetings[i].words);
        /* What no retry heals is said at once. */
        bool for_good = greetings[i].status != HF_UNAVAILABLE;
        assert_true(for_good ? call.took_ms < 200 : call.took_ms >= 200);
        assert_int_equal(atomic_load(&impostor.asks), 0);
        assert_int_equal(hf_close(client, 2000), HF_OK);
        impostor_end();
    }
}

/* Who may not ask INFO, or have a name, may still have locks; and so may who hears strange things
 * there. */
static void test_modest_rights(void **state)
{
    (void)state;
    static const struct script scripts[] = {
        {.setname = "-NOPERM no\r\n", .info = "-NOPERM no\r\n"},
        {.info = INFO_OF("7.0.15", "master") "uptime_in_seconds:99999999999999999999\r\n"},
        {.info = INFO_OF("7.0.15", "master") "uptime_in_seconds:-9999999999\r\n"},
        {.info = "uptime_in_seconds:"},
        {.info = ""},
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        hf_lease *lease;
        impostor_start(&scripts[i]);
        hf_client *client = open_at("", "");
        struct call call = acquire(client, 0, &lease);
        must_be(&call, scripts[i].info, HF_OK);
        hf_lease_free(lease);
        assert_int_equal(hf_close(client, 2000), HF_OK);
        impostor_end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE("a reply that is cut off at any byte is a doubt, never a grant", test_cut_off),
        ALONE("silence is a doubt, and is said to be silence", test_silence),
        ALONE("a server that takes connections and says nothing is unreachable", test_mute),
        ALONE("an answer that does not fit is a doubt, and costs the connection", test_nonsense),
        ALONE("an answer that says ask again is followed, but not for ever", test_unfinished),
        ALONE("a refusal in words is no doubt, and costs nothing", test_refusals),
        ALONE("what has no end ends by its size, and costs little memory", test_floods),
        ALONE("one answer too many is answer to nothing", test_one_too_many),
        ALONE("an answer may come byte by byte", test_spelt),
        ALONE("bytes that never become an answer are silence", test_trickle),
        ALONE("a greeting that is refused says where and why", test_greetings),
        ALONE("without the right to ask for the version locks work", test_modest_rights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
