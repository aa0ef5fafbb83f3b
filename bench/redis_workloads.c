/* redis_workloads.c - the workloads on servers, or on a quorum, through the library, by name. */
#include "library.h"
#include "redis_requests.h"

#include <string.h>

static int run_workload(const struct bench *b)
{
    struct lock_kind kind = library_kind(b);
    struct result result;
    bool hands_over = strcmp(b->workload, "handoff") == 0;
    int code = (hands_over ? workload_handoff : workload_run)(b, &kind, &result);

    if (code == 0)
        result_print(&result);
    return code;
}

int run_on_servers(const struct bench *b)
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

    return run_workload(b);
}
