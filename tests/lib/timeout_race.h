/* timeout_race.h - races between the end of a wait and the release that it waits for.
 *
 * A lane is a holder and a waiter, each with a client of its own, on a name of their own. In every
 * try the holder takes everything, the waiter asks, and the holder releases at about the moment at
 * which the wait ends. The test says what must hold then. */
#pragma once
#include "actors.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

enum { LANE_WAIT_MS = 1 };

struct lane;

struct race {
    /* a release is at most so far from where both outcomes happen; how fast that is followed */
    int64_t near_ns, step_ns;
    bool (*goes_on)(const struct lane *lane, int tries);
    void (*check_granted)(struct lane *lane, int try); /* called while the waiter holds */
    void (*check_over)(struct lane *lane,
                       int try); /* called when neither holds; NULL: the next try sees it */
};

struct lane {
    char name[16];
    const struct race *race;
    hf_client *holder, *waiter;
    bool asynchronous;
    hf_kind kind;
    uint32_t capacity;
    /* release this long after the request; follows the outcomes so that both go on happening */
    int64_t offset_ns;
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

static inline void lane_complain(struct lane *lane, const char *what, int try)
{
    if (!lane->wrong[0])
        snprintf(lane->wrong, sizeof lane->wrong, "%s, try %d: %s (%s)", lane->name, try, what,
                 hf_error_text());
}

static inline struct hf_request lane_request(const struct lane *lane, uint32_t units,
                                             int64_t wait_ms)
{
    struct want want = {.name = lane->name,
                        .kind = lane->kind,
                        .capacity = lane->capacity,
                        .units = units,
                        .wait_ms = wait_ms};
    return request_of(&want);
}

static inline hf_status lane_take(struct lane *lane, uint32_t units, hf_lease **lease)
{
    struct hf_request request = lane_request(lane, units, 0);
    return hf_acquire(lane->holder, &request, lease);
}

/* ---- The waiter ---- */

static inline void lane_note_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    struct lane *lane = arg;
    lane->callbacks++;
    lane->outcome = outcome;
    lane->lease = lease;
    sem_post(&lane->over);
}

static inline void lane_wait_once(struct lane *lane)
{
    struct hf_request request = lane_request(lane, lane->units, LANE_WAIT_MS);
    hf_lease *lease;
    if (lane->asynchronous) {
        if (hf_acquire_start(lane->waiter, &request, lane_note_outcome, lane, &lease) != HF_OK)
            abort();
    } else {
        hf_status status = hf_acquire(lane->waiter, &request, &lease);
        lane_note_outcome(lease, status, lane);
    }
}

static inline void *lane_wait_for_each_try(void *arg)
{
    struct lane *lane = arg;
    for (sem_wait(&lane->begin); !lane->finished; sem_wait(&lane->begin))
        lane_wait_once(lane);
    return NULL;
}

/* ---- The judge, who is also the holder ---- */

static inline void lane_judge(struct lane *lane, int try)
{
    if (lane->callbacks != 1)
        lane_complain(lane, "not exactly one outcome", try);
    if (lane->outcome == HF_OK) {
        lane->granted++;
        if (!hf_lease_ok(lane->lease) ||
            see(lane->holder, lane->name).token != hf_lease_token(lane->lease))
            lane_complain(lane, "granted, but the waiter does not hold", try);
        lane->race->check_granted(lane, try);
        if (hf_release(lane->lease) != HF_OK)
            lane_complain(lane, "granted, but it cannot be released", try);
    } else {
        lane->timed_out++;
        if (lane->outcome != HF_TIMEOUT)
            lane_complain(lane, "ended otherwise", try);
    }
    hf_lease_free(lane->lease);
    if (lane->race->check_over)
        lane->race->check_over(lane, try);
}

static inline void lane_release_at(hf_lease *lease, int64_t when)
{
    int64_t left = when - now_ns() - 60000; /* a sleep ends so much late */
    if (left > 0)
        nap_us(left / 1000);
    while (now_ns() < when)
        ;
    hf_lease_free(lease);
}

static inline int64_t lane_jitter(struct lane *lane)
{
    lane->random = lane->random * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(lane->random >> 33) % (2 * lane->race->near_ns) - lane->race->near_ns;
}

static inline void lane_race_once(struct lane *lane, int try)
{
    hf_lease *held;
    lane->units = 1 + (uint32_t)try % lane->capacity;
    lane->callbacks = 0;
    if (lane_take(lane, lane->capacity, &held) != HF_OK) {
        lane_complain(lane, "not everything is free, or somebody still waits", try);
        return;
    }
    sem_post(&lane->begin);
    lane_release_at(held, now_ns() + lane->offset_ns + lane_jitter(lane));
    sem_wait(&lane->over);
    lane->offset_ns += lane->outcome == HF_OK ? lane->race->step_ns : -lane->race->step_ns;
    lane_judge(lane, try);
}

static inline void *lane_run(void *arg)
{
    struct lane *lane = arg;
    pthread_t waiter;
    if (pthread_create(&waiter, NULL, lane_wait_for_each_try, lane) != 0)
        abort();
    for (int i = 0; lane->race->goes_on(lane, i) && !lane->wrong[0]; i++)
        lane_race_once(lane, i);
    lane->finished = true;
    sem_post(&lane->begin);
    pthread_join(waiter, NULL);
    return NULL;
}

/* ---- All of them at once ---- */

/* Opens the clients of a lane; kind, capacity and manner are as in `of`. */
static inline void lane_open(struct lane *lane, const struct lane *of, unsigned number,
                             const char *url)
{
    *lane = *of;
    lane->random = number + 1;
    lane->offset_ns = LANE_WAIT_MS * 1000000;
    snprintf(lane->name, sizeof lane->name, "lane-%u", number);
    sem_init(&lane->begin, 0, 0);
    sem_init(&lane->over, 0, 0);
    assert_int_equal(hf_open(url, NULL, &lane->holder), HF_OK);
    assert_int_equal(hf_open(url, NULL, &lane->waiter), HF_OK);
}

static inline void lane_close(struct lane *lane)
{
    assert_int_equal(hf_close(lane->holder, 5000), HF_OK);
    assert_int_equal(hf_close(lane->waiter, 5000), HF_OK);
}

struct race_outcome {
    unsigned granted, timed_out;
};

/* Runs all lanes. The test fails with what went wrong in one of them. */
static inline struct race_outcome lanes_run(struct lane *lane, unsigned count)
{
    pthread_t thread[16];
    struct race_outcome sum = {0};
    assert_in_range(count, 1, sizeof thread / sizeof *thread);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, lane_run, &lane[i]), 0);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(thread[i], NULL);
        sum.granted += lane[i].granted;
        sum.timed_out += lane[i].timed_out;
    }
    printf("# waits that ended as permits came free: %u timed out, %u granted\n", sum.timed_out,
           sum.granted);
    for (unsigned i = 0; i < count; i++)
        if (lane[i].wrong[0])
            fail_msg("%s", lane[i].wrong);
    return sum;
}
