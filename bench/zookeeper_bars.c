/* zookeeper_bars.c - Holdfast's locks in one ZooKeeper; bench/zookeeper runs it beside Curator and
 * kazoo.
 *
 *     zookeeper_bars PORT turns WORKERS SECONDS HOLD_US   processes that take turns
 *     zookeeper_bars PORT cycle SECONDS                   takes and releases a lock of its own
 *     zookeeper_bars PORT waiters COUNT                   COUNT clients wait for one lock in turn
 *     zookeeper_bars PORT renew HOLDS TTL_S               what renewals cost the server in one ttl
 *
 * Each prints a line with figures as NAME=VALUE. The server counts its writes and reads. */
#include "turns.h"

#include <holdfast.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS = 20, HOLDS_MAX = 100000 };

static int port;
static hf_client *client;
static hf_lease *held;

/* ---- What the server counts ---- */

/* Returns a number in the server's answer to "mntr". */
static uint64_t count_of(const char *name)
{
    static char text[1 << 18];
    char line[96];
    size_t len = 0;
    ssize_t got;
    int fd = turns_connect(port);
    if (write(fd, "mntr", 4) != 4)
        turns_fail("mntr", "not sent");
    while ((got = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)got;
    text[len] = '\0';
    close(fd);
    snprintf(line, sizeof line, "\nzk_%s\t", name);
    const char *at = strstr(text, line);
    if (!at)
        turns_fail(name, "the server does not count it");
    return strtoull(at + strlen(line), NULL, 10);
}

static uint64_t writes(void)
{
    return count_of("cnt_updatelatency");
}

static uint64_t reads(void)
{
    return count_of("cnt_readlatency");
}

/* ---- Turns and cycles ---- */

static hf_client *open_client(void)
{
    char url[100];
    hf_client *one;
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d/bars", port);
    if (hf_open(url, NULL, &one) != HF_OK)
        turns_fail("hf_open", hf_error_text());
    return one;
}

static void open_worker(int worker)
{
    (void)worker;
    client = open_client();
}

static hf_lease *take(const char *name)
{
    struct hf_request want = {.size = sizeof want, .name = name, .wait_ms = 120000};
    hf_lease *lease;
    if (hf_acquire(client, &want, &lease) != HF_OK)
        turns_fail("hf_acquire", hf_error_text());
    return lease;
}

static void give(hf_lease *lease)
{
    if (hf_release(lease) != HF_OK)
        turns_fail("hf_release", hf_error_text());
    hf_lease_free(lease);
}

static bool take_turn(void)
{
    held = take("ours");
    return true;
}

static void give_turn(void)
{
    give(held);
}

static void run_cycles(double seconds)
{
    client = open_client();
    for (int i = 0; i < 300; i++)
        give(take("cycle"));
    int64_t begin = turns_now(), end = begin + (int64_t)(seconds * 1e9);
    unsigned long cycles = 0;
    for (; turns_now() < end; cycles++)
        give(take("cycle"));
    printf("holdfast cycle_us=%.1f\n", (double)(turns_now() - begin) / 1e3 / (double)cycles);
}

/* ---- Many waiters ---- */

static hf_lease *lease[HOLDS_MAX];
static sem_t told;
static atomic_int newest, failed;

static void note(hf_lease *one, hf_status outcome, void *number)
{
    (void)one;
    failed += outcome != HF_OK;
    newest = (int)(intptr_t)number;
    sem_post(&told);
}

static void start(hf_client *of, const struct hf_request *request, int number)
{
    if (hf_acquire_start(of, request, note, (void *)(intptr_t)number, &lease[number]) != HF_OK)
        turns_fail("hf_acquire_start", hf_error_text());
}

static void await_outcome(void)
{
    while (sem_wait(&told) != 0)
        continue;
    if (failed)
        turns_fail("wait", "a request was not granted");
}

static void run_waiters(int count)
{
    hf_client *of[CLIENTS];
    struct hf_request want = {.size = sizeof want, .name = "queue", .wait_ms = HF_FOREVER};
    client = open_client();
    held = take("queue");
    for (int i = 0; i < CLIENTS; i++) { /* its session is not counted */
        of[i] = open_client();
        hf_lease *warm;
        want.name = "warm";
        if (hf_acquire(of[i], &want, &warm) != HF_OK)
            turns_fail("hf_acquire", hf_error_text());
        give(warm);
    }
    want.name = "queue";
    uint64_t writes_before = writes(), reads_before = reads();
    for (int i = 0; i < count; i++)
        start(of[i % CLIENTS], &want, i);
    while (count_of("ephemerals_count") < (uint64_t)count + 1)
        usleep(50000);
    int64_t begin = turns_now();
    give(held);
    for (int i = 0; i < count; i++) {
        await_outcome();
        give(lease[newest]);
    }
    double turns = count, lasted = (double)(turns_now() - begin) / 1e9;
    printf("holdfast waiters=%d writes=%.3f reads=%.3f per_s=%.0f\n", count,
           (double)(writes() - writes_before - 1) / turns, (double)(reads() - reads_before) / turns,
           turns / lasted);
}

/* ---- Many holds ---- */

static void run_renewals(int holds, int ttl_s)
{
    char name[32];
    client = open_client();
    for (int i = 0; i < holds; i++) {
        snprintf(name, sizeof name, "hold-%d", i);
        struct hf_request want = {.size = sizeof want,
                                  .name = name,
                                  .ttl_ms = ttl_s * 1000,
                                  .wait_ms = HF_FOREVER,
                                  .flags = HF_AUTO_RENEW};
        start(client, &want, i);
        if (i >= 500)
            await_outcome();
    }
    for (int i = 0; i < 500 && i < holds; i++)
        await_outcome();
    sleep((unsigned)ttl_s); /* the first renewal of a hold also watches its node */
    uint64_t writes_before = writes(), reads_before = reads();
    sleep((unsigned)ttl_s);
    double wrote = (double)(writes() - writes_before), read = (double)(reads() - reads_before);
    int kept = 0;
    for (int i = 0; i < holds; i++)
        kept += hf_lease_ok(lease[i]);
    printf("renew holds=%d kept=%d ttl_s=%d writes_a_third=%.2f reads_a_ttl=%.0f\n", holds, kept,
           ttl_s, wrote / 3, read);
    fflush(stdout);
    hf_close(client, 0);
    _exit(0);
}

int main(int argc, char **argv)
{
    static const struct turns turns = {open_worker, take_turn, give_turn, writes};
    if (argc < 4)
        turns_fail("arguments", "PORT turns|cycle|waiters|renew ...");
    port = atoi(argv[1]);
    sem_init(&told, 0, 0);
    int number = atoi(argv[3]);
    if (strcmp(argv[2], "turns") == 0 && argc == 6)
        turns_run("holdfast", &turns, number, atof(argv[4]), atoll(argv[5]));
    else if (strcmp(argv[2], "cycle") == 0)
        run_cycles(atof(argv[3]));
    else if (strcmp(argv[2], "waiters") == 0 && number > 0 && number <= HOLDS_MAX)
        run_waiters(number);
    else if (strcmp(argv[2], "renew") == 0 && argc == 5 && number > 0 && number <= HOLDS_MAX)
        run_renewals(number, atoi(argv[4]));
    else
        turns_fail(argv[2], "there is no such measurement");
    return 0;
}
