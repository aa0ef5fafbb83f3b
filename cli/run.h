/* run.h - what the pieces of `holdfast run` say to each other.
 *
 * Two processes: the front is what the user sees, and only waits and passes signals on. The guard is its child, has the
 * client and the lease, and is CMD's parent. Either may be killed: the guard sees the front's end of the link close,
 * kills CMD with all its descendants and only then releases; the front sees the guard die and kills what is left.
 *
 *     run.c         the verb: options and operands become an order
 *     front.c       forks the guard, passes signals on, stops and continues with CMD
 *     guard.c       opens the engine, hears signals and the front, closes; its two stages:
 *     guard_ask.c   asks and waits for the lease
 *     guard_watch.c watches over lease and command until one of them ends
 *     command.c     starts CMD and knows how it ended
 *     descendants.c kills and reaps until nothing is left
 *     terminal.c    whose process group has the terminal
 *     waiting.c     tells the user what is waited for
 *     signals.c     which signals are ours to handle, and how CMD gets them back
 *     status.c      tells another program what happens
 *     link.c        the messages between front and guard */
#pragma once
#include "holdfast.h"
#include "signals.h"
#include <sys/types.h>

/* What the user asked for. Its texts are argv's. */
struct run_order {
    const char *url;
    struct hf_request request; /* without callbacks; 0 and HF_WAIT_DEFAULT: not given */
    int64_t grace_ms;          /* -1: not given */
    int busy_code;             /* -1: not given */
    int lost_signal;           /* sent when the grace begins; 0: none */
    bool only_warns;           /* CMD goes on without its lease */
    int log_fd, status_fd;     /* -1: none */
    char **argv;               /* CMD, ends with NULL */
    struct signals signals;    /* as they were when we were started */
    pid_t front, front_group;
};

/* Carries the order out; returns what the command exits with. */
int front_run(struct run_order *order);

/* The guard's whole life, in a process of its own. `link` is its end of the socket pair. */
int guard_run(const struct run_order *order, int link);
