/* run.h - what the files of `holdfast run` share.
 *
 * Two processes. The front is the process that the user started; it waits and passes signals on.
 * The guard is its child, has the client and the lease, and is CMD's parent. Either may be
 * killed. If the front dies, its end of the channel closes; the guard then kills CMD with all
 * its descendants, and only then releases. If the guard dies, the front kills the processes that
 * are left.
 *
 *     run.c            the verb: options and operands become an order
 *     run_front.c      forks the guard, passes signals on, stops and continues with CMD
 *     guard.c          opens the engine, reads signals and messages, closes; its two stages:
 *     guard_acquire.c  requests the lease and waits for it
 *     guard_watch.c    watches lease and command until one of them ends
 *     lock_set.c       one or several leases, acquired together and lost together
 *     child_process.c  starts CMD and tells how it ended
 *     descendants.c    kills and reaps until no process is left
 *     terminal.c       which process group has the terminal
 *     wait_display.c   shows the user who holds the lock
 *     signals.c        which signals are handled here, and how CMD gets them back
 *     status_fd.c      reports events to another program
 *     run_channel.c    the messages between front and guard */
#pragma once
#include "holdfast.h"
#include "json_log.h"
#include "signals.h"
#include <sys/types.h>

/* What the user asked for. The texts are words of argv. */
struct run_order {
    const char *url;
    const char *names[OPTION_VALUES_MAX];
    size_t count;              /* number of names, at least 1 */
    bool numbered;             /* locks were given with -l, so CMD gets numbered variables */
    struct hf_request request; /* request of each lock, without name and callbacks; 0 or
                                  HF_WAIT_DEFAULT if not given */
    int64_t grace_ms;          /* -1: not given */
    int64_t connect_wait_ms;   /* longest wait for an engine that does not answer */
    int busy_code;             /* -1: not given */
    bool quiet;
    int lost_signal; /* signal that is sent when the grace begins; 0 for none */
    bool only_warns; /* --on-lost warn: CMD goes on without its lease */
    struct log_outlet log;
    int status_fd;          /* -1: none */
    char **argv;            /* CMD, ends with NULL */
    struct signals signals; /* signal state as it was inherited */
    pid_t front, front_group;
};

/* Carries the order out. Returns the exit code. */
int run_front(struct run_order *order);

/* Runs the guard, in a process of its own. `channel` is its end of the socket pair. Returns the
 * exit code. */
int guard_run(const struct run_order *order, int channel);
