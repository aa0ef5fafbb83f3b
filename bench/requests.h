/* requests.h - what the workloads on servers ask for: the same through the library and in the ceiling. */
#pragma once
#include "holdfast.h"
#include "measure.h"

enum { SEMAPHORE_OF = 5 };
#define LOCK_NAME "bench/a-name-of-thirty-two-bytes"
#define PATIENCE_MS 60000

/* What the workload's name says and nobody has given: "contended-10-1ms" is 10 workers and a section of 1 ms,
 * "rate-2000" a worker that begins 2000 cycles a second. */
void fill_in(struct bench *b);
/* The lock that everybody wants; who is alone does not say that it would wait. */
struct hf_request request_of(const struct bench *b);
/* As long as LOCK_NAME. */
void numbered_name(char name[sizeof LOCK_NAME], int number);
/* The number behind the prefix of a workload's name, 0: it begins otherwise. ("inflight-64", "inflight-") is 64. */
int workload_number(const char *workload, const char *prefix);
bool is_workload(const char *workload, const char *prefix); /* begins with it */
