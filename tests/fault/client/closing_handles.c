/* closing_handles.c - leases and clients on their way out: handles that are freed while a group is
 * lost, holds that go on as a text, clients that are closed without any time, and twenty thousand
 * leases at once. */
#include "lib/outcome_notes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- Groups ---- */

enum { GROUP = 64, HANDLES = 3 * GROUP, GROUP_ROUNDS = 200, HEAD_STARTS = 40 };

/* One of the group is broken; while the background thread takes the others with it, they are freed.
 */
static void lose_group_while_freeing(hf_client *client, hf_client *other, int64_t head_start_ns)
{
    char name[GROUP][16];
    struct hf_request request[GROUP];
    const struct hf_request *all[GROUP];
    hf_lease *lease[GROUP];
    for (int i = 0; i < GROUP; i++) {
        snprintf(name[i], sizeof name[i], "group-%d", i);
        request[i] = request_of(&(struct want){.name = name[i]});
        all[i] = &request[i];
    }
    if (hf_acquire_many(client, all, GROUP, ACTOR_PATIENCE_MS, lease) != HF_OK)
        fail_msg("%s", hf_error_text());
    for (int i = 1; i < GROUP; i++)
        assert_true(hf_lease_fd(lease[i]) >=
                    0); /* it is told through, too: the loss takes its time */
    assert_int_equal(hf_break(other, name[0], hf_lease_token(lease[0]), "test"), HF_OK);
    for (int64_t until = now_ns() + head_start_ns; now_ns() < until;)
        ;
    for (int i = GROUP - 1; i >= 0; i--)
        hf_lease_free(lease[i]);
}

static int compare_handles(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (hf_lease *const *)a, y = (uintptr_t) * (hf_lease *const *)b;
    return (x > y) - (x < y);
}

/* More than were given back: who was given back twice comes twice. */
static void assert_handles_differ(hf_client *client)
{
    hf_lease *lease[HANDLES];
    for (int i = 0; i < HANDLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "single-%d", i);
        lease[i] = must_acquire(client, &(struct want){.name = name});
    }
    qsort(lease, HANDLES, sizeof lease[0], compare_handles);
    for (int i = 1; i < HANDLES; i++)
        assert_ptr_not_equal(lease[i], lease[i - 1]);
    for (int i = 0; i < HANDLES; i++)
        hf_lease_free(lease[i]);
}

static void test_group_freed_while_lost(void **state)
{
    (void)state;
    hf_client *client = stage_client(), *other = stage_other_client();
    for (int round = 0; round < GROUP_ROUNDS; round++) {
        lose_group_while_freeing(client, other, round % HEAD_STARTS * 10000);
        assert_handles_differ(client);
    }
    assert_int_equal(hf_close(other, 1000), HF_OK);
}

/* ---- Closing ---- */

static void test_close_without_time(void **state)
{
    (void)state;
    enum { WAITS = 10 };
    static struct outcome outcome[WAITS];
    hf_lease *held = must_acquire(stage_client(), &(struct want){.name = "l"}), *wait;
    struct hf_request patient = request_of(&(struct want){.name = "l", .wait_ms = HF_FOREVER});
    hf_client *client = stage_other_client();
    for (int i = 0; i < WAITS; i++)
        assert_int_equal(hf_acquire_start(client, &patient, note_outcome, &outcome[i], &wait),
                         HF_OK);
    await_sight(stage_client(), "l", 1, WAITS);
    assert_int_equal(hf_close(client, 0), HF_OK);
    for (int i = 0; i < WAITS; i++) {
        assert_int_equal(atomic_load(&outcome[i].times), 1);
        assert_int_equal(atomic_load(&outcome[i].status), HF_CLOSED);
    }
    assert_true(hf_lease_ok(held));
    hf_lease_free(held);
    await_sight(stage_client(), "l", 0, 0); /* what it left behind keeps nobody waiting */
}

/* ---- Exporting ---- */

static void test_exported_and_freed(void **state)
{
    (void)state;
    enum { TTL_MS = 300 };
    hf_client *client = stage_client(), *other = stage_other_client();
    char text[HF_EXPORT_MAX];
    hf_lease *lease = must_acquire(
        client,
        &(struct want){.name = "e", .ttl_ms = TTL_MS, .flags = HF_DETACHED | HF_AUTO_RENEW});
    uint64_t token = hf_lease_token(lease);
    assert_int_equal(hf_lease_export(lease, text, sizeof text), HF_OK);
    hf_lease_free(lease);
    assert_int_equal(see(other, "e").token, token); /* it goes on without its handle */
    hf_lease *next = must_acquire(other, &(struct want){.name = "e", .wait_ms = 5 * TTL_MS});
    assert_true(hf_lease_token(next) > token);
    hf_lease_free(next);
    assert_int_equal(hf_close(other, 1000), HF_OK);
}

static void test_exported_after_extend(void **state)
{
    (void)state;
    enum { TTL_MS = 5000, ONCE_MS = 60000 };
    char text[HF_EXPORT_MAX];
    int64_t ttl_ms = 0;
    hf_lease *lease = must_acquire(
        stage_client(), &(struct want){.name = "e", .ttl_ms = TTL_MS, .flags = HF_DETACHED});
    assert_int_equal(hf_extend(lease, ONCE_MS), HF_OK);
    assert_int_equal(hf_lease_export(lease, text, sizeof text), HF_OK);
    assert_int_equal(sscanf(text, "hf1 %*s %*s %*d %*u %*u %" SCNd64, &ttl_ms), 1);
    assert_int_equal(ttl_ms, TTL_MS);
    assert_int_equal(hf_release(lease), HF_OK);
    hf_lease_free(lease);
}

/* ---- Many ---- */

static void note_loss(hf_lease *lease, hf_status why, void *arg)
{
    (void)lease, (void)why;
    atomic_store((_Atomic int64_t *)arg, now_ns());
}

/* Processor time of the whole process: a busy machine does not make it longer. */
static int64_t used_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* What happens to one of many must not cost the square of their number. */
static void test_many_leases(void **state)
{
    (void)state;
    enum { LEASES = 20000, BOUND_MS = 500 };
    static _Atomic int64_t lost_at;
    hf_client *client = stage_other_client();
    uint64_t token = 0;
    for (int i = 0; i < LEASES; i++) {
        char name[16];
        snprintf(name, sizeof name, "many-%d", i);
        struct hf_request request = request_of(&(struct want){.name = name, .ttl_ms = 600000});
        request.on_lost = note_loss;
        request.lost_arg = (void *)&lost_at;
        hf_lease *lease;
        assert_int_equal(hf_acquire(client, &request, &lease), HF_OK);
        token = i == 0 ? hf_lease_token(lease) : token;
    }
    int64_t from = now_ns(), used = used_ms();
    assert_int_equal(hf_break(stage_client(), "many-0", token, "test"), HF_OK);
    while (!atomic_load(&lost_at) && now_ns() < from + ACTOR_PATIENCE_MS * 1000000LL)
        nap_us(200);
    assert_true(atomic_load(&lost_at));
    assert_in_range(used_ms() - used, 0, BOUND_MS);
    used = used_ms();
    assert_int_equal(hf_close(client, HF_FOREVER), HF_OK);
    assert_in_range(used_ms() - used, 0, BOUND_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED("a member of a group that is freed while the group is lost is given back once",
               test_group_freed_while_lost),
        STAGED("closing without any time still tells each pending wait once",
               test_close_without_time),
        STAGED("a lease that was exported and freed is not renewed any more",
               test_exported_and_freed),
        STAGED("the text of a lease keeps its own ttl, whatever it was extended by",
               test_exported_after_extend),
        STAGED("one break among 20,000 leases is noticed at once, and closing them is quick",
               test_many_leases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
