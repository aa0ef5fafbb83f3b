/* lookup.c - from a host's name to its addresses, without making anybody wait. */
#include "lookup.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Shared by the thread that looks up and the one that asked: whoever lets go last frees it. */
struct hf_lookup {
    _Atomic int refs;
    _Atomic bool done; /* the two below are final */
    int error;         /* EAI_ */
    struct addrinfo *found;
    int fd;
    char port[32];
    char host[];
};

static void unref(struct hf_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->refs, 1) != 1)
        return;
    if (lookup->found)
        freeaddrinfo(lookup->found);
    close(lookup->fd);
    free(lookup);
}

static void *look_up(void *arg)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    static const uint64_t one = 1;
    struct hf_lookup *lookup = arg;
    lookup->error = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->found);
    atomic_store(&lookup->done, true);
    if (write(lookup->fd, &one, sizeof one) < 0) {
        /* An eventfd refuses only when it is already as readable as can be. */
    }
    unref(lookup);
    return NULL;
}

struct addrinfo *hf_lookup_number(const char *host, const char *port)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    return getaddrinfo(host, port, &hints, &found) == 0 ? found : NULL;
}

/* It takes no signal: they are the application's. */
static int start_thread(struct hf_lookup *lookup)
{
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, old;
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, &detached, look_up, lookup);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&detached);
    return error;
}

struct hf_lookup *hf_lookup_start(const char *host, const char *port)
{
    size_t len = strlen(host) + 1;
    struct hf_lookup *lookup = calloc(1, sizeof *lookup + len);
    if (!lookup)
        return NULL;
    memcpy(lookup->host, host, len);
    memcpy(lookup->port, port, strnlen(port, sizeof lookup->port - 1));
    atomic_init(&lookup->refs, 2);
    lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lookup->fd < 0) {
        free(lookup);
        return NULL;
    }
    int error = start_thread(lookup);
    if (!error)
        return lookup;
    atomic_store(&lookup->refs, 1);
    unref(lookup);
    errno = error;
    return NULL;
}

int hf_lookup_fd(const struct hf_lookup *lookup)
{
    return lookup->fd;
}

int hf_lookup_answer(struct hf_lookup *lookup, struct addrinfo **found)
{
    *found = NULL;
    if (!atomic_load(&lookup->done))
        return EAI_INPROGRESS;
    *found = lookup->found;
    lookup->found = NULL;
    return lookup->error;
}

void hf_lookup_drop(struct hf_lookup *lookup)
{
    unref(lookup);
}
