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
    const char *const *schemes; /* URL schemes; ends with NULL */
    struct engine_limits limits;
    /* tables of its own settings; ends with NULL */
    const struct setting_rows *const *settings;
    /* Adds the engine's own settings about timing. NULL: it has none. */
    void (*override_timing)(struct timing_overrides *overrides, const struct settings *settings);
    /* Adapts defaults to the settings that were given, so that no default makes a request fail.
     * NULL: not needed. */
    void (*fit_defaults)(struct settings *settings);
    /* Adapts the limits to settings that describe the servers. NULL: not needed. */
    void (*fit_limits)(struct engine_limits *limits, const struct settings *settings);
    /* Returns true for a word of the URL's query that is not a setting but is meant for the
     * engine's library. NULL: there is none. */
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
    /* Forgets an op, because the client is done with it: no notify() names it from here on. */
    void (*forget)(void *self, struct engine_op *op);

    /* Sleeps until there may be a reply for the op that had this slot and `seen` when it was
     * queued, at most until `until`. Returns the time if it has just read the clock; else 0. */
    nanos (*park)(void *self, uint64_t slot, uint32_t seen, nanos until);
    void (*wake)(void *self, uint64_t slot); /* Ends the park of that slot now. */
    /* The background thread sleeps until notify() or background_wake() is called, at most until
     * `until`. */
    void (*background_park)(void *self, nanos until);
    void (*background_wake)(void *self);

    /* The caller's own event loop reads replies to ops without a caller while it is awake; the
     * background thread reads them if the loop does not. NULL, as loop_read and loop_end: the
     * engine has nothing to read. Returns a descriptor of the engine that is readable when
     * `wake_fd` is, or when there may be something to read; -1: no descriptor is free. */
    int (*loop_begin)(void *self, int wake_fd);
    /* Reads what has arrived. The caller must then take the replies that the host was notified of.
     */
    void (*loop_read)(void *self);
    /* The loop has stopped for good: the background thread reads replies from now on. */
    void (*loop_end)(void *self);

    /* Reports rows; names may come in any order, past holds newest first. fn only copies. */
    hf_status (*list)(void *self, const struct admin_target *what, nanos now, hf_row_fn *fn,
                      void *arg);
    /* Reports each server's view of a name. NULL: the engine has only one server. fn only
     * copies. */
    hf_status (*list_servers)(void *self, const struct admin_target *what, nanos now,
                              hf_server_state_fn *fn, void *arg);
    hf_status (*break_hold)(void *self, const struct admin_target *what, uint64_t token, nanos now);
    hf_status (*resize)(void *self, const struct admin_target *what, uint32_t capacity, nanos now);
    /* Reports findings about the engine and its servers. NULL: it has none. fn only copies. */
    hf_status (*diagnose)(void *self, nanos now, hf_finding_fn *fn, void *arg);
    /* ADMIN_INSTALL, ADMIN_USES or ADMIN_PRUNE, for the libraries that run inside the servers;
     * in_use: as in admin_op. NULL: nothing of ours runs there. fn only copies. */
    hf_status (*care_for_library)(void *self, enum admin_verb verb, const char *in_use, nanos now,
                                  hf_finding_fn *fn, void *arg);
    /* Sleeps until something about any name may have changed since *seen, at most until `until`;
     * updates *seen. */
    void (*watch)(void *self, uint32_t *seen, nanos until);
    /* After leave(): waits for the replies to releases, until `until` but at least 50 ms, and up to
     * 1 s while replies arrive, so that the next client finds the locks free. NULL if nothing can
     * be in flight. */
    void (*finish)(void *self, nanos until);
    /* Frees the engine and forgets every op; called after leave(). */
    void (*close)(void *self);
};

/* Returns the engine for a URL scheme, or NULL. */
const struct engine_type *engine_find(const char *scheme, size_t len);
/* Returns the engine of that name, or NULL. A name need not be a scheme: sentinel is not. */
const struct engine_type *engine_named(const char *name);
/* Returns the names of all engines in this build, separated by blanks. */
const char *engine_names(void);
/* Returns the engines that this build lacks, one a line: name and reason; "": none. */
const char *engines_left_out(void);
/* Returns the settings of all engines in one table. Any thread may call it. */
const struct settings_table *engine_settings(void);
