/* waiting.h - what the user sees while `run` waits: on a terminal one line that is redrawn, else a line now and then.
 */
#pragma once
#include "glance.h"
#include "terminal.h"

struct waiting {
    hf_client *client;
    const char *name;
    int bell;              /* ends the naps of whoever waits; rung when there is something to say */
    struct glance *glance; /* under way */
    const struct terminal *terminal;
    bool redraws;              /* stderr is a terminal */
    bool drawn;                /* a line stands there now */
    int64_t next_ms, pause_ms; /* when to speak next, and how long after that */
};

void waiting_begin(struct waiting *waiting, const char *name, const struct terminal *terminal, hf_client *client,
                   int bell);

/* Milliseconds until waiting_tell is due, unless the bell rings before. */
int64_t waiting_pause(const struct waiting *waiting);

/* Speaks if it is time to. */
void waiting_tell(struct waiting *waiting);

/* Takes the line away. */
void waiting_end(struct waiting *waiting);
