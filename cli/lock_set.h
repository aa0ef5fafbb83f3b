/* lock_set.h - the locks of one `run`: a single one, or several that are taken together, all or
 * none. */
#pragma once
#include "lock_request.h"
#include <pthread.h>

#define LOCK_SET_MAX OPTION_VALUES_MAX

struct lock_set {
    const char *names[LOCK_SET_MAX]; /* words of argv, in the order of the command line */
    size_t count;
    hf_lease *leases[LOCK_SET_MAX]; /* in the same order; all are set once the outcome is HF_OK */
    atomic_bool granted[LOCK_SET_MAX]; /* set from the log, so shortly after the grant */

    hf_client *client;
    struct hf_request
        request; /* the request for each of them; name and callback argument are filled in */
    struct lock_request *lock_request; /* receives the outcome */
    size_t refused;                    /* index of the name that was refused */
    bool has_thread; /* several names: a thread calls hf_acquire_many, which blocks and cannot be
                        cancelled */
    pthread_t thread;
};

/* Requests all locks. Returns 0 if `lock_request` will receive the outcome, otherwise an exit
 * code after a message. */
int lock_set_acquire(struct lock_set *set, hf_client *client, const struct hf_request *request,
                     struct lock_request *lock_request);

/* Ends the wait. For several names only hf_close ends it. */
void lock_set_cancel(struct lock_set *set);

/* Waits for the thread. To be called after hf_close has ended every call. */
void lock_set_join(struct lock_set *set);

/* Returns the index of the lock with that name, or `count` if there is none. */
size_t lock_set_find(const struct lock_set *set, const char *name);

/* Locks are taken one after the other, in byte order of their names. Returns the index of the one
 * that is waited for now. */
size_t lock_set_next(const struct lock_set *set);

/* Returns the index of the lock that ends first. */
size_t lock_set_shortest(const struct lock_set *set);

/* Returns the time for which all locks are certainly still held. */
int64_t lock_set_left_ms(const struct lock_set *set);
