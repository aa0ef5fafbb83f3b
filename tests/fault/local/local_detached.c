/* local_detached.c - detached holds: they live by their ttl alone, whatever happens to their
 * process, and their cells come back in any order of grant, cancel and end. */
#include "lib/actors.h"

#include "engines/local/wait_queue.h"

#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static uint32_t shard_of(const char *name)
{
    return shard_of_hash(resource_name_hash(name, strlen(name)));
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
    actor_acquire(b, 0, ORDER_ACQUIRE,
                  &(struct want){.name = "d", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER});
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

static void start(hf_client *client, const struct want *want, hf_done_fn *done, struct busy *busy,
                  hf_lease **lease)
{
    struct hf_request request = request_of(want);
    if (hf_acquire_start(client, &request, done, busy, lease) != HF_OK)
        fail_msg("%s", hf_error_text());
}

/* A detached wait is granted and given back before its client's background thread has seen the
 * grant. Its cell must not become something else while it is on that client's ready list. */
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
    hf_lease *newcomer = must_acquire(
        other, &(struct want){.name = neighbour(1, second)}); /* takes the cells that came free */
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

/* Whoever knows an id can give such a hold back, so none may follow from another; those of other
 * holds are counted. */
static void test_secret(void **state)
{
    (void)state;
    char first[17], second[17];
    export_id(stage_client(), first);
    export_id(stage_client(), second);
    assert_int_equal(strlen(first), 16);
    assert_string_not_equal(first, second);
}

/* ---- What is said of those that ended while nobody looked ---- */

struct past {
    int rows;
    uint64_t token[8];
    hf_status ended[8];
    int64_t held_ms[8], ended_ms[8];
};

static void note_past(void *arg, const struct hf_row *row)
{
    struct past *past = arg;
    assert_true(past->rows < 8);
    past->token[past->rows] = row->token;
    past->ended[past->rows] = row->ended;
    past->held_ms[past->rows] = row->since_ms;
    past->ended_ms[past->rows++] = row->ended_ms;
}

static struct past past_of(const char *name)
{
    struct past past = {0};
    assert_int_equal(hf_history(stage_client(), name, note_past, &past), HF_OK);
    return past;
}

static hf_client *client_with_history(void)
{
    char url[512];
    hf_client *client;
    snprintf(url, sizeof url, "%s?history=4", stage_url());
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    return client;
}

/* A hold that belongs to nobody from here on. */
static uint64_t leave_hold(hf_client *client, const char *owner, int64_t ttl_ms)
{
    char text[HF_EXPORT_MAX];
    struct want want = {
        .name = "d", .ttl_ms = ttl_ms, .flags = HF_DETACHED, .kind = HF_SEMAPHORE, .capacity = 2};
    struct hf_request request = request_of(&want);
    hf_lease *lease;
    request.owner = owner;
    if (hf_acquire(client, &request, &lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    uint64_t token = hf_lease_token(lease);
    assert_int_equal(hf_lease_export(lease, text, sizeof text), HF_OK);
    hf_lease_free(lease);
    return token;
}

/* It ended by its ttl, at that time, although the first look at it comes later. */
static void must_have_ended(const struct past *past, int row, uint64_t token, int64_t ttl_ms,
                            int64_t ended_ms)
{
    assert_int_equal(past->token[row], token);
    assert_int_equal(past->ended[row], HF_LOST);
    assert_in_range(past->held_ms[row], ttl_ms - 1, ttl_ms);
    assert_in_range(past->ended_ms[row], ended_ms - 5, ended_ms + 200);
}

static void test_ends_unseen(void **state)
{
    (void)state;
    hf_client *client = client_with_history();
    int64_t from = now_ns();
    uint64_t token = leave_hold(client, NULL, 100);
    nap_us(600000);
    struct past past = past_of("d");
    assert_int_equal(past.rows, 1);
    must_have_ended(&past, 0, token, 100, (now_ns() - from) / 1000000 - 100);
    assert_int_equal(hf_close(client, 2000), HF_OK);
}

/* Another one was released later, and noted first. */
static void test_ends_before_another(void **state)
{
    (void)state;
    hf_client *client = client_with_history();
    hf_lease *other =
        must_acquire(client, &(struct want){.name = "d", .kind = HF_SEMAPHORE, .capacity = 2});
    uint64_t token = leave_hold(client, NULL, 100), later = hf_lease_token(other);
    int64_t from = now_ns();
    nap_us(300000);
    must_release(other);
    struct past past = past_of("d");
    assert_int_equal(past.rows, 2);
    assert_int_equal(past.token[0], later);
    assert_int_equal(past.ended[0], HF_OK);
    must_have_ended(&past, 1, token, 100, (now_ns() - from) / 1000000 - 100);
    assert_int_equal(hf_close(client, 2000), HF_OK);
}

/* An owner that entered twice held until the later end of both, whichever of them is met first. */
static void test_ends_with_the_last_attempt(void **state)
{
    (void)state;
    hf_client *client = client_with_history();
    for (int first = 0; first < 2; first++) {
        int64_t from = now_ns();
        uint64_t token = leave_hold(client, "somebody", first ? 300 : 100);
        leave_hold(client, "somebody", first ? 100 : 300);
        nap_us(600000);
        struct past past = past_of("d");
        assert_int_equal(past.rows, 1 + first);
        assert_int_equal(past.token[0], token);
        assert_in_range(past.ended_ms[0], (now_ns() - from) / 1000000 - 500,
                        (now_ns() - from) / 1000000 - 295);
    }
    assert_int_equal(hf_close(client, 2000), HF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED("the id of a detached hold does not follow from that of another", test_secret),
        STAGED("a detached hold outlives its process and ends by its ttl", test_outlives),
        STAGED("history says when a hold ended that nobody looked at", test_ends_unseen),
        STAGED("holds stand in the history in the order of their ends", test_ends_before_another),
        STAGED("the hold of an owner ends with the last of its attempts",
               test_ends_with_the_last_attempt),
        STAGED("a detached wait that is granted and cancelled unseen leaves the table whole",
               test_cancelled_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
