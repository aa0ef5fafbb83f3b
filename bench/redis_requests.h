/* redis_requests.h - the requests of the workloads, the same through the library and in the
 * ceiling. */
#pragma once
#include "holdfast.h"
#include "measure.h"

enum { SEMAPHORE_OF = 5 };
#define LOCK_NAME "bench/a-name-of-thirty-two-bytes"
#define PATIENCE_MS 60000

/* Fills in what the arguments leave out, from the name of the workload: "contended-10-1ms" has 10
 * workers and a section of 1 ms; "rate-2000" has a worker that begins 2000 cycles a second. */
void fill_in(struct bench *b);
/* Makes the request for the lock that all workers want. A single worker does not wait. */
struct hf_request request_of(const struct bench *b);
/* Prints a name with a number, as long as LOCK_NAME. */
void numbered_name(char name[sizeof LOCK_NAME], int number);
/* Returns the number after the prefix in the name of a workload: ("inflight-64", "inflight-") is
 * 64. Returns 0 if the name does not begin with the prefix. */
int workload_number(const char *workload, const char *prefix);
bool is_workload(const char *workload, const char *prefix); /* begins with the prefix */
