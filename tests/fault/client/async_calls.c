/* async_calls.c - the asynchronous calls: callbacks that call back, cancelling against completion,
 * thousands of waits in one process, and closing with all of that under way. Usage: async
 * [CANCELS]. */
#include "lib/actors.h"

#include "client/client.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PENDING = 2000,
    CHAIN = 1000,
    CLOSE_WAITS = 100,
    CLOSE_CALLERS = 8,
    CLOSE_ROUNDS = 100,
    CLOSE_MS = 2000
};

static int cancels = 20000;

static hf_lease *start(hf_client *client, const char *name, hf_done_fn *done, void *arg)
{
    struct hf_request request = request_of(&(struct want){.name = name, .wait_ms = HF_FOREVER});
    hf_lease *lease;
    if (hf_acquire_start(client, &request, done, arg, &lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    return lease;
}

/* A callback that comes in time, or a failure. */
static void await_post(sem_t *sem)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ACTOR_PATIENCE_MS / 1000;
    if (sem_timedwait(sem, &until) != 0)
        fail_msg("a callback did not come");
}

/* ---- Calls from inside callbacks ---- */

struct chain {
    hf_client *client;
    int links, wrong;
    uint64_t token;
    sem_t over;
};

/* Each link gives its lease back and asks for the next one, all on the background thread. */
static void do_link(hf_lease *lease, hf_status outcome, void *arg)
{
    struct chain *chain = arg;
    chain->wrong +=
        outcome != HF_OK || hf_lease_token(lease) <= chain->token || !hf_lease_ok(lease);
    chain->token = hf_lease_token(lease);
    chain->wrong += chain->links % 2 && hf_release(lease) != HF_OK;
    hf_lease_free(lease);
    if (++chain->links == CHAIN) {
        sem_post(&chain->over);
        return;
    }
    struct hf_request request = request_of(&(struct want){.name = "chain", .wait_ms = HF_FOREVER});
    hf_lease *next;
    chain->wrong += hf_acquire_start(chain->client, &request, do_link, chain, &next) != HF_OK;
}

static void test_chain(void **state)
{
    (void)state;
    struct chain chain = {.client = stage_client()};
    sem_init(&chain.over, 0, 0);
    start(chain.client, "chain", do_link, &chain);
    await_post(&chain.over);
    assert_int_equal(chain.wrong, 0);
    assert_int_equal(see(chain.client, "chain").holders, 0);
}

struct others {
    hf_client *client;
    hf_lease *cancelled, *freed;
    unsigned cancel_outcomes, free_outcomes, wrong;
    sem_t over;
};

static void note_cancelled(hf_lease *lease, hf_status outcome, void *arg)
{
    struct others *others = arg;
    bool first = lease == others->cancelled;
    others->wrong += outcome != HF_CANCELLED || (!first && lease != others->freed);
    ++*(first ? &others->cancel_outcomes : &others->free_outcomes);
    if (first)
        hf_lease_free(lease);
    sem_post(&others->over);
}

static void end_the_others(hf_lease *lease, hf_status outcome, void *arg)
{
    struct others *others = arg;
    hf_lease *none;
    struct hf_request patient = request_of(&(struct want){.name = "x", .wait_ms = 10});
    others->wrong += outcome != HF_OK;
    others->wrong += hf_cancel(others->cancelled) != HF_OK;
    hf_lease_free(others->freed);
    others->wrong += hf_cancel(lease) != HF_NOT_HELD;
    others->wrong += hf_acquire(others->client, &patient, &none) != HF_INVALID ||
                     none; /* a callback must not wait */
    others->wrong += hf_close(others->client, 10) != HF_INVALID;
    others->wrong += hf_extend(lease, 0) != HF_OK;
    hf_lease_free(lease);
    sem_post(&others->over);
}

static void test_callback_ends_others(void **state)
{
    (void)state;
    struct others others = {.client = stage_client()};
    sem_init(&others.over, 0, 0);
    hf_client *holder = stage_other_client();
    hf_lease *a = must_acquire(holder, &(struct want){.name = "a"}),
             *b = must_acquire(holder, &(struct want){.name = "b"});
    others.cancelled = start(others.client, "a", note_cancelled, &others);
    others.freed = start(others.client, "a", note_cancelled, &others);
    start(others.client, "b", end_the_others, &others);
    await_sight(others.client, "a", 1, 2);
    hf_lease_free(b);
    for (int i = 0; i < 3; i++)
        await_post(&others.over);
    assert_int_equal(others.wrong, 0);
    assert_int_equal(others.cancel_outcomes, 1);
    assert_int_equal(others.free_outcomes, 1);
    assert_int_equal(see(others.client, "a").waiters, 0);
    assert_int_equal(see(others.client, "b").holders, 0);
    assert_true(hf_lease_ok(a));
    assert_int_equal(hf_close(holder, CLOSE_MS), HF_OK);
}

/* ---- Cancelling against completion ---- */

struct race {
    hf_client *waiter;
    hf_lease *held;
    _Atomic int released, outcomes;
    int64_t delay_ns; /* of the cancel; follows the outcomes so that both go on happening */
    hf_status outcome;
    sem_t begin, over;
};

static void *release_in_each_round(void *arg)
{
    struct race *race = arg;
    for (int round = 1; round <= cancels; round++) {
        sem_wait(&race->begin);
        hf_lease_free(race->held);
        atomic_store(&race->released, round);
    }
    return NULL;
}

static void note_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease;
    struct race *race = arg;
    race->outcome = outcome;
    atomic_fetch_add(&race->outcomes, 1);
    sem_post(&race->over);
}

static bool cancel_once(struct race *race, hf_client *holder, int round)
{
    static const struct want all = {.name = "p", .kind = HF_SEMAPHORE, .capacity = 2, .units = 2};
    struct hf_request one = request_of(&(struct want){
        .name = "p", .kind = HF_SEMAPHORE, .capacity = 2, .units = 1, .wait_ms = HF_FOREVER});
    hf_lease *lease;
    race->held = must_acquire(holder, &all);
    assert_int_equal(hf_acquire_start(race->waiter, &one, note_outcome, race, &lease), HF_OK);
    int64_t cancel_at = now_ns() + race->delay_ns + round % 32 * 500;
    sem_post(&race->begin);
    while (now_ns() < cancel_at)
        ;
    hf_status said = hf_cancel(lease);
    await_post(&race->over);
    assert_true(said == HF_OK || said == HF_NOT_HELD);
    assert_int_equal(atomic_load(&race->outcomes), round);
    bool granted = race->outcome == HF_OK;
    race->delay_ns += granted ? -200 : 200;
    assert_true(granted || race->outcome == HF_CANCELLED);
    assert_true(said == HF_OK || granted); /* what does not wait any more was granted */
    assert_int_equal(hf_lease_ok(lease), granted);
    hf_lease_free(lease);
    while (atomic_load(&race->released) < round)
        sched_yield();
    hf_lease_free(must_acquire(holder, &all)); /* both permits are there */
    return granted;
}

static void test_cancel_against_completion(void **state)
{
    (void)state;
    struct race race = {.waiter = stage_client()};
    hf_client *holder = stage_other_client();
    pthread_t releaser;
    int granted = 0;
    sem_init(&race.begin, 0, 0);
    sem_init(&race.over, 0, 0);
    assert_int_equal(pthread_create(&releaser, NULL, release_in_each_round, &race), 0);
    for (int round = 1; round <= cancels; round++)
        granted += cancel_once(&race, holder, round);
    pthread_join(releaser, NULL);
    printf("# %d cancels: %d were granted first\n", cancels, granted);
    assert_true(granted > cancels / 100);
    assert_true(cancels - granted > cancels / 100);
    assert_int_equal(atomic_load(&race.outcomes), cancels);
    assert_int_equal(hf_close(holder, CLOSE_MS), HF_OK);
}

/* ---- Many ---- */

struct crowd {
    int order[PENDING], granted, wrong;
    uint64_t token;
    sem_t over;
};

struct place {
    struct crowd *crowd;
    int number;
};

static void note_turn(hf_lease *lease, hf_status outcome, void *arg)
{
    struct place *place = arg;
    struct crowd *crowd = place->crowd;
    crowd->wrong += outcome != HF_OK || hf_lease_token(lease) <= crowd->token;
    crowd->token = hf_lease_token(lease);
    crowd->order[crowd->granted++] = place->number;
    hf_lease_free(lease);
    if (crowd->granted == PENDING)
        sem_post(&crowd->over);
}

static void test_two_thousand_waits(void **state)
{
    (void)state;
    static struct crowd crowd;
    static struct place place[PENDING];
    sem_init(&crowd.over, 0, 0);
    hf_client *client = stage_client();
    hf_lease *held = must_acquire(client, &(struct want){.name = "l"});
    for (int i = 0; i < PENDING; i++) {
        place[i] = (struct place){&crowd, i};
        start(client, "l", note_turn, &place[i]);
    }
    assert_int_equal(see(client, "l").waiters, PENDING);
    assert_int_equal(hf_release(held), HF_OK);
    hf_lease_free(held);
    await_post(&crowd.over);
    assert_int_equal(crowd.wrong, 0);
    for (int i = 0; i < PENDING; i++)
        assert_int_equal(crowd.order[i], i);
    assert_int_equal(see(client, "l").holders, 0);
}

/* ---- Closing ---- */

static void note_closed(hf_lease *lease, hf_status outcome, void *arg)
{
    _Atomic int *closed = arg;
    hf_lease_free(lease); /* allowed, and nothing any more */
    atomic_fetch_add(closed, outcome == HF_CLOSED ? 1 : 1000000);
}

static void test_close_with_waits(void **state)
{
    (void)state;
    _Atomic int closed = 0;
    hf_lease *held = must_acquire(stage_client(), &(struct want){.name = "l"});
    hf_client *client = stage_other_client();
    for (int i = 0; i < CLOSE_WAITS; i++)
        start(client, "l", note_closed, &closed);
    int64_t from = now_ns();
    assert_int_equal(hf_close(client, CLOSE_MS), HF_OK);
    assert_true(now_ns() - from < CLOSE_MS * 1000000LL);
    assert_int_equal(atomic_load(&closed), CLOSE_WAITS); /* all before it returned */
    assert_int_equal(see(stage_client(), "l").waiters, 0);
    assert_true(hf_lease_ok(held));
    hf_lease_free(held);
}

static void *wait_until_closed(void *arg)
{
    struct hf_request request = request_of(&(struct want){.name = "l", .wait_ms = HF_FOREVER});
    hf_lease *lease;
    hf_status status = hf_acquire(arg, &request, &lease);
    return (void *)(uintptr_t)(status == HF_CLOSED && !lease && strstr(hf_error_text(), ": "));
}

/* Again and again: the callers leave while the client goes away. */
/* G32 */
static void test_close_with_callers(void **state)
{
    (void)state;
    hf_lease *held = must_acquire(stage_client(), &(struct want){.name = "l"});
    for (int round = 0; round < CLOSE_ROUNDS; round++) {
        hf_client *client = stage_other_client();
        pthread_t caller[CLOSE_CALLERS];
        for (int i = 0; i < CLOSE_CALLERS; i++)
            assert_int_equal(pthread_create(&caller[i], NULL, wait_until_closed, client), 0);
        await_sight(stage_client(), "l", 1, CLOSE_CALLERS);
        int64_t from = now_ns();
        assert_int_equal(hf_close(client, CLOSE_MS), HF_OK);
        assert_true(now_ns() - from < CLOSE_MS * 1000000LL);
        for (int i = 0; i < CLOSE_CALLERS; i++) {
            void *content;
            pthread_join(caller[i], &content);
            assert_non_null(content);
        }
        assert_int_equal(see(stage_client(), "l").waiters, 0);
    }
    hf_lease_free(held);
}

struct opening {
    hf_client *client;
    pthread_barrier_t doors;
};

static void *come_while_it_closes(void *arg)
{
    struct opening *opening = arg;
    pthread_barrier_wait(&opening->doors);
    return wait_until_closed(opening->client);
}

static void *close_it(void *arg)
{
    struct opening *opening = arg;
    pthread_barrier_wait(&opening->doors);
    return (void *)(uintptr_t)(hf_close(opening->client, ACTOR_PATIENCE_MS) == HF_OK);
}

/* Callers come in at the very moment. One more that stays inside keeps the client from going away
 * under them. */
static void test_close_against_callers(void **state)
{
    (void)state;
    hf_lease *held = must_acquire(stage_client(), &(struct want){.name = "l"});
    for (int round = 0; round < CLOSE_ROUNDS; round++) {
        struct opening opening = {.client = stage_other_client()};
        pthread_t thread[CLOSE_CALLERS + 1];
        pthread_barrier_init(&opening.doors, NULL, CLOSE_CALLERS + 1);
        assert_int_equal(client_enter(opening.client), HF_OK);
        for (int i = 0; i <= CLOSE_CALLERS; i++)
            pthread_create(&thread[i], NULL, i < CLOSE_CALLERS ? come_while_it_closes : close_it,
                           &opening);
        for (int i = 0; i <= CLOSE_CALLERS; i++) {
            void *content;
            if (i == CLOSE_CALLERS)
                client_exit(opening.client);
            pthread_join(thread[i], &content);
            assert_non_null(content);
        }
        pthread_barrier_destroy(&opening.doors);
        assert_int_equal(see(stage_client(), "l").waiters, 0);
    }
    hf_lease_free(held);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cancels = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        STAGED("a callback may release, free and ask again, a thousand times in a chain",
               test_chain),
        STAGED("a callback may cancel and free others' waits, and must neither wait nor close",
               test_callback_ends_others),
        STAGED("cancelling against completion has one outcome each and loses no permit",
               test_cancel_against_completion),
        STAGED("2,000 waits in one process are granted in their order", test_two_thousand_waits),
        STAGED("closing tells each pending wait once before it returns", test_close_with_waits),
        STAGED("closing sends blocked callers home and takes no longer than it may",
               test_close_with_callers),
        STAGED("a caller that comes in while the client closes is sent home, too",
               test_close_against_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
