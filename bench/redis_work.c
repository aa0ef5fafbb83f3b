/* redis_work.c - the program that runs the workloads on servers through the library; also for a quorum of them. */
#include "library.h"
#include "requests.h"

#include <string.h>

static int run_crew(const struct bench *b)
{
    struct lock_kind kind = library_kind(b);
    struct result result;
    bool hands_over = strcmp(b->workload, "handoff") == 0;
    int code = (hands_over ? crew_hand_over : crew_run)(b, &kind, &result);
    if (code == 0)
        result_print(&result);
    return code;
}

static int run(const struct bench *b)
{
    const char *workload = b->workload;
    if (is_workload(workload, "inflight-"))
        return run_inflight(b, workload_number(workload, "inflight-"));
    if (is_workload(workload, "threads-"))
        return run_threads(b, workload_number(workload, "threads-"));
    if (strcmp(workload, "memory-cycles") == 0)
        return run_memory_cycles(b);
    if (is_workload(workload, "idle-"))
        return run_idle(b);
    if (strcmp(workload, "semaphore-5-tries") == 0)
        return run_tries(b);
    if (strcmp(workload, "killed-holder") == 0)
        return run_killed_holder(b);
    if (is_workload(workload, "renew-"))
        return run_renewals(b);
    if (strcmp(workload, "waiter-memory") == 0)
        return run_waiter_memory(b);
    return run_crew(b);
}

int main(int argc, char **argv)
{
    struct bench b = bench_arguments(argc, argv);
    if (!b.url)
        bench_fail("--url is missing");
    fill_in(&b);
    return run(&b);
}
