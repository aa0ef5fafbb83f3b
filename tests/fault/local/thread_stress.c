/* thread_stress.c - eight threads of one client on a few names: whoever holds is alone, and sees
 * what the one before wrote. Usage: stress [ROUNDS] of each thread. */
#include "lib/actors.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8, NAMES = 3, PERMITS = 3 };

static int rounds = 20000;

/* Plain variables on purpose: the lease alone orders the accesses, and TSan says so when it does
 * not. */
static struct {
    uint64_t count, token;
} guarded[NAMES];
static _Atomic uint32_t inside;
static _Atomic bool wrong;

struct worker {
    hf_client *client;
    unsigned number;
    uint64_t random;
    uint64_t done[NAMES];
};

static unsigned draw(struct worker *w, unsigned below)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->random >> 33) % below;
}

static void note_wrong(const char *what)
{
    if (!atomic_exchange(&wrong, true))
        print_error("%s: %s\n", what, hf_error_text());
}

/* One of: do not wait, wait briefly, wait until it comes. */
static int64_t draw_wait(struct worker *w)
{
    static const int64_t waits[] = {0, 1, 3, HF_FOREVER};
    return waits[draw(w, 4)];
}

static void take_lock(struct worker *w)
{
    unsigned n = draw(w, NAMES);
    char name[8];
    snprintf(name, sizeof name, "n%u", n);
    struct want want = {
        .name = name, .wait_ms = draw_wait(w), .flags = draw(w, 2) ? HF_AUTO_RENEW : 0};
    struct hf_request request = request_of(&want);
    hf_lease *lease;
    hf_status status = hf_acquire(w->client, &request, &lease);
    if (status == HF_BUSY || status == HF_TIMEOUT)
        return;
    if (status != HF_OK) {
        note_wrong(name);
        return;
    }
    if (hf_lease_token(lease) <= guarded[n].token)
        note_wrong("a token that does not rise");
    guarded[n].token = hf_lease_token(lease);
    guarded[n].count++;
    w->done[n]++;
    if (draw(w, 2) && hf_release(lease) != HF_OK)
        note_wrong("release");
    hf_lease_free(lease);
}

static void take_permits(struct worker *w)
{
    uint32_t units = 1 + draw(w, 2);
    struct want want = {.name = "p",
                        .kind = HF_SEMAPHORE,
                        .capacity = PERMITS,
                        .units = units,
                        .wait_ms = draw_wait(w)};
    struct hf_request request = request_of(&want);
    hf_lease *lease;
    hf_status status = hf_acquire(w->client, &request, &lease);
    if (status == HF_OK) {
        if (atomic_fetch_add(&inside, units) + units > PERMITS)
            note_wrong("more permits in use than there are");
        atomic_fetch_sub(&inside, units);
        hf_lease_free(lease);
    } else if (status != HF_BUSY && status != HF_TIMEOUT) {
        note_wrong("p");
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < rounds && !atomic_load(&wrong); i++)
        draw(w, 4) ? take_lock(w) : take_permits(w);
    return NULL;
}

/* G1 */
static void test_threads(void **state)
{
    (void)state;
    struct worker worker[THREADS];
    pthread_t thread[THREADS];
    hf_client *client = stage_client();
    for (unsigned i = 0; i < THREADS; i++) {
        worker[i] = (struct worker){.client = client, .number = i, .random = i * 7919 + 1};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &worker[i]), 0);
    }
    uint64_t done[NAMES] = {0};
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        for (unsigned n = 0; n < NAMES; n++)
            done[n] += worker[i].done[n];
    }
    assert_false(atomic_load(&wrong));
    for (unsigned n = 0; n < NAMES; n++) {
        char name[8];
        snprintf(name, sizeof name, "n%u", n);
        assert_int_equal(guarded[n].count, done[n]);
        assert_true(done[n] > (uint64_t)rounds / 4);
        assert_int_equal(see(client, name).holders + see(client, name).waiters, 0);
    }
    assert_int_equal(see(client, "p").holders + see(client, "p").waiters, 0);
}

/* ---- The table goes away under all of them ---- */

static _Atomic uint64_t cycles;

static void *work_until_it_is_gone(void *arg)
{
    struct worker *w = arg;
    for (;;) {
        char name[8];
        snprintf(name, sizeof name, "n%u", draw(w, NAMES));
        struct want want = {.name = name, .wait_ms = draw_wait(w), .ttl_ms = 60000};
        struct hf_request request = request_of(&want);
        hf_lease *lease;
        hf_status status = hf_acquire(w->client, &request, &lease);
        if (status == HF_UNAVAILABLE)
            return NULL;
        if (status != HF_OK && status != HF_BUSY && status != HF_TIMEOUT)
            note_wrong(name);
        if (status == HF_OK && hf_release(lease) == HF_OK)
            atomic_fetch_add(&cycles, 1);
        hf_lease_free(lease);
    }
}

static void test_table_removed(void **state)
{
    (void)state;
    struct worker worker[THREADS];
    pthread_t thread[THREADS];
    hf_client *client = stage_client();
    struct hf_request renewed =
        request_of(&(struct want){.name = "r", .ttl_ms = 60, .flags = HF_AUTO_RENEW});
    hf_lease *lease;
    assert_int_equal(hf_acquire(client, &renewed, &lease), HF_OK);
    int lost = hf_lease_fd(lease);
    for (unsigned i = 0; i < THREADS; i++) {
        worker[i] = (struct worker){.client = client, .number = i, .random = i * 104729 + 1};
        assert_int_equal(pthread_create(&thread[i], NULL, work_until_it_is_gone, &worker[i]), 0);
    }
    while (atomic_load(&cycles) < 1000)
        nap_us(100);
    assert_int_equal(unlink(stage_path()), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_false(atomic_load(&wrong));
    assert_int_equal(poll(&(struct pollfd){.fd = lost, .events = POLLIN}, 1, ACTOR_PATIENCE_MS), 1);
    assert_false(hf_lease_ok(lease));
    assert_int_equal(hf_release(lease), HF_NOT_HELD);
    hf_lease_free(lease);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        STAGED("eight threads on a few names exclude each other and see each other's writes",
               test_threads),
        STAGED("rm of the table under eight busy threads sends each of them home",
               test_table_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
