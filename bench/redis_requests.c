/* redis_requests.c - the requests of the workloads. */
#include "redis_requests.h"

#include <stdlib.h>
#include <string.h>

#define TTL_MS 10000
#define QUORUM_TTL_MS 1000 /* a server's vote counts only after it has run for this long */

bool is_workload(const char *workload, const char *prefix)
{
    return strncmp(workload, prefix, strlen(prefix)) == 0;
}

int workload_number(const char *workload, const char *prefix)
{
    return is_workload(workload, prefix) ? atoi(workload + strlen(prefix)) : 0;
}

void fill_in(struct bench *b)
{
    static const struct {
        const char *prefix;
        int workers;
    } crowds[] = {{"handoff", 2},
                  {"semaphore-5-tries", 1000},
                  {"semaphore-5", 50},
                  {"killed-holder", 20},
                  {"waiter-memory", 10000},
                  {"renew-100000", 100000},
                  {"redlock-5-contended", 3}};
    b->rate = workload_number(b->workload, "rate-");
    if (!b->section_ms && strstr(b->workload, "-1ms"))
        b->section_ms = 1;
    if (!b->workers)
        b->workers =
            workload_number(b->workload, "contended-") + workload_number(b->workload, "idle-");

    for (unsigned i = 0; i < sizeof crowds / sizeof crowds[0] && !b->workers; i++)
        if (is_workload(b->workload, crowds[i].prefix))
            b->workers = crowds[i].workers;
}

struct hf_request request_of(const struct bench *b)
{
    struct hf_request request = {.size = sizeof request, .name = LOCK_NAME, .ttl_ms = TTL_MS};
    if (b->who && strcmp(b->who, "holdfast-tokenless") == 0)
        request.flags = HF_TOKENLESS;
    if (is_workload(b->workload, "redlock-"))
        request.ttl_ms = QUORUM_TTL_MS;
    if (is_workload(b->workload, "semaphore-")) {
        request.kind = HF_SEMAPHORE;
        request.capacity = SEMAPHORE_OF;
        request.units = 1;
    }
    request.wait_ms = b->workers > 1 ? PATIENCE_MS : 0;

    return request;
}

void numbered_name(char name[sizeof LOCK_NAME], int number)
{
    memcpy(name, LOCK_NAME, sizeof LOCK_NAME);
    char digits[16];
    int len = snprintf(digits, sizeof digits, "%06d", number);
    memcpy(name + sizeof LOCK_NAME - 1 - (size_t)len, digits, (size_t)len);
}
