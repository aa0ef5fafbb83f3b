/* io_call_counts.h - counts what each thread of a test calls: the library's calls of send, recv,
 * poll, write, futex and the allocator come through here, by the linker's --wrap. */
#pragma once
#include "sys/small_mutex.h"

#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct counts {
    _Atomic uint64_t sends, short_sends, receives, polls, writes, futexes, allocations;
    _Atomic uint64_t checks; /* polls and receives that do not sleep */
    _Atomic uint64_t sleeps; /* on a word of one's own: not for a latch that another one has */
};
static _Thread_local struct counts mine;

static inline void count(_Atomic uint64_t *what)
{
    atomic_fetch_add_explicit(what, 1, memory_order_relaxed);
}

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    count(&mine.sends);
    ssize_t sent = __real_send(fd, bytes, len, flags);
    if (sent < (ssize_t)len)
        count(&mine.short_sends);
    return sent;
}

ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    count(&mine.receives);
    if (flags & MSG_DONTWAIT)
        count(&mine.checks);
    return __real_recv(fd, bytes, size, flags);
}

int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    count(timeout ? &mine.polls : &mine.checks);
    return __real_poll(fds, n, timeout);
}

ssize_t __real_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    count(&mine.writes);
    return __real_write(fd, bytes, len);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_futex)
        count(&mine.futexes);
    if (number == SYS_futex && a[1] == FUTEX_WAIT_PRIVATE && (uint32_t)a[2] != SMALL_MUTEX_WANTED)
        count(&mine.sleeps);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    count(&mine.allocations);
    return __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    count(&mine.allocations);
    return __real_calloc(n, size);
}

void *__real_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size)
{
    count(&mine.allocations);
    return __real_realloc(block, size);
}
