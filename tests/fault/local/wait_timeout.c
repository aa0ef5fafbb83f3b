/* wait_timeout.c - a wait ends at the moment of the grant: the waiter holds or is out of the queue,
 * never both, and no permit is lost or doubled. Usage: timeout [TRIES] of each kind. */
#include "lib/timeout_race.h"

enum { LANES = 4 };

static int tries = 10000;

static bool goes_on(const struct lane *lane, int tried)
{
    (void)lane;
    return tried < tries / LANES;
}

/* Exactly that many permits are free: as many can be taken at once, and not one more. */
static void check_free(struct lane *lane, uint32_t expected, int try)
{
    hf_lease *lease;
    for (uint32_t units = lane->capacity; units; units--) {
        bool got = lane_take(lane, units, &lease) == HF_OK;
        if (got)
            hf_lease_free(lease);
        if (got != (units <= expected))
            lane_complain(lane, got ? "a permit too many is free" : "a permit is lost", try);
    }
}

static void check_granted(struct lane *lane, int try)
{
    check_free(lane, lane->capacity - lane->units, try);
}

static void check_over(struct lane *lane, int try)
{
    struct sight seen = see(lane->holder, lane->name);
    if (seen.holders || seen.waiters)
        lane_complain(lane, "something is left", try);
    check_free(lane, lane->capacity, try);
}

static const struct race race = {.near_ns = 120000,
                                 .step_ns = 4000,
                                 .goes_on = goes_on,
                                 .check_granted = check_granted,
                                 .check_over = check_over};

static void run_all(hf_kind kind, uint32_t capacity, bool asynchronous)
{
    static struct lane lane[LANES];
    struct lane all = {
        .race = &race, .kind = kind, .capacity = capacity, .asynchronous = asynchronous};
    for (unsigned i = 0; i < LANES; i++)
        lane_open(&lane[i], &all, i, stage_url());
    struct race_outcome counted = lanes_run(lane, LANES);
    for (unsigned i = 0; i < LANES; i++)
        lane_close(&lane[i]);
    assert_true(counted.granted >= (unsigned)tries / 10);
    assert_true(counted.timed_out >= (unsigned)tries / 10);
}

/* G4 */
static void test_exclusive(void **state)
{
    (void)state;
    run_all(HF_EXCLUSIVE, 1, false);
}

/* G4 */
static void test_semaphore(void **state)
{
    (void)state;
    run_all(HF_SEMAPHORE, 2, false);
}

static void test_asynchronous(void **state)
{
    (void)state;
    run_all(HF_SEMAPHORE, 2, true);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        tries = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        STAGED("a wait that ends as the lock comes free holds it or is out of the queue",
               test_exclusive),
        STAGED("a wait that ends as permits come free neither loses nor doubles one",
               test_semaphore),
        STAGED("an asynchronous wait that ends as permits come free has one outcome",
               test_asynchronous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
