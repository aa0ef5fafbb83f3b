/* robust.h - mutexes in shared memory that tell when their owner died.
 *
 * They are glibc's robust, process-shared mutexes: the kernel walks a thread's list of them when the thread ends and
 * marks each as "owner died". Their first word is the futex that the kernel marks: the thread id of the owner and two
 * flags. That word can be watched by others, which is how one process learns of another's death. */
#pragma once
#include "futex.h"

#include <pthread.h>

enum hf_robust_result {
    HF_ROBUST_LOCKED,
    HF_ROBUST_OWNER_DIED, /* locked; what it guards may be half-done */
    HF_ROBUST_TIMEOUT,
    HF_ROBUST_BROKEN, /* not a mutex that can be locked */
};

int hf_robust_init(pthread_mutex_t *mutex); /* 0 or an errno */
enum hf_robust_result hf_robust_lock(pthread_mutex_t *mutex, int64_t until);
enum hf_robust_result hf_robust_result_of(int error);
static inline enum hf_robust_result hf_robust_try(pthread_mutex_t *mutex)
{
    int error = pthread_mutex_trylock(mutex);
    return error ? hf_robust_result_of(error) : HF_ROBUST_LOCKED;
}
void hf_robust_mend(pthread_mutex_t *mutex); /* after HF_ROBUST_OWNER_DIED, when all is well again */
static inline void hf_robust_unlock(pthread_mutex_t *mutex)
{
    pthread_mutex_unlock(mutex);
}

/* The word to watch. */
static inline hf_word *hf_robust_word(pthread_mutex_t *mutex)
{
    return (hf_word *)(void *)mutex;
}

/* Is it held by a thread that lives, going by the word's value? */
bool hf_robust_held(uint32_t value);

/* Asks the kernel to wake one watcher when the owner lets go or dies. The value to sleep on, or 0 when nobody living
 * holds it. */
uint32_t hf_robust_watch(pthread_mutex_t *mutex);

/* Does the calling thread own it, by the word? False on a libc whose mutexes are laid out in another way. */
bool hf_robust_mine(pthread_mutex_t *mutex);

/* The thread that owns it, 0: none. */
int64_t hf_robust_owner(pthread_mutex_t *mutex);
