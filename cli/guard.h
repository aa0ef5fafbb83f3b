/* guard.h - state shared by the stages of the guard: guard.c starts and ends, guard_acquire.c
 * gets the lease, guard_watch.c watches lease and command. */
#pragma once
#include "child_process.h"
#include "lock_request.h"
#include "lock_set.h"
#include "run.h"
#include "status_fd.h"
#include "terminal.h"

#define NO_LIMIT INT64_MAX

struct guard {
    const struct run_order *order;
    int channel, signals, timer;
    struct log_outlet log;
    hf_client *client;
    struct lock_set locks;
    int64_t ttl_ms, grace_ms, kill_ms;
    struct lock_request lock_request; /* the library also writes its wake_fd when a lease is lost */
    atomic_size_t lost;   /* number of the lock that was lost first, counted from 1; 0 if none was;
                             set by the library's thread */
    atomic_size_t queued; /* number of the lock that got a place in a queue, counted from 1; set by
                             the library's thread */
    struct terminal terminal;
    struct child_process command;
    bool front_gone, front_stopped;
    bool warned;       /* CMD was notified because the lease is about to end */
    size_t in_trouble; /* index of the lock that was lost or could not be kept */
    bool let_go;       /* the lease ended and CMD goes on (--on-lost warn) */
    bool ended;        /* CMD has ended and was reaped */
    int signal;        /* signal that came before CMD was started; 0 if none did */
    struct status_fd status;
};

/* Reads all pending messages of the front, signals and wake-ups. */
void guard_receive(struct guard *guard);

/* Sleeps until an event comes or the time is over (NO_LIMIT: no time limit). */
void guard_sleep(struct guard *guard, int64_t ms);

/* Computes ttl and grace, requests the lease and waits. Returns true when the lease is held.
 * Otherwise *code is the exit code, which may be 0. */
bool guard_acquire(struct guard *guard, int *code);

/* Runs CMD under the lease until one of them ends, and releases. Returns the exit code. */
int guard_watch(struct guard *guard);
