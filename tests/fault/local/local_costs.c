/* local_costs.c - what an uncontended cycle and a quiet queue cost on one machine: counted, not
 * timed. */
#include "lib/actors.h"
#include "lib/counts.h"
#include "lib/cycles.h"

#include <stdio.h>

enum {
    WAITING_PROCESSES = 10,
    WAITERS_EACH = 10,
    IDLE_MS = 5000,
    IDLE_CPU_MS = 10,
};

/* G33 */
static void test_allocations(void **state)
{
    (void)state;
    judge_count("local-allocations", count_allocations(stage_url(), PLANT_NOTHING));
}

/* G33 */
static void test_system_calls(void **state)
{
    (void)state;
    struct calls calls = count_calls(stage_url(), PLANT_NOTHING);
    judge_count("local-calls",
                calls.sends + calls.receives + calls.polls + calls.spins + calls.others);
    judge_count("local-strays", calls.strays);
}

static void test_instructions(void **state)
{
    (void)state;
    counts_need_compiler();
    judge_count("local-instructions", count_instructions(stage_url(), 0));
}

static void test_held_bytes(void **state)
{
    (void)state;
    judge_count("local-held-bytes", count_held_bytes(stage_url(), 0));
}

static void test_planted(void **state)
{
    (void)state;
    assert_false(
        count_is_good("local-allocations", count_allocations(stage_url(), PLANT_ALLOCATION)));
    assert_false(count_is_good("local-calls", count_calls(stage_url(), PLANT_CALL).others));
}

static void test_planted_instructions(void **state)
{
    (void)state;
    counts_need_compiler();
    double before = count_instructions(stage_url(), 0),
           written = expected_count("local-instructions");
    double more = written * 1.04 -
                  before; /* one percent over the slack, or more where the code has become better */
    assert_false(count_is_good("local-instructions", count_instructions(stage_url(), (int)more)));
}

/* ---- Waiting ---- */

static int64_t cpu_of_all(struct actor *const *actor)
{
    int64_t sum = 0;
    for (int p = 0; p < WAITING_PROCESSES; p++)
        sum += cpu_of(actor_pid(actor[p]));
    return sum;
}

/* G33 */
static void test_idle_waiters(void **state)
{
    (void)state;
    hf_client *client = stage_client();
    struct actor *holder = actor_start(), *actor[WAITING_PROCESSES];
    actor_holds(holder, 0, &(struct want){.name = "l", .flags = HF_AUTO_RENEW});
    struct want patient = {.name = "l", .wait_ms = HF_FOREVER};
    for (int p = 0; p < WAITING_PROCESSES; p++) {
        actor[p] = actor_start();
        for (uint32_t w = 0; w < WAITERS_EACH; w++)
            actor_acquire(actor[p], w, w % 2 ? ORDER_START : ORDER_ACQUIRE, &patient);
    }
    await_sight(client, "l", 1, WAITING_PROCESSES * WAITERS_EACH);
    nap_us(100000); /* the last of them is on its way to sleep */
    int64_t from = now_ns(), before = cpu_of_all(actor);
    assert_true(before > 0);
    nap_us(IDLE_MS * 1000);
    double spent = (double)(cpu_of_all(actor) - before) / 1e6,
           passed = (double)(now_ns() - from) / 1e6;
    printf("# %d waiters used %.3f ms of CPU in %.0f ms\n", WAITING_PROCESSES * WAITERS_EACH, spent,
           passed);
    assert_true(passed >= IDLE_MS);
    assert_true(spent < IDLE_CPU_MS);
    assert_int_equal(see(client, "l").waiters, WAITING_PROCESSES * WAITERS_EACH);
    actor_does(holder, ORDER_RELEASE, 0);
    await_sight(client, "l", 1, WAITING_PROCESSES * WAITERS_EACH - 1);
}

int main(int argc, char **argv)
{
    int part = cycles_part(argc, argv);
    if (part >= 0)
        return part;
    counts_choose_tests();
    const struct CMUnitTest tests[] = {
        STAGED("an uncontended acquire and release allocates nothing", test_allocations),
        STAGED("an uncontended acquire and release makes no system call", test_system_calls),
        STAGED("an uncontended acquire and release takes no more instructions than before",
               test_instructions),
        STAGED("an uncontended lock that is held takes no more memory than before",
               test_held_bytes),
        STAGED("a planted allocation and a planted system call are noticed", test_planted),
        STAGED("a planted block of instructions of four percent is noticed",
               test_planted_instructions),
        STAGED("100 waiters in 10 processes use less than 10 ms of CPU in 5 s", test_idle_waiters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
