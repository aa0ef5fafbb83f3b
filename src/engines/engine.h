/* engine.h - the one door between client/ and an engine.
 *
 * An engine starts no thread (local has one in sys/robust_mutex.c, which only sleeps) and keeps no
 * pointer of the user. The client passes the time. The engine replies at once, as the result of
 * submit(), or later: then it notifies its host, and the client takes the reply. QUEUED is the one
 * reply that another may follow; a LEAVE ends that wait.
 *
 * Order of calls: open(); enter() by the background thread; submit(), take_reply(), park() and
 * forget() by any thread; leave() by the background thread; finish(); close().
 *
 * Adding an engine: one folder with one const table, one line in engines.def. */
#pragma once
#include "admin.h"

struct setting_rows;
struct settings;
struct settings_table;
struct timing_overrides;
struct url;

/* All that an engine may touch of its client. It may be called from any thread that is inside the
 * engine, must not call back, and outlives the engine. */
struct engine_host {
    void *ctx;
    /* There is a reply for this op: call take_reply() soon. */
    void (*notify)(void *ctx, struct engine_op *op);
    /* Some hold of this client may be lost: check each. */
    void (*recheck)(void *ctx);
    /* The engine's whole state was deleted or replaced: every hold of this client is lost. */
    void (*lost_all)(void *ctx, hf_status status, const char *text);
    /* Reports how long requests take on the engine's connection. NULL: the host does not use it. */
    void (*takes)(void *ctx, nanos length);
};

struct engine_type {
    const char *name;
    const char *const *schemes; /* ends with NULL */
    struct engine_limits limits;
    const struct setting_rows *const *settings; /* its tables; ends with NULL */
    /* Adds what its own settings say about timing. NULL: nothing. */
    void (*override_timing)(struct timing_overrides *overrides, const struct settings *settings);
    /* Fits defaults to the settings that were given, so that no default makes them fail. NULL:
     * nothing to fit. */
    void (*fit_defaults)(struct settings *settings);
    /* Narrows or widens the limits by what the settings say of the servers. NULL: nothing to fit.
     */
    void (*fit_limits)(struct engine_limits *limits, const struct settings *settings);
    /* Is this word of the URL's query, which is no setting, for the engine itself? NULL: none is.
     */
    bool (*passes_on)(const char *name, size_t len);

    /* Checks URL and settings without any side effect. NULL: open() and close() have none. */
    hf_status (*check)(const struct url *url, const struct settings *settings);
    /* Opens and checks. On failure *self is NULL and hf_error_text() says why. */
    hf_status (*open)(void **self, const struct url *url, const struct settings *settings,
                      const struct engine_host *host);
    /* The background thread calls these first and last: a robust mutex that tells others whether
     * this client lives belongs to that thread. */
    hf_status (*enter)(void *self);
    void (*leave)(void *self);

    /* Does what op->verb says. Returns true if *reply is the reply; otherwise the host is notified
     * when take_reply() has one. */
    bool (*submit)(void *self, struct engine_op *op, nanos now, struct engine_reply *reply);
    /* Takes the next reply of an op, without waiting. Returns false if there is none. */
    bool (*take_reply)(void *self, struct engine_op *op, nanos now, struct engine_reply *reply);
    /* No caller parks on this op any more: from here on its replies go to the background thread.
     * NULL if submit() always replies at once. */
    void (*detach_caller)(void *self, struct engine_op *op);
    /* Sends what was submitted. NULL if the engine holds nothing back. park() does it, too. */
    void (*flush)(void *self);
    /* The client is done with the op, whatever became of it: no notify() names it from here on. */
    void (*forget)(void *self, struct engine_op *op);

    /* Sleeps until there may be a reply for the op that had this slot and `seen` when it was
     * queued, at most until `until`. Returns the time if it has just read the clock; else 0. */
    nanos (*park)(void *self, uint64_t slot, uint32_t seen, nanos until);
    void (*wake)(void *self, uint64_t slot); /* ends the park of that slot now */
    /* The background thread sleeps until notify() or background_wake() is called, at most until
     * `until`. */
    void (*background_park)(void *self, nanos until);
    void (*background_wake)(void *self);

    /* Rows, in no particular order of names; past holds the newest first. fn only copies. */
    hf_status (*list)(void *self, const struct admin_target *what, nanos now, hf_row_fn *fn,
                      void *arg);
    /* What each server says of a name. NULL: the engine has no several servers. fn only copies. */
    hf_status (*list_servers)(void *self, const struct admin_target *what, nanos now,
                              hf_server_state_fn *fn, void *arg);
    hf_status (*break_hold)(void *self, const struct admin_target *what, uint64_t token, nanos now);
    hf_status (*resize)(void *self, const struct admin_target *what, uint32_t capacity, nanos now);
    /* Findings about the engine and its servers. NULL: there is nothing to find. fn only copies. */
    hf_status (*diagnose)(void *self, nanos now, hf_finding_fn *fn, void *arg);
    /* Sleeps until something about any name may have changed since *seen, at most until `until`;
     * updates *seen. */
    void (*watch)(void *self, uint32_t *seen, nanos until);
    /* After leave(): waits for the replies to releases, until `until` but at least 50 ms, and up to
     * 1 s while replies arrive, so that the next client finds the locks free. NULL if nothing can
     * be in flight. */
    void (*finish)(void *self, nanos until);
    void (*close)(void *self); /* after leave(); forgets every op */
};

/* The engine whose scheme the URL begins with, or NULL. */
const struct engine_type *engine_find(const char *scheme, size_t len);
/* Names of all engines that were built in, separated by blanks. */
const char *engine_names(void);
/* Engines that were left out of this build, one a line: its name and the reason; "": none. */
const char *engines_left_out(void);
/* The settings of all engines, in one table. Any thread may call it. */
const struct settings_table *engine_settings(void);
