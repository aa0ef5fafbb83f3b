/* shm_guard.c - lets a program survive when a file that it has mapped is truncated. */
#include "shm_guard.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PLACES_IN_BLOCK = 64, PAGE = 4096 };

/* The signal handler may read these at any time. So each field is one atomic word, and the address
 * is stored last when a mapping is added and cleared first when it is removed. */
struct place {
    _Atomic uintptr_t begin; /* address of the mapping; 0: this entry is free */
    _Atomic size_t size;
    _Atomic bool *_Atomic hit;
};

/* Blocks are added when all places are taken and never freed, because a handler may be reading
 * them. */
struct place_block {
    struct place place[PLACES_IN_BLOCK];
    struct place_block *_Atomic next;
};
static struct place_block first_block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards adding and removing */
static unsigned guarded;  /* number of guarded mappings; guarded by the lock */
static bool is_installed; /* guarded by the lock */

/* Returns the place of the mapping that has this address, or NULL. */
static struct place *place_of(uintptr_t at)
{
    for (struct place_block *block = &first_block; block; block = atomic_load(&block->next))
        for (unsigned i = 0; i < PLACES_IN_BLOCK; i++) {
            struct place *p = &block->place[i];
            uintptr_t begin = atomic_load(&p->begin);
            if (begin != 0 && at >= begin && at - begin < atomic_load(&p->size))
                return p;
        }
    return NULL;
}

/* Maps private zeros from the faulting page to the end of the mapping, so that the instruction
 * can run again. */
static bool mend(uintptr_t at)
{
    const struct place *p = place_of(at);
    if (!p)
        return false;

    uintptr_t page = at / PAGE * PAGE, end = atomic_load(&p->begin) + atomic_load(&p->size);
    atomic_store(atomic_load(&p->hit), true);
    return mmap((void *)page, end - page, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

/* Handles SIGBUS. It makes only system calls and atomic loads, because any code may have been
 * interrupted. For a fault outside our mappings it restores the default action, so the fault
 * happens again and ends the program. A signal that was sent by a process is sent again. */
static void on_sigbus(int signal, siginfo_t *info, void *context)
{
    (void)context;
    bool is_fault = info->si_code > 0;
    if (is_fault && mend((uintptr_t)info->si_addr))
        return;

    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(signal, &standard, NULL);
    if (!is_fault)
        raise(signal);
}

static void install(void)
{
    struct sigaction now, ours = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    bool is_free = sigaction(SIGBUS, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
                   now.sa_handler == SIG_DFL;
    is_installed = is_free && sigaction(SIGBUS, &ours, NULL) == 0;
}

/* Removes the handler, unless the program has installed its own meanwhile. */
static void uninstall(void)
{
    struct sigaction now, standard = {.sa_handler = SIG_DFL};
    bool is_ours = is_installed && sigaction(SIGBUS, NULL, &now) == 0 &&
                   (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_sigbus;
    if (is_ours)
        sigaction(SIGBUS, &standard, NULL);
    is_installed = false;
}

/* Returns a free place, in a new block if need be; NULL without memory. Call it with the lock. */
static struct place *find_free_place(void)
{
    struct place_block *block = &first_block;
    for (;;) {
        for (unsigned i = 0; i < PLACES_IN_BLOCK; i++)
            if (atomic_load(&block->place[i].begin) == 0)
                return &block->place[i];

        struct place_block *next = atomic_load(&block->next);
        if (!next) {
            next = calloc(1, sizeof *next);
            if (!next)
                return NULL;
            atomic_store(&block->next, next);
        }
        block = next;
    }
}

bool shm_guard_add(char *map, size_t size, _Atomic bool *hit)
{
    assert(map && size && hit);
    pthread_mutex_lock(&lock);

    struct place *p = find_free_place();
    if (p) {
        atomic_store(&p->size, size);
        atomic_store(&p->hit, hit);
        atomic_store(&p->begin, (uintptr_t)map);
        if (guarded++ == 0)
            install();
    }

    pthread_mutex_unlock(&lock);
    return p != NULL;
}

void shm_guard_remove(const char *map)
{
    assert(map);
    pthread_mutex_lock(&lock);

    struct place *p = place_of((uintptr_t)map);
    if (p) {
        atomic_store(&p->begin, 0);
        if (--guarded == 0)
            uninstall();
    }
    pthread_mutex_unlock(&lock);
}

void shm_guard_this_thread(void)
{
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
}
