/* library_soak.c - mixed load on one client of the library for some time: what the process and the
 * server keep must not grow. The first third warms up; after it the line of least squares through
 * the samples must be flat.
 *
 *     library_soak [SECONDS [CURVES [STEPS]]]
 *
 * 20 s without an argument. CURVES is a file for the samples. STEPS are those of all threads in a
 * second; without it, as many as they can. */
#include "redis_fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { THREADS = 4, NAMES = 20000, SAMPLES_MOST = 300, SHOWN = 8 };
enum column { RSS_KB, DESCRIPTORS, THREAD_COUNT, LIVE_KEYS, COLUMNS };

static double seconds = 20;
static const char *curves_path;
static int64_t step_us; /* from the beginning of a thread's step to that of its next; 0: no pause */

struct load {
    hf_client *client;
    _Atomic bool ends;
    _Atomic uint64_t granted, refused, expired, listed, cancelled;
};

struct sample {
    double at_s;
    double of[COLUMNS];
};

/* ---- The load ---- */

static uint32_t draw_below(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

static void ignore_row(void *arg, const struct hf_row *row)
{
    (void)arg, (void)row;
}

static void ignore_outcome(hf_lease *lease, hf_status outcome, void *arg)
{
    (void)lease, (void)outcome, (void)arg;
}

/* Starts a wait and takes it back. */
static void cancel_a_wait(struct load *load, const struct hf_request *request)
{
    hf_lease *lease;
    part_must(hf_acquire_start(load->client, request, ignore_outcome, NULL, &lease) == HF_OK);
    (void)hf_cancel(lease);
    hf_lease_free(lease);
    atomic_fetch_add(&load->cancelled, 1);
}

static void list_some(struct load *load)
{
    char next[HF_NAME_MAX + 1];
    struct hf_page page = {.size = sizeof page, .prefix = "shared", .names = 20};
    bool is_done = hf_list_page(load->client, &page, ignore_row, NULL, next) == HF_OK;
    atomic_fetch_add(is_done ? &load->listed : &load->refused, 1);
}

static void hold_a_moment(struct load *load, const struct hf_request *request, uint32_t what)
{
    hf_lease *lease;
    hf_status status = hf_acquire(load->client, request, &lease);
    atomic_fetch_add(status == HF_OK ? &load->granted : &load->refused, 1);
    if (status != HF_OK)
        return;

    if (what == 1 && hf_extend(lease, 2000) != HF_OK)
        atomic_fetch_add(&load->expired, 1);
    if (what == 2) {
        nap_us((request->ttl_ms + 20) * 1000); /* it runs out */
        atomic_fetch_add(&load->expired, 1);
    }
    (void)hf_release(lease);
    hf_lease_free(lease);
}

static void take_a_step(struct load *load, uint64_t *seed)
{
    char name[32];
    uint32_t what = draw_below(seed, 20);
    bool is_shared = what >= 12;
    snprintf(name, sizeof name, is_shared ? "shared-%u" : "soak-%u",
             draw_below(seed, is_shared ? 4 : NAMES));

    struct hf_request request = {.size = sizeof request,
                                 .name = name,
                                 .kind = what % 4 == 3 && !is_shared ? HF_SEMAPHORE : HF_EXCLUSIVE,
                                 .ttl_ms = what == 2 ? 100 : 2000,
                                 .wait_ms = is_shared ? 30 : 0,
                                 .flags = what == 5 ? HF_AUTO_RENEW : 0};
    if (request.kind == HF_SEMAPHORE)
        request.units = 1, request.capacity = 3;

    if (what == 19)
        cancel_a_wait(load, &request);
    else if (what == 18)
        list_some(load);
    else
        hold_a_moment(load, &request, what);
}

static void *work(void *arg)
{
    struct load *load = arg;
    uint64_t seed = (uint64_t)(uintptr_t)&seed ^ (uint64_t)now_ns();
    while (!atomic_load(&load->ends)) {
        int64_t began_ns = now_ns();
        take_a_step(load, &seed);
        int64_t left_us = step_us - (now_ns() - began_ns) / 1000;
        if (left_us > 0)
            nap_us(left_us);
    }
    return NULL;
}

/* ---- Samples ---- */

static unsigned count_entries(const char *path)
{
    unsigned count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static double rss_kb(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

/* The number of keys of holds and queues; -1: a key has no end. Counters, tombstones and the index
 * stay for their time. */
static const char count_keys[] =
    "local live = 0 for _, key in ipairs(redis.call('KEYS', '*')) do "
    "if redis.call('PTTL', key) == -1 then return -1 end "
    "if not (key:find('}:[tw]$') or key:find('}:names', 1, true)) then live = live + 1 end "
    "end return live";

static double live_keys(void)
{
    redisContext *to = server_connect(scene.server);
    int64_t count = scene_number(to, "EVAL %s 0", count_keys);
    redisFree(to);
    assert_true(count >= 0);
    return (double)count;
}

static struct sample take_sample(int64_t began_ns)
{
    struct sample s = {.at_s = (double)(now_ns() - began_ns) / 1e9};
    s.of[RSS_KB] = rss_kb();
    s.of[DESCRIPTORS] = count_entries("/proc/self/fd");
    s.of[THREAD_COUNT] = count_entries("/proc/self/task");
    s.of[LIVE_KEYS] = live_keys();
    return s;
}

/* By how much the line of least squares rises from the first sample to the last. */
static double rise_of(const struct sample *s, size_t count, enum column column, double *mean)
{
    double mx = 0, my = 0, above = 0, below = 0;
    for (size_t i = 0; i < count; i++)
        mx += s[i].at_s / (double)count, my += s[i].of[column] / (double)count;
    for (size_t i = 0; i < count; i++) {
        above += (s[i].at_s - mx) * (s[i].of[column] - my);
        below += (s[i].at_s - mx) * (s[i].at_s - mx);
    }
    *mean = my;
    return below > 0 ? above / below * (s[count - 1].at_s - s[0].at_s) : 0;
}

static void judge(const struct sample *samples, size_t count)
{
    static const struct {
        const char *what;
        double share, least;
    } bars[COLUMNS] = {{"RSS in kB", 0.03, 1024},
                       {"descriptors", 0, 2},
                       {"threads", 0, 1},
                       {"keys of holds and queues", 0.2, 30}};

    for (enum column c = 0; c < COLUMNS; c++) {
        double mean, rise = rise_of(samples, count, c, &mean);
        print_message("# %s: mean %.0f, risen by %.1f\n", bars[c].what, mean, rise);
        if (rise > bars[c].share * mean + bars[c].least)
            fail_msg("%s rose by %.1f", bars[c].what, rise);
    }
}

static void print_samples(const struct sample *samples, size_t count)
{
    print_message(
        "# | seconds | memory (kB) | descriptors | threads | keys of holds and queues |\n");
    for (size_t i = 0; i<count; i += count> SHOWN ? count / SHOWN : 1)
        print_message("# | %.0f | %.0f | %.0f | %.0f | %.0f |\n", samples[i].at_s,
                      samples[i].of[RSS_KB], samples[i].of[DESCRIPTORS],
                      samples[i].of[THREAD_COUNT], samples[i].of[LIVE_KEYS]);
}

static void write_curves(const struct sample *samples, size_t count)
{
    FILE *file = fopen(curves_path, "w");
    assert_non_null(file);
    fprintf(file, "seconds\trss_kb\tdescriptors\tthreads\tkeys\n");
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%.1f\t%.0f\t%.0f\t%.0f\t%.0f\n", samples[i].at_s, samples[i].of[RSS_KB],
                samples[i].of[DESCRIPTORS], samples[i].of[THREAD_COUNT], samples[i].of[LIVE_KEYS]);
    assert_int_equal(fclose(file), 0);
}

static void test_nothing_grows(void **state)
{
    (void)state;
    static struct sample samples[SAMPLES_MOST];
    struct load load = {.client = scene_client()};
    pthread_t thread[THREADS];
    size_t count = 0;
    int64_t began = now_ns(), end = began + (int64_t)(seconds * 1e9);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &load), 0);

    while (now_ns() < end && count < SAMPLES_MOST) {
        samples[count++] = take_sample(began);
        nap_us((int64_t)(seconds * 1e6) / (SAMPLES_MOST - 50));
    }
    atomic_store(&load.ends, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);

    print_message("# %llu grants, %llu refused, %llu ran out, %llu lists, %llu cancelled\n",
                  (unsigned long long)load.granted, (unsigned long long)load.refused,
                  (unsigned long long)load.expired, (unsigned long long)load.listed,
                  (unsigned long long)load.cancelled);
    print_samples(samples, count);
    if (curves_path)
        write_curves(samples, count);
    assert_true(count > 20 && load.granted > 100 && load.expired > 0 && load.listed > 0);
    judge(samples + count / 3, count - count / 3);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seconds = atof(argv[1]);
    if (argc > 2)
        curves_path = argv[2];
    if (argc > 3)
        step_us = (int64_t)(THREADS * 1e6 / atof(argv[3]));
    const struct CMUnitTest tests[] = {
        SENTENCE("what the library and its server keep does not grow", test_nothing_grows),
    };
    return scene_judge_kind(SERVER_REDIS, "redis", tests, 1);
}
