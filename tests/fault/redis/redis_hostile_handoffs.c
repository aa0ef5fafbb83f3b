/* redis_hostile_handoffs.c - a server that is hostile to who holds or waits: answers to renewals
 * and releases that do not fit, hand-overs that cannot be true, messages that make no sense. */
#include "redis_hostile.h"

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
    static const char *const replies[] = {"+OK\r\n", "*0\r\n", "$1\r\n1\r\n",
                                          "*2\r\n" GRANT ":900\r\n", "$-1\r\n"};
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

/* Waits in the queue, where it is told to look after LOOK_MS. How long did it take, and how often
 * did it ask? */
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
        int64_t took = wait_for_turn(
            &(struct script){.ask = {.bytes = QUEUED}, .hostile = 1, .answer_pop = hand_over},
            &asks);
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
    wait_for_turn(
        &(struct script){.ask = {.bytes = QUEUED}, .hostile = 1, .answer_pop = hand_over_to_nobody},
        &asks);
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
        wait_for_turn(&(struct script){.ask = {.bytes = QUEUED}, .hostile = 1, .pop = pops[i]},
                      &asks);
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
    } refusals[] = {{"-ERR unknown command 'BLMPOP'\r\n", HF_CONFIG},
                    {"-NOPERM no\r\n", HF_DENIED}};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        hf_lease *lease;
        impostor_start(&(struct script){
            .ask = {.bytes = QUEUED}, .hostile = UINT32_MAX, .pop = {.bytes = refusals[i].reply}});
        hf_client *client = open_at("", "");
        struct call call = acquire(client, WAIT_MS, &lease);
        must_be(&call, refusals[i].reply, refusals[i].status);
        must_say(&call, refusals[i].reply, "");
        assert_int_equal(hf_close(client, 2000), HF_OK);
        assert_true(atomic_load(&impostor.releases) >= 1);
        impostor_end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE("a renewal whose answer does not fit is a doubt, and lengthens nothing",
              test_changes),
        ALONE("a release whose answer does not fit is a doubt, and goes on", test_releases),
        ALONE("a message is taken if it can be true, and asked about otherwise", test_messages),
        ALONE("a grant that nobody waits for is given back", test_ghost),
        ALONE("messages that make no sense hold up nobody", test_nonsense_messages),
        ALONE("a server that cannot tell of hand-overs is refused by name", test_no_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
