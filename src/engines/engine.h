/* engine.h - the one door between client/ and an engine.
 *
 * An engine starts no thread and keeps no user pointer. It is told the time, does what it can now, and answers: at
 * once, as the result of submit(), or later, when it nudges its host and the client peeks. QUEUED is the one answer
 * that another follows; a LEAVE replaces it.
 *
 * Adding an engine: one folder with one const table, one line in engines.def. */
#pragma once
#include "core/message.h"

struct hf_settings;
struct hf_url;

/* All that an engine may touch of its client. It may be called from any thread that is inside the engine, must not call
 * back, and outlives the engine. */
struct hf_host {
    void *ctx;
    void (*nudge)(void *ctx, struct hf_ask *ask); /* there is something to see for this ask: peek soon */
    void (*recheck)(void *ctx);                   /* some hold of this client was taken away: check each */
    /* The engine's whole state is gone (table deleted or replaced): every hold of this client is lost. */
    void (*lost_all)(void *ctx, hf_status status, const char *text);
};

struct hf_engine_type {
    const char *name;
    const char *const *schemes; /* ends with NULL */
    struct hf_limits limits;

    /* Opens and checks. On failure *self is NULL and hf_error_text() says why. */
    hf_status (*open)(void **self, const struct hf_url *url, const struct hf_settings *settings,
                      const struct hf_host *host);
    /* The background thread begins, and ends: local's life word belongs to that thread. */
    hf_status (*enter)(void *self);
    void (*leave)(void *self);

    /* Does what ask->verb says. True: *news is the answer. False: it will be there to peek at after a nudge. */
    bool (*submit)(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news);
    /* Looks, without waiting, whether a queued ask has news. */
    bool (*peek)(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news);
    /* A caller that parked, or was about to, will not: from here on news of this ask come by the bell. NULL where
     * submit() always answers at once. */
    void (*unattend)(void *self, struct hf_ask *ask);
    /* What was submitted goes out now. NULL where nothing is held back. Callers that park need not say so. */
    void (*flush)(void *self);
    /* The client is done with the ask, whatever became of it: no nudge may name it from here on. */
    void (*forget)(void *self, struct hf_ask *ask);

    /* Sleeps until there may be news for the ask whose slot and seen these were when it was queued, or until then.
     * Returns the time if it has just looked at the clock; else 0. */
    hf_nanos (*park)(void *self, uint64_t slot, uint32_t seen, hf_nanos until);
    void (*wake)(void *self, uint64_t slot); /* ends the park of that slot now */
    /* The background thread sleeps: until nudges were made, attend_wake was called, or until then. */
    void (*attend)(void *self, hf_nanos until);
    void (*attend_wake)(void *self);

    /* Rows, in no particular order of names; past holds the newest first. fn only copies. */
    hf_status (*list)(void *self, const struct hf_seen *what, hf_nanos now, hf_row_fn *fn, void *arg);
    /* What each server says of a name. NULL: there is only one place. fn only copies. */
    hf_status (*list_servers)(void *self, const struct hf_seen *what, hf_nanos now, hf_standing_fn *fn, void *arg);
    hf_status (*break_hold)(void *self, const struct hf_seen *what, uint64_t token, hf_nanos now);
    hf_status (*resize)(void *self, const struct hf_seen *what, uint32_t capacity, hf_nanos now);
    /* Findings about the engine and its servers. NULL: there is nothing to find. fn only copies. */
    hf_status (*examine)(void *self, hf_nanos now, hf_finding_fn *fn, void *arg);
    /* Sleeps until something about any name may have changed since *seen, or until then; brings *seen up to date. */
    void (*watch)(void *self, uint32_t *seen, hf_nanos until);
    /* After leave(): hears what servers have yet to say to what was given back, for a moment and at most until then, so
     * that whoever comes next finds it free. NULL where nothing is under way. */
    void (*finish)(void *self, hf_nanos until);
    void (*close)(void *self); /* after leave(); forgets every ask */
};

/* The engine whose scheme the URL begins with, or NULL. */
const struct hf_engine_type *hf_engine_find(const char *scheme, size_t len);
/* Names of all engines that were built in, separated by blanks. */
const char *hf_engine_names(void);
