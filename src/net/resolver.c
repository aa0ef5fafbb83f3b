/* resolver.c - resolves host names on threads of their own. */
#include "resolver.h"

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

/* Shared by the resolving thread and the caller. The last one to drop its reference frees it. */
struct resolver {
    _Atomic int refs;
    _Atomic bool done; /* `error` and `found` are final */
    int error;         /* code of getaddrinfo() */
    struct addrinfo *found;
    int fd;
    char port[32];
    char host[];
};

static void unref(struct resolver *resolver)
{
    if (atomic_fetch_sub(&resolver->refs, 1) != 1)
        return;
    if (resolver->found)
        freeaddrinfo(resolver->found);
    close(resolver->fd);
    free(resolver);
}

static void *resolve(void *arg)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    static const uint64_t one = 1;
    struct resolver *resolver = arg;
    resolver->error = getaddrinfo(resolver->host, resolver->port, &hints, &resolver->found);
    atomic_store(&resolver->done, true);
    if (write(resolver->fd, &one, sizeof one) < 0) {
        /* The write fails only if the counter is at its maximum; the eventfd is readable then. */
    }

    unref(resolver);
    return NULL;
}

struct addrinfo *resolver_number(const char *host, const char *port)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                          .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    return getaddrinfo(host, port, &hints, &found) == 0 ? found : NULL;
}

/* The thread blocks all signals: they belong to the application. */
static int start_thread(struct resolver *resolver)
{
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, old;

    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);

    int error = pthread_create(&thread, &detached, resolve, resolver);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&detached);
    return error;
}

struct resolver *resolver_start(const char *host, const char *port)
{
    size_t len = strlen(host) + 1;
    struct resolver *resolver = calloc(1, sizeof *resolver + len);
    if (!resolver)
        return NULL;

    memcpy(resolver->host, host, len);
    memcpy(resolver->port, port, strnlen(port, sizeof resolver->port - 1));
    atomic_init(&resolver->refs, 2);
    resolver->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (resolver->fd < 0) {
        free(resolver);
        return NULL;
    }
    int error = start_thread(resolver);
    if (!error)
        return resolver;

    atomic_store(&resolver->refs, 1);
    unref(resolver);
    errno = error;
    return NULL;
}

int resolver_fd(const struct resolver *resolver)
{
    return resolver->fd;
}

int resolver_answer(struct resolver *resolver, struct addrinfo **found)
{
    *found = NULL;
    if (!atomic_load(&resolver->done))
        return EAI_INPROGRESS;
    *found = resolver->found;
    resolver->found = NULL;
    return resolver->error;
}

void resolver_drop(struct resolver *resolver)
{
    unref(resolver);
}
