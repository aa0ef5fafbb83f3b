/* holder_lookup.h - asks the engine who holds a name, without waiting for it: a silent server
 * delays neither a deadline nor a signal. */
#pragma once
#include "row_list.h"
#include <semaphore.h>
#include <stdatomic.h>

struct holder_lookup {
    struct row_list
        rows; /* holders and waiters, if status is HF_OK; otherwise `words` has the reason */
    hf_status status;
    char words[320];
    const char *name;
    int wake_fd;
    bool done;
    sem_t seen;
    atomic_bool left; /* either the caller or the library is done; the other one frees the struct */
};

/* Starts a lookup. wake_fd is written when it is done; the name must live until then. Returns
 * NULL if memory or threads are out. */
struct holder_lookup *holder_lookup_begin(hf_client *client, const char *name, int wake_fd);

/* Returns true if the lookup is done, or gets done within that time. */
bool holder_lookup_done(struct holder_lookup *holder_lookup, int64_t within_ms);

/* Frees a lookup; NULL is allowed. One that is still in flight frees itself when it is done. */
void holder_lookup_end(struct holder_lookup *holder_lookup);

/* Returns true if a lookup is still inside the library; hf_close would wait for it. */
bool holder_lookup_pending(void);
