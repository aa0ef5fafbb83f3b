/* fenced_workers.c - threads that take turns under one lock and write to a fenced store. */
#include "fenced_workers.h"

#include <pthread.h>
#include <stdatomic.h>

static struct {
    pthread_mutex_t mutex;
    struct worker_totals totals;
    uint64_t token;     /* highest token that the store has seen */
    int64_t last_ns;    /* time of the last accepted write */
    unsigned believers; /* number of workers that hold the lock and were not told otherwise */
} store = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct {
    pthread_t thread;
    hf_client *client;
} worker[WORKERS_MOST];
static unsigned workers;
static const struct want *wanted;
static atomic_bool is_over;

static void store_write(uint64_t token)
{
    pthread_mutex_lock(&store.mutex);
    int64_t now = now_ns(), gap_ms = (now - store.last_ns) / 1000000;
    if (token < store.token) {
        store.totals.refused++;
    } else {
        store.token = token;
        store.totals.writes++;
        store.totals.longest_ms =
            gap_ms > store.totals.longest_ms ? gap_ms : store.totals.longest_ms;
        store.last_ns = now;
    }
    pthread_mutex_unlock(&store.mutex);
}

static void store_believe(int change)
{
    pthread_mutex_lock(&store.mutex);
    store.believers += (unsigned)change;
    store.totals.most = store.believers > store.totals.most ? store.believers : store.totals.most;
    pthread_mutex_unlock(&store.mutex);
}

static void note_end(unsigned *count)
{
    pthread_mutex_lock(&store.mutex);
    ++*count;
    pthread_mutex_unlock(&store.mutex);
}

static void work_under(hf_lease *lease)
{
    store_believe(1);
    store_write(hf_lease_token(lease));
    nap_us(2000);
    if (hf_lease_ok(lease))
        store_write(hf_lease_token(lease));
    store_believe(-1);
}

static void *work(void *arg)
{
    hf_client *client = arg;
    struct hf_request request = request_of(wanted);
    while (!is_over) {
        hf_lease *lease;
        if (hf_acquire(client, &request, &lease) != HF_OK) {
            print_message("# a worker was not served: %s\n", hf_error_text());
            note_end(&store.totals.unserved);
            return NULL;
        }
        work_under(lease);
        if (hf_release(lease) == HF_LOST)
            note_end(&store.totals.lost);
        hf_lease_free(lease);
    }
    return NULL;
}

void workers_begin(hf_client *const *client, unsigned count, const struct want *want)
{
    assert_true(count <= WORKERS_MOST);
    is_over = false;
    wanted = want;
    workers = count;
    store.totals = (struct worker_totals){0};
    store.token = 0;
    store.last_ns = now_ns();
    for (unsigned i = 0; i < count; i++) {
        worker[i].client = client[i];
        assert_int_equal(pthread_create(&worker[i].thread, NULL, work, worker[i].client), 0);
    }
}

struct worker_totals workers_end(void)
{
    is_over = true;
    for (unsigned i = 0; i < workers; i++)
        pthread_join(worker[i].thread, NULL);
    const struct worker_totals *t = &store.totals;
    print_message("# %u writes, %u refused as too old, %u believers at once at most, %u leases "
                  "reported lost, longest pause %lld ms\n",
                  t->writes, t->refused, t->most, t->lost, (long long)t->longest_ms);
    return *t;
}
