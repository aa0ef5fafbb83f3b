/* redis_crowd.c - many at once on a real server: no permit too many, none lost when waits end as permits come free, and
 * nothing stays in the server but what goes by itself. Usage: redis_crowd [TIME-OUTS [CYCLES]] */
#include "redis_scene.h"

#include "engines/redis/scripts.h"

#include <pthread.h>
#include <semaphore.h>
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

/* Half of the processes try with threads, half of them asynchronously; all begin when the last one is there. */
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
    return (struct want){.name = "permits", .kind = HF_SEMAPHORE, .capacity = PERMITS, .ttl_ms = 60000};
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
        part_must(hf_acquire_start(tries->client, &request, count_outcome, tries, &tries->lease[i]) == HF_OK);
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
        actor[p] = actor_start_part(try_in_a_crowd, &(struct crowd_part){.start = start, .asynchronous = p % 2});
    for (int p = 0; p < PROCESSES; p++) {
        struct answer counted = actor_answer(actor[p], ORDER_GO, 0);
        granted += counted.number;
        busy += (int64_t)counted.token;
    }
    printf("# %d tries of %d processes on %d permits: %lld granted, %lld busy\n", PROCESSES * TRIES_EACH, PROCESSES,
           PERMITS, (long long)granted, (long long)busy);
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

enum { LANES = 6, WAIT_MS = 1, NEAR_NS = 250000, STEP_NS = 10000 };

/* A holder and a waiter, each with a client of its own, on a name of their own. */
struct lane {
    char name[16];
    hf_client *holder, *waiter;
    bool asynchronous;
    hf_kind kind;
    uint32_t capacity, units;
    int64_t offset_ns; /* release this long after the ask; follows the outcomes so that both go on happening */
    uint64_t random;
    unsigned granted, timed_out;
    char wrong[200]; /* what went wrong first */
    hf_lease *lease; /* the waiter's side of one try */
    hf_status outcome;
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

static void note_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    struct lane *lane = arg;
    lane->outcome = outcome;
    lane->lease = lease;
    sem_post(&lane->over);
}

static void *wait_for_each_try(void *arg)
{
    struct lane *lane = arg;
    for (sem_wait(&lane->begin); !lane->finished; sem_wait(&lane->begin)) {
        struct want want = want_of(lane, lane->units, WAIT_MS);
        struct hf_request request = request_of(&want);
        hf_lease *lease;
        if (!lane->asynchronous) {
            hf_status status = hf_acquire(lane->waiter, &request, &lease);
            note_outcome(lease, status, lane);
        } else if (hf_acquire_start(lane->waiter, &request, note_outcome, lane, &lease) != HF_OK) {
            abort();
        }
    }
    return NULL;
}

static void release_at(hf_lease *lease, int64_t when)
{
    int64_t left = when - now_ns() - 60000; /* a nap ends so much late */
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

/* That everything is free again is seen by the next try, which takes all. */
static void judge_try(struct lane *lane, int try)
{
    if (lane->outcome == HF_OK) {
        lane->granted++;
        struct sight seen = see(lane->holder, lane->name);
        if (!hf_lease_ok(lane->lease) || seen.token != hf_lease_token(lane->lease) || seen.used != lane->units)
            complain(lane, "granted, but not what was asked for is in use", try);
        if (hf_release(lane->lease) != HF_OK)
            complain(lane, "granted, but it cannot be released", try);
    } else {
        lane->timed_out++;
        if (lane->outcome != HF_TIMEOUT)
            complain(lane, "ended otherwise", try);
    }
    hf_lease_free(lane->lease);
}

static void race_once(struct lane *lane, int try)
{
    struct want all = want_of(lane, lane->capacity, 0);
    struct hf_request request = request_of(&all);
    hf_lease *held;
    lane->units = 1 + (uint32_t)try % lane->capacity;
    if (hf_acquire(lane->holder, &request, &held) != HF_OK) {
        complain(lane, "not everything is free, or somebody still waits", try);
        return;
    }
    sem_post(&lane->begin);
    release_at(held, now_ns() + lane->offset_ns + jitter(lane));
    sem_wait(&lane->over);
    lane->offset_ns += lane->outcome == HF_OK ? STEP_NS : -STEP_NS;
    judge_try(lane, try);
}

static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    pthread_t waiter;
    if (pthread_create(&waiter, NULL, wait_for_each_try, lane) != 0)
        abort();
    /* Until its share of waits has timed out; about as many are granted. */
    for (int i = 0; lane->timed_out < (unsigned)timeouts / LANES + 1 && !lane->wrong[0]; i++)
        race_once(lane, i);
    lane->finished = true;
    sem_post(&lane->begin);
    pthread_join(waiter, NULL);
    return NULL;
}

static void prepare_lane(struct lane *lane, unsigned number)
{
    *lane = (struct lane){.kind = number % 3 ? HF_SEMAPHORE : HF_EXCLUSIVE,
                          .capacity = number % 3 ? 2 : 1,
                          .asynchronous = number % 2,
                          .random = number + 1,
                          .offset_ns = WAIT_MS * 1000000};
    snprintf(lane->name, sizeof lane->name, "lane-%u", number);
    sem_init(&lane->begin, 0, 0);
    sem_init(&lane->over, 0, 0);
    assert_int_equal(hf_open(scene.url, NULL, &lane->holder), HF_OK);
    assert_int_equal(hf_open(scene.url, NULL, &lane->waiter), HF_OK);
    assert_int_equal(connect_client(lane->waiter), HF_OK);
}

static void check_lane(struct lane *lane)
{
    if (lane->wrong[0])
        fail_msg("%s", lane->wrong);
    struct sight seen = see(lane->holder, lane->name);
    assert_int_equal(seen.holders + seen.waiters, 0);
    assert_int_equal(
        server_count(scene.server, "EXISTS lock:%s {lock:%s}:q {lock:%s}:h", lane->name, lane->name, lane->name), 0);
    assert_int_equal(hf_close(lane->holder, 5000), HF_OK);
    assert_int_equal(hf_close(lane->waiter, 5000), HF_OK);
}

/* G4 */
static void test_timeouts(void **state)
{
    (void)state;
    static struct lane lane[LANES];
    pthread_t thread[LANES];
    unsigned granted = 0, timed_out = 0;
    for (unsigned i = 0; i < LANES; i++)
        prepare_lane(&lane[i], i);
    for (unsigned i = 0; i < LANES; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_lane, &lane[i]), 0);
    for (unsigned i = 0; i < LANES; i++) {
        pthread_join(thread[i], NULL);
        granted += lane[i].granted;
        timed_out += lane[i].timed_out;
    }
    printf("# waits that ended as permits came free: %u timed out, %u granted\n", timed_out, granted);
    for (unsigned i = 0; i < LANES; i++)
        check_lane(&lane[i]);
    assert_true(timed_out >= (unsigned)timeouts);
    assert_true(granted >= timed_out / 10); /* they did race */
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
    part_says(me, &(struct answer){.what = ORDER_CLOSE, .status = hf_close(client, 5000), .number = granted});
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
    printf(
        "# after %lld cycles on %d names: %lld counters, %lld tombstones, %lld inboxes, %lld bytes, ttl up to %lld s\n",
        (long long)granted, NAMES, (long long)left.counters, (long long)left.buried, (long long)left.inboxes,
        (long long)left.bytes, (long long)left.longest / 1000);
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
    assert_int_equal(server_count(scene.server, "DBSIZE"), second.counters + second.inboxes + second.buried_names);
    /* Tombstones are for crossed messages, and few; else a name leaves the same however often it was used. */
    assert_true(first.buried <= cycles / 20 && second.buried <= cycles / 20);
    assert_true(second.inboxes <= WORKERS);
    assert_true(second.bytes - second.bytes_buried <= second.counters * COUNTER_BYTES);
    assert_int_equal(scene_connections(0), 0);
}

enum { STALE = 300 };

/* A release in doubt leaves a tombstone. */
static void bury(const char *lock, int ghost)
{
    server_does(
        scene.server,
        "EVALSHA %s 6 lock:%s {lock:%s}:t {lock:%s}:q {lock:%s}:w {lock:%s}:h {lock:%s}:p ghost-%016d r 60000 0 0 -",
        hf_scripts[HF_SCRIPT_RELEASE].sha, lock, lock, lock, lock, lock, lock, ghost);
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
    printf("# %d tombstones that were over and %d new ones: %lld are left\n", STALE, STALE, (long long)left);
    assert_true(left >= STALE && left < STALE + STALE / 2);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        timeouts = atoi(argv[1]);
    if (argc > 2)
        cycles = atoi(argv[2]);
    const struct CMUnitTest tests[] = {
        SENTENCE("of 1,000 simultaneous tries on 5 permits exactly 5 are granted", test_thousand_tries),
        SENTENCE("waits that end as permits come free neither lose nor double one", test_timeouts),
        SENTENCE("after thousands of cycles nothing is left but what ends by itself", test_leftovers),
        SENTENCE("tombstones that are over make room for new ones", test_tombstones_make_room),
    };
    return SCENE_JUDGE(tests);
}
