/* small_mutex.h - a mutex of four bytes between the threads of one process. Locking and unlocking
 * cost one atomic operation each; a thread that finds it locked sleeps in the kernel. */
#pragma once
#include "futex.h"

typedef struct {
    futex_word word;
} small_mutex;

enum small_mutex_state {
    SMALL_MUTEX_FREE,
    SMALL_MUTEX_HELD,
    SMALL_MUTEX_WANTED
}; /* WANTED: locked, and some thread may sleep */

void small_mutex_wait(small_mutex *mutex); /* the slow path of small_mutex_lock() */

static inline bool small_mutex_try(small_mutex *mutex)
{
    uint32_t seen = SMALL_MUTEX_FREE;
    return atomic_compare_exchange_strong_explicit(&mutex->word, &seen, SMALL_MUTEX_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void small_mutex_lock(small_mutex *mutex)
{
    if (!small_mutex_try(mutex))
        small_mutex_wait(mutex);
}

/* Makes a mutex that begins locked. No other thread can see it yet. */
static inline void small_mutex_begin_held(small_mutex *mutex)
{
    atomic_store_explicit(&mutex->word, SMALL_MUTEX_HELD, memory_order_relaxed);
}

/* The next owner may free the mutex, so the wake uses its address alone. */
static inline void small_mutex_unlock(small_mutex *mutex)
{
    if (atomic_exchange_explicit(&mutex->word, SMALL_MUTEX_FREE, memory_order_release) ==
        SMALL_MUTEX_WANTED)
        futex_wake_here(&mutex->word, 1);
}
