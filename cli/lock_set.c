/* lock_set.c - acquires the locks of a run and treats them as one. */
#include "lock_set.h"
#include "output.h"
#include "verbs.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Acquiring ---- */

static int acquire_one(struct lock_set *set)
{
    set->request.name = set->names[0];
    hf_status status = hf_acquire_start(set->client, &set->request, lock_request_done,
                                        set->lock_request, &set->leases[0]);
    return status == HF_OK ? 0 : fail_with(status);
}

/* Returns the index of the lock that an error message of the library is about. The message
 * begins with the name or with the number of the request. */
static size_t name_in_words(const struct lock_set *set, const char *words)
{
    size_t found = 0, longest = 0;

    if (strncmp(words, "requests[", 9) == 0)
        return strtoul(words + 9, NULL, 10);
    for (size_t i = 0; i < set->count; i++) {
        size_t len = strlen(set->names[i]);
        bool begins = strncmp(words, set->names[i], len) == 0 && strncmp(words + len, ": ", 2) == 0;
        if (begins && len > longest) {
            longest = len;
            found = i;
        }
    }

    return found;
}

static void note_refusal(struct lock_set *set, const char *words)
{
    size_t refused = name_in_words(set, words);
    const char *flaw = strncmp(words, "requests[", 9) == 0 ? strstr(words, "].") : NULL;

    set->refused = refused < set->count ? refused : 0;
    if (flaw)
        snprintf(set->lock_request->words, sizeof set->lock_request->words, "\"%.200s\": %.300s",
                 output_shown(set->names[set->refused]).text, flaw + 2);
    else
        snprintf(set->lock_request->words, sizeof set->lock_request->words, "%.511s", words);
}

static void *take_all(void *arg)
{
    struct lock_set *set = arg;
    struct hf_request requests[LOCK_SET_MAX];
    const struct hf_request *pointers[LOCK_SET_MAX];
    uint64_t one = 1;

    for (size_t i = 0; i < set->count; i++) {
        requests[i] = set->request;
        requests[i].name = set->names[i];
        pointers[i] = &requests[i];
    }

    hf_status outcome =
        hf_acquire_many(set->client, pointers, set->count, set->request.wait_ms, set->leases);
    if (outcome != HF_OK)
        note_refusal(set, hf_error_text());
    atomic_store(&set->lock_request->outcome, (int)outcome);
    (void)!write(set->lock_request->wake_fd, &one, sizeof one);

    return NULL;
}

int lock_set_acquire(struct lock_set *set, hf_client *client, const struct hf_request *request,
                     struct lock_request *lock_request)
{
    set->client = client;
    set->request = *request;
    set->lock_request = lock_request;
    if (set->count == 1)
        return acquire_one(set);
    int error = pthread_create(&set->thread, NULL, take_all, set);
    set->has_thread = error == 0;
    if (error == 0)
        return 0;
    complain("cannot start a thread: %s", strerror(error));
    return EXIT_INTERNAL;
}

void lock_set_cancel(struct lock_set *set)
{
    if (!set->has_thread)
        hf_cancel(set->leases[0]);
}

void lock_set_join(struct lock_set *set)
{
    if (set->has_thread)
        pthread_join(set->thread, NULL);
    set->has_thread = false;
}

/* ---- State ---- */

size_t lock_set_find(const struct lock_set *set, const char *name)
{
    size_t at = 0;
    while (at < set->count && strcmp(set->names[at], name) != 0)
        at++;
    return at;
}

size_t lock_set_next(const struct lock_set *set)
{
    size_t next = set->count;

    for (size_t i = 0; i < set->count; i++) {
        bool is_before = next == set->count || strcmp(set->names[i], set->names[next]) < 0;
        if (is_before && !atomic_load(&set->granted[i]))
            next = i;
    }
    return next < set->count ? next : 0;
}

size_t lock_set_shortest(const struct lock_set *set)
{
    size_t shortest = 0;
    for (size_t i = 1; i < set->count; i++)
        if (hf_lease_left_ms(set->leases[i]) < hf_lease_left_ms(set->leases[shortest]))
            shortest = i;
    return shortest;
}

int64_t lock_set_left_ms(const struct lock_set *set)
{
    return hf_lease_left_ms(set->leases[lock_set_shortest(set)]);
}
