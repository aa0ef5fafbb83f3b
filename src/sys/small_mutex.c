/* small_mutex.c - the slow path of a small mutex: sleep until it is free. */
#include "small_mutex.h"

/* Sleeps until the mutex is free. A thread that slept locks it as WANTED, because other threads
 * may sleep as well. */
void small_mutex_wait(small_mutex *mutex)
{
    while (atomic_exchange_explicit(&mutex->word, SMALL_MUTEX_WANTED, memory_order_acquire) !=
           SMALL_MUTEX_FREE)
        futex_wait_here(&mutex->word, SMALL_MUTEX_WANTED, INT64_MAX);
}
