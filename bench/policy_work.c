/* policy_work.c - runs a workload through the library with policies of its I/O driver turned off,
 * and counts system calls and context switches. `bench/policies` compares the results.
 *
 * --who says which policies are off: `all-on`, `without-spin`, `without-recv_wait`,
 * `without-batch`, `without-hand_on`. After the result of the workload, a second line of JSON has
 * the counts. */
#include "library.h"
#include "redis_requests.h"

#include "engines/io/io_policy.h"

#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Counting, by the linker's --wrap ---- */

/* Shared with the worker processes. */
struct call_counts {
    atomic_uint_fast64_t sends, receives, polls, futexes, others;
};
static struct call_counts *made;

static void count(atomic_uint_fast64_t *calls)
{
    atomic_fetch_add_explicit(calls, 1, memory_order_relaxed);
}

ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    count(&made->sends);
    return __real_send(fd, bytes, len, flags);
}

ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    count(&made->receives);
    return __real_recv(fd, bytes, size, flags);
}

int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    count(&made->polls);
    return __real_poll(fds, n, timeout);
}

ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    count(&made->others);
    return __real_read(fd, bytes, size);
}

ssize_t __real_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    count(&made->others);
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
    count(number == SYS_futex ? &made->futexes : &made->others);

    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static long switches_of(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

static void print_counts(const struct bench *b)
{
    printf("{\"workload\":\"%s\",\"who\":\"%s\",\"rep\":%d,\"counts\":true,\"sends\":%lu,"
           "\"receives\":%lu,\"polls\":%lu,\"futexes\":%lu,\"other_calls\":%lu,"
           "\"switches\":%ld}\n",
           b->workload, b->who, b->rep, (unsigned long)made->sends, (unsigned long)made->receives,
           (unsigned long)made->polls, (unsigned long)made->futexes, (unsigned long)made->others,
           switches_of(RUSAGE_SELF) + switches_of(RUSAGE_CHILDREN));
}

/* ---- The switches ---- */

static void turn_off(const char *name)
{
    if (strcmp(name, "spin") == 0)
        io_policy.spin = false;
    else if (strcmp(name, "recv_wait") == 0)
        io_policy.recv_wait = false;
    else if (strcmp(name, "batch") == 0)
        io_policy.batch = false;
    else if (strcmp(name, "hand_on") == 0)
        io_policy.hand_on = false;
    else
        bench_fail("%s is not a policy", name);
}

int main(int argc, char **argv)
{
    static const char without[] = "without-";
    struct bench b = bench_arguments(argc, argv);
    if (!b.url || !b.who)
        bench_fail("--url or --who is missing");
    if (strncmp(b.who, without, sizeof without - 1) == 0)
        turn_off(b.who + sizeof without - 1);
    else if (strcmp(b.who, "all-on") != 0)
        bench_fail("--who %s: must be all-on or without-POLICY", b.who);

    fill_in(&b);
    made = share(sizeof *made);
    int code = run_on_servers(&b);
    if (code == 0)
        print_counts(&b);
    return code;
}
