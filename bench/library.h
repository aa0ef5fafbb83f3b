/* library.h - the library as a kind of lock, and what the other workloads through it share. */
#pragma once
#include "crew.h"
#include "holdfast.h"

/* On the engine that b->url names. */
struct lock_kind library_kind(const struct bench *b);
const char *library_who(const struct bench *b);
const char *engine_of(const char *url); /* "redis" of "redis://..." */

/* These end the program, with what the library says, when it does not succeed. */
hf_client *library_open(const struct bench *b, bool own_loop);
void library_must(hf_status status);
/* False: it succeeded. True: it did not, but may the next time, and there have not been too many tries. */
bool library_asks_again(hf_status status, int tries);

/* Commands sent to the server so far; NAN: it is not one Redis server. */
double library_commands(const struct bench *b);

/* ---- Many at once, in one process ---- */

int run_inflight(const struct bench *b, int depth);
int run_threads(const struct bench *b, int threads);
int run_memory_cycles(const struct bench *b); /* b->workers cycles, 0: a million */

/* ---- Crowds ---- */

int run_idle(const struct bench *b);          /* b->workers processes wait for b->seconds, nothing happens */
int run_tries(const struct bench *b);         /* as many at once as b->workers says try, nobody waits */
int run_killed_holder(const struct bench *b); /* b->workers locks at once, each with a holder that is killed */
int run_renewals(const struct bench *b);      /* one process holds b->workers leases and renews them */
int run_waiter_memory(const struct bench *b); /* what b->workers waiters take in the server */
