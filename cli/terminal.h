/* terminal.h - which process group has the controlling terminal: the front's, or CMD's while it runs. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct terminal {
    int fd;            /* -1: there is no controlling terminal */
    pid_t front_group; /* the group that the user's shell knows */
    bool at_once;      /* CMD gets the terminal when it starts, not first when it asks for it */
};

void terminal_open(struct terminal *terminal, pid_t front, pid_t front_group);
void terminal_close(struct terminal *terminal);

/* Is the front's group in the foreground? */
bool terminal_is_ours(const struct terminal *terminal);

/* Gives the terminal to `group` if the front's group has it; true if `group` has it now. */
bool terminal_give(const struct terminal *terminal, pid_t group);

/* In the child that becomes CMD, whose parent saw that the terminal is ours to give: async-signal-safe. */
void terminal_claim(const struct terminal *terminal);

/* Takes it back if `group` has it; false if it did not. */
bool terminal_take_back(const struct terminal *terminal, pid_t group);
