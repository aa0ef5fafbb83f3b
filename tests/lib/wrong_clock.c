/* wrong_clock.c - a library that a test preloads into a server (server_options.preload) or a
 * client, which then has the clocks that the test gives it. In the file "clock" of its directory
 * stand numbers of microseconds: at the start what the wall clock shows, since 1970, which stands
 * still until the test changes it; 0: the real one. Behind it, by how much the real one is wrong;
 * then the same for the two clocks that no program can set, of which the second goes on while the
 * machine sleeps; and how often somebody was told a time of those two that is wrong.
 *
 * Only functions that programs call by name are replaced, and system calls are made directly: a
 * call of the C library from in here could come back. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define OURS __attribute__((visibility("default")))

enum { GIVEN, WRONG, WRONG_MONOTONIC, WRONG_BOOTTIME, TOLD, NUMBERS };
static volatile int64_t *clock_us;

__attribute__((constructor)) static void map_clock(void)
{
    int fd = open("clock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, NUMBERS * sizeof *clock_us) != 0)
        _exit(72);
    void *at = mmap(NULL, NUMBERS * sizeof *clock_us, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        _exit(72);
    close(fd);
    clock_us = at;
}

static int64_t given_us(void)
{
    return clock_us ? clock_us[GIVEN] : 0;
}

static int given_time(int64_t us, struct timespec *time)
{
    *time = (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    return 0;
}

/* Returns how far that clock is off. */
static int64_t wrong_us(clockid_t clock)
{
    int which = clock == CLOCK_REALTIME                                       ? WRONG
                : clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ? WRONG_MONOTONIC
                : clock == CLOCK_BOOTTIME                                     ? WRONG_BOOTTIME
                                                                              : NUMBERS;
    int64_t wrong = clock_us && which < NUMBERS ? clock_us[which] : 0;
    if (wrong && which != WRONG)
        __atomic_fetch_add(&clock_us[TOLD], 1, __ATOMIC_RELAXED);
    return wrong;
}

OURS int clock_gettime(clockid_t clock, struct timespec *time)
{
    int64_t us = clock == CLOCK_REALTIME ? given_us() : 0;
    if (us)
        return given_time(us, time);
    int status = (int)syscall(SYS_clock_gettime, clock, time);
    int64_t wrong = status == 0 ? wrong_us(clock) : 0;
    if (wrong)
        given_time(time->tv_sec * INT64_C(1000000) + time->tv_nsec / 1000 + wrong, time);
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
