/* net_resolver.c - tests of looking up names without making anybody wait. getaddrinfo goes through
 * the test, which can hold it up. */
#include "lib/sentence.h"

#include "net/resolver.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- The resolver, and what becomes of descriptors and threads ---- */

static _Atomic bool held_up;
static _Atomic int asked, answered;
static _Atomic bool took_signals;
static _Atomic bool no_threads, no_descriptors;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, port, hints, found);
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    atomic_store(&took_signals, !sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGCHLD));
    atomic_fetch_add(&asked, 1);
    while (atomic_load(&held_up))
        usleep(1000);
    int error = strcmp(host, "nowhere.invalid") == 0
                    ? EAI_NONAME
                    : __real_getaddrinfo("127.0.0.1", port, hints, found);
    atomic_fetch_add(&answered, 1);
    return error;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg)
{
    return atomic_load(&no_threads) ? EAGAIN : __real_pthread_create(thread, attr, start, arg);
}

int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags)
{
    if (!atomic_load(&no_descriptors))
        return __real_eventfd(value, flags);
    errno = EMFILE;
    return -1;
}

/* The lowest free descriptor; while none is left open it is the one of the beginning. */
static int next_descriptor(void)
{
    int fd = dup(0);
    assert_true(fd >= 0);
    close(fd);
    return fd;
}

static int first_descriptor;

/* A thread that looks up may have it for a moment longer. */
static void await_no_descriptor(void)
{
    while (next_descriptor() != first_descriptor)
        usleep(1000);
}

static void await(_Atomic int *count, int wanted)
{
    while (atomic_load(count) < wanted)
        usleep(1000);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, timeout_ms) == 1;
}

/* ---- Tests ---- */

static void test_numbers(void **state)
{
    (void)state;
    struct addrinfo *four = resolver_number("127.0.0.9", "6379");
    assert_non_null(four);
    assert_int_equal(four->ai_family, AF_INET);
    assert_int_equal(ntohs(((struct sockaddr_in *)(void *)four->ai_addr)->sin_port), 6379);
    freeaddrinfo(four);
    struct addrinfo *six = resolver_number("::1", "1");
    assert_non_null(six);
    assert_int_equal(six->ai_family, AF_INET6);
    freeaddrinfo(six);
    assert_null(resolver_number("localhost", "6379"));
    assert_int_equal(atomic_load(&asked), 0);
}

static void test_name(void **state)
{
    (void)state;
    int had = atomic_load(&asked);
    struct addrinfo *found;
    atomic_store(&held_up, true);
    struct resolver *lookup = resolver_start("somewhere.test", "6379");
    assert_non_null(lookup);
    await(&asked, had + 1);
    assert_int_equal(resolver_answer(lookup, &found), EAI_INPROGRESS);
    assert_null(found);
    assert_false(is_readable(resolver_fd(lookup), 0));
    atomic_store(&held_up, false);
    assert_true(is_readable(resolver_fd(lookup), 10000));
    assert_int_equal(resolver_answer(lookup, &found), 0);
    assert_non_null(found);
    assert_false(atomic_load(&took_signals));
    freeaddrinfo(found);
    resolver_drop(lookup);
    await_no_descriptor();
}

static void test_unknown(void **state)
{
    (void)state;
    struct addrinfo *found;
    struct resolver *lookup = resolver_start("nowhere.invalid", "6379");
    assert_non_null(lookup);
    assert_true(is_readable(resolver_fd(lookup), 10000));
    assert_int_equal(resolver_answer(lookup, &found), EAI_NONAME);
    assert_null(found);
    resolver_drop(lookup);
    await_no_descriptor();
}

/* The sanitizer sees a block that nobody frees; the descriptor is counted here. */
static void test_abandoned(void **state)
{
    (void)state;
    int had = atomic_load(&answered), begun = atomic_load(&asked);
    atomic_store(&held_up, true);
    for (int i = 0; i < 5; i++) {
        struct resolver *lookup = resolver_start("somewhere.test", "6379");
        assert_non_null(lookup);
        if (i % 2)
            await(&asked, begun + i + 1);
        resolver_drop(lookup);
    }
    assert_int_not_equal(next_descriptor(), first_descriptor);
    atomic_store(&held_up, false);
    await(&answered, had + 5);
    await_no_descriptor();
}

static void test_short_of_means(void **state)
{
    (void)state;
    atomic_store(&no_threads, true);
    errno = 0;
    assert_null(resolver_start("somewhere.test", "6379"));
    assert_int_equal(errno, EAGAIN);
    atomic_store(&no_threads, false);
    atomic_store(&no_descriptors, true);
    assert_null(resolver_start("somewhere.test", "6379"));
    assert_int_equal(errno, EMFILE);
    atomic_store(&no_descriptors, false);
    assert_int_equal(next_descriptor(), first_descriptor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a number is an address at once and asks nobody", test_numbers),
        SENTENCE(
            "a name is looked up by a thread that takes no signal, and the descriptor tells when",
            test_name),
        SENTENCE("a name that nobody has is an error of its own", test_unknown),
        SENTENCE("look-ups that were abandoned free themselves", test_abandoned),
        SENTENCE(
            "without a thread or a descriptor the look-up fails with the cause and leaves nothing",
            test_short_of_means),
    };
    first_descriptor = next_descriptor();
    return cmocka_run_group_tests_name("looking up names", tests, NULL, NULL);
}
