/* status.h - what happens to a run, told to another program through a descriptor: one line of JSON an event. */
#pragma once
#include <stdbool.h>

struct status {
    int fd;           /* -1: nobody wants to know */
    const char *name; /* of the lock */
    bool failed;      /* a line could not be written, which was said */
};

/* Makes the descriptor ours; CMD does not inherit it unless it is below 3. False when it is not open for writing. */
bool status_open(int fd);

/* One event with its own members, which are given as JSON without braces. Never blocks: who does not read misses
 * lines, and the user is told so once. */
__attribute__((format(printf, 3, 4))) void status_tell(struct status *status, const char *event, const char *members,
                                                       ...);
