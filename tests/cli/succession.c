/* succession.c - kills the front of a `holdfast run` again and again while others wait, and
 * measures how long the next one takes to hold.
 *
 *     succession HOLDFAST HEIR REPORT ROUNDS WAITERS
 *
 * Before each kill it waits until WAITERS wait. Prints the times in microseconds, median and
 * worst, and how many of the old command's processes were alive when the next one had begun (0 is
 * wanted). */
#include "holdfast.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAME "throne"
#define ROUNDS_MOST 1000

struct reign {
    int64_t began_ns;
    int front, guard, self, grandchild;
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_briefly(void)
{
    struct timespec pause = {.tv_nsec = 200000};
    nanosleep(&pause, NULL);
}

static pid_t start_one(char **argv)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    execl(argv[1], argv[1], "run", NAME, "--", argv[2], argv[3], (char *)NULL);
    _exit(127);
}

static void count_waiter(void *arg, const struct hf_row *row)
{
    *(long *)arg += row->role == HF_WAITER;
}

static void await_waiters(hf_client *client, long wanted)
{
    for (long seen = -1; seen != wanted; pause_briefly()) {
        seen = 0;
        if (hf_show(client, NAME, count_waiter, &seen) != HF_OK) {
            fprintf(stderr, "show: %s\n", hf_error_text());
            exit(70);
        }
    }
}

/* The n-th line of the report, once it is whole. */
static struct reign await_reign(const char *report, long n)
{
    struct reign reign = {0};
    for (;; pause_briefly()) {
        FILE *file = fopen(report, "re");
        char line[256] = "";
        long read = 0;
        while (file && read <= n && fgets(line, sizeof line, file))
            read++;
        if (file)
            fclose(file);
        if (read == n + 1 && strchr(line, '\n') &&
            sscanf(line, "%" SCNd64 " %d %d %d %d", &reign.began_ns, &reign.front, &reign.guard,
                   &reign.self, &reign.grandchild) == 5)
            return reign;
    }
}

static int alive(int pid)
{
    return kill(pid, 0) == 0 || errno != ESRCH;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    static int64_t took[ROUNDS_MOST];
    static pid_t fronts[2 * ROUNDS_MOST];
    hf_client *client;
    if (argc != 6)
        return 64;
    long rounds = atol(argv[4]), waiters = atol(argv[5]), survivors = 0;
    if (rounds < 1 || rounds > ROUNDS_MOST || waiters < 1 || waiters >= ROUNDS_MOST ||
        hf_open(NULL, NULL, &client) != HF_OK)
        return 64;
    for (long i = 0; i <= waiters; i++)
        fronts[i] = start_one(argv);
    for (long round = 0; round < rounds; round++) {
        struct reign old = await_reign(argv[3], round);
        await_waiters(client, waiters);
        int64_t killed_ns = now_ns();
        kill(old.front, SIGKILL);
        struct reign next = await_reign(argv[3], round + 1);
        survivors += alive(old.self) + alive(old.grandchild);
        took[round] = next.began_ns - killed_ns;
        fronts[waiters + 1 + round] = start_one(argv);
    }
    for (long i = 0; i <= rounds + waiters; i++)
        kill(fronts[i], SIGKILL);
    while (wait(NULL) > 0)
        continue;
    qsort(took, (size_t)rounds, sizeof took[0], compare);
    printf("median_us %" PRId64 " worst_us %" PRId64 " survivors %ld\n", took[rounds / 2] / 1000,
           took[rounds - 1] / 1000, survivors);
    return hf_close(client, 1000) == HF_OK ? 0 : 70;
}
