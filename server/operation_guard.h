/* operation_guard.h - runs the command of an operation so that it does not outlive the service.
 *
 * A guard process is the command's parent. If the service dies, the guard kills the command's
 * process group and everything that the command left behind. The lock is detached and outlives the
 * service by its ttl, so the command is gone before somebody else gets the lock. */
#pragma once
#include <sys/types.h>

struct operation_process {
    pid_t guard;   /* its exit status is that of the command; 128 + N if signal N ended it */
    pid_t command; /* leader of a process group of its own */
    int life;      /* the guard ends everything when this is closed */
};

/* Returns 0 or an errno. `variables` is the whole environment of the command. */
int operation_start(char *const argv[], char *const variables[], struct operation_process *process);
