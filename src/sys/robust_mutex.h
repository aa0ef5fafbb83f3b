/* robust_mutex.h - mutexes in shared memory that tell when their owner died.
 *
 * A mutex is one word: the thread id of its owner and the kernel's two flags for robust futexes
 * (FUTEX_WAITERS, FUTEX_OWNER_DIED). Other processes may write that word, so it is all that lies in
 * the shared file: this process follows no address that it read there. The C library's robust
 * mutexes are not used, because they keep the links of the owner's list inside the mutex.
 *
 * The owner of a mutex is a struct robust_owner, one for each open file. It has a thread that only
 * sleeps, and the id of that thread stands in the words. The kernel has a robust list of that
 * thread (set_robust_list) whose head and links lie in private memory. When the thread ends,
 * because its process exits, is killed or calls exec, the kernel marks every listed word that has
 * its id. A thread of its own is needed, because the list of any other thread belongs to the C
 * library.
 *
 * The list names every mutex that the owner may lock, from the start. So locking is one atomic
 * operation and unlocking another, and a process may die between any two instructions of both. */
#pragma once
#include "futex.h"

#include <pthread.h>
#include <stddef.h>

struct robust_mutex {
    futex_word word;
    uint32_t unused; /* a link in private memory is twice as long as the word */
};

struct robust_list_head;

/* Number of slots. Mutexes in the first file_pages pages stay on the kernel's robust list. A slot
 * puts one further mutex, anywhere in the file, on it for a while. */
enum { ROBUST_SLOTS = 2 };

struct robust_owner {
    uint32_t id;       /* thread id of the sleeper */
    size_t file_pages; /* pages of the file that the view maps, from its beginning */
    char *view;        /* file_pages, then one page for each slot, then as many pages of links */
    struct robust_list_head *head; /* head of the kernel's list, behind the links */
    futex_word *slot[ROBUST_SLOTS];
    futex_word ready, stop;
    int error; /* errno of the start of the thread; 0: it runs */
    pthread_t thread;
};

/* Starts an owner for mutexes in the first `file_pages` pages of a file. Returns 0 or an errno. */
int robust_owner_start(struct robust_owner *owner, int fd, size_t file_pages);
/* Ends the owner. The kernel marks the mutexes that it still holds. */
void robust_owner_stop(struct robust_owner *owner);
/* Lists the mutex at that offset of the first pages, for good. */
void robust_owner_cover(struct robust_owner *owner, size_t offset);
/* Lists the mutex at any offset of the file in place of the one that the slot had. Offset 0 empties
 * the slot. Call it before locking and after unlocking. Returns 0 or an errno. */
int robust_owner_cover_slot(struct robust_owner *owner, int fd, unsigned slot, int64_t offset);

enum robust_mutex_result {
    ROBUST_MUTEX_LOCKED,
    ROBUST_MUTEX_OWNER_DIED, /* locked; what the mutex guards may be half-done */
    ROBUST_MUTEX_TIMEOUT,
};

/* Locks the mutex, at the latest at `until`. A word that names no living thread counts as marked:
 * somebody damaged it. */
enum robust_mutex_result robust_mutex_lock(const struct robust_owner *owner,
                                           struct robust_mutex *mutex, int64_t until);
/* The rare half of robust_mutex_try(): the word was `seen`, not 0. */
enum robust_mutex_result robust_mutex_try_marked(const struct robust_owner *owner,
                                                 struct robust_mutex *mutex, uint32_t seen);
/* The rare half of robust_mutex_unlock(): some flag was set. */
void robust_mutex_unlock_marked(struct robust_mutex *mutex);
/* Call it after ROBUST_MUTEX_OWNER_DIED, when everything is repaired. Without it the unlock
 * passes the mark on to the next owner. */
void robust_mutex_make_consistent(struct robust_mutex *mutex);

static inline enum robust_mutex_result robust_mutex_try(const struct robust_owner *owner,
                                                        struct robust_mutex *mutex)
{
    uint32_t seen = 0;
    bool locked = atomic_compare_exchange_strong_explicit(
        &mutex->word, &seen, owner->id, memory_order_acquire, memory_order_relaxed);
    return locked ? ROBUST_MUTEX_LOCKED : robust_mutex_try_marked(owner, mutex, seen);
}

static inline void robust_mutex_unlock(const struct robust_owner *owner, struct robust_mutex *mutex)
{
    uint32_t seen = owner->id;
    if (!atomic_compare_exchange_strong_explicit(&mutex->word, &seen, 0, memory_order_release,
                                                 memory_order_relaxed))
        robust_mutex_unlock_marked(mutex);
}

/* Returns true if the value of a word says that some thread holds the mutex. */
bool robust_mutex_held(uint32_t value);

/* Asks the kernel to wake one watcher when the owner unlocks or dies. Returns the value to sleep
 * on, or 0 if nobody holds the mutex. */
uint32_t robust_mutex_watch(struct robust_mutex *mutex);

/* Returns true if the word of the mutex has this owner's thread id. */
bool robust_mutex_is_mine(const struct robust_owner *owner, struct robust_mutex *mutex);

/* Returns the thread id in the word; 0: the mutex is free. */
int64_t robust_mutex_owner(struct robust_mutex *mutex);
