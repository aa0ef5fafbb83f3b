/* redis_bare.c - the program of the ceilings on Redis, one server or five. */
#include "redis_bare.h"

#include "redis_line.h"
#include "requests.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- RPUSH to BLPOP ---- */

struct wake_up {
    atomic_int_fast64_t pushed_ns;
    atomic_bool waits;
    struct times times;
};

static void pop_for_ever(const struct bench *b, struct wake_up *shared)
{
    struct redis_line *line = line_open(b->url);
    size_t len;
    for (;;) {
        atomic_store(&shared->waits, true);
        line_ask(line, &len, "BLPOP bench-wake 0");
        times_note(&shared->times, now_ns() - atomic_load(&shared->pushed_ns));
    }
}

/* So long that the other one certainly waits in the server; that of a hand-over is measured alike. */
static void push(const struct bench *b, struct wake_up *shared, int64_t until)
{
    struct redis_line *line = line_open(b->url);
    size_t len;
    while (now_ns() < until) {
        pass_ms(2);
        if (!atomic_exchange(&shared->waits, false))
            continue;
        pass_ms(1);
        atomic_store(&shared->pushed_ns, now_ns());
        line_ask(line, &len, "RPUSH bench-wake x");
    }
    line_close(line);
}

int run_wake_up(const struct bench *b)
{
    struct wake_up *shared = share(sizeof *shared);
    struct result result = result_of(b, "bare", "redis");
    pin(b->cpu);
    int64_t from = now_ns();
    pid_t popper = fork();
    if (popper == 0)
        pop_for_ever(b, shared);
    if (popper < 0)
        bench_fail("no process");
    push(b, shared, from + (int64_t)(b->seconds * 1e9));
    pass_ms(5);
    kill(popper, SIGKILL);
    waitpid(popper, NULL, 0);
    result_rate(&result, (double)shared->times.count, now_ns() - from);
    result_handoff(&result, &shared->times);
    result.workers = 2;
    result_print(&result);
    return 0;
}

/* ---- The program ---- */

static int run_crew(const struct bench *b, struct lock_kind kind)
{
    struct result result;
    bool hands_over = strcmp(b->workload, "handoff") == 0;
    if (is_workload(b->workload, "semaphore-"))
        kind.holders = SEMAPHORE_OF;
    int code = (hands_over ? crew_hand_over : crew_run)(b, &kind, &result);
    if (code == 0)
        result_print(&result);
    return code;
}

int main(int argc, char **argv)
{
    struct bench b = bench_arguments(argc, argv);
    bool bare_lock = b.who && strcmp(b.who, "bare-lock") == 0;
    if (strcmp(b.workload, "wakeup") == 0)
        return run_wake_up(&b);
    fill_in(&b);
    if ((bare_lock || is_workload(b.workload, "redlock-")) && b.workers > 1)
        bench_fail("%s: nobody can wait for that lock", b.workload);
    if (is_workload(b.workload, "redlock-")) {
        quorum_learn(&b);
        return run_crew(&b, BARE_QUORUM);
    }
    if (!bare_lock)
        bare_learn(&b);
    if (is_workload(b.workload, "inflight-"))
        return run_pipeline(&b, workload_number(b.workload, "inflight-"));
    if (is_workload(b.workload, "connections-"))
        return run_connections(&b, workload_number(b.workload, "connections-"));
    return run_crew(&b, bare_lock ? BARE_LOCK : BARE);
}
