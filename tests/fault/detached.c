/* detached.c - detached holds: they live by their ttl alone, whatever happens to their process, and their cells come
 * back in any order of grant, cancel and end. */
#include "actors.h"

#include "engines/local/holders.h"

#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static uint32_t shard_of(const char *name)
{
    return hf_shard_of(hf_name_hash(name, strlen(name)));
}

/* The number-th name in the part of the table in which "d" is. */
static const char *neighbour(int number, char name[24])
{
    for (int i = 0;; i++) {
        snprintf(name, 24, "near-%d", i);
        if (shard_of(name) == shard_of("d") && number-- == 0)
            return name;
    }
}

/* G21 */
static void test_outlives(void **state)
{
    (void)state;
    enum { TTL_MS = 700 };
    hf_client *client = stage_client();
    struct actor *a = actor_start(), *b = actor_start();
    struct want want = {.name = "d", .ttl_ms = TTL_MS, .flags = HF_DETACHED};
    int64_t from = now_ns();
    uint64_t token = actor_holds(a, 0, &want).token;
    actor_kill(a);
    actor_await_end(a);
    actor_acquire(b, 0, ORDER_ACQUIRE, &(struct want){.name = "d", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER});
    await_sight(client, "d", 1, 1);
    assert_int_equal(see(client, "d").token, token);
    struct answer next = actor_answer(b, ORDER_ACQUIRE, 0);
    assert_int_equal(next.status, HF_OK);
    assert_true(next.token > token);
    assert_true(next.at_ns - from >= TTL_MS * 1000000LL);
}

struct busy {
    sem_t inside, go_on, over;
    hf_status outcome;
};

/* Keeps the background thread in a callback: what is granted meanwhile stays on the ready list. */
static void linger(hf_lease *lease, hf_status outcome, void *arg)
{
    struct busy *busy = arg;
    (void)outcome;
    sem_post(&busy->inside);
    sem_wait(&busy->go_on);
    hf_lease_free(lease);
    sem_post(&busy->over);
}

static void note_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    struct busy *busy = arg;
    busy->outcome = outcome;
    hf_lease_free(lease);
    sem_post(&busy->over);
}

static void start(hf_client *client, const struct want *want, hf_done_fn *done, struct busy *busy, hf_lease **lease)
{
    struct hf_request request = request_of(want);
    if (hf_acquire_start(client, &request, done, busy, lease) != HF_OK)
        fail_msg("%s", hf_error_text());
}

/* A detached wait is granted and given back before its client's background thread has seen the grant. Its cell must not
 * become something else while it is on that client's ready list. */
static void test_cancelled_unseen(void **state)
{
    (void)state;
    struct busy busy = {.outcome = HF_INTERNAL};
    char first[24], second[24];
    hf_client *client = stage_client(), *other;
    hf_lease *lingering, *wait;
    sem_init(&busy.inside, 0, 0);
    sem_init(&busy.go_on, 0, 0);
    sem_init(&busy.over, 0, 0);
    assert_int_equal(hf_open(stage_url(), NULL, &other), HF_OK);
    hf_lease *held = must_acquire(other, &(struct want){.name = "d"});
    hf_lease *near = must_acquire(other, &(struct want){.name = neighbour(0, first)});
    struct want detached = {.name = "d", .wait_ms = HF_FOREVER, .flags = HF_DETACHED};
    start(client, &detached, note_outcome, &busy, &wait);
    start(client, &(struct want){.name = "elsewhere"}, linger, &busy, &lingering);
    sem_wait(&busy.inside);
    assert_int_equal(hf_release(held), HF_OK); /* granted */
    assert_int_equal(hf_cancel(wait), HF_OK);  /* seen, and given back */
    assert_int_equal(hf_release(near), HF_OK);
    hf_lease *newcomer =
        must_acquire(other, &(struct want){.name = neighbour(1, second)}); /* takes the cells that came free */
    sem_post(&busy.go_on);
    sem_wait(&busy.over);
    sem_wait(&busy.over);
    assert_int_equal(busy.outcome, HF_CANCELLED);
    hf_lease_free(must_acquire(client, &(struct want){.name = "d"}));
    assert_true(hf_lease_ok(newcomer));
    assert_int_equal(see(client, second).token, hf_lease_token(newcomer));
    hf_lease_free(held);
    hf_lease_free(near);
    hf_lease_free(newcomer);
    assert_int_equal(hf_close(other, 2000), HF_OK);
}

/* The second half of the attempt, which stands first in the text. */
static void export_id(hf_client *client, char half[17])
{
    char text[HF_EXPORT_MAX];
    hf_lease *lease = must_acquire(client, &(struct want){.name = "d", .flags = HF_DETACHED});
    assert_int_equal(hf_lease_export(lease, text, sizeof text), HF_OK);
    snprintf(half, 17, "%.16s", text + strlen("hf1 ") + 16);
    must_release(lease);
}

/* Whoever knows an id can give such a hold back, so none may follow from another; those of other holds are counted. */
static void test_secret(void **state)
{
    (void)state;
    char first[17], second[17];
    export_id(stage_client(), first);
    export_id(stage_client(), second);
    assert_int_equal(strlen(first), 16);
    assert_string_not_equal(first, second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED("the id of a detached hold does not follow from that of another", test_secret),
        STAGED("a detached hold outlives its process and ends by its ttl", test_outlives),
        STAGED("a detached wait that is granted and cancelled unseen leaves the table whole", test_cancelled_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
