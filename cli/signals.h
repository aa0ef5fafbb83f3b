/* signals.h - which signals `run` handles itself, and how CMD gets them back as we found them. */
#pragma once
#include <signal.h>
#include <stdbool.h>

struct signals {
    sigset_t mask;                /* as inherited */
    struct sigaction child, pipe; /* as inherited */
    sigset_t watched;             /* blocked and read from a descriptor, in front and guard alike */
};

/* Blocks what is watched. A signal that was ignored when we were started (nohup, a background job of a script) is left
 * alone and stays ignored in CMD too. */
void signals_take(struct signals *signals);

/* In the child, before exec: everything as it was inherited. */
void signals_give_back(const struct signals *signals);

/* A close-on-exec, non-blocking descriptor that reads what is watched, but for SIGTSTP; -1 and errno. */
int signals_open(const struct signals *signals);

/* SIGTSTP (Ctrl-Z) is obeyed, and never read: the SIGCONT that takes a stop back does so only while it is pending. A
 * stop that was read first and carried out later would last for ever when the shell has said `fg` in between.
 *
 * A descriptor to poll, readable while a stop is pending; -1 and errno. */
int signals_open_stop(void);

bool signals_stop_pending(void);

/* Stops here if a stop is pending, and returns when continued. The kernel drops it where nobody could continue us (an
 * orphaned group): false then, and true when a SIGCONT came. */
bool signals_stop(void);

/* The next signal that came, or 0. *typed tells whether the terminal sent it (Ctrl-C) and not a process; may be NULL.
 */
int signals_next(int fd, bool *typed);

/* The number of a signal such as "TERM" or "SIGUSR1"; 0: there is none of that name. */
int signals_number(const char *name);
