/* slow_disk.c - a library that a test preloads into a server, which then has a slow disk: each call
 * that waits for the disk takes as many milliseconds more as the file "slow" in its directory says.
 * A byte for each such call is appended to the file "synced". */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OURS __attribute__((visibility("default")))

static long slow_ms(void)
{
    char text[16] = "";
    int fd = open("slow", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    return len > 0 ? atol(text) : 0;
}

static void wait_for_disk(void)
{
    long ms = slow_ms();
    if (!ms)
        return;
    struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&nap, NULL);
    int fd = open("synced", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, ".", 1) != 1)
        _exit(72);
    close(fd);
}

OURS int fsync(int fd)
{
    wait_for_disk();
    return (int)syscall(SYS_fsync, fd);
}

OURS int fdatasync(int fd)
{
    wait_for_disk();
    return (int)syscall(SYS_fdatasync, fd);
}
