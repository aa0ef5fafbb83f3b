/* redis_hostile.c - a server that answers with too little, too much, nonsense or nothing: the caller gets a clear error
 * within its time-outs, never a grant that was not given, and the library neither hangs nor eats memory. */
#include "redis_impostor.h"

#include <fcntl.h>
#include <malloc.h>

/* With this ttl one request may take 50 ms. Without a wait a call ends after two of them, and two more for leaving. */
enum { TTL_MS = 1000, OP_MS = 50, CALL_MS = 4 * OP_MS, SLACK_MS = 1000, WAIT_MS = 5000, LOOK_MS = 400 };

/* What a hostile answer may cost at its peak, in KiB. The sanitizer keeps freed blocks, and has its own notes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { COST_KB = 12 * 1024 };
#else
enum { COST_KB = 3 * 1024 };
#endif

/* For what is not about time: a release without an answer is tried again after this. Long enough for a machine with
 * much else to do. */
#define HASTY "&op_timeout=30ms"

static hf_client *open_at(const char *user, const char *query)
{
    char url[256];
    hf_client *client;
    snprintf(url, sizeof url, "redis://%s127.0.0.1:%u/0?retry_min=1ms&retry_max=5ms%s", user, impostor.port, query);
    if (hf_open(url, NULL, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}

static void await_number(_Atomic unsigned *number, unsigned least, const char *what)
{
    for (int64_t end = now_ns() + ACTOR_PATIENCE_MS * 1000000LL; atomic_load(number) < least; nap_us(200))
        if (now_ns() > end)
            fail_msg("%s: %u instead of %u", what, atomic_load(number), least);
}

/* ---- Memory ---- */

static long status_kb(const char *field)
{
    char line[256];
    long kb = -1;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            kb = atol(line + strlen(field));
    fclose(file);
    assert_true(kb >= 0);
    return kb;
}

/* The peak counts from here on. */
static long begin_peak(void)
{
    malloc_trim(0); /* what was freed before must not serve now */
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "5", 1), 1);
    close(fd);
    return status_kb("VmRSS:");
}

/* ---- One call ---- */

struct call {
    hf_status status;
    int64_t took_ms;
    long cost_kb;
    char words[512];
    hf_lease *lease;
};

static struct call acquire(hf_client *client, int64_t wait_ms, hf_lease **lease)
{
    struct hf_request request = request_of(&(struct want){.name = "prey", .ttl_ms = TTL_MS, .wait_ms = wait_ms});
    long before = begin_peak();
    int64_t from = now_ns();
    struct call call = {.status = hf_acquire(client, &request, lease)};
    call.took_ms = (now_ns() - from) / 1000000;
    call.cost_kb = status_kb("VmHWM:") - before;
    snprintf(call.words, sizeof call.words, "%s", call.status == HF_OK ? "" : hf_error_text());
    return call;
}

static void must_say(const struct call *call, const char *what, const char *words)
{
    if (!strstr(call->words, impostor.where) || !strstr(call->words, words))
        fail_msg("%s: \"%s\" says neither \"%s\" nor \"%s\"", what, call->words, impostor.where, words);
}

static void must_be(const struct call *call, const char *what, hf_status status)
{
    if (call->status != status)
        fail_msg("%s: %s (%s) instead of %s", what, hf_status_name(call->status), call->words, hf_status_name(status));
    if (call->took_ms > CALL_MS + SLACK_MS)
        fail_msg("%s: took %lld ms", what, (long long)call->took_ms);
    if (call->cost_kb > COST_KB)
        fail_msg("%s: took %ld KiB", what, call->cost_kb);
}

/* A machine with much else to do may connect too late for HASTY. Nothing was asked then: once more. */
static struct call acquire_once_connected(hf_client **client, const struct script *script, const char *query)
{
    hf_lease *lease;
    impostor_start(script);
    *client = open_at("", query);
    struct call call = acquire(*client, 0, &lease);
    for (int tries = 0; call.status == HF_UNAVAILABLE && atomic_load(&impostor.asks) == 0 && tries < 50; tries++) {
        assert_int_equal(hf_close(*client, 2000), HF_OK);
        impostor_end();
        impostor_start(script);
        *client = open_at("", query);
        call = acquire(*client, 0, &lease);
    }
    call.lease = lease;
    return call;
}

/* Without a wait a hostile answer is a doubt, which is compensated; the connection is not used again. */
static struct call refused_at_once(const char *what, const struct reply_script *reply, const char *query)
{
    hf_client *client;
    struct call call = acquire_once_connected(&client, &(struct script){.ask = *reply, .hostile = 1}, query);
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

#define QUEUED "*6\r\n:0\r\n:900\r\n:400\r\n$16\r\n1794739091582000\r\n$16\r\n" TOKEN "\r\n:0\r\n"

static void test_cut_off(void **state)
{
    (void)state;
    static const char *const replies[] = {GRANT, "*2\r\n:0\r\n:900\r\n", QUEUED, "*3\r\n:-2\r\n$1\r\ns\r\n:5\r\n",
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
    struct call call = refused_at_once("silence", &silence, "");
    assert_true(strstr(call.words, "no answer for 50 ms") != NULL);
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

#define HUGE_NUMBER ":9223372036854775807\r\n"
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
    "*7\r\n:0\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n",
    "*2\r\n$1\r\n0\r\n:1\r\n",
    "*2\r\n:0\r\n$1\r\n5\r\n",
    "*2\r\n:0\r\n$-1\r\n",
    "*2\r\n" GRANT ":900\r\n",
    "*1\r\n" GRANT,
    "*2\r\n:-1\r\n:0\r\n",
    "*1\r\n:-2\r\n",
    "*2\r\n:-2\r\n:5\r\n",
    "*1\r\n:-6\r\n",
    "*1\r\n:5\r\n",
    "*1\r\n*1\r\n:0\r\n",
    "*6\r\n:0\r\n:900\r\n$-1\r\n$1\r\n1\r\n$1\r\n1\r\n:0\r\n",
    "*6\r\n:0\r\n:900\r\n:1\r\n*0\r\n*0\r\n:0\r\n",
    /* Numbers that cannot be. */
    "*6\r\n:0\r\n:900\r\n:-100\r\n$1\r\n1\r\n$1\r\n1\r\n:0\r\n",
    "*6\r\n:0\r\n:900\r\n:100\r\n$2\r\n-1\r\n$1\r\n1\r\n:0\r\n",
    "*6\r\n:0\r\n:900\r\n:100\r\n$1\r\n1\r\n$1\r\n1\r\n:-1\r\n",
    "*6\r\n:0\r\n" HUGE_NUMBER HUGE_NUMBER HUGE_NUMBER HUGE_NUMBER HUGE_NUMBER,
    "*6\r\n:0\r\n:900\r\n:100000000\r\n$1\r\n1\r\n$1\r\n1\r\n:0\r\n",
    "*6\r\n:0\r\n:900\r\n:100\r\n$1\r\n1\r\n$1\r\n1\r\n" HUGE_NUMBER,
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

/* A refusal in words is none of the above: nothing happened, and the connection is as good as before. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        hf_status status;
    } refusals[] = {
        {"-ERR something\r\n", HF_INTERNAL},       {"-\r\n", HF_INTERNAL},
        {"-OOM command not allowed\r\n", HF_FULL}, {"-NOPERM no\r\n", HF_DENIED},
        {"-MOVED 1 127.0.0.1:1\r\n", HF_CONFIG},   {"-BUSY running a script\r\n", HF_UNAVAILABLE},
        {"-MISCONF no disk\r\n", HF_UNAVAILABLE},  {"-WRONGTYPE no\r\n", HF_MISMATCH},
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
        assert_int_equal(atomic_load(&impostor.tombstones), 0);
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
    {"lists in lists", {"*100000000\r\n", 0, POUR, "*2\r\n*2\r\n:1\r\n:2\r\n*1\r\n$1\r\nx\r\n", 0}, true},
    {"bulk strings without end", {"*2\r\n:0\r\n", 0, POUR, "$4\r\nxxxx\r\n", 0}, true},
    {"a hundred million texts", {"*100000000\r\n", 0, POUR, "$64\r\n" TOKEN TOKEN TOKEN TOKEN "\r\n", 0}, true},
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
        print_message("# %s: %lld ms, %ld KiB, %llu KiB were sent\n", floods[i].what, (long long)call.took_ms,
                      call.cost_kb, (unsigned long long)atomic_load(&impostor.poured) / 1024);
        if (floods[i].pours)
            assert_null(strstr(call.words, "no answer"));
        granted_later(floods[i].what, &floods[i].reply);
    }
}

/* The first answer counts, and nothing behind it: the next ask goes to another connection. */
static void test_one_too_many(void **state)
{
    (void)state;
    static const char *const surplus[] = {GRANT GRANT, GRANT "+OK\r\n", GRANT "-ERR x\r\n", GRANT "$16\r\n1794"};
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
    impostor_start(&(struct script){.ask = {.bytes = GRANT, .behind = SPELL, .pace_us = 1000}, .hostile = 1});
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

/* ---- Of what is held ---- */

static hf_lease *hold(const struct script *script, hf_client **client)
{
    struct call call = acquire_once_connected(client, script, HASTY);
    must_be(&call, "the hold itself", HF_OK);
    return call.lease;
}

/* What a renewal is answered with counts only if it can be true. */
static void test_changes(void **state)
{
    (void)state;
    static const char *const replies[] = {
        "+OK\r\n",
        ":1\r\n",
        "*0\r\n",
        GRANT,
        "*2\r\n" GRANT ":-5\r\n",
        "*2\r\n" GRANT HUGE_NUMBER,
        "*2\r\n" GRANT ":86400001\r\n",
        "*2\r\n" GRANT "*0\r\n",
        "*2\r\n:0\r\n:900\r\n",
        "*3\r\n" GRANT ":900\r\n:900\r\n",
        "*1\r\n:2\r\n",
        "*1\r\n:-1\r\n",
        "*2\r\n$1\r\n0\r\n:900\r\n",
    };
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        hf_client *client;
        hf_lease *lease = hold(&(struct script){.change = {.bytes = replies[i]}}, &client);
        struct call call = {.status = hf_extend(lease, 0)};
        snprintf(call.words, sizeof call.words, "%s", call.status == HF_OK ? "" : hf_error_text());
        must_be(&call, replies[i], HF_IN_DOUBT);
        must_say(&call, replies[i], "does not fit");
        assert_true(hf_lease_ok(lease));
        assert_in_range(hf_lease_left_ms(lease), 1, TTL_MS);
        await_number(&impostor.hung_up, 1, replies[i]);
        hf_lease_free(lease);
        assert_int_equal(hf_close(client, 2000), HF_OK);
        impostor_end();
    }
}

/* A release without a clear answer is said to be in doubt, and goes on. */
static void test_releases(void **state)
{
    (void)state;
    static const char *const replies[] = {"+OK\r\n", "*0\r\n", "$1\r\n1\r\n", "*2\r\n" GRANT ":900\r\n", "$-1\r\n"};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        hf_client *client;
        hf_lease *lease = hold(&(struct script){.release = {.bytes = replies[i]}}, &client);
        struct call call = {.status = hf_release(lease)};
        snprintf(call.words, sizeof call.words, "%s", call.status == HF_OK ? "" : hf_error_text());
        must_be(&call, replies[i], HF_IN_DOUBT);
        must_say(&call, replies[i], "does not fit");
        assert_false(hf_lease_ok(lease));
        hf_lease_free(lease);
        await_number(&impostor.releases, 2, replies[i]);
        assert_int_equal(hf_close(client, 2000), HF_OK);
        impostor_end();
    }
}

/* ---- Hand-overs ---- */

#define NOW_US "1794739091582000"     /* of the server, as in QUEUED */
#define SOON_US "1794739091882000"    /* 300 ms later */
#define NEXT_TOKEN "1794739091582099" /* above the number in QUEUED */

/* A message for the waiter, or in its name for somebody else. */
static void write_message(char *out, size_t size, const char *id, const char *numbers)
{
    char message[256];
    int len = snprintf(message, sizeof message, "%s %s %s", id, numbers, impostor.served);
    snprintf(out, size, "*2\r\n$3\r\nbox\r\n*1\r\n$%d\r\n%s\r\n", len, message);
}

static const char *message_numbers;

static void hand_over(char *out, size_t size)
{
    write_message(out, size, impostor.id, message_numbers);
}

static void hand_over_to_nobody(char *out, size_t size)
{
    write_message(out, size, "AAAAAAAAAAAAAAAAAAAAAA", message_numbers);
}

/* Waits in the queue, where it is told to look after LOOK_MS. How long did it take, and how often did it ask? */
static int64_t wait_for_turn(const struct script *script, unsigned *asks)
{
    hf_lease *lease;
    impostor_start(script);
    hf_client *client = open_at("", "");
    struct call call = acquire(client, WAIT_MS, &lease);
    must_be(&call, message_numbers, HF_OK);
    *asks = atomic_load(&impostor.asks);
    assert_in_range(hf_lease_left_ms(lease), 1, TTL_MS);
    hf_lease_free(lease);
    assert_int_equal(hf_close(client, 2000), HF_OK);
    return call.took_ms;
}

static void test_messages(void **state)
{
    (void)state;
    static const struct {
        const char *numbers;
        enum { TAKEN, ASKED_ABOUT, IGNORED } becomes;
    } messages[] = {
        {NEXT_TOKEN " " SOON_US " " NOW_US, TAKEN},
        {NEXT_TOKEN " 999999999999999999 " NOW_US, ASKED_ABOUT},
        {NEXT_TOKEN " 999999999999999999 0", ASKED_ABOUT},
        {NEXT_TOKEN " 0 999999999999999999", ASKED_ABOUT},
        {NEXT_TOKEN " 1794739191582000 " NOW_US, ASKED_ABOUT}, /* for 100 s */
        {NEXT_TOKEN " " NOW_US " " NOW_US, ASKED_ABOUT},       /* over */
        {TOKEN " " SOON_US " " NOW_US, IGNORED},               /* older than the answer */
        {"5 " SOON_US " " NOW_US, IGNORED},
        {"-5 " SOON_US " " NOW_US, IGNORED},
        {NEXT_TOKEN " x " NOW_US, IGNORED},
        {NEXT_TOKEN " " SOON_US, IGNORED},
        {"", IGNORED},
    };
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        unsigned asks;
        message_numbers = messages[i].numbers;
        int64_t took =
            wait_for_turn(&(struct script){.ask = {.bytes = QUEUED}, .hostile = 1, .answer_pop = hand_over}, &asks);
        impostor_end();
        print_message("# \"%s\": %u asks, %lld ms\n", message_numbers, asks, (long long)took);
        assert_int_equal(asks, messages[i].becomes == TAKEN ? 1 : 2);
        assert_true((took < LOOK_MS) == (messages[i].becomes != IGNORED));
    }
}

/* A grant to an id that nobody here knows is given back. */
static void test_ghost(void **state)
{
    (void)state;
    unsigned asks;
    message_numbers = NEXT_TOKEN " " SOON_US " " NOW_US;
    wait_for_turn(&(struct script){.ask = {.bytes = QUEUED}, .hostile = 1, .answer_pop = hand_over_to_nobody}, &asks);
    assert_int_equal(asks, 2);
    assert_int_equal(atomic_load(&impostor.releases), 2); /* that one, and ours */
    impostor_end();
}

/* The connection of the messages is worth no more than the other one; who waits is not held up. */
static void test_nonsense_messages(void **state)
{
    (void)state;
    static const struct reply_script pops[] = {
        {"+OK\r\n", 0, STAY, NULL, 0},
        {":1\r\n", 0, STAY, NULL, 0},
        {"*0\r\n", 0, STAY, NULL, 0},
        {"*1\r\n$1\r\nx\r\n", 0, STAY, NULL, 0},
        {"*2\r\n$1\r\nx\r\n$1\r\nx\r\n", 0, STAY, NULL, 0},
        {"-BUSY running a script\r\n", 0, STAY, NULL, 0},
        {"$-1\r\n$-1\r\n$-1\r\n", 0, STAY, NULL, 0},
        {"?", 0, STAY, NULL, 0},
        {"*2\r\n", 0, CLOSE, NULL, 0},
        {"*2\r\n$3\r\nbox\r\n*100000000\r\n", 0, POUR, "$4\r\nxxxx\r\n", 0},
        {"$600000000\r\n", 0, POUR, "xxxxxxxx", 0},
    };
    for (size_t i = 0; i < sizeof pops / sizeof *pops; i++) {
        unsigned asks;
        message_numbers = pops[i].bytes;
        wait_for_turn(&(struct script){.ask = {.bytes = QUEUED}, .hostile = 1, .pop = pops[i]}, &asks);
        assert_true(asks >= 2);
        assert_true(atomic_load(&impostor.pops) >= 1);
        impostor_end();
    }
}

/* Where nobody can be told, waiting is refused, not made slow. */
static void test_no_messages(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        hf_status status;
    } refusals[] = {{"-ERR unknown command 'BLMPOP'\r\n", HF_CONFIG}, {"-NOPERM no\r\n", HF_DENIED}};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        hf_lease *lease;
        impostor_start(
            &(struct script){.ask = {.bytes = QUEUED}, .hostile = UINT32_MAX, .pop = {.bytes = refusals[i].reply}});
        hf_client *client = open_at("", "");
        struct call call = acquire(client, WAIT_MS, &lease);
        must_be(&call, refusals[i].reply, refusals[i].status);
        must_say(&call, refusals[i].reply, "");
        assert_int_equal(hf_close(client, 2000), HF_OK);
        assert_true(atomic_load(&impostor.releases) >= 1);
        impostor_end();
    }
}

/* ---- Greetings ---- */

static void test_greetings(void **state)
{
    (void)state;
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
          .load = "-NOAUTH Authentication required.\r\n"},
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
          .load = "-LOADING Redis is loading the dataset in memory\r\n"},
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
        {"no right to load scripts", "", {.load = "-NOPERM no\r\n"}, HF_DENIED, "lacks a right"},
        {"another protocol",
         "",
         {.hello = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", .turns_away = true},
         HF_UNAVAILABLE,
         "not the protocol of Redis"},
        {"one that hangs up", "", {.turns_away = true}, HF_UNAVAILABLE, "connection"},
    };
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

/* Who may not ask INFO, or have a name, may still have locks; and so may who hears strange things there. */
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

#define ALONE(text, function)                                                                                          \
    {                                                                                                                  \
        .name = text, .test_func = function, .teardown_func = impostor_teardown                                        \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE("a reply that is cut off at any byte is a doubt, never a grant", test_cut_off),
        ALONE("silence is a doubt, and is said to be silence", test_silence),
        ALONE("a server that takes connections and says nothing is unreachable", test_mute),
        ALONE("an answer that does not fit is a doubt, and costs the connection", test_nonsense),
        ALONE("a refusal in words is no doubt, and costs nothing", test_refusals),
        ALONE("what has no end ends by its size, and costs little memory", test_floods),
        ALONE("one answer too many is answer to nothing", test_one_too_many),
        ALONE("an answer may come byte by byte", test_spelt),
        ALONE("bytes that never become an answer are silence", test_trickle),
        ALONE("a renewal whose answer does not fit is a doubt, and lengthens nothing", test_changes),
        ALONE("a release whose answer does not fit is a doubt, and goes on", test_releases),
        ALONE("a message is taken if it can be true, and asked about otherwise", test_messages),
        ALONE("a grant that nobody waits for is given back", test_ghost),
        ALONE("messages that make no sense hold up nobody", test_nonsense_messages),
        ALONE("a server that cannot tell of hand-overs is refused by name", test_no_messages),
        ALONE("a greeting that is refused says where and why", test_greetings),
        ALONE("without the right to ask for the version locks work", test_modest_rights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
