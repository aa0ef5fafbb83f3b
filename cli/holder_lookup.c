/* holder_lookup.c - asks the engine who holds a name, without waiting for it. */
#include "holder_lookup.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_int inside; /* number of lookups that the library has not answered */

static void leave(struct holder_lookup *holder_lookup)
{
    if (!atomic_exchange(&holder_lookup->left, true))
        return;
    row_list_free(&holder_lookup->rows);
    sem_destroy(&holder_lookup->seen);
    free(holder_lookup);
}

static void note_rows(void *arg, hf_status status, const struct hf_row *rows, size_t count)
{
    struct holder_lookup *holder_lookup = arg;
    uint64_t one = 1;

    holder_lookup->status = status;
    if (status != HF_OK)
        snprintf(holder_lookup->words, sizeof holder_lookup->words, "%s", hf_error_text());
    for (size_t i = 0; i < count; i++)
        row_list_add(&holder_lookup->rows, &rows[i]);
    atomic_fetch_sub(&inside, 1);
    sem_post(&holder_lookup->seen);
    (void)!write(holder_lookup->wake_fd, &one, sizeof one);
    leave(holder_lookup);
}

struct holder_lookup *holder_lookup_begin(hf_client *client, const char *name, int wake_fd)
{
    struct holder_lookup *holder_lookup = calloc(1, sizeof *holder_lookup);

    if (!holder_lookup)
        return NULL;

    holder_lookup->name = name;
    holder_lookup->wake_fd = wake_fd;
    sem_init(&holder_lookup->seen, 0, 0);
    atomic_fetch_add(&inside, 1);
    if (hf_show_start(client, name, note_rows, holder_lookup) == HF_OK)
        return holder_lookup;

    atomic_fetch_sub(&inside, 1);
    sem_destroy(&holder_lookup->seen);
    free(holder_lookup);

    return NULL;
}

bool holder_lookup_done(struct holder_lookup *holder_lookup, int64_t within_ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + within_ms * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    if (!holder_lookup->done)
        holder_lookup->done = sem_clockwait(&holder_lookup->seen, CLOCK_MONOTONIC, &until) == 0;
    return holder_lookup->done;
}

void holder_lookup_end(struct holder_lookup *holder_lookup)
{
    if (holder_lookup)
        leave(holder_lookup);
}

bool holder_lookup_pending(void)
{
    return atomic_load(&inside) > 0;
}
