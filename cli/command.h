/* command.h - CMD: how it is started under a lease, and how it ended. */
#pragma once
#include "run.h"
#include "terminal.h"
#include <stdbool.h>

struct command {
    pid_t pid;     /* also its process group; 0: not started */
    int status;    /* as wait(2) gives it, once it ended */
    int exec_pipe; /* reads the errno of an exec that failed; nothing if it succeeded */
    int lost_pipe; /* written to when the lease is lost; CMD has the other end */
    int gate_pipe; /* the process execs when this is written to, and exits when it is closed; -1: that is done */
};

/* What CMD finds in its environment. */
struct command_facts {
    const char *name;
    uint64_t token;
    int64_t ttl_ms;
};

/* Forks; the child waits at the gate before it execs. 0, or -1 after a message. */
int command_start(struct command *command, const struct run_order *order, const struct command_facts *facts,
                  const struct terminal *terminal);

/* Opens the gate, once. Signals that the child was sent before come first: it dies of them without having been CMD. */
void command_go(struct command *command);

/* Makes CMD's HOLDFAST_LOST_FD readable: a line end, so that `read` of a shell returns. */
void command_tell_lost(struct command *command);

/* The exit code that its status means, as every shell has it; says why when it could not be executed. */
int command_exit_code(struct command *command, const char *program);
