/* signals.h - the signals that `run` handles itself; CMD gets them back as they were inherited. */
#pragma once
#include <signal.h>
#include <stdbool.h>

struct signals {
    sigset_t mask;                /* as inherited */
    struct sigaction child, pipe; /* as inherited */
    sigset_t watched;             /* blocked and read from a descriptor, in front and guard */
};

/* Blocks the watched signals. A signal that was ignored at the start (nohup, a background job of
 * a script) stays ignored, in CMD too. */
void signals_take(struct signals *signals);

/* Restores the inherited state; called in the child before exec. */
void signals_give_back(const struct signals *signals);

/* Returns a close-on-exec, non-blocking descriptor that reads the watched signals except
 * SIGTSTP; -1 and errno on failure. */
int signals_open(const struct signals *signals);

/* SIGTSTP (Ctrl-Z) is obeyed and never read. A SIGCONT cancels a stop only while the stop is
 * pending. If the stop were read first and carried out later, a `fg` in between would be lost
 * and the stop would last forever.
 *
 * Returns a descriptor that is readable while a stop is pending; -1 and errno on failure. */
int signals_open_stop(void);

bool signals_stop_pending(void);

/* Stops this process if a stop is pending, and returns when it is continued. Returns true if a
 * SIGCONT came. The kernel drops the stop of an orphaned group, which nobody could continue:
 * then it returns false. */
bool signals_stop(void);

/* Returns the next signal, or 0. *typed (may be NULL) is true if the terminal sent it (Ctrl-C)
 * and not a process. */
int signals_next(int fd, bool *typed);

/* Returns true if this signal ends a process that waits for a lock. */
bool signals_ends_wait(int number);

/* Returns the number of a signal such as "TERM" or "SIGUSR1"; 0 if there is none of that name. */
int signals_number(const char *name);
