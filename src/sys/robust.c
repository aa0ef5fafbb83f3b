/* robust.c - mutexes in shared memory that tell when their owner died. */
#include "robust.h"

#include "clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <time.h>
#include <unistd.h>

int hf_robust_init(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attr;
    int error = pthread_mutexattr_init(&attr);
    if (error)
        return error;
    error = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (!error)
        error = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    if (!error)
        error = pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    return error;
}

enum hf_robust_result hf_robust_result_of(int error)
{
    switch (error) {
    case 0:
        return HF_ROBUST_LOCKED;
    case EOWNERDEAD:
        return HF_ROBUST_OWNER_DIED;
    case EBUSY:
    case ETIMEDOUT:
        return HF_ROBUST_TIMEOUT;
    default:
        return HF_ROBUST_BROKEN;
    }
}

static int lock_until(pthread_mutex_t *mutex, int64_t until)
{
#ifdef __SANITIZE_THREAD__ /* which does not know pthread_mutex_clocklock and would see no lock at all */
    int64_t end = hf_clock_wall_us() * 1000 + (until - hf_clock_boot());
    struct timespec limit = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    return pthread_mutex_timedlock(mutex, &limit);
#else
    int64_t end = hf_clock_monotonic() + (until - hf_clock_boot());
    end = end > 0 ? end : 0; /* what is long over, by a time asleep, may lie before the monotonic clock began */
    struct timespec limit = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &limit);
#endif
}

enum hf_robust_result hf_robust_lock(pthread_mutex_t *mutex, int64_t until)
{
    enum hf_robust_result r = hf_robust_try(mutex);
    if (r != HF_ROBUST_TIMEOUT)
        return r;
    if (until == INT64_MAX)
        return hf_robust_result_of(pthread_mutex_lock(mutex));
    return hf_robust_result_of(lock_until(mutex, until));
}

void hf_robust_mend(pthread_mutex_t *mutex)
{
    pthread_mutex_consistent(mutex);
}

bool hf_robust_held(uint32_t value)
{
    return (value & FUTEX_TID_MASK) != 0 && !(value & FUTEX_OWNER_DIED);
}

uint32_t hf_robust_watch(pthread_mutex_t *mutex)
{
    hf_word *word = hf_robust_word(mutex);
    uint32_t value = atomic_load(word);
    while (hf_robust_held(value) && !(value & FUTEX_WAITERS))
        if (atomic_compare_exchange_weak(word, &value, value | FUTEX_WAITERS))
            return value | FUTEX_WAITERS;
    return hf_robust_held(value) ? value : 0;
}

bool hf_robust_mine(pthread_mutex_t *mutex)
{
    return (atomic_load(hf_robust_word(mutex)) & FUTEX_TID_MASK) == (uint32_t)gettid();
}

int64_t hf_robust_owner(pthread_mutex_t *mutex)
{
    return atomic_load(hf_robust_word(mutex)) & FUTEX_TID_MASK;
}
