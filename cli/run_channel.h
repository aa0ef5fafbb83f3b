/* run_channel.h - the messages between front and guard. If one end is closed, its process has
 * died. */
#pragma once

enum channel_message {
    CHANNEL_CLOSED = -1,   /* the other process has ended */
    CHANNEL_NOTHING = 0,   /* no message now */
    CHANNEL_SIGNAL = 1,    /* from the front: a signal came; the value is its number */
    CHANNEL_CONTINUED = 2, /* from the front: continued after a stop */
    CHANNEL_STOPPED = 3,   /* from the guard: CMD is stopped and the front has the terminal back, so
                              it must stop too */
    CHANNEL_STARTED = 4,   /* from the guard: CMD runs; the value is its process group */
    CHANNEL_INTERRUPTED = 5, /* from the guard: Ctrl-C ended CMD, which had the terminal */
    CHANNEL_ENDED = 6,       /* from the guard: CMD has ended */
};

/* Opens both ends, close-on-exec and non-blocking: ends[0] for the front, ends[1] for the guard.
 * Returns 0, or -1 and errno. */
int channel_open(int ends[2]);

/* Sends a message. A message to a dead process is dropped; channel_read reports the death. */
void channel_send(int end, enum channel_message word, int value);

enum channel_message channel_read(int end, int *value);
