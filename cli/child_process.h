/* child_process.h - CMD: starts it under a lease and tells how it ended. */
#pragma once
#include "lock_set.h"
#include "run.h"
#include "terminal.h"
#include <stdbool.h>

struct child_process {
    pid_t pid;     /* process id and process group of CMD; 0 if it is not started */
    int status;    /* wait status, once CMD has ended */
    int exec_pipe; /* read end: the errno of an exec that failed; nothing if exec succeeded */
    int lost_pipe; /* write end: a byte is written when the lease is lost; CMD has the read end */
    int gate_pipe; /* write end: the child execs when a byte comes, and exits when the pipe is
                      closed; -1 once the gate is open */
};

/* Facts for the environment of CMD. */
struct child_facts {
    const struct lock_set *locks;
    int64_t ttl_ms;
};

/* Forks; the child waits at the gate before it execs. Returns 0, or -1 after a message. */
int child_start(struct child_process *command, const struct run_order *order,
                const struct child_facts *facts, const struct terminal *terminal);

/* Opens the gate, once. A signal that was sent to the child before takes effect first: the child
 * then dies without having run CMD. */
void child_go(struct child_process *command);

/* Returns true if the gate is open. If not, CMD has done nothing, whatever became of its
 * process. */
bool child_began(const struct child_process *command);

/* Makes CMD's HOLDFAST_LOST_FD readable. The byte is a line end, so that `read` of a shell
 * returns. */
void child_notify_lost(struct child_process *command);

/* Returns the exit code of CMD by the rules of a shell. Prints the reason if CMD could not be
 * executed. */
int child_exit_code(struct child_process *command, const char *program);
