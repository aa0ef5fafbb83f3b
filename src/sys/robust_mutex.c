/* robust_mutex.c - mutexes in shared memory that tell when their owner died. */
#include "robust_mutex.h"

#include "clock.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, SMALL_STACK = 64 * 1024 };

/* Interval at which a waiter checks whether the word still names a living thread. It also limits
 * the time lost when a waiter dies between its wake and its lock. */
#define CHECK_EVERY 20000000 /* ns */

/* Pause before a repair. The mark comes when the sleeping thread has ended, and other threads of
 * the dying process may still run for the microsecond that the kernel needs to interrupt them. */
#define LAST_INSTRUCTIONS 200000 /* ns */

/* ---- The owner ---- */

static void *sleep_as_owner(void *arg)
{
    struct robust_owner *owner = arg;
    if (syscall(SYS_set_robust_list, owner->head, sizeof *owner->head) != 0)
        owner->error = errno;
    owner->id = (uint32_t)gettid();
    atomic_store(&owner->ready, 1);
    futex_wake_here(&owner->ready, 1);

    while (!atomic_load(&owner->stop))
        futex_wait_here(&owner->stop, 0, INT64_MAX);
    return NULL;
}

/* The C library takes thread-local storage from the stack: a program that has much of it needs the
 * default size. */
static int create_thread(struct robust_owner *owner)
{
    pthread_attr_t attr;
    int error = pthread_attr_init(&attr);
    if (error)
        return error;

    error = pthread_attr_setstacksize(&attr, SMALL_STACK);
    if (!error)
        error = pthread_create(&owner->thread, &attr, sleep_as_owner, owner);
    pthread_attr_destroy(&attr);

    return error == EINVAL ? pthread_create(&owner->thread, NULL, sleep_as_owner, owner) : error;
}

/* The thread takes no signal: they are the application's. */
static int start_thread(struct robust_owner *owner)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = create_thread(owner);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return error;

    while (!atomic_load(&owner->ready))
        futex_wait_here(&owner->ready, 0, INT64_MAX);
    if (owner->error)
        robust_owner_stop(owner);
    return owner->error;
}

static size_t view_pages(const struct robust_owner *owner)
{
    return owner->file_pages + ROBUST_SLOTS;
}

static size_t view_size(const struct robust_owner *owner)
{
    return (2 * view_pages(owner) + 1) * PAGE;
}

/* Makes the view of the file. The kernel expects each mutex word at a fixed distance from its
 * link in the list. So the view maps the shared pages a second time, with the private links behind
 * them. */
static int map_view(struct robust_owner *owner, int fd)
{
    char *view =
        mmap(NULL, view_size(owner), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (view == MAP_FAILED)
        return errno;

    if (mmap(view, owner->file_pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             0) == MAP_FAILED) {
        int error = errno;
        munmap(view, view_size(owner));
        return error;
    }

    owner->view = view;
    owner->head = (struct robust_list_head *)(void *)(view + 2 * view_pages(owner) * PAGE);
    owner->head->list.next = &owner->head->list;
    owner->head->futex_offset = -(long)(view_pages(owner) * PAGE);
    return 0;
}

int robust_owner_start(struct robust_owner *owner, int fd, size_t file_pages)
{
    assert(fd >= 0 && file_pages > 0);
    memset(owner, 0, sizeof *owner);
    owner->file_pages = file_pages;
    int error = map_view(owner, fd);
    return error ? error : start_thread(owner);
}

void robust_owner_stop(struct robust_owner *owner)
{
    if (!owner->view)
        return;

    if (owner->id) {
        atomic_store(&owner->stop, 1);
        futex_wake_here(&owner->stop, 1);
        pthread_join(owner->thread, NULL);
    }
    munmap(owner->view, view_size(owner));
    owner->view = NULL;
    owner->id = 0;
}

/* ---- The list ---- */

static struct robust_list *link_of(const struct robust_owner *owner, const void *word)
{
    return (struct robust_list *)(void *)((char *)(uintptr_t)word - owner->head->futex_offset);
}

/* One store makes a change of the list: the process may die before or after it. */
static void store_next(struct robust_list *link, struct robust_list *next)
{
    __atomic_store_n(&link->next, next, __ATOMIC_SEQ_CST);
}

static void list_word(struct robust_owner *owner, const void *word)
{
    struct robust_list *link = link_of(owner, word);
    store_next(link, owner->head->list.next);
    store_next(&owner->head->list, link);
}

static void unlist_word(struct robust_owner *owner, const void *word)
{
    struct robust_list *link = link_of(owner, word), *before = &owner->head->list;
    while (before->next != link)
        before = before->next;
    store_next(before, link->next);
}

void robust_owner_cover(struct robust_owner *owner, size_t offset)
{
    assert(owner->view && offset % sizeof(uint64_t) == 0);
    assert(offset + sizeof(struct robust_mutex) <= owner->file_pages * PAGE);
    list_word(owner, owner->view + offset);
}

int robust_owner_cover_slot(struct robust_owner *owner, int fd, unsigned slot, int64_t offset)
{
    assert(owner->view && slot < ROBUST_SLOTS);
    assert(offset >= 0 && offset % (int64_t)sizeof(uint64_t) == 0);
    char *page = owner->view + (owner->file_pages + slot) * PAGE;

    if (owner->slot[slot])
        unlist_word(owner, owner->slot[slot]);
    owner->slot[slot] = NULL;
    if (!offset)
        return 0;

    if (mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             offset / PAGE * PAGE) == MAP_FAILED)
        return errno;
    owner->slot[slot] = (futex_word *)(void *)(page + offset % PAGE);
    list_word(owner, owner->slot[slot]);
    return 0;
}

/* ---- The mutex ---- */

static enum robust_mutex_result take_over(void)
{
    clock_sleep_until(clock_boot() + LAST_INSTRUCTIONS);
    return ROBUST_MUTEX_OWNER_DIED;
}

/* Locks a mutex that nobody holds, with the flags that must stay. Returns TIMEOUT if the word has
 * changed. */
static enum robust_mutex_result lock_free(const struct robust_owner *owner,
                                          struct robust_mutex *mutex, uint32_t seen, uint32_t flags)
{
    uint32_t mine = owner->id | flags | (seen & (FUTEX_WAITERS | FUTEX_OWNER_DIED));
    if (!atomic_compare_exchange_strong(&mutex->word, &seen, mine))
        return ROBUST_MUTEX_TIMEOUT;
    return mine & FUTEX_OWNER_DIED ? take_over() : ROBUST_MUTEX_LOCKED;
}

enum robust_mutex_result robust_mutex_try_marked(const struct robust_owner *owner,
                                                 struct robust_mutex *mutex, uint32_t seen)
{
    return robust_mutex_held(seen) ? ROBUST_MUTEX_TIMEOUT : lock_free(owner, mutex, seen, 0);
}

/* Returns true if no thread has the id in the word. Then a process has overwritten the word: the
 * kernel would have marked it when its owner ended. */
static bool names_nobody(uint32_t value)
{
    return syscall(SYS_tkill, value & FUTEX_TID_MASK, 0) != 0 && errno == ESRCH;
}

/* Sleeps until the word changes, for a moment at most. Returns true if the word names no thread. */
static bool wait_for_change(struct robust_mutex *mutex, uint32_t value, int64_t now, int64_t until)
{
    int64_t check = now + CHECK_EVERY;
    if (!(value & FUTEX_WAITERS)) {
        if (!atomic_compare_exchange_strong(&mutex->word, &value, value | FUTEX_WAITERS))
            return false;
        value |= FUTEX_WAITERS;
    }

    futex_wait(&mutex->word, value, check < until ? check : until);
    bool is_same = atomic_load(&mutex->word) == value;
    return is_same && clock_boot() >= check && names_nobody(value);
}

enum robust_mutex_result robust_mutex_lock(const struct robust_owner *owner,
                                           struct robust_mutex *mutex, int64_t until)
{
    assert(owner->id);
    enum robust_mutex_result result = robust_mutex_try(owner, mutex);

    for (uint32_t slept = 0; result == ROBUST_MUTEX_TIMEOUT; slept = FUTEX_WAITERS) {
        uint32_t value = atomic_load(&mutex->word);
        int64_t now = clock_boot();
        /* other threads may sleep as well, so the flag stays */
        if (!robust_mutex_held(value)) {
            result = lock_free(owner, mutex, value, slept);
            continue;
        }
        if (now >= until)
            return ROBUST_MUTEX_TIMEOUT;
        if (wait_for_change(mutex, value, now, until))
            result = lock_free(owner, mutex, value | FUTEX_WAITERS, FUTEX_OWNER_DIED);
    }
    return result;
}

void robust_mutex_unlock_marked(struct robust_mutex *mutex)
{
    uint32_t seen = atomic_load(&mutex->word);
    while (!atomic_compare_exchange_weak(&mutex->word, &seen, seen & FUTEX_OWNER_DIED))
        ;
    if (seen & FUTEX_WAITERS)
        futex_wake(&mutex->word, 1);
}

void robust_mutex_make_consistent(struct robust_mutex *mutex)
{
    atomic_fetch_and(&mutex->word, ~(uint32_t)FUTEX_OWNER_DIED);
}

/* ---- Seen from outside ---- */

bool robust_mutex_held(uint32_t value)
{
    return (value & FUTEX_TID_MASK) != 0;
}

uint32_t robust_mutex_watch(struct robust_mutex *mutex)
{
    uint32_t value = atomic_load(&mutex->word);
    while (robust_mutex_held(value) && !(value & FUTEX_WAITERS))
        if (atomic_compare_exchange_weak(&mutex->word, &value, value | FUTEX_WAITERS))
            return value | FUTEX_WAITERS;
    return robust_mutex_held(value) ? value : 0;
}

bool robust_mutex_is_mine(const struct robust_owner *owner, struct robust_mutex *mutex)
{
    return (atomic_load(&mutex->word) & FUTEX_TID_MASK) == owner->id;
}

int64_t robust_mutex_owner(struct robust_mutex *mutex)
{
    return atomic_load(&mutex->word) & FUTEX_TID_MASK;
}
