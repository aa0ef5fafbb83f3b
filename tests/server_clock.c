/* server_clock.c - a library that a test preloads into a server (server_options.preload), which then has the wall clock
 * that the test gives it. At the start of the file "clock" in the server's directory stands a number of microseconds
 * since 1970, which stands still until the test changes it; 0: the real one. Behind it, how many microseconds the real
 * one is wrong by. Monotonic clocks go on: the server's own timers run on them.
 *
 * Only functions that the server calls by name are replaced, and system calls are made directly: a call of the C
 * library from in here could come back. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define OURS __attribute__((visibility("default")))

static const volatile int64_t *clock_us; /* two of them */

__attribute__((constructor)) static void map_clock(void)
{
    int fd = open("clock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 2 * sizeof *clock_us) != 0)
        _exit(72);
    void *at = mmap(NULL, 2 * sizeof *clock_us, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        _exit(72);
    close(fd);
    clock_us = at;
}

static int64_t given_us(void)
{
    return clock_us ? *clock_us : 0;
}

static int given_time(int64_t us, struct timespec *time)
{
    *time = (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    return 0;
}

OURS int clock_gettime(clockid_t clock, struct timespec *time)
{
    int64_t us = clock == CLOCK_REALTIME ? given_us() : 0;
    if (us)
        return given_time(us, time);
    int status = (int)syscall(SYS_clock_gettime, clock, time);
    if (status == 0 && clock == CLOCK_REALTIME && clock_us && clock_us[1])
        given_time(time->tv_sec * INT64_C(1000000) + time->tv_nsec / 1000 + clock_us[1], time);
    return status;
}

OURS int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

OURS time_t time(time_t *into)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}
