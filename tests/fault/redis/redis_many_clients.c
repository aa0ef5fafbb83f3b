/* redis_many_clients.c - many at once on a real server: no permit too many, none lost when waits
 * end as permits come free, and nothing stays in the server but what goes by itself. Usage:
 * redis_crowd [TIME-OUTS [CYCLES]] */
#include "lib/timeout_race.h"
#include "redis_fixture.h"

#include "engines/redis/scripts.h"

#include <stdatomic.h>

static int timeouts = 10000, cycles = 10000;

static void ignore_row(void *arg, const struct hf_row *row)
{
    (void)arg, (void)row;
}

/* Until then the first wait would include the way to the server. */
static hf_status connect_client(hf_client *client)
{
    return hf_show(client, "nobody", ignore_row, NULL);
}

/* ---- All at once ---- */

enum { PROCESSES = 20, TRIES_EACH = 50, PERMITS = 5 };

/* Half of the processes try with threads, half of them asynchronously; all begin when the last one
 * is there. */
struct start {
    pthread_barrier_t line;
};

struct tries {
    hf_client *client;
    struct start *start;
    hf_lease *lease[TRIES_EACH];
    _Atomic unsigned granted, busy, over;
};

static struct want one_permit(void)
{
    return (struct want){
        .name = "permits", .kind = HF_SEMAPHORE, .capacity = PERMITS, .ttl_ms = 60000};
}

static void count_try(struct tries *tries, hf_status status)
{
    part_must(status == HF_OK || status == HF_BUSY);
    atomic_fetch_add(status == HF_OK ? &tries->granted : &tries->busy, 1);
    atomic_fetch_add(&tries->over, 1);
}

static void count_outcome(hf_lease *lease, hf_status status, void *arg)
{
    (void)lease;
    count_try(arg, status);
}

static void *try_once(void *arg)
{
    struct tries *tries = arg;
    struct want want = one_permit();
    struct hf_request request = request_of(&want);
    hf_lease *lease; /* stays with the client */
    pthread_barrier_wait(&tries->start->line);
    count_try(tries, hf_acquire(tries->client, &request, &lease));
    return NULL;
}

static void try_with_threads(struct tries *tries)
{
    pthread_t thread[TRIES_EACH];
    for (int i = 0; i < TRIES_EACH; i++)
        part_must(pthread_create(&thread[i], NULL, try_once, tries) == 0);
    for (int i = 0; i < TRIES_EACH; i++)
        pthread_join(thread[i], NULL);
}

static void try_asynchronously(struct tries *tries)
{
    struct want want = one_permit();
    struct hf_request request = request_of(&want);
    pthread_barrier_wait(&tries->start->line);
    for (int i = 0; i < TRIES_EACH; i++)
        part_must(hf_acquire_start(tries->client, &request, count_outcome, tries,
                                   &tries->lease[i]) == HF_OK);
    while (atomic_load(&tries->over) < TRIES_EACH)
        nap_us(100);
}

struct crowd_part {
    struct start *start;
    bool asynchronous;
};

/* One that does not take a machine that is busy with all the others for a server that is gone. */
static hf_client *patient_client(void)
{
    char url[160];
    hf_client *client;
    snprintf(url, sizeof url, "%s?op_timeout=5s", scene.url);
    part_must(hf_open(url, NULL, &client) == HF_OK);
    return client;
}

static void try_in_a_crowd(struct actor *me, void *arg)
{
    struct crowd_part *part = arg;
    static struct tries tries;
    tries.client = patient_client();
    tries.start = part->start;
    part_must(connect_client(tries.client) == HF_OK);
    part->asynchronous ? try_asynchronously(&tries) : try_with_threads(&tries);
    part_says(me, &(struct answer){.what = ORDER_GO, .number = tries.granted, .token = tries.busy});
    part_awaits_go(me); /* holds until then */
    part_says(me, &(struct answer){.what = ORDER_CLOSE, .status = hf_close(tries.client, 5000)});
}

static struct start *prepare_start(unsigned threads)
{
    struct start *start = scene_page(sizeof *start);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    assert_int_equal(pthread_barrier_init(&start->line, &shared, threads), 0);
    return start;
}

/* G1 */
static void test_thousand_tries(void **state)
{
    (void)state;
    struct actor *actor[PROCESSES];
    struct start *start = prepare_start(PROCESSES / 2 * TRIES_EACH + PROCESSES / 2);
    int64_t granted = 0, busy = 0;
    for (int p = 0; p < PROCESSES; p++)
        actor[p] = actor_start_part(try_in_a_crowd,
                                    &(struct crowd_part){.start = start, .asynchronous = p % 2});
    for (int p = 0; p < PROCESSES; p++) {
        struct answer counted = actor_answer(actor[p], ORDER_GO, 0);
        granted += counted.number;
        busy += (int64_t)counted.token;
    }
    printf("# %d tries of %d processes on %d permits: %lld granted, %lld busy\n",
           PROCESSES * TRIES_EACH, PROCESSES, PERMITS, (long long)granted, (long long)busy);
    assert_int_equal(granted, PERMITS);
    assert_int_equal(busy, PROCESSES * TRIES_EACH - PERMITS);
    struct sight seen = see(scene_client(), "permits");
    assert_int_equal(seen.used, PERMITS);
    assert_int_equal(seen.holders, PERMITS);
    assert_int_equal(seen.waiters, 0);
    for (int p = 0; p < PROCESSES; p++)
        actor_order(actor[p], ORDER_GO, 0);
    for (int p = 0; p < PROCESSES; p++)
        assert_int_equal(actor_answer(actor[p], ORDER_CLOSE, 0).status, HF_OK);
    assert_int_equal(see(scene_client(), "permits").holders, 0);
    assert_int_equal(scene_leftovers().counters, 1);
}

/* ---- Waits that end as permits come free ---- */

enum { LANES = 6 };

/* Until its share of waits has timed out; about as many are granted. */
static bool goes_on(const struct lane *lane, int tried)
{
    (void)tried;
    return lane->timed_out < (unsigned)timeouts / LANES + 1;
}

static void check_granted(struct lane *lane, int try)
{
    if (see(lane->holder, lane->name).used != lane->units)
        lane_complain(lane, "granted, but not what was asked for is in use", try);
}

static const struct race race = {
    .near_ns = 250000, .step_ns = 10000, .goes_on = goes_on, .check_granted = check_granted};

static void open_lane(struct lane *lane, unsigned number)
{
    lane_open(lane,
              &(struct lane){.race = &race,
                             .kind = number % 3 ? HF_SEMAPHORE : HF_EXCLUSIVE,
                             .capacity = number % 3 ? 2 : 1,
                             .asynchronous = number % 2},
              number, scene.url);
    assert_int_equal(connect_client(lane->waiter), HF_OK);
}

static void check_lane(const struct lane *lane)
{
    struct sight seen = see(lane->holder, lane->name);
    assert_int_equal(seen.holders + seen.waiters, 0);
    assert_int_equal(server_count(scene.server, "EXISTS lock:%s {lock:%s}:q {lock:%s}:h",
                                  lane->name, lane->name, lane->name),
                     0);
}

/* G4 */
static void test_timeouts(void **state)
{
    (void)state;
    static struct lane lane[LANES];
    for (unsigned i = 0; i < LANES; i++)
        open_lane(&lane[i], i);
    struct race_outcome counted = lanes_run(lane, LANES);
    for (unsigned i = 0; i < LANES; i++) {
        check_lane(&lane[i]);
        lane_close(&lane[i]);
    }
    assert_true(counted.timed_out >= (unsigned)timeouts);
    assert_true(counted.granted >= counted.timed_out / 10); /* they did race */
    assert_int_equal(scene_leftovers().counters, LANES);
}

/* ---- What stays ---- */

enum { NAMES = 1000, HOT_NAMES = 10, WORKERS = 4, COUNTER_BYTES = 160 };

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (*random >> 33) % below;
}

/* Half of the asks meet each other on few names. The kind goes by the name. */
static struct hf_request draw_request(uint64_t *random, char name[16])
{
    static const int64_t waits[] = {0, 3, 1000};
    uint64_t number = draw(random, draw(random, 2) ? HOT_NAMES : NAMES);
    snprintf(name, 16, "name-%llu", (unsigned long long)number);
    struct want want = {.name = name, .wait_ms = waits[draw(random, 3)], .ttl_ms = 30000};
    struct hf_request request = request_of(&want);
    switch (number % 4) {
    case 1:
        request.kind = HF_SEMAPHORE;
        request.capacity = 2;
        break;
    case 2:
        request.kind = draw(random, 2) ? HF_READ : HF_WRITE;
        break;
    case 3:
        request.owner = draw(random, 2) ? "somebody" : "somebody else";
        break;
    }
    return request;
}

static void work(struct actor *me, void *arg)
{
    uint64_t random = *(uint64_t *)arg;
    hf_client *client = scene_part_client();
    int granted = 0;
    part_must(connect_client(client) == HF_OK);
    for (int i = 0; granted < cycles / WORKERS; i++) {
        char name[16];
        struct hf_request request = draw_request(&random, name);
        hf_lease *lease;
        hf_status status = hf_acquire(client, &request, &lease);
        part_must(status == HF_OK || status == HF_BUSY || status == HF_TIMEOUT);
        granted += status == HF_OK;
        if (status == HF_OK && i % 2)
            part_must(hf_release(lease) == HF_OK);
        hf_lease_free(lease);
    }
    part_says(me, &(struct answer){
                      .what = ORDER_CLOSE, .status = hf_close(client, 5000), .number = granted});
}

static struct leftovers run_cycles(uint64_t seed)
{
    struct actor *worker[WORKERS];
    uint64_t seeds[WORKERS];
    int64_t granted = 0;
    for (int i = 0; i < WORKERS; i++) {
        seeds[i] = seed * WORKERS + (uint64_t)i + 1;
        worker[i] = actor_start_part(work, &seeds[i]);
    }
    for (int i = 0; i < WORKERS; i++) {
        struct answer closed = actor_answer(worker[i], ORDER_CLOSE, 0);
        assert_int_equal(closed.status, HF_OK);
        granted += closed.number;
    }
    struct leftovers left = scene_leftovers();
    printf("# after %lld cycles on %d names: %lld counters, %lld tombstones, %lld inboxes, %lld "
           "bytes, ttl up to %lld s\n",
           (long long)granted, NAMES, (long long)left.counters, (long long)left.buried,
           (long long)left.inboxes, (long long)left.bytes, (long long)left.longest / 1000);
    assert_true(granted >= cycles);
    return left;
}

static void test_leftovers(void **state)
{
    (void)state;
    struct leftovers first = run_cycles(1), second = run_cycles(2);
    assert_true(second.counters <= NAMES);
    assert_true(second.counters > NAMES / 2);
    assert_true(second.longest <= 3600 * 1000);
    enum { INDEX = 1 }; /* {lock:}:names */
    assert_int_equal(server_count(scene.server, "DBSIZE"),
                     second.counters + second.inboxes + second.buried_names + INDEX);
    /* Tombstones are for crossed messages, and few; else a name leaves the same however often it
     * was used. */
    assert_true(first.buried <= cycles / 20 && second.buried <= cycles / 20);
    assert_true(second.inboxes <= WORKERS);
    assert_true(second.bytes - second.bytes_buried <= second.counters * COUNTER_BYTES);
    assert_int_equal(scene_connections(0), 0);
}

enum { STALE = 300 };

/* A release in doubt leaves a tombstone. */
static void bury(const char *lock, int ghost)
{
    server_does(scene.server,
                "FCALL %s_release 6 lock:%s {lock:%s}:t {lock:%s}:q {lock:%s}:w {lock:%s}:h "
                "{lock:%s}:p ghost-%016d - %s",
                redis_library_name, lock, lock, lock, lock, lock, lock, ghost, "r 60000 0 0 -");
}

static void test_tombstones_make_room(void **state)
{
    (void)state;
    actor_holds(scene_actor(), 0, &(struct want){.name = "held"}); /* the scripts are there */
    for (int i = 0; i < STALE; i++)
        server_does(scene.server, "HSET {lock:other}:w !stale-%d 1000", i);
    for (int i = 0; i < STALE; i++)
        bury("other", i);
    int64_t left = server_count(scene.server, "HLEN {lock:other}:w");
    printf("# %d tombstones that were over and %d new ones: %lld are left\n", STALE, STALE,
           (long long)left);
    assert_true(left >= STALE && left < STALE + STALE / 2);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        timeouts = atoi(argv[1]);
    if (argc > 2)
        cycles = atoi(argv[2]);
    const struct CMUnitTest tests[] = {
        SENTENCE("of 1,000 simultaneous tries on 5 permits exactly 5 are granted",
                 test_thousand_tries),
        SENTENCE("waits that end as permits come free neither lose nor double one", test_timeouts),
        SENTENCE("after thousands of cycles nothing is left but what ends by itself",
                 test_leftovers),
        SENTENCE("tombstones that are over make room for new ones", test_tombstones_make_room),
    };
    return SCENE_JUDGE(tests);
}
