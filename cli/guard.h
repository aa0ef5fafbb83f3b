/* guard.h - what the stages of the guard's life share: guard.c begins and ends it, guard_ask.c gets the lease,
 * guard_watch.c watches over lease and command. */
#pragma once
#include "asking.h"
#include "command.h"
#include "run.h"
#include "status.h"
#include "terminal.h"

#define NO_LIMIT INT64_MAX

struct guard {
    const struct run_order *order;
    int link, signals, timer;
    hf_client *client;
    hf_lease *lease;
    int64_t ttl_ms, grace_ms, kill_ms;
    struct asking asking;     /* its bell is rung for a loss too */
    atomic_bool lost, queued; /* set by the library's thread */
    struct terminal terminal;
    struct command command;
    bool front_gone, front_stopped;
    bool warned; /* CMD was sent a signal because the lease is about to end */
    bool let_go; /* the lease ended and CMD goes on: --on-lost warn */
    bool ended;  /* CMD was reaped */
    int signal;  /* came before CMD was started */
    struct status status;
};

/* Takes in what came: messages of the front, signals, the bell. */
void guard_hear(struct guard *guard);

/* Sleeps until something is to be heard or the time (NO_LIMIT: none) is over. */
void guard_nap(struct guard *guard, int64_t ms);

/* Fixes ttl and grace, asks and waits. True when the lease is held; otherwise *code is what we exit with, which may be
 * 0. */
bool guard_ask(struct guard *guard, int *code);

/* Runs CMD under the lease until one of them ends, and releases; answers with the exit code. */
int guard_watch(struct guard *guard);
