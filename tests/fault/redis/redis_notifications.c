/* redis_notifications.c - the three ways in which a waiter hears of its turn, on real servers: each
 * uses its own commands and none of the others', and a message that is lost while the waiter's
 * connection is away costs a second at most. */
#include "lib/proxy.h"
#include "redis_fixture.h"

#include <stdatomic.h>

enum {
    TTL_MS = 20000,
    SECOND_MS = 1000,
    SLACK_MS = 400, /* the machine may be busy */
};

static const struct {
    const char *wake;
    bool pops, subscribes;
} modes[] = {{"inbox", true, false}, {"pubsub", false, true}, {"poll", false, false}};

enum { MODES = sizeof modes / sizeof *modes };

/* Whoever opens the scene's URL from here on waits that way. */
static void use_wake(uint16_t port, const char *wake)
{
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?wake=%s", port, wake);
}

static int64_t since_ms(int64_t then_ns)
{
    return (now_ns() - then_ns) / 1000000;
}

static void await_calls(const char *command, int64_t calls)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    while (server_calls(scene.server, command) < calls) {
        if (now_ns() > end)
            fail_msg("%s was called %lld times, not %lld", command,
                     (long long)server_calls(scene.server, command), (long long)calls);
        nap_us(1000);
    }
}

static void ignore_outcome(hf_lease *lease, hf_status status, void *arg)
{
    (void)lease, (void)status, (void)arg;
}

/* One hand-over between two processes. */
static void hand_over(int64_t ttl_ms)
{
    const struct want want = {.name = "turn", .ttl_ms = ttl_ms, .wait_ms = HF_FOREVER};
    struct actor *one = scene_actor(), *other = scene_actor();
    actor_holds(one, 1, &want);
    actor_acquire(other, 1, ORDER_ACQUIRE, &want);
    scene_await_queue("turn", 1);
    actor_does(one, ORDER_RELEASE, 1);
    assert_int_equal(actor_answer(other, ORDER_ACQUIRE, 1).status, HF_OK);
    actor_does(other, ORDER_RELEASE, 1);
    actor_does(one, ORDER_CLOSE, 0);
    actor_does(other, ORDER_CLOSE, 0);
}

static void test_each_uses_its_own_commands(void **state)
{
    (void)state;
    for (int i = 0; i < MODES; i++) {
        use_wake(server_port(scene.server), modes[i].wake);
        server_does(scene.server, "CONFIG RESETSTAT");
        hand_over(2000);
        if (modes[i].pops) /* it counts when it is answered, which may be after the hand-over was
                              confirmed */
            await_calls("blmpop", 1);
        int64_t pops = server_calls(scene.server, "blmpop") + server_calls(scene.server, "blpop"),
                subscribes = server_calls(scene.server, "subscribe"),
                pushes = server_calls(scene.server, "rpush"),
                publishes = server_calls(scene.server, "publish");
        print_message("# %s: blmpop %lld, subscribe %lld, rpush %lld, publish %lld\n",
                      modes[i].wake, (long long)pops, (long long)subscribes, (long long)pushes,
                      (long long)publishes);
        assert_int_equal(pops > 0, modes[i].pops);
        assert_int_equal(pushes > 0, modes[i].pops);
        assert_int_equal(subscribes > 0, modes[i].subscribes);
        assert_int_equal(publishes > 0, modes[i].subscribes);
    }
}

/* Connections that wait to be told: each subscribes to one channel, or is in BLMPOP. */
static int64_t listeners(const char *wake)
{
    return strcmp(wake, "pubsub") == 0
               ? server_info_number(scene.server, "stats", "pubsub_channels")
               : server_info_number(scene.server, "clients", "blocked_clients");
}

static void await_listeners(const char *wake, int64_t count)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    while (listeners(wake) != count) {
        if (now_ns() > end)
            fail_msg("%lld listen, not %lld", (long long)listeners(wake), (long long)count);
        nap_us(1000);
    }
}

/* The connection on which the waiter listens, by its client id: the one that subscribes, whether or
 * not it has said something else since, or the one that pops. */
static void kill_listener(const char *wake)
{
    const char *mark = strcmp(wake, "pubsub") == 0 ? " sub=1" : " cmd=blmpop";
    redisReply *list = server_cli(scene.server, "CLIENT LIST");
    char *rest = list->str, id[32] = "";
    for (char *line; (line = strsep(&rest, "\n"));)
        if (strstr(line, mark))
            assert_int_equal(sscanf(line, "id=%31[0-9]", id), 1);
    freeReplyObject(list);
    assert_true(id[0]);
    assert_int_equal(server_count(scene.server, "CLIENT KILL ID %s", id), 1);
}

/* The waiter is behind a proxy that lets nobody in, its listening connection is killed, and in this
 * time the lock is released: nobody hears of it. Returns how long after the release it was granted:
 * it polls, on its other connection.
 */
static int64_t lose_a_message(struct proxy *proxy, const char *wake)
{
    const struct want want = {.name = "turn", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER};
    use_wake(server_port(scene.server), wake);
    struct actor *holder = scene_actor();
    use_wake(proxy_port(proxy), wake);
    struct actor *waiter = scene_actor();
    await_listeners(wake, 0); /* the server may not know yet that an earlier waiter has gone */
    actor_holds(holder, 1, &want);
    actor_acquire(waiter, 1, ORDER_ACQUIRE, &want);
    scene_await_queue("turn", 1);
    await_listeners(wake, 1);
    proxy_refuse(proxy, true);
    kill_listener(wake);
    await_listeners(wake, 0);
    int64_t released = now_ns();
    actor_does(holder, ORDER_RELEASE, 1);
    assert_int_equal(server_count(scene.server, "ZCARD {lock:turn}:q"), 0); /* it was handed over */
    struct answer granted = actor_answer(waiter, ORDER_ACQUIRE, 1);
    assert_int_equal(granted.status, HF_OK);
    proxy_refuse(proxy, false);
    actor_does(waiter, ORDER_RELEASE, 1);
    actor_does(holder, ORDER_CLOSE, 0);
    actor_does(waiter, ORDER_CLOSE, 0);
    return (granted.at_ns - released) / 1000000;
}

static void test_a_lost_message_costs_a_second(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server_port(scene.server));
    for (int i = 0; i < MODES; i++) {
        if (!modes[i].pops && !modes[i].subscribes)
            continue;
        for (int round = 0; round < 2; round++) {
            int64_t ms = lose_a_message(proxy, modes[i].wake);
            print_message("# %s: granted %lld ms after the release\n", modes[i].wake,
                          (long long)ms);
            assert_in_range(ms, 0, SECOND_MS + SLACK_MS);
        }
    }
    proxy_end(proxy);
}

/* No proxy: the connection is killed, and comes back by itself while the lock is released. */
static void test_a_kill_in_the_same_moment_costs_a_second(void **state)
{
    (void)state;
    const struct want want = {.name = "turn", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER};
    use_wake(server_port(scene.server), "pubsub");
    struct actor *holder = scene_actor(), *waiter = scene_actor();
    for (uint32_t round = 1; round <= 6; round++) {
        actor_holds(holder, round, &want);
        actor_acquire(waiter, round, ORDER_ACQUIRE, &want);
        scene_await_queue("turn", 1);
        await_listeners("pubsub", 1);
        nap_us(1200000); /* a connection that lasted a second is opened again at once */
        int64_t killed = now_ns();
        kill_listener("pubsub");
        nap_us((round - 1) * 300);
        actor_does(holder, ORDER_RELEASE, round);
        assert_int_equal(actor_answer(waiter, ORDER_ACQUIRE, round).status, HF_OK);
        assert_in_range(since_ms(killed), 0, SECOND_MS);
        actor_does(waiter, ORDER_RELEASE, round);
    }
}

/* Who is told of nothing looks: the first in line after a twentieth of its ttl. */
static void test_poll_hears_at_its_next_look(void **state)
{
    (void)state;
    const struct want want = {.name = "turn", .ttl_ms = 4000, .wait_ms = HF_FOREVER};
    use_wake(server_port(scene.server), "poll");
    struct actor *holder = scene_actor(), *waiter = scene_actor();
    actor_holds(holder, 1, &want);
    actor_acquire(waiter, 1, ORDER_ACQUIRE, &want);
    scene_await_queue("turn", 1);
    int64_t released = now_ns();
    actor_does(holder, ORDER_RELEASE, 1);
    struct answer granted = actor_answer(waiter, ORDER_ACQUIRE, 1);
    assert_int_equal(granted.status, HF_OK);
    assert_in_range((granted.at_ns - released) / 1000000 + 1, 0, 200 + SLACK_MS);
    assert_int_equal(scene_connections(actor_pid(waiter)), 1);
}

/* Many who wait in one process: what one of them gives back, the next one asks for at once. By
 * looks alone each turn would take a quarter of a second and more. */
static void pass_on(hf_lease *lease, hf_status status, void *arg)
{
    _Atomic int *granted = arg;
    part_must(status == HF_OK);
    hf_lease_free(lease);
    atomic_fetch_add(granted, 1);
}

enum { WAITS = 40 };

static hf_lease *start_waits(_Atomic int *granted)
{
    use_wake(server_port(scene.server), "poll");
    struct hf_request waits =
        request_of(&(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER});
    hf_lease *held = must_acquire(scene_client(), &(struct want){.name = "turn", .ttl_ms = TTL_MS}),
             *lease;
    for (int i = 0; i < WAITS; i++)
        assert_int_equal(hf_acquire_start(scene_client(), &waits, pass_on, granted, &lease), HF_OK);
    scene_await_queue("turn", WAITS);
    return held;
}

static void release_to_all(hf_lease *held, _Atomic int *granted)
{
    int64_t released = now_ns();
    hf_lease_free(held);
    while (atomic_load(granted) < WAITS && since_ms(released) < ACTOR_PATIENCE_MS)
        nap_us(1000);
    print_message("# poll: %d turns in one process took %lld ms\n", atomic_load(granted),
                  (long long)since_ms(released));
    assert_in_range(since_ms(released), 0, WAITS * 100);
}

static void test_poll_passes_on_at_home(void **state)
{
    (void)state;
    _Atomic int granted = 0;
    release_to_all(start_waits(&granted), &granted);
}

static void read_first(char id[64])
{
    redisReply *first = server_cli(scene.server, "ZRANGE {lock:turn}:q 0 0");
    assert_int_equal(first->elements, 1);
    snprintf(id, 64, "%s", first->element[0]->str);
    freeReplyObject(first);
}

/* The first one's place lapses, as that of one that was stopped for long: it gets its place back.
 */
static void test_poll_passes_on_to_the_first(void **state)
{
    (void)state;
    _Atomic int granted = 0;
    char id[64];
    hf_lease *held = start_waits(&granted);
    for (int i = 0; i < 3; i++) {
        read_first(id);
        server_does(scene.server, "ZREM {lock:turn}:q %s", id);
        server_does(scene.server, "HDEL {lock:turn}:w %s", id);
        scene_await_queue("turn", WAITS);
        assert_int_equal(server_count(scene.server, "ZRANK {lock:turn}:q %s", id), 0);
    }
    release_to_all(held, &granted);
}

/* The box stands in a record whose fields are separated by blanks. */
static void test_blanks_in_the_prefix(void **state)
{
    (void)state;
    const struct want want = {.name = "turn", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER};
    for (int i = 0; i < MODES; i++) {
        if (!modes[i].pops && !modes[i].subscribes)
            continue;
        snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u?prefix=my%%20app:&wake=%s",
                 server_port(scene.server), modes[i].wake);
        struct actor *holder = scene_actor(), *waiter = scene_actor();
        actor_holds(holder, 1, &want);
        actor_acquire(waiter, 1, ORDER_ACQUIRE, &want);
        while (server_count(scene.server, "ZCARD %s", "{my app:turn}:q") == 0)
            nap_us(1000);
        await_listeners(modes[i].wake, 1);
        int64_t released = now_ns();
        actor_does(holder, ORDER_RELEASE, 1);
        struct answer granted = actor_answer(waiter, ORDER_ACQUIRE, 1);
        assert_int_equal(granted.status, HF_OK);
        assert_in_range((granted.at_ns - released) / 1000000 + 1, 0, SLACK_MS);
        actor_does(waiter, ORDER_RELEASE, 1);
        actor_does(holder, ORDER_CLOSE, 0);
        actor_does(waiter, ORDER_CLOSE, 0);
    }
}

/* What a hash or a string under one of our keys holds; freed by the caller. */
static char *text_under(const char *format, const char *key, const char *field)
{
    redisReply *reply = server_cli(scene.server, format, key, field);
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 1) { /* HVALS */
        redisReply *one = reply->element[0];
        char *text = strdup(one->str);
        freeReplyObject(reply);
        return text;
    }
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    char *text = strdup(reply->str);
    freeReplyObject(reply);
    return text;
}

/* The message of a hand-over comes when the waiter has looked by itself, was granted, and has
 * become a text. */
static void test_late_message_spares_the_exported(void **state)
{
    (void)state;
    char text[1024], box[256], message[256];
    hf_client *client = scene_client();
    struct actor *holder = scene_actor();
    hf_lease *lease =
        must_acquire(client, &(struct want){.name = "job", .ttl_ms = TTL_MS, .flags = HF_DETACHED});
    unsigned long long token = hf_lease_token(lease);
    assert_int_equal(hf_lease_export(lease, text, sizeof text), HF_OK);
    hf_lease_free(lease);
    actor_holds(holder, 1, &(struct want){.name = "turn", .ttl_ms = TTL_MS});
    struct hf_request waits =
        request_of(&(struct want){.name = "turn", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER});
    assert_int_equal(hf_acquire_start(client, &waits, ignore_outcome, NULL, &lease), HF_OK);
    scene_await_queue("turn", 1);
    char *record = text_under("HVALS %s", "{lock:turn}:w", NULL),
         *hold = text_under("GET %s", "lock:job", NULL);
    assert_int_equal(sscanf(record, "%*s %*s %*s %*s %*s %*s %*s %*s i%255s", box), 1);
    snprintf(message, sizeof message, "%.22s %llu %llu %llu lock:job", hold, token, token + 2000000,
             token);
    await_listeners("inbox", 1);
    int64_t scripts = server_calls(scene.server, "fcall");
    server_does(scene.server, "RPUSH %s %s", box, message);
    await_calls("fcall", scripts + 1);
    assert_int_equal(server_count(scene.server, "EXISTS lock:job"), 1);
    free(record);
    free(hold);
    hf_lease_free(lease);
    if (hf_lease_attach(client, text, &lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
}

/* A hold that is renewed for longer than its keys live by themselves. */
static void test_keys_live_with_renewals(void **state)
{
    (void)state;
    hf_lease *lease = must_acquire(
        scene_client(),
        &(struct want){
            .name = "pool", .kind = HF_SEMAPHORE, .units = 1, .capacity = 2, .ttl_ms = TTL_MS});
    server_does(scene.server, "PEXPIRE lock:pool 5000");
    server_does(scene.server, "PEXPIRE {lock:pool}:h 5000");
    assert_int_equal(hf_extend(lease, TTL_MS), HF_OK);
    assert_true(server_count(scene.server, "PTTL lock:pool") > TTL_MS);
    assert_true(server_count(scene.server, "PTTL {lock:pool}:h") > TTL_MS);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
}

/* A server whose locale sorts ~ before the digits, as that of many people does. */
static struct server *start_english(void)
{
    static char folder[256]; /* outlives the server */
    char command[600];
    snprintf(folder, sizeof folder, "%s/locales", stage_directory());
    snprintf(command, sizeof command,
             "mkdir -p %s && localedef -i en_US -f UTF-8 %s/en_US.UTF-8 >/dev/null 2>&1", folder,
             folder);
    if (system(command) != 0) {
        print_message("# the locale en_US cannot be made here\n");
        skip();
    }
    struct server *english =
        server_start(&(struct server_options){.kind = scene.kind, .locales = folder});
    redisReply *first = server_cli(english, "EVAL %s 0", "return '~' < '1' and 1 or 0");
    assert_int_equal(first->integer, 1); /* else there is nothing to see */
    freeReplyObject(first);
    return english;
}

static void test_any_locale(void **state)
{
    (void)state;
    const struct want want = {.name = "turn", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER};
    struct server *english = start_english();
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u", server_port(english));
    struct actor *holder = scene_actor(), *waiter = scene_actor();
    actor_holds(holder, 1, &want);
    actor_acquire(waiter, 1, ORDER_ACQUIRE, &want);
    while (server_count(english, "ZCARD {lock:turn}:q") == 0)
        nap_us(1000);
    actor_stop(waiter);
    server_does(english, "PEXPIRE lock:turn 1");
    nap_us(10000);
    struct hf_request barges = request_of(&(struct want){.name = "turn", .ttl_ms = TTL_MS});
    hf_lease *lease;
    assert_int_equal(hf_acquire(scene_client(), &barges, &lease), HF_BUSY);
    actor_go_on(waiter);
    assert_int_equal(actor_answer(waiter, ORDER_ACQUIRE, 1).status, HF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "each way of waking uses its own commands, and none of the others'",
         .test_func = test_each_uses_its_own_commands},
        {.name = "a message that nobody heard costs a second at most",
         .test_func = test_a_lost_message_costs_a_second},
        {.name = "so does one that crosses the death of the subscriber's connection",
         .test_func = test_a_kill_in_the_same_moment_costs_a_second},
        {.name = "poll: a waiter hears of its turn at its next look, on one connection",
         .test_func = test_poll_hears_at_its_next_look},
        {.name = "poll: turns in one process are passed on at once",
         .test_func = test_poll_passes_on_at_home},
        {.name = "poll: so they are when the oldest wait has lost its place and got it back",
         .test_func = test_poll_passes_on_to_the_first},
        {.name = "a prefix with blanks: a waiter hears of its turn at once",
         .test_func = test_blanks_in_the_prefix},
        {.name = "a message that comes late does not end a hold that was exported meanwhile",
         .test_func = test_late_message_spares_the_exported},
        {.name = "whatever the server's locale, nobody passes those who wait",
         .test_func = test_any_locale},
        {.name = "the keys of a counted hold live as long as it is renewed",
         .test_func = test_keys_live_with_renewals},
    };
    return SCENE_JUDGE(tests);
}
