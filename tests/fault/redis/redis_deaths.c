/* redis_deaths.c - who dies by SIGKILL on a real server costs the others a bounded time: a dead
 * holder its ttl, a dead waiter its turn; the living keep their order, and nothing stays behind.
 * The bounds are those of the timing sheet. */
#include "lib/quorum_servers_setup.h"
#include "redis_fixture.h"

#include "core/timing.h"
#include "engines/engine.h"
#include "engines/redis/scripts.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TTL_MS = 1500,
    SLACK_MS = 20, /* for a round trip and to be let run */
};

static const struct want patient = {.name = "l", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER};
static const struct want kept = {.name = "l", .ttl_ms = TTL_MS, .flags = HF_AUTO_RENEW};

static struct timing timing_sheet(void)
{
    struct timing timing;
    timing_fill(&timing, TTL_MS, &engine_find("redis", 5)->limits, &(struct timing_overrides){0});
    return timing;
}

/* How long a handoff to a dead waiter lasts: for its grace. Then the next one asks. */
static double dead_turn_ms(void)
{
    struct timing t = timing_sheet();
    return (double)(t.handoff_grace + t.margin + t.stagger) / 1e6 + 2 * SLACK_MS;
}

static double ms_since(int64_t ns)
{
    return (double)(now_ns() - ns) / 1e6;
}

static void kill_and_bury(struct actor *a)
{
    actor_kill(a);
    actor_await_end(a);
}

/* Messages to the dead may be left: they end by themselves. */
static void check_leftovers(int64_t dead, int64_t locks)
{
    struct leftovers left = scene_leftovers();
    assert_true(left.inboxes <= dead);
    assert_true(left.counters <= locks);
    assert_true(left.buried <= dead);
}

/* ---- The holder ---- */

enum { HOLDERS = 20, APART_US = 30000, MEDIAN_MS = 20 };

static void name_lock(char name[16], int i)
{
    snprintf(name, 16, "l%d", i);
}

/* A holder of two processes, as a program is that has started another one. */
static void hold_in_company(struct actor *me, void *arg)
{
    struct want want = kept;
    want.name = arg;
    struct hf_request request = request_of(&want);
    hf_lease *lease;
    part_must(setpgid(0, 0) == 0);
    part_must(hf_acquire(scene_part_client(), &request, &lease) == HF_OK);
    pid_t child = fork();
    part_must(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    part_says(me, &(struct answer){.what = ORDER_GO, .token = hf_lease_token(lease)});
    part_awaits_go(me);
}

static void await_renewal(const char *name)
{
    int64_t first = server_count(scene.server, "PEXPIRETIME lock:%s", name),
            end = now_ns() + INT64_C(5000000000);
    while (server_count(scene.server, "PEXPIRETIME lock:%s", name) == first) {
        assert_true(now_ns() < end);
        nap_us(2000);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void judge_lateness(double *late_ms)
{
    qsort(late_ms, HOLDERS, sizeof *late_ms, compare_doubles);
    double median = (late_ms[HOLDERS / 2 - 1] + late_ms[HOLDERS / 2]) / 2;
    printf("# %d killed holders: the next one held %.1f ms after the end (median; %.1f to %.1f)\n",
           HOLDERS, median, late_ms[0], late_ms[HOLDERS - 1]);
    assert_true(late_ms[0] >= 0); /* and never before */
    assert_true(median <= MEDIAN_MS);
    assert_true(late_ms[HOLDERS - 1] <= dead_turn_ms());
}

static void test_holders(void **state)
{
    (void)state;
    struct actor *holder[HOLDERS], *waiter[2] = {scene_actor(), scene_actor()};
    char name[16];
    int64_t end_ns[HOLDERS];
    uint64_t token[HOLDERS];
    double late_ms[HOLDERS];
    for (int i = 0; i < HOLDERS; i++) {
        name_lock(name, i);
        holder[i] = actor_start_part(hold_in_company, name);
        token[i] = actor_answer(holder[i], ORDER_GO, 0).token;
        struct want want = patient;
        want.name = name;
        actor_acquire(waiter[i % 2], (uint32_t)i, i % 4 < 2 ? ORDER_START : ORDER_ACQUIRE, &want);
        scene_await_queue(name, 1);
    }
    await_renewal(name);
    for (int i = 0; i < HOLDERS; i++, nap_us(APART_US)) {
        assert_int_equal(kill(-actor_pid(holder[i]), SIGKILL), 0);
        actor_await_end(holder[i]);
    }
    for (int i = 0; i < HOLDERS; i++) {
        name_lock(name, i);
        end_ns[i] = scene_end_of_hold(name);
    }
    for (int i = 0; i < HOLDERS; i++) {
        struct answer granted =
            actor_answer(waiter[i % 2], i % 4 < 2 ? ORDER_START : ORDER_ACQUIRE, (uint32_t)i);
        assert_int_equal(granted.status, HF_OK);
        assert_true(granted.token > token[i]);
        late_ms[i] = (double)(granted.at_ns - end_ns[i]) / 1e6;
        assert_int_equal(actor_does(waiter[i % 2], ORDER_RELEASE, (uint32_t)i).status, HF_OK);
    }
    judge_lateness(late_ms);
    check_leftovers(0, HOLDERS);
}

/* ---- The head of the queue ---- */

enum { LIVING = 3 };

/* A holder, the one that is to die, and behind it three that live, in two processes. */
struct line_up {
    struct actor *holder, *victim, *living[2];
    uint64_t token;
};

static enum order_kind manner(uint32_t number)
{
    return number % 2 ? ORDER_START : ORDER_ACQUIRE;
}

static struct line_up line_up(void)
{
    struct line_up l = {
        .holder = scene_actor(), .victim = scene_actor(), .living = {scene_actor(), scene_actor()}};
    l.token = actor_holds(l.holder, 0, &kept).token;
    actor_acquire(l.victim, 0, ORDER_ACQUIRE, &patient);
    scene_await_queue("l", 1);
    for (uint32_t i = 0; i < LIVING; i++) {
        actor_acquire(l.living[i % 2], i, manner(i), &patient);
        scene_await_queue("l", i + 2);
    }
    return l;
}

/* All of them get it in their order; each gives it back at once. Returns when the first one had it.
 */
static int64_t serve_living(struct line_up *l)
{
    int64_t first_ns = 0, free_ns = 0;
    for (uint32_t i = 0; i < LIVING; i++) {
        struct answer granted = actor_answer(l->living[i % 2], manner(i), i);
        assert_int_equal(granted.status, HF_OK);
        assert_true(granted.token > l->token);
        l->token = granted.token;
        first_ns = first_ns ? first_ns : granted.at_ns;
        if (free_ns) /* there are no dead between the living */
            assert_true((double)(granted.at_ns - free_ns) / 1e6 <= 5 * SLACK_MS);
        for (uint32_t k = 0; k < 2; k++)
            assert_true(actor_is_silent(l->living[k]));
        free_ns = now_ns();
        assert_int_equal(actor_does(l->living[i % 2], ORDER_RELEASE, i).status, HF_OK);
    }
    check_leftovers(1, 1);
    return first_ns;
}

static void test_head(void **state)
{
    (void)state;
    struct line_up l = line_up();
    kill_and_bury(l.victim);
    int64_t released_ns = now_ns();
    assert_int_equal(actor_does(l.holder, ORDER_RELEASE, 0).status, HF_OK);
    double after_ms = (double)(serve_living(&l) - released_ns) / 1e6;
    printf("# killed head of the queue: the next one held %.1f ms after the release, of at most "
           "%.0f\n",
           after_ms, dead_turn_ms());
    assert_true(after_ms <= dead_turn_ms() + SLACK_MS);
}

static void test_head_long_dead(void **state)
{
    (void)state;
    struct line_up l = line_up();
    hf_client *client = scene_client();
    int64_t killed_ns = now_ns();
    kill_and_bury(l.victim);
    await_sight(client, "l", 1, LIVING);
    double known_ms = ms_since(killed_ns);
    int64_t released_ns = now_ns();
    assert_int_equal(actor_does(l.holder, ORDER_RELEASE, 0).status, HF_OK);
    double after_ms = (double)(serve_living(&l) - released_ns) / 1e6;
    printf("# head of the queue that counted as dead after %.1f ms: the next one held %.1f ms "
           "after the release\n",
           known_ms, after_ms);
    assert_true(known_ms <= PRESENCE_MS + 5 * SLACK_MS);
    assert_true(after_ms <= SLACK_MS);
}

static void test_during_hand_over(void **state)
{
    (void)state;
    struct line_up l = line_up();
    hf_client *client = scene_client();
    actor_stop(l.victim);
    int64_t released_ns = now_ns();
    assert_int_equal(actor_does(l.holder, ORDER_RELEASE, 0).status, HF_OK);
    struct sight seen = see(client, "l");
    assert_int_equal(seen.pid, actor_pid(l.victim)); /* it holds, and does not know */
    assert_true(actor_is_silent(l.victim));
    l.token = seen.token;
    kill_and_bury(l.victim);
    double after_ms = (double)(serve_living(&l) - released_ns) / 1e6;
    printf("# killed at its hand-over: the next one held %.1f ms after it, of at most %.0f\n",
           after_ms, dead_turn_ms());
    assert_true(after_ms <= dead_turn_ms() + SLACK_MS);
}

/* ---- Deaths around the moment of the hand-over ---- */

enum { RACES = 24, FIRST_US = 400, STEP_US = 80 };

/* One process holds all locks, each victim is first in line for its own, one process stands behind
 * all of them. */
struct races {
    struct actor *holder, *behind, *victim[RACES];
    int64_t killed_ns[RACES];
    int heard; /* victims that had been told when they were killed */
};

static void prepare_race(struct races *r, int i)
{
    char name[16];
    struct want want = patient;
    name_lock(name, i);
    want.name = name;
    actor_holds(r->holder, (uint32_t)i, &(struct want){.name = name, .ttl_ms = 60000});
    r->victim[i] = scene_actor();
    actor_acquire(r->victim[i], 0, ORDER_ACQUIRE, &want);
    scene_await_queue(name, 1);
    actor_acquire(r->behind, (uint32_t)i, ORDER_START, &want);
    scene_await_queue(name, 2);
}

/* The time of death follows the outcomes, so that it goes on being before and after the victim
 * hears of it. */
static void kill_around_hand_over(struct races *r)
{
    int64_t after_us = FIRST_US;
    for (int i = 0; i < RACES; i++) {
        actor_order(r->holder, ORDER_RELEASE, (uint32_t)i);
        nap_us(after_us);
        bool heard = !actor_is_silent(r->victim[i]);
        kill_and_bury(r->victim[i]);
        r->killed_ns[i] = now_ns();
        r->heard += heard;
        after_us += heard ? -STEP_US : STEP_US;
        after_us = after_us > 0 ? after_us : 0;
        assert_int_equal(actor_answer(r->holder, ORDER_RELEASE, (uint32_t)i).status, HF_OK);
    }
}

static void test_races(void **state)
{
    (void)state;
    struct races r = {.holder = scene_actor(), .behind = scene_actor()};
    double longest_ms = 0;
    for (int i = 0; i < RACES; i++)
        prepare_race(&r, i);
    kill_around_hand_over(&r);
    for (int i = 0; i < RACES; i++) {
        struct answer granted = actor_answer(r.behind, ORDER_START, (uint32_t)i);
        double after_ms = (double)(granted.at_ns - r.killed_ns[i]) / 1e6;
        assert_int_equal(granted.status, HF_OK);
        longest_ms = after_ms > longest_ms ? after_ms : longest_ms;
        assert_int_equal(actor_does(r.behind, ORDER_RELEASE, (uint32_t)i).status, HF_OK);
    }
    printf("# %d killed around their hand-over, %d had heard of it: those behind held at most %.1f "
           "ms later\n",
           RACES, r.heard, longest_ms);
    assert_true(r.heard > 0 && r.heard < RACES);
    /* Who had heard may have extended it to its whole ttl. */
    assert_true(longest_ms <= TTL_MS + (double)timing_sheet().margin / 1e6 + SLACK_MS);
    check_leftovers(RACES, RACES);
}

/* ---- All waiters of a process ---- */

enum { PAIRS = 8 };

/* The dead stand between the living: each of them may cost a handoff, but only until their client's
 * sign of life ends.
 */
static double dead_turns_ms(void)
{
    struct timing t = timing_sheet();
    double turns = PRESENCE_MS * 1e6 / (double)t.handoff_grace + 1;
    return PRESENCE_MS + (double)t.handoff_grace / 1e6 +
           turns * ((double)(t.margin + t.stagger) / 1e6 + SLACK_MS);
}

static void test_whole_process(void **state)
{
    (void)state;
    struct actor *holder = scene_actor(), *victim = scene_actor(),
                 *living[2] = {scene_actor(), scene_actor()};
    uint64_t token = actor_holds(holder, 0, &kept).token;
    for (uint32_t i = 0; i < PAIRS; i++) {
        actor_acquire(victim, i, manner(i), &patient);
        scene_await_queue("l", 2 * i + 1);
        actor_acquire(living[i % 2], i, manner(i), &patient);
        scene_await_queue("l", 2 * i + 2);
    }
    kill_and_bury(victim);
    int64_t killed_ns = now_ns();
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_OK);
    for (uint32_t i = 0; i < PAIRS; i++) {
        struct answer granted = actor_answer(living[i % 2], manner(i), i);
        assert_int_equal(granted.status, HF_OK);
        assert_true(granted.token > token);
        token = granted.token;
        assert_true(actor_is_silent(living[0]) && actor_is_silent(living[1]));
        assert_int_equal(actor_does(living[i % 2], ORDER_RELEASE, i).status, HF_OK);
    }
    double after_ms = ms_since(killed_ns);
    printf("# a process with %d waiters killed: all %d living ones were served %.1f ms later, of "
           "at most %.0f\n",
           PAIRS, PAIRS, after_ms, dead_turns_ms());
    assert_true(after_ms <= dead_turns_ms());
    check_leftovers(PAIRS, 1);
}

/* The clock steps back by an hour: by what stands there, the dead live on for as long. */
static struct quorum start_with_clock(void)
{
    scene.server =
        server_start(&(struct server_options){.kind = scene.kind, .preload = HF_WRONG_CLOCK});
    snprintf(scene.url, sizeof scene.url, "redis://127.0.0.1:%u", server_port(scene.server));
    return (struct quorum){.count = 1, .server = {scene.server}};
}

static void test_stepped_back(void **state)
{
    (void)state;
    struct quorum clock = start_with_clock();
    struct actor *holder = scene_actor(), *victim = scene_actor(), *living = scene_actor();
    uint64_t token = actor_holds(holder, 0, &kept).token;
    for (uint32_t i = 0; i < PAIRS; i++) {
        actor_acquire(victim, i, manner(i), &patient);
        scene_await_queue("l", i + 1);
    }
    actor_acquire(living, 0, manner(0), &patient);
    scene_await_queue("l", PAIRS + 1);
    kill_and_bury(victim);
    quorum_step_clock(&clock, 0, -3600);
    int64_t released_ns = now_ns();
    assert_int_equal(actor_does(holder, ORDER_RELEASE, 0).status, HF_OK);
    struct answer granted = actor_answer(living, manner(0), 0);
    double after_ms = ms_since(released_ns);
    printf("# %d dead in line when the clock stepped back by an hour: the next one held after %.1f "
           "ms, of at most %.0f\n",
           PAIRS, after_ms, dead_turns_ms());
    assert_int_equal(granted.status, HF_OK);
    assert_true(granted.token > token);
    assert_true(after_ms <= dead_turns_ms());
}

/* A client raises a token that is below its own last one: so each turn is another client's. */
static uint64_t token_of_new_client(void)
{
    hf_client *client;
    hf_lease *lease;
    struct hf_request request = request_of(&(struct want){.name = "t", .ttl_ms = TTL_MS});
    assert_int_equal(hf_open(scene.url, NULL, &client), HF_OK);
    assert_int_equal(hf_acquire(client, &request, &lease), HF_OK);
    uint64_t token = hf_lease_token(lease);
    must_release(lease);
    assert_int_equal(hf_close(client, 5000), HF_OK);
    return token;
}

/* The counter expires by the clock that jumps. */
static void test_clock_ahead_twice(void **state)
{
    (void)state;
    struct quorum clock = start_with_clock();
    static const int64_t steps_s[] = {2 * 3600, -2 * 3600, 3600 + 60, -3600, 7200, -7200};
    uint64_t last = token_of_new_client();
    for (size_t i = 0; i < sizeof steps_s / sizeof *steps_s; i++) {
        quorum_step_clock(&clock, 0, steps_s[i]);
        uint64_t token = token_of_new_client();
        if (token <= last)
            fail_msg("step %zu: token %ju after %ju", i, (uintmax_t)token, (uintmax_t)last);
        last = token;
    }
}

enum { DEAD_HOLDERS = 1500, DEAD_TTL_MS = 1500 };

/* More dead holders than any slice that a script works off: they end together. */
static void test_dead_holders(void **state)
{
    (void)state;
    struct quorum clock = start_with_clock();
    static const struct want all = {.name = "s",
                                    .kind = HF_SEMAPHORE,
                                    .units = DEAD_HOLDERS,
                                    .capacity = DEAD_HOLDERS,
                                    .ttl_ms = 60000,
                                    .wait_ms = HF_FOREVER};
    struct actor *living = scene_actor();
    actor_holds(living, 0, &kept); /* the library is there */
    for (int i = 0; i < DEAD_HOLDERS; i++)
        server_does(scene.server,
                    "FCALL %s_acquire 6 lock:s {lock:s}:t {lock:s}:q {lock:s}:w {lock:s}:h "
                    "{lock:s}:p dead-%017d %d %s %s %s",
                    redis_library_name, i, DEAD_TTL_MS + 2000, "0 b 1 host x", "s - 0 0 1 1500",
                    "0 0 0 0 - 1 1 1 1 1 1 ---");
    quorum_step_clock(&clock, 0, -3600);
    int64_t from = now_ns();
    actor_acquire(living, 1, ORDER_ACQUIRE, &all);
    assert_int_equal(actor_answer(living, ORDER_ACQUIRE, 1).status, HF_OK);
    double after_ms = ms_since(from);
    printf("# %d dead holders of a semaphore when the clock stepped back: all free after %.0f ms\n",
           DEAD_HOLDERS, after_ms);
    assert_true(after_ms <= DEAD_TTL_MS + 2000 + 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("after the death of all processes of a holder the next one holds within 20 ms of "
                 "its end",
                 test_holders),
        SENTENCE("a dead head of the queue costs those behind it no more than its turn", test_head),
        SENTENCE("a head of the queue that is long dead costs nothing", test_head_long_dead),
        SENTENCE("a waiter that dies as it is handed the lock costs no more than its turn",
                 test_during_hand_over),
        SENTENCE("deaths around the moment of the hand-over leave the lock to the next one",
                 test_races),
        SENTENCE("all waiters of a killed process together cost little more than one of them",
                 test_whole_process),
        SENTENCE("the dead in line cost no more when the server's clock steps back",
                 test_stepped_back),
        SENTENCE("tokens rise although the server's clock is hours ahead, again and again",
                 test_clock_ahead_twice),
        SENTENCE("all dead holders of a semaphore end together after a step back",
                 test_dead_holders),
    };
    return SCENE_JUDGE(tests);
}
