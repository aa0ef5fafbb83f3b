/* link.h - the messages between front and guard; whose end is closed is dead. */
#pragma once

enum link_word {
    LINK_CLOSED = -1,     /* the other process is gone */
    LINK_NOTHING = 0,     /* no message now */
    LINK_SIGNAL = 1,      /* front: this signal came */
    LINK_CONTINUED = 2,   /* front: I go on after a stop */
    LINK_STOPPED = 3,     /* guard: CMD is stopped and you have the terminal back, stop too */
    LINK_STARTED = 4,     /* guard: CMD runs, this is its process group */
    LINK_INTERRUPTED = 5, /* guard: Ctrl-C ended CMD, which had the terminal */
};

/* ends[0] is for the front, ends[1] for the guard; close-on-exec, non-blocking. 0, or -1 and errno. */
int link_open(int ends[2]);

/* A message to a dead process is dropped: its death is noticed by who reads. */
void link_send(int end, enum link_word word, int value);

enum link_word link_read(int end, int *value);
