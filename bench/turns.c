/* turns.c - workers that take turns. */
#include "turns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS_MAX = 100, SAMPLES = 8000 };

/* Shared by the processes. */
static struct page {
    _Atomic int inside, ready, done;
    _Atomic uint32_t overlaps;
    _Atomic int64_t released_at; /* when the last release began */
    _Atomic int64_t begin, end;
    _Atomic bool counted; /* the server's writes were counted, so sessions may end now */
    struct {
        uint64_t turns;
        uint32_t samples;
        int64_t handoff[SAMPLES]; /* times from the beginning of a release to the next turn */
    } worker[WORKERS_MAX];
} * page;

void turns_fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(70);
}

int64_t turns_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void *turns_shared(unsigned long size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        turns_fail("mmap", "no memory");
    return at;
}

bool turns_are_over(void)
{
    return page->begin && turns_now() > page->end;
}

int turns_connect(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        turns_fail("connect", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

const char *turns_http_get(int port, const char *path)
{
    static char text[1 << 20];
    char line[256];
    int fd = turns_connect(port);
    int sent = snprintf(line, sizeof line, "GET %s HTTP/1.0\r\nHost: bench\r\n\r\n", path);
    size_t len = 0;
    ssize_t got;
    if (write(fd, line, (size_t)sent) != sent)
        turns_fail(path, "the request was not sent");
    while ((got = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)got;
    text[len] = '\0';
    close(fd);
    return text;
}

/* ---- A worker ---- */

static void note_handoff(int number)
{
    int64_t since = page->released_at;
    uint32_t at = page->worker[number].samples;
    if (!since || at == SAMPLES)
        return;
    page->worker[number].handoff[at] = turns_now() - since;
    page->worker[number].samples++;
}

static void await_begin(void)
{
    page->ready++;
    while (!page->begin)
        usleep(1000);
}

static _Noreturn void work(const struct turns *turns, int number, int64_t hold_us)
{
    turns->open(number);
    if (turns->take())
        turns->give();
    await_begin();
    while (!turns_are_over() && turns->take()) {
        note_handoff(number);
        page->overlaps += atomic_fetch_add(&page->inside, 1) != 0;
        page->worker[number].turns++;
        if (hold_us)
            usleep((useconds_t)hold_us);
        page->inside--;
        page->released_at = turns_now();
        turns->give();
    }
    page->done++;
    while (!page->counted)
        usleep(1000);
    _exit(0);
}

/* ---- Figures ---- */

static int by_length(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_handoff(int workers)
{
    static int64_t all[WORKERS_MAX * SAMPLES];
    size_t count = 0;
    for (int i = 0; i < workers; i++)
        for (uint32_t k = 0; k < page->worker[i].samples; k++)
            all[count++] = page->worker[i].handoff[k];
    qsort(all, count, sizeof *all, by_length);
    printf(" handoff_p50_us=%.0f handoff_p99_us=%.0f\n", count ? (double)all[count / 2] / 1e3 : 0,
           count ? (double)all[count * 99 / 100] / 1e3 : 0);
}

static void print_turns(const char *way, int workers, int64_t hold_us, double lasted,
                        uint64_t writes)
{
    double sum = 0, squares = 0;
    uint64_t least = UINT64_MAX, most = 0;
    for (int i = 0; i < workers; i++) {
        uint64_t turns = page->worker[i].turns;
        sum += (double)turns;
        squares += (double)turns * (double)turns;
        least = turns < least ? turns : least;
        most = turns > most ? turns : most;
    }
    printf("%s workers=%d hold_us=%" PRId64 " per_s=%.0f writes=%.3f jain=%.5f least=%" PRIu64
           " most=%" PRIu64 " overlaps=%u",
           way, workers, hold_us, sum / lasted, (double)writes / sum,
           sum * sum / (workers * squares), least, most, page->overlaps);
    print_handoff(workers);
}

/* Waits until `count` is the number of workers. If a worker ends before (it has printed why), ends
 * the program. */
static void await_all(_Atomic int *count, int workers)
{
    while (*count < workers) {
        usleep(1000);
        if (waitpid(-1, NULL, WNOHANG) > 0 && *count < workers) {
            signal(SIGTERM, SIG_IGN);
            kill(0, SIGTERM);
            exit(70);
        }
    }
}

void turns_run(const char *way, const struct turns *turns, int workers, double seconds,
               int64_t hold_us)
{
    if (workers < 1 || workers > WORKERS_MAX)
        turns_fail("arguments", "too many workers, or none");
    setpgid(0, 0);
    page = turns_shared(sizeof *page);
    for (int i = 0; i < workers; i++)
        if (fork() == 0)
            work(turns, i, hold_us);
    await_all(&page->ready, workers);
    uint64_t before = turns->writes();
    int64_t begin = turns_now();
    page->end = begin + (int64_t)(seconds * 1e9);
    page->begin = begin;
    await_all(&page->done, workers);
    double lasted = (double)(turns_now() - begin) / 1e9;
    uint64_t writes = turns->writes() - before;
    page->counted = true;
    while (wait(NULL) > 0)
        ;
    print_turns(way, workers, hold_us, lasted, writes);
}
