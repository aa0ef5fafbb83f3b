/* silent_waits.c - asks a server that does not answer, by both ways to acquire, for many lengths of
 * wait at once.
 *
 * silent_waits URL STEP_MS MOST_MS prints a line for each wait from 0 on: the wait, the status of
 * hf_acquire and how long it took, and the same for hf_acquire_start. */
#include "holdfast.h"
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WAITS_MAX = 256 };

struct attempt {
    const char *url;
    int64_t wait_ms;
    hf_status acquired, started;
    int64_t acquire_ms, start_ms;
    pthread_t thread[2];
    sem_t done;
};

static struct attempt attempts[WAITS_MAX];

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct hf_request request_of(const struct attempt *attempt)
{
    return (struct hf_request){
        .size = sizeof(struct hf_request), .name = "silent", .wait_ms = attempt->wait_ms};
}

static hf_client *open_client(const char *url)
{
    hf_client *client;
    if (hf_open(url, NULL, &client) != HF_OK) {
        fprintf(stderr, "%s\n", hf_error_text());
        exit(70);
    }
    return client;
}

static void *acquire(void *arg)
{
    struct attempt *attempt = arg;
    struct hf_request request = request_of(attempt);
    hf_client *client = open_client(attempt->url);
    hf_lease *lease;
    int64_t began = now_ms();

    attempt->acquired = hf_acquire(client, &request, &lease);
    attempt->acquire_ms = now_ms() - began;
    hf_close(client, 0);
    return NULL;
}

static void on_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct attempt *attempt = arg;
    (void)lease;
    attempt->started = outcome;
    sem_post(&attempt->done);
}

static void *start(void *arg)
{
    struct attempt *attempt = arg;
    struct hf_request request = request_of(attempt);
    hf_client *client = open_client(attempt->url);
    hf_lease *lease;
    int64_t began = now_ms();

    sem_init(&attempt->done, 0, 0);
    attempt->started = hf_acquire_start(client, &request, on_done, attempt, &lease);
    if (attempt->started == HF_OK)
        sem_wait(&attempt->done);
    attempt->start_ms = now_ms() - began;
    hf_close(client, 0);
    return NULL;
}

int main(int argc, char **argv)
{
    int64_t step = argc == 4 ? atoll(argv[2]) : 0, most = argc == 4 ? atoll(argv[3]) : 0;
    size_t count = step > 0 ? (size_t)(most / step) + 1 : WAITS_MAX + 1;
    if (count > WAITS_MAX) {
        fprintf(stderr, "usage: silent_waits URL STEP_MS MOST_MS, at most %d waits\n", WAITS_MAX);
        return 64;
    }

    for (size_t i = 0; i < count; i++) {
        attempts[i] = (struct attempt){.url = argv[1], .wait_ms = (int64_t)i * step};
        pthread_create(&attempts[i].thread[0], NULL, acquire, &attempts[i]);
        pthread_create(&attempts[i].thread[1], NULL, start, &attempts[i]);
    }
    for (size_t i = 0; i < count; i++) {
        struct attempt *attempt = &attempts[i];
        pthread_join(attempt->thread[0], NULL);
        pthread_join(attempt->thread[1], NULL);
        printf("%" PRId64 " %s %" PRId64 " %s %" PRId64 "\n", attempt->wait_ms,
               hf_status_name(attempt->acquired), attempt->acquire_ms,
               hf_status_name(attempt->started), attempt->start_ms);
    }
    return 0;
}
