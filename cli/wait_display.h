/* wait_display.h - the line that the user sees while `run` or `acquire` waits: redrawn on a
 * terminal, elsewhere repeated now and then. */
#pragma once
#include "holder_lookup.h"
#include "lock_request.h"
#include "terminal.h"

struct wait_display {
    hf_client *client;
    const char *name;                    /* name of the lock that is waited for; may change */
    struct holder_lookup *holder_lookup; /* the lookup that is in flight, or NULL */
    const struct terminal *terminal;
    const struct lock_request *lock_request;
    uint64_t ours; /* token of an outer run that holds the lock, so that the wait would never end; 0
                      if there is none */
    bool first; /* the first lookup runs at once and prints nothing: it only checks for an outer run
                   that holds the lock */
    bool reached;       /* a lookup was answered */
    bool gave_up;       /* the engine did not answer for too long, or its host does not exist */
    bool timed_out;     /* gave up after --connect-wait */
    char failure[320];  /* error text of the last lookup */
    int64_t give_up_ms; /* time after which one more failed lookup ends the wait */
    bool redraws;       /* stderr is a terminal */
    bool drawn;         /* a line is on the screen now */
    int64_t next_ms, pause_ms; /* time of the next line, and the pause after it */
};

void wait_display_begin(struct wait_display *waiting, const char *name,
                        const struct terminal *terminal, hf_client *client,
                        const struct lock_request *lock_request);

/* Returns the milliseconds until wait_display_update is due. */
int64_t wait_display_pause(const struct wait_display *waiting);

/* Looks up the holder and prints the line, if it is due. */
void wait_display_update(struct wait_display *waiting);

/* Removes the line. */
void wait_display_end(struct wait_display *waiting);
