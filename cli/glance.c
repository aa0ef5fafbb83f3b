/* glance.c - the thread that looks. */
#include "glance.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_int inside; /* how many look */

static void leave(struct glance *glance)
{
    if (!atomic_exchange(&glance->left, true))
        return;
    rows_free(&glance->rows);
    sem_destroy(&glance->seen);
    free(glance);
}

static void *look(void *arg)
{
    struct glance *glance = arg;
    uint64_t one = 1;
    glance->status = hf_show(glance->client, glance->name, rows_add, &glance->rows);
    if (glance->status != HF_OK)
        snprintf(glance->words, sizeof glance->words, "%s", hf_error_text());
    atomic_fetch_sub(&inside, 1);
    sem_post(&glance->seen);
    (void)!write(glance->bell, &one, sizeof one);
    leave(glance);
    return NULL;
}

static bool start(struct glance *glance)
{
    pthread_t thread;
    bool started = pthread_create(&thread, NULL, look, glance) == 0;
    if (started)
        pthread_detach(thread);
    return started;
}

struct glance *glance_begin(hf_client *client, const char *name, int bell)
{
    struct glance *glance = calloc(1, sizeof *glance);
    if (!glance)
        return NULL;
    glance->client = client;
    glance->name = name;
    glance->bell = bell;
    sem_init(&glance->seen, 0, 0);
    atomic_fetch_add(&inside, 1);
    if (start(glance))
        return glance;
    atomic_fetch_sub(&inside, 1);
    sem_destroy(&glance->seen);
    free(glance);
    return NULL;
}

bool glance_over(struct glance *glance, int64_t within_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + within_ms * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    if (!glance->over)
        glance->over = sem_clockwait(&glance->seen, CLOCK_MONOTONIC, &until) == 0;
    return glance->over;
}

void glance_end(struct glance *glance)
{
    if (glance)
        leave(glance);
}

bool glance_pending(void)
{
    return atomic_load(&inside) > 0;
}
