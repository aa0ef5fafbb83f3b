/* small_mutex.c - the slow path of a small mutex: sleep until it is free. */
#include "small_mutex.h"

/* A thread that slept locks the mutex as WANTED: other threads may sleep as well. */
void small_mutex_wait(small_mutex *mutex)
{
    while (atomic_exchange_explicit(&mutex->word, SMALL_MUTEX_WANTED, memory_order_acquire) !=
           SMALL_MUTEX_FREE)
        futex_wait_here(&mutex->word, SMALL_MUTEX_WANTED, INT64_MAX);
}
