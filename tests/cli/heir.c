/* heir.c - a command for `holdfast run` that reports when it began and who it is, and leaves its
 * session with a grandchild.
 *
 *     heir REPORT
 *
 * Appends to REPORT, in one write: nanoseconds of CLOCK_MONOTONIC at its start, the pids of its
 * front, its guard, itself, and of a grandchild that was forked twice and made a session of its
 * own. Then all of them wait to be killed. / */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int parent_of(int pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = 0;
    const char *name_end = strrchr(text, ')');
    int parent = -1;
    if (!name_end || sscanf(name_end, ") %*c %d", &parent) != 1)
        return -1;
    return parent;
}

/* A daemon's way to get out of reach: fork, new session, fork, the middle one ends. */
static int start_grandchild(void)
{
    int tell[2], grandchild = -1;
    if (pipe(tell) != 0)
        return -1;
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        pid_t last = fork();
        if (last == 0)
            for (;;)
                pause();
        int number = (int)last;
        (void)!write(tell[1], &number, sizeof number);
        _exit(0);
    }
    waitpid(middle, NULL, 0);
    (void)!read(tell[0], &grandchild, sizeof grandchild);
    return grandchild;
}

int main(int argc, char **argv)
{
    struct timespec now;
    char line[128];
    clock_gettime(CLOCK_MONOTONIC, &now);
    int report = argc == 2 ? open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    int grandchild = start_grandchild();
    if (report < 0 || grandchild <= 0)
        return 64;
    int len = snprintf(line, sizeof line, "%" PRId64 " %d %d %d %d\n",
                       (int64_t)now.tv_sec * 1000000000 + now.tv_nsec, parent_of(getppid()),
                       (int)getppid(), (int)getpid(), grandchild);
    if (write(report, line, (size_t)len) != len)
        return 74;
    for (;;)
        pause();
}
