/* process.c - facts about this process, other processes and the machine. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads a small file. Returns its length, or -1 with errno. */
static ssize_t read_small(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;

    ssize_t n = read(fd, text, size - 1);
    int error = errno;
    close(fd);
    errno = error;
    if (n >= 0)
        text[n] = 0;

    return n;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_boot_id(uint8_t id[16])
{
    char text[64];
    if (read_small("/proc/sys/kernel/random/boot_id", text, sizeof text) < 0)
        return errno;

    size_t digits = 0;
    memset(id, 0, 16);
    for (const char *c = text; *c && digits < 32; c++)
        if (hex_digit(*c) >= 0) {
            id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | hex_digit(*c));
            digits++;
        }

    return digits == 32 ? 0 : EPROTO;
}

static int read_namespace(const char *path, uint64_t *inode)
{
    struct stat st;
    *inode = 0;
    if (stat(path, &st) == 0)
        *inode = st.st_ino;
    /* a kernel without this kind of namespace: all processes share one */
    else if (errno != ENOENT)
        return errno;
    return 0;
}

int process_domain_read(struct process_domain *place, const char **what)
{
    memset(place, 0, sizeof *place);
    *what = "/proc/sys/kernel/random/boot_id";
    int error = read_boot_id(place->boot_id);
    if (error)
        return error;

    *what = "/proc/self/ns/pid";
    error = read_namespace(*what, &place->pid_namespace);
    if (error)
        return error;

    *what = "/proc/self/ns/time";
    error = read_namespace(*what, &place->time_namespace);
    if (error)
        return error;
    snprintf(place->libc, sizeof place->libc, "glibc %s", gnu_get_libc_version());
    return 0;
}

char process_state(int64_t pid)
{
    char path[40], text[512];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (read_small(path, text, sizeof text) <= 0)
        return 0;
    /* the last parenthesis, because the name itself may contain any byte */
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' ? end[2] : 0;
}

int64_t process_of_thread(int64_t thread)
{
    char path[40], text[2048];
    snprintf(path, sizeof path, "/proc/%lld/status", (long long)thread);
    if (read_small(path, text, sizeof text) <= 0)
        return 0;
    const char *field = strstr(text, "\nTgid:");
    return field ? strtoll(field + 6, NULL, 10) : 0;
}

static char host_name[65];

static void read_host_name(void)
{
    if (gethostname(host_name, sizeof host_name) != 0 || !*host_name)
        strcpy(host_name, "localhost");
}

const char *process_host_name(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_host_name);
    return host_name;
}

int64_t process_id(void)
{
    return getpid();
}

int process_cpu_count(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 1 ? (int)count : 1;
}
