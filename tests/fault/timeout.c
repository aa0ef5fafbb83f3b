/* timeout.c - a wait ends at the moment of the grant: the waiter holds or is out of the queue, never both, and no
 * permit is lost or doubled. Usage: timeout [TRIES] of each kind. */
#include "actors.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

enum { LANES = 4, WAIT_MS = 1, NEAR_NS = 120000, STEP_NS = 4000 };

static int tries = 10000;

/* One lane: a holder and a waiter, each with a client of its own, on a name of their own. */
struct lane {
    char name[16];
    hf_client *holder, *waiter;
    bool asynchronous;
    hf_kind kind;
    uint32_t capacity;
    int64_t offset_ns; /* release this long after the ask; follows the outcomes so that both go on happening */
    uint64_t random;
    unsigned granted, timed_out;
    char wrong[200]; /* what went wrong first */
    /* The waiter's side of one try: */
    uint32_t units;
    hf_lease *lease;
    hf_status outcome;
    unsigned callbacks;
    bool finished;
    sem_t begin, over;
};

static void complain(struct lane *lane, const char *what, int try)
{
    if (!lane->wrong[0])
        snprintf(lane->wrong, sizeof lane->wrong, "%s, try %d: %s (%s)", lane->name, try, what, hf_error_text());
}

static struct want want_of(const struct lane *lane, uint32_t units, int64_t wait_ms)
{
    return (struct want){
        .name = lane->name, .kind = lane->kind, .capacity = lane->capacity, .units = units, .wait_ms = wait_ms};
}

static hf_status take(struct lane *lane, uint32_t units, hf_lease **lease)
{
    struct want want = want_of(lane, units, 0);
    struct hf_request request = request_of(&want);
    return hf_acquire(lane->holder, &request, lease);
}

/* ---- The waiter ---- */

static void note_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    struct lane *lane = arg;
    lane->callbacks++;
    lane->outcome = outcome;
    lane->lease = lease;
    sem_post(&lane->over);
}

static void wait_once(struct lane *lane)
{
    struct want want = want_of(lane, lane->units, WAIT_MS);
    struct hf_request request = request_of(&want);
    hf_lease *lease;
    if (lane->asynchronous) {
        if (hf_acquire_start(lane->waiter, &request, note_outcome, lane, &lease) != HF_OK)
            abort();
    } else {
        hf_status status = hf_acquire(lane->waiter, &request, &lease);
        note_outcome(lease, status, lane);
    }
}

static void *wait_for_each_try(void *arg)
{
    struct lane *lane = arg;
    for (sem_wait(&lane->begin); !lane->finished; sem_wait(&lane->begin))
        wait_once(lane);
    return NULL;
}

/* ---- The judge, who is also the holder ---- */

/* Exactly that many permits are free: as many can be taken at once, and not one more. */
static void check_free(struct lane *lane, uint32_t expected, int try)
{
    hf_lease *lease;
    for (uint32_t units = lane->capacity; units; units--) {
        bool got = take(lane, units, &lease) == HF_OK;
        if (got)
            hf_lease_free(lease);
        if (got != (units <= expected))
            complain(lane, got ? "a permit too many is free" : "a permit is lost", try);
    }
}

static void judge(struct lane *lane, int try)
{
    if (lane->outcome == HF_OK) {
        lane->granted++;
        if (!hf_lease_ok(lane->lease) || see(lane->holder, lane->name).token != hf_lease_token(lane->lease))
            complain(lane, "granted, but the waiter does not hold", try);
        check_free(lane, lane->capacity - lane->units, try);
        if (hf_release(lane->lease) != HF_OK)
            complain(lane, "granted, but it cannot be released", try);
    } else {
        lane->timed_out++;
        if (lane->outcome != HF_TIMEOUT)
            complain(lane, "ended otherwise", try);
    }
    hf_lease_free(lane->lease);
    struct sight seen = see(lane->holder, lane->name);
    if (seen.holders || seen.waiters)
        complain(lane, "something is left", try);
    check_free(lane, lane->capacity, try);
}

static void release_at(hf_lease *lease, int64_t when)
{
    int64_t left = when - now_ns() - 100000;
    if (left > 0)
        nap_us(left / 1000);
    while (now_ns() < when)
        ;
    hf_lease_free(lease);
}

static int64_t jitter(struct lane *lane)
{
    lane->random = lane->random * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(lane->random >> 33) % (2 * NEAR_NS) - NEAR_NS;
}

static void try_once(struct lane *lane, int try)
{
    hf_lease *held;
    lane->units = 1 + (uint32_t)try % lane->capacity;
    lane->callbacks = 0;
    if (take(lane, lane->capacity, &held) != HF_OK) {
        complain(lane, "the holder cannot take all", try);
        return;
    }
    sem_post(&lane->begin);
    release_at(held, now_ns() + lane->offset_ns + jitter(lane));
    sem_wait(&lane->over);
    lane->offset_ns += lane->outcome == HF_OK ? STEP_NS : -STEP_NS;
    if (lane->callbacks != 1)
        complain(lane, "not exactly one outcome", try);
    judge(lane, try);
}

static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    pthread_t waiter;
    if (pthread_create(&waiter, NULL, wait_for_each_try, lane) != 0)
        abort();
    for (int i = 0; i < tries / LANES && !lane->wrong[0]; i++)
        try_once(lane, i);
    lane->finished = true;
    sem_post(&lane->begin);
    pthread_join(waiter, NULL);
    return NULL;
}

static void prepare(struct lane *lane, unsigned number, hf_kind kind, uint32_t capacity, bool asynchronous)
{
    *lane = (struct lane){.kind = kind, .capacity = capacity, .asynchronous = asynchronous, .random = number + 1};
    snprintf(lane->name, sizeof lane->name, "lane-%u", number);
    lane->offset_ns = WAIT_MS * 1000000;
    sem_init(&lane->begin, 0, 0);
    sem_init(&lane->over, 0, 0);
    assert_int_equal(hf_open(stage_url(), NULL, &lane->holder), HF_OK);
    assert_int_equal(hf_open(stage_url(), NULL, &lane->waiter), HF_OK);
}

static void run_all(hf_kind kind, uint32_t capacity, bool asynchronous)
{
    static struct lane lane[LANES];
    pthread_t thread[LANES];
    unsigned granted = 0, timed_out = 0;
    for (unsigned i = 0; i < LANES; i++)
        prepare(&lane[i], i, kind, capacity, asynchronous);
    for (unsigned i = 0; i < LANES; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_lane, &lane[i]), 0);
    for (unsigned i = 0; i < LANES; i++)
        pthread_join(thread[i], NULL);
    for (unsigned i = 0; i < LANES; i++) {
        granted += lane[i].granted;
        timed_out += lane[i].timed_out;
        assert_int_equal(hf_close(lane[i].holder, 2000), HF_OK);
        assert_int_equal(hf_close(lane[i].waiter, 2000), HF_OK);
    }
    printf("# %d tries: %u granted, %u timed out\n", tries, granted, timed_out);
    for (unsigned i = 0; i < LANES; i++)
        if (lane[i].wrong[0])
            fail_msg("%s", lane[i].wrong);
    assert_true(granted >= (unsigned)tries / 10);
    assert_true(timed_out >= (unsigned)tries / 10);
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
        STAGED("a wait that ends as the lock comes free holds it or is out of the queue", test_exclusive),
        STAGED("a wait that ends as permits come free neither loses nor doubles one", test_semaphore),
        STAGED("an asynchronous wait that ends as permits come free has one outcome", test_asynchronous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
