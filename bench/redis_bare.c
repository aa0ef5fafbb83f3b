/* redis_bare.c - the program of the ceilings on Redis, one server or five. */
#include "redis_bare.h"

#include "redis_requests.h"
#include "redis_socket.h"

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
    struct redis_socket *conn = redis_socket_open(b->url);
    size_t len;

    for (;;) {
        atomic_store(&shared->waits, true);
        redis_socket_request(conn, &len, "BLPOP bench-wake 0");
        times_note(&shared->times, now_ns() - atomic_load(&shared->pushed_ns));
    }
}

/* Pauses before each push, so that the other process certainly waits in the server. The workload
 * "handoff" also lets the waiter wait before each release. */
static void push(const struct bench *b, struct wake_up *shared, int64_t until)
{
    struct redis_socket *conn = redis_socket_open(b->url);
    size_t len;

    while (now_ns() < until) {
        pass_ms(2);
        if (!atomic_exchange(&shared->waits, false))
            continue;
        pass_ms(1);
        atomic_store(&shared->pushed_ns, now_ns());
        redis_socket_request(conn, &len, "RPUSH bench-wake x");
    }
    redis_socket_close(conn);
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
        bench_fail("cannot start a process");

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

static int run_workload(const struct bench *b, struct lock_kind kind)
{
    struct result result;
    bool hands_over = strcmp(b->workload, "handoff") == 0;

    if (is_workload(b->workload, "semaphore-"))
        kind.holders = SEMAPHORE_OF;
    int code = (hands_over ? workload_handoff : workload_run)(b, &kind, &result);
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
        bench_fail("%s: this lock does not support waiting", b.workload);
    if (is_workload(b.workload, "redlock-")) {
        quorum_learn(&b);
        return run_workload(&b, BARE_QUORUM);
    }

    if (b.who && strcmp(b.who, "bare-queue") == 0) {
        bare_queue_fill(&b);
        return run_workload(&b, BARE_QUEUE);
    }
    if (!bare_lock)
        bare_learn(&b);
    if (is_workload(b.workload, "inflight-"))
        return run_pipeline(&b, workload_number(b.workload, "inflight-"));
    if (is_workload(b.workload, "connections-"))
        return run_connections(&b, workload_number(b.workload, "connections-"));

    return run_workload(&b, bare_lock ? BARE_LOCK : BARE);
}
