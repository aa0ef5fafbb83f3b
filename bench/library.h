/* library.h - the library as a kind of lock, and functions that its other workloads share. */
#pragma once
#include "holdfast.h"
#include "workload.h"

/* A lock on the engine of b->url. */
struct lock_kind library_kind(const struct bench *b);
const char *library_who(const struct bench *b);
const char *engine_of(const char *url); /* "redis" of "redis://..." */

/* If one of these fails, it ends the program with the library's message. */
hf_client *library_open(const struct bench *b, bool own_loop);
void library_must(hf_status status);
/* Returns false on success, and true if the call should be repeated. Ends the program if a retry
 * cannot help or there were too many tries. */
bool library_retries(hf_status status, int tries);

/* Returns the number of commands sent to the server so far; NAN if the engine is not one Redis
 * server. */
double library_commands(const struct bench *b);

/* Runs b->workload and prints its result. Returns the exit status. */
int run_on_servers(const struct bench *b);

/* ---- Many at once, in one process ---- */

int run_inflight(const struct bench *b, int depth);
int run_threads(const struct bench *b, int threads);
int run_memory_cycles(const struct bench *b); /* b->workers cycles; 0 means a million */

/* ---- Crowds ---- */

int run_idle(const struct bench *b);          /* b->workers processes wait for b->seconds */
int run_tries(const struct bench *b);         /* b->workers tries at once, without waiting */
int run_killed_holder(const struct bench *b); /* the holders of b->workers locks are killed */
int run_renewals(const struct bench *b); /* one process holds b->workers leases and renews them */
int run_waiter_memory(const struct bench *b); /* memory of b->workers waiters in the server */
