/* client.h - the client's own structs: what changes over time.
 *
 * The way through this folder: client.c opens and closes; lease.c makes handles and counts who needs them, hooks.c what
 * few of them need; drive.c turns an event into moves of the claim (core) and submits them to the engine; calls.c are
 * the blocking and starting calls; many.c takes several names at once; export.c turns a detached hold into text and
 * back; keeper.c is the background thread: timers, news by the bell, callbacks; journal.c is the log; listing.c shows
 * and watch.c tells of changes.
 *
 * An engine answers inside submit(), or later (HF_LATER). Then whoever is blocked in a call on the lease parks in the
 * engine and looks at its news; when nobody is, they come by the bell, and the keeper looks.
 *
 * Locks, in the order in which they are taken: a lease's lock (its claim moves under it, and the engine is asked under
 * it, so that one lease that cannot get through holds up no other), then the client's (queues, timers, pool; for
 * moments). No lock is held while a callback runs.
 *
 * hf_close waits for all who are in a call. Whoever has a lease's lock is in one, for hf_close takes each; whoever is
 * in a call without such a lock counts itself in `inside`. */
#pragma once
#include "base/heap.h"
#include "base/settings.h"
#include "core/claim.h"
#include "engines/engine.h"
#include "sys/entropy.h"
#include "sys/forkmark.h"
#include "sys/futex.h"
#include "sys/latch.h"

#include <pthread.h>

/* A queue of leases, each in it at most once. */
struct hf_line {
    struct hf_lease *first, *last;
};

enum hf_callback { HF_CB_DONE = 1, HF_CB_LOST = 2, HF_CB_GROUP = 4 };
enum hf_sweep { HF_SWEEP_NONE, HF_SWEEP_CHECK, HF_SWEEP_LOST };
enum { HF_COUNTERS = sizeof(struct hf_counters) / sizeof(uint64_t) - 1 };

/* The order is that of struct hf_counters. */
enum hf_count {
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

/* A call that waits for its answer. */
struct hf_pending_call {
    bool open; /* somebody is in it */
    bool over; /* and has its answer */
    hf_status status : 16;
};

/* A timing sheet that all leases with the same ttl share. Under the client's lock. */
struct hf_shared_sheet {
    struct hf_sheet sheet;
    struct hf_shared_sheet *next; /* of its bucket */
    int64_t ttl_ms;
    uint32_t users;
};

/* What hangs on the outcome of a lease: callbacks, and those that were taken together with it. Most need none of these;
 * when `done` has been called, and there is nothing else, it is given back. */
struct hf_hooks {
    hf_done_fn *done;
    void *done_arg;
    hf_lost_fn *on_lost;
    void *lost_arg;
    /* Under the client's lock: */
    struct hf_group *group;     /* NULL: it was taken alone */
    struct hf_lease *call_next; /* while a callback is due */
    struct hf_hooks *next;      /* while they are unused */
};

enum { HF_SHEET_BITS = 6, HF_SHEET_BUCKETS = 1 << HF_SHEET_BITS };

struct hf_lease {
    struct hf_client *client;
    _Atomic uint32_t
        refs; /* the caller's handle, the claim until it is over, each queue it stands in; 0: in the pool */

    hf_latch lock;
    bool alive;                     /* the claim counts as a ref */
    bool caller_drives;             /* a caller is blocked in acquire and brings the timer events itself */
    bool decided;                   /* GRANTED or DENIED was reported */
    bool freed;                     /* the caller gave the handle back */
    bool exported;                  /* the hold belongs to a text now */
    bool awaited;                   /* hf_close waits for its end */
    bool has_block;                 /* its texts are there */
    bool muted;                     /* the caller has yet to get the handle: nobody is told that it is lost */
    bool in_look, in_call;          /* under the client's lock, as are */
    uint8_t callbacks;              /* enum hf_callback that are due */
    struct hf_pending_call change;  /* extend, upgrade or downgrade: one at a time, other threads wait for their turn */
    struct hf_pending_call release; /* the first one; a second is refused */
    hf_status outcome : 16, lost_status : 16;
    uint32_t callers;    /* in a blocking call on it */
    uint32_t sleepers;   /* those of them that sleep on `news` */
    hf_word news;        /* rises when something was decided; callers sleep on it */
    _Atomic int lost_fd; /* -1: none was asked for */
    uint64_t parked;     /* the slot that one of the callers is parked on; 0: none */
    hf_nanos wake_at;

    struct hf_ask ask;
    struct hf_claim claim;

    /* Under the client's lock: */
    struct hf_heap_node timer;  /* its key: when the keeper looks at it. Read without the lock */
    struct hf_lease *look_next; /* in the queue of those to look at; in the pool */

    struct hf_hooks *hooks; /* NULL: none */
    char *words;            /* what went wrong, NULL: nothing to add to the status */
    union {                 /* the ask's name and label, and behind them the correlation id */
        char small[40];
        struct {
            char *at;
            uint32_t size;
        } block; /* when they were long once; stays with the handle */
    } texts;
};

struct hf_client {
    struct hf_forkmark mark;
    const struct hf_engine_type *type;
    void *engine;
    struct hf_host host;
    struct hf_limits limits;
    struct hf_settings settings;
    struct hf_timing_wishes wishes;
    char *url; /* as opened, without its query, for messages */

    hf_word inside;  /* callers in a call without a lease's lock, and HF_CLOSING: one word, because whoever leaves must
                        not look at the client after */
    hf_word awaited; /* leases that hf_close waits for */
    _Atomic uint64_t count[HF_COUNTERS];

    hf_latch lock;
    struct hf_entropy entropy;
    uint64_t next_id[2]; /* of asks in a table: random numbers at first, of which the first one counts on */
    struct hf_heap timers;
    struct hf_lease *pool;
    struct hf_slab *slabs; /* all leases */
    struct hf_hooks *unused_hooks;
    struct hf_shared_sheet *sheets[HF_SHEET_BUCKETS]; /* by ttl */
    uint32_t leases;                                  /* made, whether in use or in the pool */
    struct hf_line look, call;
    hf_nanos armed_at;   /* when the keeper wakes by itself; INT64_MIN while it is awake */
    enum hf_sweep sweep; /* what happened to all leases */
    hf_status lost_status;
    char lost_text[256];
    bool stop;
    bool no_thread;              /* the caller drives: the background thread only tells when there is something to do */
    int fd;                      /* readable then; -1 with a thread */
    _Atomic pthread_t processor; /* the thread that is inside hf_process; 0: none */

    pthread_t keeper;
    hf_word keeper_up; /* 1: it has started */
    hf_status keeper_status;
    char keeper_text[512];

    hf_log_fn *on_log;
    void *log_arg;
    enum hf_log_level log_level;
    struct hf_record *log_first, *log_last;
};

/* ---- lease.c ---- */
/* With its lock held. */
hf_status hf_lease_make(struct hf_client *client, const struct hf_request *request, hf_nanos now, hf_nanos deadline,
                        struct hf_lease **lease);
static inline void hf_lease_ref(struct hf_lease *lease)
{
    atomic_fetch_add_explicit(&lease->refs, 1, memory_order_relaxed);
}
/* For whoever finds it among the client's leases, under the client's lock. False: nobody needs it any more, and it is
 * on its way to the pool. */
bool hf_lease_ref_listed(struct hf_lease *lease);
void hf_lease_give_back(struct hf_lease *lease); /* one that nobody refers to, to the pool */
static inline void hf_lease_unref(struct hf_lease *lease)
{
    if (atomic_fetch_sub_explicit(&lease->refs, 1, memory_order_acq_rel) == 1)
        hf_lease_give_back(lease);
}
void hf_lease_drop(struct hf_lease *lease);      /* unlocks one that came to nothing, and gives the reference back */
bool hf_lease_pool_last(struct hf_lease *lease); /* gives the reference back if it is the last one */
/* A walk through all leases of a client. Begins as zeroes. */
struct hf_walk {
    struct hf_slab *slab;
    uint32_t next; /* in the slab */
    struct hf_lease *lease;
};
/* The next one, with a reference, while that of the last one is given back; NULL: it is over, and must come to that.
 * Those that are made meanwhile may be met or not. */
struct hf_lease *hf_lease_walk(struct hf_client *client, struct hf_walk *walk);
void hf_lease_words(struct hf_lease *lease, const char *text); /* copied; under the lease's lock */
void hf_leases_free(struct hf_client *client);

/* ---- hooks.c ---- */
hf_status hf_hooks_need(struct hf_lease *lease); /* it has some from here on; or HF_NO_MEMORY */
void hf_hooks_done(struct hf_lease *lease);      /* `done` is not needed any more */
void hf_hooks_give(struct hf_lease *lease);      /* back; under the client's lock */
void hf_hooks_free(struct hf_client *client);    /* those that were given back */

/* ---- drive.c ---- */
/* An event happens to the claim, and all that follows from it. The lease's lock is held. */
void hf_drive(struct hf_lease *lease, const struct hf_event *event);
void hf_drive_input(struct hf_lease *lease, enum hf_input in, hf_status why);
void hf_drive_peek(struct hf_lease *lease, hf_nanos now); /* looks at all news that there are */
/* Sleeps until there may be news, the lease's timer is due, or until then. The lock is given up meanwhile. Returns the
 * time. */
hf_nanos hf_drive_sleep(struct hf_lease *lease, hf_nanos until);
/* A caller begins and ends to wait for answers. While one does, it looks at the news, and not the keeper. */
static inline void hf_drive_attend(struct hf_lease *lease)
{
    lease->callers++;
}
void hf_drive_hand_on(struct hf_lease *lease);
static inline void hf_drive_unattend(struct hf_lease *lease)
{
    if (--lease->callers || (lease->alive && (lease->client->limits.offers & HF_LATER)))
        hf_drive_hand_on(lease);
}
hf_status hf_drive_adopt(struct hf_lease *lease, uint64_t token);
void hf_drive_disown(struct hf_lease *lease); /* the hold belongs to its text alone */

/* ---- calls.c ---- */
#define HF_CLOSING 0x80000000u
hf_status hf_client_enter(struct hf_client *client);
void hf_client_exit(struct hf_client *client);
hf_status hf_client_refuse(const struct hf_client *client); /* HF_FORKED or HF_CLOSED, in words */
static inline bool hf_client_closing(const struct hf_client *client)
{
    return atomic_load_explicit(&client->inside, memory_order_relaxed) & HF_CLOSING;
}
/* For one that has a lease's lock, and will still need the client when it has not. */
static inline void hf_client_stay(struct hf_client *client)
{
    atomic_fetch_add(&client->inside, 1);
}
/* Begins, and waits for the outcome. With the lease's lock. */
hf_status hf_call_wait(struct hf_lease *lease, hf_nanos now);
hf_status hf_call_acquire(struct hf_client *client, const struct hf_request *request, struct hf_lease **lease);
hf_status hf_call_start(struct hf_client *client, const struct hf_request *request, hf_done_fn *done, void *arg,
                        struct hf_lease **lease);
hf_status hf_call_cancel(struct hf_lease *lease);
hf_status hf_call_extend(struct hf_lease *lease, int64_t ttl_ms);
hf_status hf_call_release(struct hf_lease *lease);
void hf_call_free(struct hf_lease *lease);
int hf_call_lost_fd(struct hf_lease *lease);

hf_status hf_call_convert(struct hf_lease *lease, enum hf_verb verb);
hf_status hf_call_export(struct hf_lease *lease, char *text, size_t size);
hf_status hf_call_attach(struct hf_client *client, const char *text, struct hf_lease **lease);

/* ---- many.c ---- */
hf_status hf_call_many(struct hf_client *client, const struct hf_request *requests, size_t count, int64_t wait_ms,
                       struct hf_lease **leases);
void hf_group_lose(struct hf_lease *lease);  /* one of a group is lost: the others follow */
bool hf_group_lost(struct hf_lease *lease);  /* before it began to wait */
void hf_group_leave(struct hf_lease *lease); /* under the client's lock */

/* ---- keeper.c ---- */
void hf_keeper_recheck(struct hf_client *client); /* some hold may have been taken away */
int64_t hf_keeper_timeout(struct hf_client *client);
bool hf_keeper_has_calls(struct hf_client *client); /* callbacks that are due */
hf_status hf_keeper_process(struct hf_client *client);
void *hf_keeper_main(void *client);
void hf_keeper_look(struct hf_lease *lease);                            /* there is something to see for it */
void hf_keeper_call(struct hf_lease *lease, enum hf_callback callback); /* a callback of it is due */
void hf_keeper_timer(struct hf_lease *lease, hf_nanos when);            /* it looks at the lease then, or sooner */
void hf_keeper_wake(struct hf_client *client);
void hf_keeper_flush(
    struct hf_client *client); /* what this thread submitted goes out, if the keeper will not see to it */
/* Is this the thread that runs callbacks? */
static inline bool hf_keeper_is_me(const struct hf_client *client)
{
    if (client->no_thread)
        return atomic_load(&client->processor) == pthread_self();
    return pthread_equal(client->keeper, pthread_self());
}

/* ---- client.c ---- */
hf_status hf_client_open(const char *url, const struct hf_client_options *options, struct hf_client **client);
hf_status hf_client_open_with(const struct hf_engine_type *type, const struct hf_url *url,
                              const struct hf_client_options *options, struct hf_client **client);
hf_status hf_client_close(struct hf_client *client, int64_t timeout_ms);

/* ---- journal.c ---- */
void hf_journal_report(struct hf_lease *lease, enum hf_report report, hf_status status, hf_nanos now);
void hf_journal_break(struct hf_client *client, const char *name, uint64_t token, const char *reason);
void hf_journal_deliver(struct hf_client *client);
void hf_journal_free(struct hf_client *client);

/* ---- listing.c ---- */
hf_status hf_client_list(struct hf_client *client, int which, const char *name, hf_row_fn *fn, void *arg);
hf_status hf_client_watch(struct hf_client *client, const char *prefix, hf_watch_fn *fn, void *arg);
hf_status hf_client_break(struct hf_client *client, const char *name, uint64_t token, const char *reason);
hf_status hf_client_resize(struct hf_client *client, const char *name, uint32_t capacity);

static inline bool hf_client_hears_later(const struct hf_client *client)
{
    return client->limits.offers & HF_LATER;
}

static inline struct hf_group *hf_lease_group(const struct hf_lease *lease)
{
    return lease->hooks ? lease->hooks->group : NULL;
}

static inline const char *hf_lease_correlation(const struct hf_lease *lease)
{
    return lease->ask.label + lease->ask.label_len + 1;
}

static inline bool hf_lease_held(const struct hf_lease *lease)
{
    return lease->claim.state == HF_S_HELD || lease->claim.state == HF_S_EXTENDING;
}

/* The end of a wait that begins now. */
static inline hf_nanos hf_deadline(hf_nanos now, int64_t wait_ms)
{
    if (!wait_ms)
        return now;
    return wait_ms < 0 || wait_ms > (HF_NEVER - now) / HF_MS(1) - 1 ? HF_NEVER : now + HF_MS(wait_ms);
}
