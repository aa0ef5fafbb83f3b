/* fail_nth_call.c - the n-th allocation fails, and the n-th system call, for every n there is:
 * opening, acquiring, waiting, releasing and closing answer with a documented status, leak nothing,
 * and no permit is lost. The library's calls come here first because the linker wraps them
 * (tests/CMakeLists.txt). */
#include "lib/engines.h"
#include "lib/leak_check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

enum { CALLS_MAX = 2000 };

/* ---- What fails ---- */

enum which { NOTHING, ALLOCATION, SYSTEM_CALL };

static _Atomic int failing; /* enum which */
static _Atomic int countdown;
static _Atomic int fired;

static void arm(enum which which, int n)
{
    atomic_store(&fired, 0);
    atomic_store(&countdown, n);
    atomic_store(&failing, which);
}

static bool fails(enum which which)
{
    if (atomic_load(&failing) != (int)which || atomic_fetch_sub(&countdown, 1) != 1)
        return false;
    atomic_store(&fired, 1);
    return true;
}

/* One wrapped call: what it is, what it returns when it fails, and with which errno. */
#define WRAP(type, name, which, failure, error, parameters, ...)                                   \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        if (!fails(which))                                                                         \
            return __real_##name(__VA_ARGS__);                                                     \
        errno = error;                                                                             \
        return failure;                                                                            \
    }

WRAP(void *, malloc, ALLOCATION, NULL, ENOMEM, (size_t size), size)
WRAP(void *, calloc, ALLOCATION, NULL, ENOMEM, (size_t count, size_t size), count, size)
WRAP(void *, realloc, ALLOCATION, NULL, ENOMEM, (void *old, size_t size), old, size)
WRAP(void *, reallocarray, ALLOCATION, NULL, ENOMEM, (void *old, size_t count, size_t size), old,
     count, size)
WRAP(char *, strdup, ALLOCATION, NULL, ENOMEM, (const char *text), text)
WRAP(void *, mmap, SYSTEM_CALL, MAP_FAILED, ENOMEM,
     (void *at, size_t size, int protection, int flags, int fd, off_t from), at, size, protection,
     flags, fd, from)
WRAP(int, madvise, SYSTEM_CALL, -1, EINVAL, (void *at, size_t size, int advice), at, size, advice)
WRAP(int, eventfd, SYSTEM_CALL, -1, EMFILE, (unsigned start, int flags), start, flags)
WRAP(ssize_t, getrandom, SYSTEM_CALL, -1, ENOSYS, (void *to, size_t size, unsigned flags), to, size,
     flags)
WRAP(ssize_t, read, SYSTEM_CALL, -1, EIO, (int fd, void *to, size_t size), fd, to, size)
WRAP(int, fstat, SYSTEM_CALL, -1, EIO, (int fd, struct stat *to), fd, to)
WRAP(int, fstatfs, SYSTEM_CALL, -1, EIO, (int fd, struct statfs *to), fd, to)
WRAP(int, lstat, SYSTEM_CALL, -1, ENOMEM, (const char *path, struct stat *to), path, to)
WRAP(int, stat, SYSTEM_CALL, -1, ENOMEM, (const char *path, struct stat *to), path, to)
WRAP(int, flock, SYSTEM_CALL, -1, ENOLCK, (int fd, int how), fd, how)
WRAP(int, fchmod, SYSTEM_CALL, -1, EPERM, (int fd, mode_t mode), fd, mode)
WRAP(int, link, SYSTEM_CALL, -1, ENOSPC, (const char *from, const char *to), from, to)
WRAP(int, mkostemp, SYSTEM_CALL, -1, ENOSPC, (char *path, int flags), path, flags)
WRAP(int, posix_fallocate, SYSTEM_CALL, ENOSPC, 0, (int fd, off_t from, off_t size), fd, from, size)
WRAP(int, pthread_create, SYSTEM_CALL, EAGAIN, 0,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
     thread, attributes, run, arg)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (!fails(SYSTEM_CALL))
        return __real_open(path, flags, mode);
    errno = EMFILE;
    return -1;
}

/* A wait on a futex may be interrupted, and one on two words may be unknown to the kernel. A wake
 * cannot fail. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    bool wakes = number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE;
    if (wakes || !fails(SYSTEM_CALL))
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    errno = number == SYS_futex ? EINTR : ENOSYS;
    return -1;
}

/* ---- Statuses ---- */

static bool one_of(hf_status status, const hf_status *list)
{
    while (*list != HF_OK && *list != status)
        list++;
    return status == HF_OK || *list == status;
}

#define documented(status, ...)                                                                    \
    check_documented(status, (const hf_status[]){__VA_ARGS__, HF_OK}, #status, __LINE__)
static void check_documented(hf_status status, const hf_status *list, const char *what, int line)
{
    if (!one_of(status, list))
        fail_msg("line %d: %s answered %s: %s", line, what, hf_status_name(status),
                 hf_error_text());
}

/* What cannot be looked at cannot be told from what is damaged. */
#define FAILURES HF_NO_MEMORY, HF_FULL, HF_UNAVAILABLE, HF_DENIED, HF_DAMAGED, HF_NO_QUORUM

/* ---- The scene: everything once, while something fails ---- */

#define LONG_NAME                                                                                  \
    "a name that is too long for the room that a handle has for its texts, so that each needs a "  \
    "block of its own, and"                                                                        \
    " then some more, so that it needs more than one place in a table"

#define PERMIT(...)                                                                                \
    ASK(.name = LONG_NAME, .label = "label", .correlation_id = "42", .ttl_ms = 20000, __VA_ARGS__)

/* A wait that is granted by somebody else's release, blocking or not. */
static void wait_for_it(hf_client *client)
{
    hf_lease *held, *lease, *started;
    hf_status status = hf_acquire(client, PERMIT(.wait_ms = 0), &held);
    documented(status, FAILURES);
    if (status != HF_OK)
        return;
    struct outcome outcome = {.status = -1};
    status =
        hf_acquire_start(client, PERMIT(.wait_ms = HF_FOREVER), note_outcome, &outcome, &started);
    documented(status, FAILURES);
    if (status == HF_OK) {
        hf_lease_free(held);
        documented(await_outcome(&outcome), FAILURES);
        hf_lease_free(started);
    } else {
        hf_lease_free(held);
    }
    status = hf_acquire(client, PERMIT(.wait_ms = 5000), &lease);
    documented(status, FAILURES);
    if (status != HF_OK)
        return;
    struct outcome timed = {.status = -1};
    status = hf_acquire_start(client, PERMIT(.wait_ms = 20), note_outcome, &timed, &started);
    documented(status, FAILURES);
    if (status == HF_OK) {
        documented(await_outcome(&timed), FAILURES, HF_TIMEOUT);
        hf_lease_free(started);
    }
    documented(hf_extend(lease, 0), FAILURES, HF_LOST);
    documented(hf_release(lease), FAILURES, HF_IN_DOUBT, HF_NOT_HELD);
    hf_lease_free(lease);
}

static void ignore_row(void *arg, const struct hf_row *row)
{
    (void)arg, (void)row;
}

static void play(void)
{
    hf_client *client;
    struct hf_client_options options = {.size = sizeof options, .no_environment = true};
    hf_status status = hf_open(engine_url(), &options, &client);
    documented(status, FAILURES);
    if (status != HF_OK) {
        assert_null(client);
        assert_true(hf_error_text()[0]);
        return;
    }
    wait_for_it(client);
    hf_lease *kept;
    documented(hf_acquire(client, PERMIT(.wait_ms = 5000), &kept), FAILURES);
    if (kept)
        (void)hf_lease_fd(kept); /* -1 is an answer */
    documented(hf_list(client, NULL, ignore_row, NULL), FAILURES);
    documented(hf_close(client, 5000), HF_IN_DOUBT); /* with one lock held */
}

/* n goes up until nothing fails any more. If there is a descriptor more, that n is tried once more:
 * the row's own client may have dialled meanwhile, which it does not do twice. */
static void fail_each(enum which which, bool afresh)
{
    int fds, threads, n = 1, tried_again = 0;
    for (int quiet = 0; quiet < 3;
         n++) { /* how many calls there are depends a little on who is fast */
        if (afresh)
            engine_afresh();
        else
            row_client();
        fds = count_in("/proc/self/fd");
        threads = count_in("/proc/self/task");
        arm(which, n);
        play();
        atomic_store(&failing, NOTHING);
        assert_threads(threads);
        bool has_dialled = count_in("/proc/self/fd") != fds && tried_again != n;
        if (has_dialled)
            tried_again = n--;
        else
            assert_int_equal(count_in("/proc/self/fd"), fds);
        hf_lease *free_again =
            take(row_client(), PERMIT(.wait_ms = 5000)); /* the permit is not lost */
        give(free_again);
        assert_int_equal(look_at(row_client(), LONG_NAME).waiters, 0);
        quiet = atomic_load(&fired) || has_dialled ? 0 : quiet + 1;
        assert_true(n < CALLS_MAX);
    }
    print_message("# %d of them were made to fail\n", n - 4);
    assert_true(n > 10);
}

static void test_allocations(void **state)
{
    (void)state;
    fail_each(ALLOCATION, false);
}

static void test_system_calls(void **state)
{
    (void)state;
    fail_each(SYSTEM_CALL, false);
}

static void test_allocations_afresh(void **state)
{
    (void)state;
    fail_each(ALLOCATION, true);
}

static void test_system_calls_afresh(void **state)
{
    (void)state;
    fail_each(SYSTEM_CALL, true);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        ROW("every allocation fails once: no crash, no leak, a documented status, no permit lost",
            test_allocations),
        ROW("every system call fails once: no crash, no leak, a documented status, no permit lost",
            test_system_calls),
        ROW("so does every allocation of the first client of all", test_allocations_afresh),
        ROW("so does every system call of the first client of all", test_system_calls_afresh),
    };
    return JUDGE(rows);
}
