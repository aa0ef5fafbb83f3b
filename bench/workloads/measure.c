/* measure.c - clock, quantiles, and CPU time and memory of processes. */
#include "measure.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void bench_fail(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    va_end(words);
    exit(70);
}

/* ---- Clock and times ---- */

int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void pass_ms(double ms)
{
    struct timespec rest = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(fmod(ms, 1000) * 1e6)};
    if (ms <= 0)
        return;

    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
    }
}

/* Each number below 64 has its own slot. For larger numbers the six bits after the leading bit
 * choose the slot. */
static unsigned slot_of(int64_t ns)
{
    if (ns < 64)
        return ns < 0 ? 0 : (unsigned)ns;
    unsigned bits = 63 - (unsigned)__builtin_clzll((uint64_t)ns);
    unsigned slot = (bits - 5) * 64 + (unsigned)(ns >> (bits - 6) & 63);
    return slot < TIMES_SLOTS ? slot : TIMES_SLOTS - 1;
}

static double middle_of(unsigned slot)
{
    return slot < 64 ? slot : ldexp(64 + slot % 64 + 0.5, (int)(slot / 64) - 1);
}

void times_note(struct times *t, int64_t ns)
{
    t->count++;
    t->slot[slot_of(ns)]++;
    if (ns > t->worst_ns)
        t->worst_ns = ns;
}

void times_join(struct times *into, const struct times *from)
{
    into->count += from->count;
    for (unsigned i = 0; i < TIMES_SLOTS; i++)
        into->slot[i] += from->slot[i];
    if (from->worst_ns > into->worst_ns)
        into->worst_ns = from->worst_ns;
}

double times_us(const struct times *t, double quantile)
{
    uint64_t rank = (uint64_t)ceil(quantile * (double)t->count), seen = 0;
    for (unsigned i = 0; i < TIMES_SLOTS; i++) {
        seen += t->slot[i];
        if (t->slot[i] && seen >= rank)
            return middle_of(i) / 1000;
    }

    return NAN;
}

/* ---- Processes ---- */

void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < 0)
        return;

    CPU_SET((unsigned)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        bench_fail("CPU %d: %s", cpu, strerror(errno));
}

/* Returns the CPU time of a thread: the first number of schedstat, in nanoseconds, which is finer
 * than the clock ticks of stat. */
static double thread_us(const char *path)
{
    unsigned long long ns = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;

    if (fscanf(file, "%llu", &ns) != 1)
        ns = 0;
    fclose(file);
    return (double)ns / 1000;
}

/* Only this clock includes threads that have ended. */
static double self_us(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1000;
}

double cpu_us(pid_t pid)
{
    char path[400];
    double sum = 0;
    if (pid == 0)
        return self_us();

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return NAN;

    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)pid, task->d_name);
        sum += thread_us(path);
    }

    closedir(tasks);
    return sum;
}

double children_cpu_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

int64_t rss_kb(pid_t pid)
{
    char path[64];
    long pages = 0;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)(pid ? pid : getpid()));
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;

    if (fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}
