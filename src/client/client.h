/* client.h - the client's own structs: everything that changes over time.
 *
 * The way through this folder: client.c opens and closes. lease_pool.c makes handles and counts the
 * references to them; callbacks.c lends the fields that few of them need. claim_driver.c turns an
 * event into moves of the claim (core) and submits them to the engine. acquire_release.c has the
 * blocking calls and those that only start an operation; acquire_many.c takes several names at
 * once; export.c turns a detached hold into text and back. background.c is the background thread:
 * timers, replies that the engine notified of, callbacks. event_log.c is the log, client_admin.c
 * lists holders and waiters, server_report.c collects what servers say of themselves, and watch.c
 * reports changes.
 *
 * An engine replies inside submit(), or later (ENGINE_REPLIES_LATER). If it replies later, a caller
 * that is blocked in a call on the lease parks in the engine and takes the replies. If no caller is
 * blocked, the engine notifies the background thread, which takes them.
 *
 * Locks, in the order in which they are taken: a lease's lock, then the client's. A claim moves and
 * the engine is called under the lease's lock, so a lease whose call hangs delays no other. The
 * client's lock guards queues, timers and the pool, and is held for moments only. No lock is held
 * while a callback runs.
 *
 * hf_close waits for every thread that is inside a call. Such a thread either holds a lease's lock,
 * and hf_close takes each of these once, or is counted in `active_calls`. */
#pragma once
#include "base/heap.h"
#include "base/settings.h"
#include "core/claim.h"
#include "engines/engine.h"
#include "sys/clock.h"
#include "sys/entropy.h"
#include "sys/fork_guard.h"
#include "sys/futex.h"
#include "sys/small_mutex.h"

#include <assert.h>
#include <pthread.h>

/* A queue of leases. A lease is in it at most once. */
struct lease_queue {
    struct hf_lease *first, *last;
};

enum callback_kind {
    CALLBACK_DONE = 1,
    CALLBACK_LOST = 2,
    CALLBACK_EXTENDED = 4,
    CALLBACK_RELEASED = 8
};
enum sweep_kind { SWEEP_NONE, SWEEP_CHECK, SWEEP_LOST };
enum { CLIENT_COUNTERS = sizeof(struct hf_counters) / sizeof(uint64_t) - 1 };

/* Counters, in the order of struct hf_counters. */
enum counter_id {
    COUNT_ASKED,
    COUNT_GRANTED,
    COUNT_QUEUED,
    COUNT_BUSY,
    COUNT_TIMED_OUT,
    COUNT_CANCELLED,
    COUNT_FAILED,
    COUNT_EXTENDED,
    COUNT_RELEASED,
    COUNT_LOST
};

/* A call that waits for the outcome of an operation. */
struct pending_call {
    bool open; /* the operation was started and its caller has not taken the outcome */
    bool over; /* the outcome is known */
    hf_status status : 16;
};

/* A timing sheet that all leases with the same ttl share. Guarded by the client's lock. */
struct shared_sheet {
    struct timing_sheet sheet;
    struct shared_sheet *next; /* next in its bucket */
    int64_t ttl_ms;
    uint32_t users; /* number of leases that point to it */
};

/* One callback of hf_acquire_start, hf_extend_start, hf_upgrade_start, hf_downgrade_start or
 * hf_release_start. */
struct done_call {
    hf_done_fn *fn; /* NULL: none, or it has run */
    void *arg;
};

/* Callbacks of a lease, and the group that it was taken with. Most leases need none of these. They
 * are returned to the pool when no field is needed any more. */
struct callbacks {
    /* calls that were started; `extended` is also for a conversion */
    struct done_call done, extended, released;
    hf_lost_fn *on_lost;
    void *lost_arg;
    /* the open call `change` or `release` of the lease was started with a callback */
    bool change_calls_back, release_calls_back;
    bool converts;          /* the open call `change` is a conversion that calls back */
    hf_kind converted_kind; /* kind of the lease after the conversion */
    bool group_lost;        /* the other leases of the group must be given up */
    bool has_outcome_fd;    /* a caller polls outcome_fd, which decide() makes readable */
    int outcome_fd;
    hf_status extended_status : 16, released_status : 16;
    /* Guarded by the client's lock: */
    struct lease_group *group;  /* NULL: the lease was taken alone */
    struct hf_lease *call_next; /* next in the queue of leases with a callback due */
    struct callbacks *next;     /* next in the pool of unused ones */
};

/* Why an op of a lease failed: what the engine said, and which hold is in the way. */
struct lease_failure {
    const char *text; /* text of the engine; "": none */
    bool has_holder;
    nanos until; /* when the hold in the way ends unless it is renewed; TIME_NEVER: unknown */
    struct reply_holder holder; /* hold in the way; all zero: only `until` is known */
};

#define BACKGROUND_AWAKE INT64_MIN /* armed_at while the background thread is awake */

enum { SHEET_BITS = 6, SHEET_BUCKETS = 1 << SHEET_BITS };

struct hf_lease {
    struct hf_client *client;
    /* One for the caller's handle, one for the claim until it is over, one for each queue that the
     * lease is in. 0: in the pool. */
    _Atomic uint32_t refs;

    small_mutex lock;
    bool alive;         /* the claim has a reference */
    bool caller_drives; /* a caller is blocked in acquire and brings the timer events itself */
    bool decided;       /* GRANTED or DENIED was reported */
    bool freed;         /* the caller gave the handle back */
    /* the hold was exported: it belongs to the text, and freeing the handle does not end it */
    bool exported;
    bool awaited;   /* hf_close waits for the lease's last reply */
    bool has_block; /* `texts` has the member `block`, not `small` */
    bool muted;     /* the caller does not have the handle yet, so on_lost must not run */

    /* Guarded by the client's lock: */
    /* in the queue of notified leases; in the queue of leases that have a callback to run */
    bool is_notified, in_call;
    uint8_t due_callbacks; /* bits of enum callback_kind */

    /* Extend, upgrade or downgrade. One at a time; other threads wait until it is free. */
    struct pending_call change;
    struct pending_call release; /* the first release; a second is refused */
    hf_status outcome : 16, lost_status : 16;
    uint32_t callers;        /* threads in a blocking call on the lease */
    uint32_t sleepers;       /* number of them that sleep on `outcome_word` */
    futex_word outcome_word; /* rises with every report */
    _Atomic int lost_fd;     /* -1: hf_lease_fd was not called */
    uint64_t parked;         /* slot that one of the callers is parked on; 0: none */
    nanos wake_at;           /* time when the claim wants its TIMER */

    struct engine_op op;
    struct claim claim;

    /* Guarded by the client's lock: */
    struct heap_node
        /* time when the background thread handles the lease; its key may be read without the
         * lock */
        timer;
    struct hf_lease *notified_next; /* next in the queue `notified`, or in the pool */

    struct callbacks *callbacks; /* NULL: none */
    struct lease_failure
        *failure; /* cause of the last failure; NULL: nothing to add to the status */
    union {       /* the op's name and label, and behind them the correlation id */
        char small[40];
        struct {
            char *at;
            uint32_t size;
        } block; /* memory for longer texts; stays with the handle */
    } texts;
};

/* Files in memory for texts that a caller gave instead of files; see hf_client_options. */
enum { SECRETS = 4 };
struct secrets {
    int fd[SECRETS]; /* descriptor + 1; 0: none */
};

struct hf_client {
    struct fork_guard mark;
    struct secrets secrets;
    const struct engine_type *type;
    void *engine;
    struct engine_host host;
    struct engine_limits limits;
    struct settings settings;
    struct timing_overrides overrides; /* from the settings; see client_overrides() */
    /* time that requests take on the engine's connection; 0: not known */
    _Atomic nanos takes;
    char *url; /* URL without its query, for messages */

    /* Number of threads in a call that hold no lease's lock, and the bit CLIENT_CLOSING. It is
     * one word, because a thread that leaves must not touch the client afterwards. */
    futex_word active_calls;
    futex_word awaited; /* number of leases whose last reply hf_close waits for */
    _Atomic uint64_t count[CLIENT_COUNTERS];

    small_mutex lock;
    struct entropy entropy;
    uint64_t
        next_id[2]; /* attempt ids in a table: random at first, then the first word counts up */
    struct heap timers;
    struct hf_lease *pool;
    struct lease_slab *slabs; /* all leases */
    struct callbacks *unused_callbacks;
    struct shared_sheet *sheets[SHEET_BUCKETS]; /* hash table by ttl */
    uint32_t leases;                            /* number of leases, in use or in the pool */
    struct lease_queue notified, call;
    nanos armed_at;        /* time when the background thread wakes; INT64_MIN while it is awake */
    enum sweep_kind sweep; /* change that concerns all leases */
    hf_status lost_status;
    char lost_text[256];
    bool stop;
    bool no_thread;     /* the caller drives; the background thread only wakes the caller's loop */
    bool own_callbacks; /* callbacks and log run in hf_process, the background thread does the rest
                         */
    int fd; /* readable when hf_process has something to do; -1: the client uses its thread alone */
    _Atomic uint32_t loop_writes; /* own_callbacks: number of writes to `fd` */
    uint32_t loop_seen;           /* loop_writes when hf_process last emptied `fd` */
    _Atomic pthread_t processor;  /* the thread that is inside hf_process; 0: none */
    _Atomic pthread_t batcher;    /* the thread whose requests wait for hf_flush; 0: none */

    nanos max_stall;        /* value of the option; 0: none */
    _Atomic nanos alive_at; /* last sign of life of the program; max_stall counts from it */

    bool keep_handles; /* handles outlive hf_close */
    /* Guarded by the client's lock, with keep_handles: */
    bool closed;      /* only memory is left; it is freed with the last handle */
    uint32_t handles; /* with `closed`: number of handles that were not freed yet */

    pthread_t background_thread;
    futex_word background_up; /* 1: the background thread has started, and its status is known */
    hf_status background_status;
    char background_text[512];

    hf_log_fn *on_log;
    void *log_arg;
    _Atomic uint32_t log_level; /* enum hf_log_level; 0: nothing is logged */
    struct log_entry *log_first, *log_last;
    /* calls whose callback is due; guarded by the lock */
    struct started_call *ended_first, *ended_last;
};

/* ---- lease_pool.c ---- */

/* Fills all sheets again after client->takes has changed. Under the client's lock. */
void lease_adapt_sheets(struct hf_client *client);

/* Makes a lease for a checked request, with its lock held and one reference. */
hf_status lease_make(struct hf_client *client, const struct hf_request *request, nanos now,
                     nanos deadline, struct hf_lease **lease);

/* Adds a reference, for a thread that already has one. */
static inline void lease_ref(struct hf_lease *lease)
{
    atomic_fetch_add_explicit(&lease->refs, 1, memory_order_relaxed);
}

/* Adds a reference, for a thread that found the lease in a list of the client, under the
 * client's lock. Returns false if the last reference is gone: the lease is on its way to the pool.
 */
bool lease_ref_listed(struct hf_lease *lease);

/* Puts a lease without references into the pool. */
void lease_recycle(struct hf_lease *lease);

static inline void lease_unref(struct hf_lease *lease)
{
    if (atomic_fetch_sub_explicit(&lease->refs, 1, memory_order_acq_rel) == 1)
        lease_recycle(lease);
}

/* Unlocks a lease that was never held or has ended, and drops the reference. */
void lease_drop(struct hf_lease *lease);

/* Drops the reference if it is the last one. Returns true if it was. */
bool lease_pool_last(struct hf_lease *lease);

/* State of a walk through all leases of a client; zero at first. */
struct lease_walk {
    struct lease_slab *slab;
    uint32_t next; /* index in the slab */
    struct hf_lease *lease;
};

/* Returns the next lease, with a reference, and drops the reference to the one returned before.
 * NULL ends the walk, and a walk must be continued until then. A lease that is made meanwhile may
 * be missed. */
struct hf_lease *lease_walk(struct hf_client *client, struct lease_walk *walk);

/* Copies the text. Called under the lease's lock. */
void lease_set_error(struct hf_lease *lease, const char *text);

/* Copies the hold that is in the way into the failure. Called under the lease's lock. */
void lease_set_holder(struct hf_lease *lease, const struct reply_holder *holder, nanos until);

/* Returns the failure of a lease; an empty one if it has none. */
static inline const struct lease_failure *lease_failure(const struct hf_lease *lease)
{
    static const struct lease_failure nothing = {.text = ""};
    return lease->failure ? lease->failure : &nothing;
}

/* Ends the validity of all handles and counts those that were not freed. Under the client's lock.
 */
uint32_t lease_pool_count_handles(struct hf_client *client);
void lease_pool_free(struct hf_client *client);

/* ---- callbacks.c ---- */
/* After HF_OK, lease->callbacks is not NULL. */
hf_status callbacks_ensure(struct hf_lease *lease);
/* Returns the lease's callbacks to the pool. Called under the client's lock. */
void callbacks_return(struct hf_lease *lease);
void callbacks_free(struct hf_client *client); /* Frees the callbacks in the pool. */

/* Notes that a callback of the lease is due. The lease's lock is held. */
void callbacks_due(struct hf_lease *lease, enum callback_kind callback);

/* Runs callbacks that are due, at least one and at most a batch. Returns true if there were any. */
bool callbacks_run(struct hf_client *client);
bool callbacks_are_due(struct hf_client *client);

/* ---- claim_driver.c ---- */

/* Passes an event to the claim and carries out all that follows. The lease's lock is held. */
void claim_driver_step(struct hf_lease *lease, const struct claim_event *event);
void claim_driver_input(struct hf_lease *lease, enum claim_input in, hf_status why);
/* Ends a wait. A lease whose wait has not begun has none to end, unless the engine has asked for it
 * ahead. The lease's lock is held. */
void claim_driver_cancel(struct hf_lease *lease, hf_status why);

/* Takes every reply that the engine has for the lease. */
void claim_driver_take_replies(struct hf_lease *lease, nanos now);

/* Sleeps until there may be a reply, the lease's timer is due, or `until`. The lease's lock is
 * released meanwhile. Returns the time. */
nanos claim_driver_park(struct hf_lease *lease, nanos until);

/* Notes that a caller begins or stops waiting for replies. While one waits, it takes the replies;
 * otherwise the background thread does. */
static inline void claim_driver_wait_begin(struct hf_lease *lease)
{
    lease->callers++;
}
void claim_driver_wait_pass(struct hf_lease *lease);
static inline void claim_driver_wait_end(struct hf_lease *lease)
{
    if (--lease->callers || (lease->alive && (lease->client->limits.offers & ENGINE_REPLIES_LATER)))
        claim_driver_wait_pass(lease);
}

hf_status claim_driver_adopt(struct hf_lease *lease, uint64_t token, bool is_settled);
void claim_driver_assume(struct hf_lease *lease, uint64_t token, bool is_settled);
/* Leaves the hold to its exported text alone. */
void claim_driver_disown(struct hf_lease *lease);

/* ---- acquire_release.c ---- */
#define CLIENT_CLOSING 0x80000000u

/* Counts the caller in `active_calls`. Returns HF_FORKED or HF_CLOSED without counting. */
hf_status client_enter(struct hf_client *client);
void client_exit(struct hf_client *client);
/* Returns HF_FORKED or HF_CLOSED, with its text. */
hf_status client_refuse(const struct hf_client *client);

static inline bool client_closing(const struct hf_client *client)
{
    return atomic_load_explicit(&client->active_calls, memory_order_relaxed) & CLIENT_CLOSING;
}

/* Keeps the client open, for a thread that holds a lease's lock and still needs the client after
 * releasing that lock. Paired with client_exit(). */
static inline void client_stay_open(struct hf_client *client)
{
    atomic_fetch_add(&client->active_calls, 1);
}

/* Starts an acquire whose outcome the caller waits for with client_acquire_finish(), which gets the
 * status of this call. The lease's lock is held. */
hf_status client_acquire_begin_here(struct hf_lease *lease, nanos now);
hf_status client_acquire_finish(struct hf_lease *lease, hf_status status);
hf_status client_acquire(struct hf_client *client, const struct hf_request *request,
                         struct hf_lease **lease);
hf_status client_acquire_start(struct hf_client *client, const struct hf_request *request,
                               struct done_call done, struct hf_lease **lease);
hf_status client_cancel(struct hf_lease *lease);
hf_status client_set_renewal(struct hf_lease *lease, bool on);

/* Starts the acquire of a lease that was made, without waiting. `now` is the time from which its
 * wait counts. The lease's lock is held. */
hf_status client_acquire_begin(struct hf_lease *lease, nanos now);
/* Returns the outcome of an acquire that failed, with its text. */
hf_status client_explain_outcome(const struct hf_lease *lease);
hf_status client_extend(struct hf_lease *lease, int64_t ttl_ms);
hf_status client_extend_start(struct hf_lease *lease, int64_t ttl_ms, struct done_call done);
hf_status client_release(struct hf_lease *lease);
hf_status client_release_start(struct hf_lease *lease, struct done_call done);

/* Sets the error text for an outcome that is not HF_OK. */
hf_status client_explain(const struct hf_lease *lease, const struct lease_failure *failure,
                         hf_status status);
void client_lease_free(struct hf_lease *lease);
int client_lost_fd(struct hf_lease *lease);
hf_status client_convert(struct hf_lease *lease, enum op_verb verb);
hf_status client_convert_start(struct hf_lease *lease, enum op_verb verb, struct done_call done);

/* ---- cancellable_acquire.c ---- */

/* client_acquire() that also ends when request->cancel_fd is readable. */
hf_status client_acquire_cancellable(struct hf_client *client, const struct hf_request *request,
                                     struct hf_lease **lease);

/* ---- export.c ---- */
hf_status client_export(struct hf_lease *lease, char *text, size_t size);
hf_status client_attach(struct hf_client *client, const char *text, struct hf_lease **lease);
hf_status client_assume(struct hf_client *client, const char *text, struct hf_lease **lease);

/* ---- acquire_many.c ---- */
hf_status client_acquire_many(struct hf_client *client, const struct hf_request *requests,
                              size_t count, int64_t wait_ms, struct hf_lease **leases);
void lease_group_lose(struct hf_lease *lease); /* Gives up the other leases of the group. */
/* Returns true if another lease of the group was lost. */
bool lease_group_lost(struct hf_lease *lease);
void lease_group_leave(struct hf_lease *lease); /* Called under the client's lock. */

/* ---- background.c ---- */
/* Checks all holds, because one may have been revoked. */
void background_recheck(struct hf_client *client);
int64_t background_timeout(struct hf_client *client);
hf_status background_process(struct hf_client *client);
void *background_main(void *client);
/* Makes the background thread take the reply that the engine may have for the lease. */
void background_notify(struct hf_lease *lease);

/* Gives up the other leases of the group, on the background thread. The lease's lock is held. */
void background_lose_group(struct hf_lease *lease);

/* Makes the background thread handle the lease at `when` or sooner. */
void background_timer(struct hf_lease *lease, nanos when);
void background_wake(struct hf_client *client);

/* Sends what this thread submitted, unless it is the background thread, which flushes itself. */
void background_flush(struct hf_client *client);

/* For a client that was opened with own_callbacks: makes its descriptor readable. */
void background_wake_loop(struct hf_client *client);
int background_loop_fd(struct hf_client *client);

/* Returns true on the thread that does the background work. */
static inline bool background_is_me(const struct hf_client *client)
{
    if (client->no_thread)
        return atomic_load(&client->processor) == pthread_self();
    return pthread_equal(client->background_thread, pthread_self());
}

/* Returns true on the thread that runs callbacks. */
static inline bool callbacks_run_here(const struct hf_client *client)
{
    if (client->own_callbacks)
        return atomic_load(&client->processor) == pthread_self();
    return background_is_me(client);
}

/* Returns true if requests of this thread are held back until hf_flush. */
static inline bool client_batches(const struct hf_client *client)
{
    return atomic_load_explicit(&client->batcher, memory_order_relaxed) == pthread_self();
}

static inline void client_note_alive(struct hf_client *client)
{
    if (client->max_stall)
        atomic_store_explicit(&client->alive_at, clock_boot(), memory_order_relaxed);
}

/* Returns true if the program was silent for longer than max_stall. */
static inline bool client_is_stalled(const struct hf_client *client, nanos now)
{
    return client->max_stall &&
           now - atomic_load_explicit(&client->alive_at, memory_order_relaxed) > client->max_stall;
}

/* Sends what was submitted. */
static inline void client_flush(struct hf_client *client)
{
    if (client->type->flush)
        client->type->flush(client->engine);
}

/* ---- client.c ---- */
hf_status client_open(const char *url, const struct hf_client_options *options,
                      struct hf_client **client);
hf_status client_check_url(const char *url);
hf_status client_open_with(const struct engine_type *type, const struct url *url,
                           const struct hf_client_options *options, struct hf_client **client);
hf_status client_close(struct hf_client *client, int64_t timeout_ms);
/* Returns HF_OK if this thread may close the client. */
hf_status client_check_close(const struct hf_client *client);
/* Refuses new calls from here on. */
void client_refuse_calls(struct hf_client *client);
/* Frees the memory; everything else has been closed. */
void client_free_memory(struct hf_client *client);

/* ---- started_calls.c ---- */
hf_status client_list_start(struct hf_client *client, int which, const char *name, hf_rows_fn *done,
                            void *arg);
hf_status client_close_start(struct hf_client *client, int64_t timeout_ms, hf_closed_fn *done,
                             void *arg);
/* Runs the callback of one call that has ended. Returns false if none is due. */
bool started_calls_run(struct hf_client *client);

/* ---- secrets.c ---- */

/* Makes a file for each text of the options, and lets its setting name that file. */
hf_status secrets_keep(struct secrets *secrets, struct settings *settings,
                       const struct hf_client_options *options);
void secrets_drop(struct secrets *secrets);

/* ---- event_log.c ---- */
void event_log_report(struct hf_lease *lease, enum claim_report report, hf_status status,
                      nanos now);
void event_log_break(struct hf_client *client, const char *name, uint64_t token,
                     const char *reason);
void event_log_deliver(struct hf_client *client);
void event_log_free(struct hf_client *client);

/* ---- client_admin.c, watch.c ---- */
hf_status client_list(struct hf_client *client, int which, const char *name, hf_row_fn *fn,
                      void *arg);
/* `next` has HF_NAME_MAX + 1 bytes: the last name of the page; "": no name follows. */
hf_status client_list_page(struct hf_client *client, const char *prefix,
                           const struct name_range *page, hf_row_fn *fn, void *arg, char *next);
hf_status client_watch(struct hf_client *client, const char *prefix, hf_watch_fn *fn, void *arg);
hf_status client_break(struct hf_client *client, const char *name, uint64_t token,
                       const char *reason);
hf_status client_resize(struct hf_client *client, const char *name, uint32_t capacity);

/* Returns the settings' overrides together with what is known of the connection. */
static inline struct timing_overrides client_overrides(const struct hf_client *client)
{
    struct timing_overrides overrides = client->overrides;
    overrides.takes = atomic_load_explicit(&client->takes, memory_order_relaxed);
    return overrides;
}

/* ---- server_report.c ---- */

/* Reports findings, if the engine has that function. They are reported even if the status is not
 * HF_OK. */
hf_status client_diagnose(struct hf_client *client, hf_finding_fn *fn, void *arg);
hf_status client_install_library(struct hf_client *client, hf_finding_fn *fn, void *arg);
hf_status client_prune_libraries(struct hf_client *client, hf_finding_fn *fn, void *arg);
hf_status client_show_servers(struct hf_client *client, const char *name, hf_server_state_fn *fn,
                              void *arg);

static inline bool client_replies_later(const struct hf_client *client)
{
    return client->limits.offers & ENGINE_REPLIES_LATER;
}

static inline struct lease_group *lease_group_of(const struct hf_lease *lease)
{
    return lease->callbacks ? lease->callbacks->group : NULL;
}

static inline const char *lease_correlation(const struct hf_lease *lease)
{
    return lease->op.label + lease->op.label_len + 1;
}

static inline bool lease_is_held(const struct hf_lease *lease)
{
    return lease->claim.state == CLAIM_HELD || lease->claim.state == CLAIM_EXTENDING;
}

/* Returns the end of a wait that begins now. */
static inline nanos client_deadline(nanos now, int64_t wait_ms)
{
    if (!wait_ms)
        return now;
    return wait_ms < 0 || wait_ms > (TIME_NEVER - now) / NANOS_OF_MS(1) - 1
               ? TIME_NEVER
               : now + NANOS_OF_MS(wait_ms);
}
