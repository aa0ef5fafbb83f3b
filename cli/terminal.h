/* terminal.h - decides which process group has the controlling terminal: the front's, or CMD's
 * while it runs. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct terminal {
    int fd;            /* -1 if there is no controlling terminal */
    pid_t front_group; /* the process group that the user's shell knows */
    bool at_once;      /* CMD gets the terminal at its start, not only when it reads */
};

void terminal_open(struct terminal *terminal, pid_t front, pid_t front_group);
void terminal_close(struct terminal *terminal);

/* Returns true if the front's group is in the foreground. */
bool terminal_is_ours(const struct terminal *terminal);

/* Gives the terminal to `group` if the front's group has it. Returns true if `group` has it now. */
bool terminal_give(const struct terminal *terminal, pid_t group);

/* Claims the terminal for the calling process, the child that becomes CMD. Async-signal-safe.
 * The parent has checked that the front's group has the terminal. */
void terminal_claim(const struct terminal *terminal);

/* Takes the terminal back if `group` has it. Returns false if it did not. */
bool terminal_take_back(const struct terminal *terminal, pid_t group);
