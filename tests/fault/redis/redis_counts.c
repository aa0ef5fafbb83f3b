/* redis_counts.c - what locks cost on a real server: commands that clients send, connections,
 * system calls, allocations, instructions and CPU are counted. That lib/client_commands.h counts
 * rightly is itself a test, against MONITOR. */
#include "engines/redis/scripts.h"
#include "lib/client_commands.h"
#include "lib/counts.h"
#include "lib/cycles.h"
#include "lib/proxy.h"
#include "redis_fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>

/* ---- Commands ---- */

static struct client_commands count_commands(void)
{
    return client_commands_of(scene.server);
}

static struct client_commands commands_since(const struct client_commands *before)
{
    return client_commands_since(scene.server, before);
}

/* A BLMPOP counts when it is answered; and the last release may be under way. */
static void await_silence(void)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    while (server_info_number(scene.server, "clients", "blocked_clients") > 0 ||
           server_count(scene.server, "EXISTS lock:l0") > 0) {
        assert_true(now_ns() < end);
        nap_us(1000);
    }
}

/* ---- Waiters in several processes ---- */

enum { PROCESSES = 10, EACH_MOST = 100 };

/* The waiters of one process: each waits for its lock, and gives it back as soon as it has it. */
struct crew {
    hf_client *client;
    int count;
    int locks; /* waiter i wants lock i % locks */
    bool asynchronous;
    sem_t granted; /* as often as one of them had it */
};

static struct hf_request crew_request(int waiter, int locks, char name[16])
{
    snprintf(name, 16, "l%d", waiter % locks);
    return request_of(&(struct want){.name = name, .wait_ms = HF_FOREVER});
}

struct crew_member {
    struct crew *crew;
    int number;
};

static void *take_and_give(void *arg)
{
    struct crew_member *member = arg;
    struct crew *crew = member->crew;
    char name[16];
    struct hf_request request = crew_request(member->number, crew->locks, name);
    hf_lease *lease;
    part_must(hf_acquire(crew->client, &request, &lease) == HF_OK);
    part_must(hf_release(lease) == HF_OK);
    hf_lease_free(lease);
    sem_post(&crew->granted);
    return NULL;
}

static void give_at_once(hf_lease *lease, hf_status status, void *arg)
{
    struct crew *crew = arg;
    part_must(status == HF_OK);
    hf_lease_free(lease);
    sem_post(&crew->granted);
}

static void wait_with_threads(struct crew *crew)
{
    pthread_t thread[EACH_MOST];
    struct crew_member member[EACH_MOST];
    part_must(crew->count <= EACH_MOST);
    for (int i = 0; i < crew->count; i++) {
        member[i] = (struct crew_member){crew, i};
        part_must(pthread_create(&thread[i], NULL, take_and_give, &member[i]) == 0);
    }
    for (int i = 0; i < crew->count; i++)
        pthread_join(thread[i], NULL);
}

static void wait_asynchronously(struct crew *crew)
{
    for (int i = 0; i < crew->count; i++) {
        char name[16];
        struct hf_request request = crew_request(i, crew->locks, name);
        hf_lease *lease;
        part_must(hf_acquire_start(crew->client, &request, give_at_once, crew, &lease) == HF_OK);
    }
}

/* Waits as often as it is told to go. */
static void wait_in_a_crew(struct actor *me, void *arg)
{
    struct crew *crew = arg;
    crew->client = scene_part_client();
    sem_init(&crew->granted, 0, 0);
    for (;;) {
        part_awaits_go(me);
        crew->asynchronous ? wait_asynchronously(crew) : wait_with_threads(crew);
        for (int i = 0; i < crew->count; i++)
            sem_wait(&crew->granted);
        part_says(me, &(struct answer){.what = ORDER_GO, .number = crew->count});
    }
}

static const struct want held_lock = {.name = "l0", .ttl_ms = 30000, .wait_ms = 1000};

/* Somebody holds the lock, all waiters come, and it goes through all hands. What clients sent for
 * that; the holder's own release is not counted. */
static struct client_commands hand_round(struct actor *holder, struct actor **process, int waiters)
{
    actor_holds(holder, 0, &held_lock);
    struct client_commands before = count_commands();
    for (int p = 0; p < PROCESSES; p++)
        actor_order(process[p], ORDER_GO, 0);
    scene_await_queue("l0", waiters);
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_OK);
    for (int p = 0; p < PROCESSES; p++)
        assert_int_equal(actor_answer(process[p], ORDER_GO, 0).number, waiters / PROCESSES);
    await_silence();
    struct client_commands sent = commands_since(&before);
    sent.scripts--;
    sent.all--;
    return sent;
}

static void start_crews(struct actor **process, int waiters, bool asynchronous)
{
    struct crew crew = {.count = waiters / PROCESSES, .locks = 1, .asynchronous = asynchronous};
    for (int p = 0; p < PROCESSES; p++)
        process[p] = actor_start_part(wait_in_a_crew, &crew);
}

/* Acquisitions that waited, and commands for each. The first round, in which the clients connect,
 * does not count. */
static double count_contended(int waiters, int rounds, bool asynchronous)
{
    struct actor *process[PROCESSES], *holder = scene_actor();
    start_crews(process, waiters, asynchronous);
    hand_round(holder, process, waiters);
    struct client_commands sum = {0};
    for (int i = 0; i < rounds; i++) {
        struct client_commands sent = hand_round(holder, process, waiters);
        sum.scripts += sent.scripts;
        sum.blmpop += sent.blmpop;
        sum.all += sent.all;
    }
    double acquisitions = waiters * rounds;
    printf("# %7d | %-8s | %12.0f | %7.3f | %6.3f | %5.3f | %8.3f\n", waiters,
           asynchronous ? "async" : "blocking", acquisitions, (double)sum.scripts / acquisitions,
           (double)sum.blmpop / acquisitions,
           (double)(sum.all - sum.scripts - sum.blmpop) / acquisitions,
           (double)sum.all / acquisitions);
    for (int p = 0; p < PROCESSES; p++)
        actor_kill(process[p]);
    assert_int_equal(actor_does(holder, ORDER_CLOSE, 0).status, HF_OK);
    return (double)sum.all / acquisitions;
}

static void test_contended(void **state)
{
    (void)state;
    static const int waiters[] = {10, 100, 1000};
    printf("# waiters | manner   | acquisitions | scripts | BLMPOP | other | commands for each\n");
    for (int i = 0; i < 3; i++)
        for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
            double each = count_contended(waiters[i], 1000 / waiters[i] + 1, asynchronous);
            assert_true(each > 2.99);
            judge_count("redis-contended-commands", each);
        }
}

/* ---- The same, seen by MONITOR ---- */

static const char mark[] = "that was all";

static redisContext *start_monitor(void)
{
    redisContext *monitor = server_connect(scene.server);
    redisReply *ok = redisCommand(monitor, "MONITOR");
    assert_true(ok && ok->type == REDIS_REPLY_STATUS);
    freeReplyObject(ok);
    return monitor;
}

/* Lines of holdfast's connections until the mark: those of scripts say "lua", the test's own come
 * by the Unix socket.
 */
static int64_t end_monitor(redisContext *monitor)
{
    int64_t count = 0;
    bool ended = false;
    server_does(scene.server, "ECHO %s", mark);
    while (!ended) {
        redisReply *line;
        assert_int_equal(redisGetReply(monitor, (void **)&line), REDIS_OK);
        assert_int_equal(line->type, REDIS_REPLY_STATUS);
        ended = strstr(line->str, mark);
        const char *from = strchr(line->str, '[');
        assert_non_null(from);
        count += strncmp(from, "[0 127.0.0.1:", 13) == 0;
        freeReplyObject(line);
    }
    redisFree(monitor);
    return count;
}

static void test_monitor_agrees(void **state)
{
    (void)state;
    enum { WAITERS = 50 };
    struct actor *process[PROCESSES], *holder = scene_actor();
    start_crews(process, WAITERS, true);
    hand_round(holder, process, WAITERS);
    redisContext *monitor = start_monitor();
    struct client_commands sent = hand_round(holder, process, WAITERS);
    int64_t seen = end_monitor(monitor);
    printf("# commands of clients: %lld by commandstats, %lld by MONITOR\n", (long long)sent.all,
           (long long)seen);
    assert_int_equal(seen,
                     sent.all + 2); /* the holder's acquire and release are not counted there */
}

/* ---- Waiting costs next to nothing ---- */

enum {
    IDLE_WAITERS = 100,
    IDLE_MS = 5000,
    IDLE_COMMANDS_A_SECOND = 30,
    IDLE_CPU_MS = 50,
    SERVER_CPU_MS = 100
};

static void test_idle_waiters(void **state)
{
    (void)state;
    struct actor *holder = scene_actor();
    struct crew crew = {.count = IDLE_WAITERS, .locks = 1, .asynchronous = true};
    struct actor *waiting = actor_start_part(wait_in_a_crew, &crew);
    struct want kept = {.name = "l0", .flags = HF_AUTO_RENEW};
    actor_holds(holder, 0, &kept);
    actor_order(waiting, ORDER_GO, 0);
    scene_await_queue("l0", IDLE_WAITERS);
    pid_t server = server_pid(scene.server), client = actor_pid(waiting);
    struct client_commands before = count_commands();
    int64_t from = now_ns(), server_before = cpu_of(server), client_before = cpu_of(client);
    nap_us(IDLE_MS * 1000);
    double client_ms = (double)(cpu_of(client) - client_before) / 1e6;
    double server_ms = (double)(cpu_of(server) - server_before) / 1e6;
    struct client_commands sent = commands_since(&before);
    double seconds = (double)(now_ns() - from) / 1e9;
    printf("# %d waiters, %.1f s: %.1f commands a second; CPU: %.1f ms of the waiting process, "
           "%.1f ms of the server\n",
           IDLE_WAITERS, seconds, (double)sent.all / seconds, client_ms, server_ms);
    assert_true(sent.all > 0 && (double)sent.all / seconds < IDLE_COMMANDS_A_SECOND);
    assert_true(client_ms < IDLE_CPU_MS);
    assert_true(server_ms < SERVER_CPU_MS);
    assert_true(actor_is_silent(waiting));
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_OK);
    assert_int_equal(actor_answer(waiting, ORDER_GO, 0).number, IDLE_WAITERS);
}

enum { MANY_WAITERS = 1000, MANY_LOCKS = 100, CONNECTIONS_ALLOWED = 2 };

static int count_threads(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    int count = 0;
    for (struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void test_connections(void **state)
{
    (void)state;
    struct actor *holder = scene_actor();
    struct crew crew = {.count = MANY_WAITERS, .locks = MANY_LOCKS, .asynchronous = true};
    struct actor *waiting = actor_start_part(wait_in_a_crew, &crew);
    char name[16];
    for (int i = 0; i < MANY_LOCKS; i++) {
        crew_request(i, MANY_LOCKS, name);
        actor_holds(holder, (uint32_t)i, &(struct want){.name = name, .ttl_ms = 60000});
    }
    actor_order(waiting, ORDER_GO, 0);
    for (int i = 0; i < MANY_LOCKS; i++) {
        crew_request(i, MANY_LOCKS, name);
        scene_await_queue(name, MANY_WAITERS / MANY_LOCKS);
    }
    int connections = scene_connections(actor_pid(waiting)),
        threads = count_threads(actor_pid(waiting));
    printf("# %d waiters on %d locks in one process: %d connections, %d threads\n", MANY_WAITERS,
           MANY_LOCKS, connections, threads);
    assert_in_range(connections, 1, CONNECTIONS_ALLOWED);
    assert_int_equal(threads, 2);
    for (int i = 0; i < MANY_LOCKS; i++)
        assert_int_equal(actor_does(holder, ORDER_RELEASE, (uint32_t)i).status, HF_OK);
    assert_int_equal(actor_answer(waiting, ORDER_GO, 0).number, MANY_WAITERS);
    assert_in_range(scene_connections(actor_pid(waiting)), 1, CONNECTIONS_ALLOWED);
}

/* ---- A client that comes ---- */

enum { GREETING_BYTES = 600 };

/* A client that takes a lock and goes: what it sent, its first request included, and whether it
 * loaded the library. */
static struct visit {
    uint64_t bytes, request; /* in all; of the second acquire alone */
    int64_t loads;
} visit(void)
{
    char url[64];
    hf_client *client;
    hf_lease *lease;
    struct hf_request request = request_of(&(struct want){.name = "visit"});
    struct proxy *proxy = proxy_start(server_port(scene.server));
    int64_t before = server_calls(scene.server, "function|load");
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/0", proxy_port(proxy));
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    assert_int_equal(hf_acquire(client, &request, &lease), HF_OK);
    struct visit visit = {.bytes = proxy_bytes(proxy, 0, PROXY_REQUESTS),
                          .loads = server_calls(scene.server, "function|load") - before};
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    uint64_t sent = proxy_bytes(proxy, 0, PROXY_REQUESTS);
    assert_int_equal(hf_acquire(client, &request, &lease), HF_OK);
    visit.request = proxy_bytes(proxy, 0, PROXY_REQUESTS) - sent;
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
    assert_int_equal(hf_close(client, 5000), HF_OK);
    proxy_end(proxy);
    return visit;
}

static void test_greeting(void **state)
{
    (void)state;
    struct visit first = visit(), second = visit();
    assert_int_equal(first.loads, 1);
    assert_int_equal(second.loads, 0);
    assert_true(second.bytes - second.request < GREETING_BYTES);
    server_does(scene.server, "FUNCTION FLUSH SYNC");
    assert_int_equal(visit().loads, 1);
    printf("# to take one lock: %ju bytes sent to a new server, %ju to one that has the library, "
           "%ju of them the request\n",
           (uintmax_t)first.bytes, (uintmax_t)second.bytes, (uintmax_t)second.request);
}

/* ---- Several names at once ---- */

enum { SEVERAL = 5 };

struct several {
    char name[SEVERAL][16];
    struct hf_request request[SEVERAL];
    const struct hf_request *pointer[SEVERAL];
    hf_lease *lease[SEVERAL];
};

static void name_several(struct several *s)
{
    for (int i = 0; i < SEVERAL; i++) {
        s->request[i] = crew_request(i, SEVERAL, s->name[i]);
        s->pointer[i] = &s->request[i];
    }
}

static void release_several(struct several *s)
{
    for (int i = 0; i < SEVERAL; i++)
        must_release(s->lease[i]);
}

/* Free names are one script, and one round trip, however many they are. */
static void test_several(void **state)
{
    (void)state;
    struct several s;
    hf_client *client = scene_client();
    name_several(&s);
    assert_int_equal(hf_acquire_many(client, s.pointer, SEVERAL, 0, s.lease), HF_OK);
    release_several(&s);

    struct client_commands before = count_commands();
    assert_int_equal(hf_acquire_many(client, s.pointer, SEVERAL, 0, s.lease), HF_OK);
    judge_count("redis-several-scripts", (double)commands_since(&before).scripts);
    release_several(&s);
    await_silence();
}

/* The names before the one that is held are taken, it is waited for, and those behind it are one
 * script again. Until then anybody may have those. */
static void test_several_wait(void **state)
{
    (void)state;
    enum { HELD = 2 };
    struct several s;
    hf_client *client = scene_client();
    struct actor *holder = scene_actor();
    name_several(&s);
    actor_holds(holder, 0, &(struct want){.name = s.name[HELD], .ttl_ms = 60000});
    struct client_commands before = count_commands();
    assert_int_equal(hf_acquire_many(client, s.pointer, SEVERAL, 300, s.lease), HF_TIMEOUT);
    for (int i = 0; i < SEVERAL; i++)
        assert_null(s.lease[i]);
    for (int i = 0; i < SEVERAL; i++)
        assert_int_equal(server_count(scene.server, "EXISTS lock:l%d", i), i == HELD);
    /* one to take them, one to leave the queue, and one for each name that was held, or more if
     * the waiter polls on a busy machine */
    assert_in_range(commands_since(&before).scripts, 2 + HELD, 4 + HELD);
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_OK);
}

/* ---- Requests that need no token ---- */

static const struct want any_token = {.name = "l0", .flags = HF_TOKENLESS};

static void test_tokenless(void **state)
{
    (void)state;
    enum { TIMES = 100 };
    hf_client *client = scene_client();
    must_release(must_acquire(client, &any_token));
    struct client_commands before = count_commands();
    int64_t sets = server_calls(scene.server, "set"), times = server_calls(scene.server, "time");
    for (int i = 0; i < TIMES; i++) {
        hf_lease *lease = must_acquire(client, &any_token);
        assert_int_equal(hf_lease_token(lease), 1);
        must_release(lease);
    }
    struct client_commands sent = commands_since(&before); /* a SET counts as one of a script */
    assert_int_equal(sent.all, TIMES);
    assert_int_equal(sent.scripts, TIMES);
    assert_int_equal(server_calls(scene.server, "set") - sets, TIMES);
    assert_int_equal(server_calls(scene.server, "time") - times, 0);
}

/* Each name has another handle in every round. */
static void test_tokenless_many(void **state)
{
    (void)state;
    enum { NAMES = 24, ROUNDS = 10 };
    hf_client *client = scene_client();
    int64_t times = 0;
    for (int round = 0; round <= ROUNDS; round++) {
        hf_lease *lease[NAMES];
        char name[16];
        if (round == 1)
            times = server_calls(scene.server, "time");
        for (int i = 0; i < NAMES; i++) {
            snprintf(name, sizeof name, "l%d", (i + round) % NAMES);
            lease[i] = must_acquire(client, &(struct want){.name = name, .flags = HF_TOKENLESS});
        }
        for (int i = 0; i < NAMES; i++)
            must_release(lease[i]);
    }
    assert_int_equal(server_calls(scene.server, "time") - times, 0);
}

/* How many scripts it takes until the next one has had it. */
static int64_t give_to_next(hf_client *client, struct crew *next)
{
    char name[16];
    hf_lease *lease = must_acquire(client, &any_token), *waiting;
    struct hf_request request = crew_request(0, 1, name);
    assert_int_equal(hf_acquire_start(next->client, &request, give_at_once, next, &waiting), HF_OK);
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    for (; server_count(scene.server, "ZCARD {lock:l0}:q") == 0; nap_us(200))
        assert_true(now_ns() < end);
    struct client_commands before = count_commands();
    must_release(lease);
    for (; sem_trywait(&next->granted) != 0; nap_us(200))
        assert_true(now_ns() < end);
    await_silence();
    return commands_since(&before).scripts;
}

/* A release names two keys of the lock alone, and hands the lock to a waiter in that same call. The
 * other call is the release of that waiter. */
static void test_tokenless_in_line(void **state)
{
    (void)state;
    struct crew next = {.client = scene_client()};
    hf_client *client = scene_client();
    sem_init(&next.granted, 0, 0);
    int64_t first = give_to_next(client, &next), second = give_to_next(client, &next);
    printf("# %lld scripts to hand over for the first time, %lld for the second\n",
           (long long)first, (long long)second);
    assert_int_equal(first, 2);
    assert_int_equal(second, 2);
}

static void keep_it(hf_lease *lease, hf_status status, void *arg)
{
    struct crew *crew = arg;
    (void)lease;
    part_must(status == HF_OK);
    sem_post(&crew->granted);
}

/* Its SET was on a connection that broke, and comes when it has long had a place in the queue: who
 * holds does not wait.
 */
static void test_tokenless_late(void **state)
{
    (void)state;
    char name[16];
    struct crew crew = {.client = scene_client()};
    struct hf_request request = crew_request(0, 1, name);
    request.flags = HF_TOKENLESS;
    request.ttl_ms = 1000;
    sem_init(&crew.granted, 0, 0);
    hf_lease *held = must_acquire(scene_client(), &any_token), *waiting;
    assert_int_equal(hf_acquire_start(crew.client, &request, keep_it, &crew, &waiting), HF_OK);
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    for (; server_count(scene.server, "ZCARD {lock:l0}:q") == 0; nap_us(200))
        assert_true(now_ns() < end);
    redisReply *first = server_cli(scene.server, "ZRANGE {lock:l0}:q 0 0");
    assert_int_equal(first->elements, 1);
    server_does(scene.server, "SET lock:l0 %s%s PX 60000", first->element[0]->str,
                " 1 60000 0 b 1 host ");
    freeReplyObject(first);
    for (; sem_trywait(&crew.granted) != 0; nap_us(200))
        assert_true(now_ns() < end);
    assert_int_equal(hf_lease_token(waiting), 1);
    assert_int_equal(server_count(scene.server, "ZCARD {lock:l0}:q"), 0);
    must_release(waiting);
    hf_lease_free(held);
}

/* ---- A cycle that nobody disturbs ---- */

enum { CYCLES = 2000 };

static void test_cycle_commands(void **state)
{
    (void)state;
    hf_client *client = scene_client();
    assert_true(run_cycles(client, 5));
    struct client_commands before = count_commands();
    assert_true(run_cycles(client, CYCLES));
    struct client_commands sent = commands_since(&before);
    assert_true(sent.scripts >= 2 * CYCLES);
    judge_count("redis-scripts", (double)sent.scripts / CYCLES);
    judge_count("redis-commands", (double)sent.all / CYCLES);
}

static void test_cycle_allocations(void **state)
{
    (void)state;
    judge_count("redis-allocations", count_allocations(scene.url, PLANT_NOTHING));
}

static void test_cycle_calls(void **state)
{
    (void)state;
    struct calls calls = count_calls(scene.url, PLANT_NOTHING);
    printf("# spins, counted apart: %.3f\n", calls.spins);
    assert_true(calls.sends > 1.9 &&
                calls.receives > 1.9); /* else they go by another name, and are not counted */
    judge_count("redis-sends", calls.sends);
    judge_count("redis-receives", calls.receives);
    judge_count("redis-polls", calls.polls);
    judge_count("redis-other-calls", calls.others);
    judge_count("redis-strays", calls.strays);
}

static void test_held_bytes(void **state)
{
    (void)state;
    judge_count("redis-held-bytes", count_held_bytes(scene.url, 0));
}

/* How often a caller that spins looks depends on the machine, so none does here. */
static void test_cycle_instructions(void **state)
{
    (void)state;
    char url[160];
    counts_need_compiler();
    snprintf(url, sizeof url, "%s?spin=0", scene.url);
    judge_count("redis-instructions", count_instructions(url, 0));
}

static void test_planted(void **state)
{
    (void)state;
    assert_false(
        count_is_good("redis-allocations", count_allocations(scene.url, PLANT_ALLOCATION)));
    assert_false(count_is_good("redis-other-calls", count_calls(scene.url, PLANT_CALL).others));
    assert_false(count_is_good("redis-held-bytes", count_held_bytes(scene.url, 8)));
}

int main(int argc, char **argv)
{
    int part = cycles_part(argc, argv);
    if (part >= 0)
        return part;
    counts_choose_tests();
    const struct CMUnitTest tests[] = {
        SENTENCE("a contended acquisition is three commands, with 10, 100 and 1,000 waiters alike",
                 test_contended),
        SENTENCE("MONITOR sees as many commands of clients as were counted", test_monitor_agrees),
        SENTENCE("100 waiters send less than 30 commands a second and use next to no CPU",
                 test_idle_waiters),
        SENTENCE("1,000 waiters on 100 locks in one process use two connections", test_connections),
        SENTENCE("whoever comes second sends less than 1 KB, and brings no script that is there",
                 test_greeting),
        SENTENCE("several free names are one script", test_several),
        SENTENCE("behind a name that is held nothing is taken, and nothing is left behind",
                 test_several_wait),
        SENTENCE("without a token it is a command and a short script", test_tokenless),
        SENTENCE("also for many names that share handles", test_tokenless_many),
        SENTENCE("and who waits behind one without a token is handed it all the same",
                 test_tokenless_in_line),
        SENTENCE("and one that comes to hold it by a late SET has left the queue",
                 test_tokenless_late),
        SENTENCE("an uncontended acquire is one script, and so is its release",
                 test_cycle_commands),
        SENTENCE("an uncontended cycle is two sends, two receives and no poll", test_cycle_calls),
        SENTENCE("an uncontended cycle allocates nothing", test_cycle_allocations),
    };
    /* On any server the client does the same. */
    const struct CMUnitTest once[] = {
        SENTENCE("an uncontended cycle takes no more instructions than before",
                 test_cycle_instructions),
        SENTENCE("an uncontended lock that is held takes no more memory than before",
                 test_held_bytes),
        SENTENCE("a planted allocation, block of memory and system call are noticed", test_planted),
    };
    return SCENE_JUDGE(tests) +
           scene_judge_kind(SERVER_REDIS, "redis", once, sizeof once / sizeof *once);
}
