/* status_fd.h - reports the events of a run to another program through a descriptor, a line of
 * JSON each. */
#pragma once
#include <stdbool.h>

struct status_fd {
    int fd;           /* -1 if --status-fd is not given */
    const char *name; /* name of the lock */
    bool failed;      /* a line could not be written, and the user was told */
};

/* Prepares the descriptor; CMD inherits it only if it is below 3. Returns false if it is not
 * open for writing. */
bool status_fd_open(int fd);

/* Writes one event with its own members, which are given as JSON without braces. Never blocks:
 * if the reader is too slow, lines are dropped and the user is told once. */
__attribute__((format(printf, 3, 4))) void
status_fd_write(struct status_fd *status, const char *event, const char *members, ...);
