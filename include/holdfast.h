/* holdfast.h - the front door of libholdfast: leases on named resources, on one machine or on many.
 *
 * A lease says: this client may use NAME until then, and here is the number (the token) that proves it. A mutex, a
 * semaphore, a read-write lock are the same lease on resources of different capacity.
 *
 *     struct hf_request want = {.size = sizeof want, .name = "nightly", .ttl_ms = 30000, .flags = HF_AUTO_RENEW};
 *     hf_client *client;
 *     hf_lease *lease;
 *     if (hf_open("local:", NULL, &client) == HF_OK && hf_acquire(client, &want, &lease) == HF_OK) {
 *         do_the_work(hf_lease_token(lease));
 *         hf_release(lease);
 *         hf_lease_free(lease);
 *     }
 *     hf_close(client, 1000);
 *
 * READ THIS FIRST
 * - A lease ends. A process that is stopped for longer than its ttl has lost it while it could not look. Check
 *   hf_lease_ok() before work that must not be done twice, and give the token to whatever checks it (fencing).
 * - Renewal never revives. What is lost stays lost, and on_lost is called exactly once.
 * - After fork() the child must not use the parent's handles: every call answers HF_FORKED and changes nothing.
 * - Functions may be called from any thread unless they say otherwise; leases belong to no thread.
 * - No thread may be cancelled (pthread_cancel) inside a call.
 * - Callbacks run on the client's background thread (or inside hf_process), one at a time, with no lock of the library
 *   held: they may call anything here except hf_close and what would wait (an acquire with wait_ms, hf_watch).
 * - Options structs carry their size first; zero means default; they are read during the call only and never written.
 * - Every function that can fail returns a status; hf_error_text() then says in words what happened to which thing. So
 * it does inside a callback that brings bad news. */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HF_API __attribute__((visibility("default")))
#define HF_MUST_CHECK __attribute__((warn_unused_result))
#else
#define HF_API
#define HF_MUST_CHECK
#endif

#define HF_VERSION_MAJOR 0
#define HF_VERSION_MINOR 1
#define HF_VERSION_PATCH 0

#define HF_FOREVER (-1)      /* wait_ms: until granted or cancelled */
#define HF_WAIT_DEFAULT (-2) /* wait_ms: what URL or environment say, else 0 */

#define HF_NAME_MAX 512       /* bytes of a name: valid UTF-8 without control characters, at least 1 */
#define HF_LABEL_MAX 96       /* bytes of a label: as a name; shown to others */
#define HF_CORRELATION_MAX 64 /* bytes of a correlation id; shown in logs */
#define HF_CAPACITY_MAX 1048576
#define HF_EXPORT_MAX 1024 /* bytes that hf_lease_export needs at most, the final NUL included */

/* ---- Statuses ------------------------------------------------------------------------------------------------ */

/* HF_OK = 0; the others, with text, exit code, HTTP status and whether a retry can help, are in holdfast/status.def. */
typedef enum hf_status {
#define HF_STATUS(name, number, exit_code, http, retry, text) HF_##name = (number),
#include "holdfast/status.def"
#undef HF_STATUS
} hf_status;

HF_API const char *hf_status_name(hf_status status); /* "BUSY"; "UNKNOWN" for a number that is none. Never freed. */
HF_API const char *hf_status_text(hf_status status); /* "held by another" */
HF_API int hf_status_exit_code(hf_status status);    /* what the command exits with */
HF_API int hf_status_http(hf_status status);         /* what the service answers */
HF_API bool hf_status_retry(hf_status status);       /* may the same call succeed later? */

/* What the last call of this thread that did not return HF_OK had to say: which thing, what was wrong with it, what was
 * expected. Never NULL; valid until this thread's next call into the library. */
HF_API const char *hf_error_text(void);

HF_API const char *hf_version(void); /* "0.1.0" */
HF_API const char *hf_engines(void); /* the engines that were built in, separated by blanks: "local redis redlock" */

/* ---- Kinds --------------------------------------------------------------------------------------------------- */

/* Kind and capacity belong to a name while it is held or waited for; asking for another is HF_MISMATCH. */
typedef enum hf_kind {
    HF_EXCLUSIVE = 0, /* one holder: capacity 1, units 1 (both may be left 0) */
    HF_SEMAPHORE = 1, /* capacity N, each holder takes `units` of them (0 = 1) */
    HF_READ = 2,      /* one reader among many; excluded by HF_WRITE on the same name */
    HF_WRITE = 3,     /* the only holder; queues first come first served with readers, so nobody starves */
} hf_kind;

HF_API const char *hf_kind_name(hf_kind kind); /* "exclusive", "semaphore", "read", "write" */

enum hf_flags {
    HF_AUTO_RENEW = 1, /* renewed in the background until released, lost, or max_hold_ms */
    HF_DETACHED = 2,   /* lives by its ttl alone, also when this process ends; without it a hold ends with its process
                          where the engine can tell (local: at once), else by its ttl */
    HF_BARGING = 4,    /* may pass waiters when it fits at this moment; queues behind them otherwise */
    HF_TOKENLESS = 8,  /* needs no fencing token: where that is cheaper (an exclusive lock on Redis) a lock that is free
                          is taken without one, and may pass waiters whose turn comes by the end of a dead holder's
                          ttl. Its token is then 1, which a store that checks tokens refuses after any other */
};

/* ---- Clients ------------------------------------------------------------------------------------------------- */

typedef struct hf_client hf_client; /* a connection to an engine with its background thread; freed by hf_close */
typedef struct hf_lease hf_lease;   /* one request from its asking to its end; freed by hf_lease_free */

enum hf_log_level { HF_LOG_ERROR = 1, HF_LOG_WARN = 2, HF_LOG_INFO = 3, HF_LOG_DEBUG = 4 };

/* One thing that happened. Pointers are valid during the call. Owner and attempt ids never appear here. */
struct hf_log_event {
    size_t size;
    enum hf_log_level level;
    /* "queued", "granted", "denied", "extended", "warned", "lost", "released", "in_doubt", "broken" */
    const char *event;
    const char *name;           /* of the resource; NULL where none is concerned */
    const char *correlation_id; /* as given in the request; NULL when none was */
    const char *text;           /* in words, when there is more to say; else "" */
    int64_t wall_ms; /* when, in milliseconds since 1970: a grant as late, an end as early as it can have been, so that
                        in the logs of several clients put together no two holds overlap that did not */
    int64_t ttl_ms, held_ms, waited_ms;
    uint64_t token;   /* 0 when none was given out */
    hf_status status; /* outcome */
};
typedef void hf_log_fn(void *arg, const struct hf_log_event *event);

struct hf_client_options {
    size_t size;       /* sizeof(struct hf_client_options) */
    hf_log_fn *on_log; /* called on the background thread; NULL: no log */
    void *log_arg;
    enum hf_log_level log_level; /* 0 = HF_LOG_INFO */
    bool no_environment;         /* do not read HOLDFAST_* variables */
    bool no_thread; /* the caller drives: hf_fd, hf_timeout_ms, hf_process. local: keeps one thread, which shows
                       that this process lives */
};

/* Opens the engine that `url` names (NULL: $HOLDFAST_URL, else "local:"; an empty one is an error). Options may be
 * NULL. On success *client is the caller's until hf_close; otherwise it is NULL. HF_CONFIG names the setting and where
 * it came from; HF_DAMAGED, HF_DENIED, HF_FULL, HF_UNAVAILABLE come from the engine. */
HF_API HF_MUST_CHECK hf_status hf_open(const char *url, const struct hf_client_options *options, hf_client **client);

/* Releases what is held, takes waiting requests out of their queues (their callbacks run with HF_CLOSED, blocked
 * callers return it), ends the background thread and frees the client and all its leases. Takes at most about
 * timeout_ms. HF_IN_DOUBT: closed, but some holds could not be released and end by themselves; hf_error_text() says how
 * many. HF_TIMEOUT: another thread is still inside a call with this client; nothing was freed, call again. NULL is
 * HF_OK. */
HF_API hf_status hf_close(hf_client *client, int64_t timeout_ms);

/* The value in force of a setting (see hf_settings) and where it came from: "default", "environment" or "url". */
HF_API hf_status hf_client_setting(const hf_client *client, const char *name, int64_t *value, const char **source);

/* ---- Acquiring ----------------------------------------------------------------------------------------------- */

/* Called once when a lease that was granted is lost: at the latest when our own clock says that it may have ended.
 * Nobody waits for it: `arg` must live until it returned, or until hf_close did. Keep it short: renewals wait behind
 * it. */
typedef void hf_lost_fn(hf_lease *lease, hf_status why, void *arg);

struct hf_request {
    size_t size;      /* sizeof(struct hf_request) */
    const char *name; /* copied */
    size_t name_len;  /* 0: name ends with a NUL */
    hf_kind kind;
    uint32_t units, capacity;
    int64_t ttl_ms;      /* 0: 30 s unless URL or environment say otherwise */
    int64_t wait_ms;     /* 0: do not wait; HF_FOREVER; HF_WAIT_DEFAULT */
    uint32_t flags;      /* enum hf_flags */
    int64_t max_hold_ms; /* auto-renewal ends after this; 0: never */
    const char *owner;   /* who holds, for reentrancy, up to 64 bytes: the same owner asks again and its count goes up;
                            each level has its own lease and is released by it; the units are those of the
                            first. NULL: a new owner each time */
    const char *label;   /* shown to others; NULL: none */
    const char *correlation_id;
    hf_lost_fn *on_lost;
    void *lost_arg;
    const char *attempt; /* which try, up to 64 bytes: the same attempt again is the same grant, so a call whose outcome
                            is not known can be repeated. It is a secret: who knows it can release. NULL: a new one */
};

/* Asks, waits in the queue for at most wait_ms, and on HF_OK gives a lease that is held. Otherwise *lease is NULL.
 * HF_BUSY: held by another and wait_ms was 0. HF_TIMEOUT: the wait is over, the place in the queue is given up.
 * HF_MISMATCH, HF_TOO_BIG, HF_INVALID, HF_UNSUPPORTED: see hf_error_text(). HF_IN_DOUBT: no answer; should the request
 * have been granted after all, it is undone. */
HF_API HF_MUST_CHECK hf_status hf_acquire(hf_client *client, const struct hf_request *request, hf_lease **lease);

/* The same without blocking: HF_OK means that `done` will be called exactly once with the outcome, never inside this
 * call; any other status means that it never will, and *lease is NULL. On HF_OK *lease is the caller's to free,
 * whatever the outcome; until `done` ran it is only good for hf_cancel and hf_lease_free (which cancels, and then
 * `done` runs with HF_CANCELLED unless the outcome was already on its way). */
typedef void hf_done_fn(hf_lease *lease, hf_status outcome, void *arg);
HF_API HF_MUST_CHECK hf_status hf_acquire_start(hf_client *client, const struct hf_request *request, hf_done_fn *done,
                                                void *arg, hf_lease **lease);

/* Ends a wait, from any thread. HF_OK: the outcome will be HF_CANCELLED, or HF_OK if the grant came first.
 * HF_NOT_HELD: it does not wait (any more). */
HF_API hf_status hf_cancel(hf_lease *lease);

/* Several names, all or nothing, taken in byte order of the names, so that two callers cannot deadlock. While one is
 * waited for, the earlier ones are held and renewed; any failure gives all back. Each lease has its own token, in the
 * order of the requests; their own wait_ms is ignored. One lost is all lost: the others are given up and their on_lost
 * runs too. */
HF_API HF_MUST_CHECK hf_status hf_acquire_many(hf_client *client, const struct hf_request *const *requests,
                                               size_t count, int64_t wait_ms, hf_lease **leases);

/* Acquires with auto-renewal, calls fn, releases on its return. Returns the status of the acquire if that failed,
 * HF_LOST if the lease was lost while fn ran, else HF_OK; *result is what fn returned. fn looks at hf_lease_ok(). */
typedef int hf_with_fn(hf_lease *lease, void *arg);
HF_API HF_MUST_CHECK hf_status hf_with(hf_client *client, const struct hf_request *request, hf_with_fn *fn, void *arg,
                                       int *result);

/* ---- Leases -------------------------------------------------------------------------------------------------- */

/* Makes the lease good for at least ttl_ms from now (0: its own ttl); never shortens. HF_LOST: it had ended. */
HF_API HF_MUST_CHECK hf_status hf_extend(hf_lease *lease, int64_t ttl_ms);

/* Gives the hold back; the next in line has it at once. Not cancelled by anything. HF_NOT_HELD: it was released or lost
 * before, and nothing changed; hf_error_text() says how many milliseconds ago it ended. HF_IN_DOUBT: no answer; the
 * client goes on trying in the background. */
HF_API hf_status hf_release(hf_lease *lease);

/* Frees the handle; releases first what is still held (without waiting for the answer), cancels what still waits. NULL
 * is allowed. The pointer is dead afterwards. */
HF_API void hf_lease_free(hf_lease *lease);

/* Still held, as far as we know: one load, for inner loops. It may lag behind the clock for as long as the background
 * thread is kept from running; hf_lease_left_ms does not. */
HF_API bool hf_lease_ok(const hf_lease *lease);
/* Time that is certainly left, never optimistic; 0: none. After a wait on a server it may at first be less than the
 * ttl: what was handed over lasts until we say that we have it, which the library does by itself; hf_extend does it
 * now. */
HF_API int64_t hf_lease_left_ms(const hf_lease *lease);
HF_API uint64_t hf_lease_token(const hf_lease *lease); /* rises strictly with every grant of the name; 0: not granted */
HF_API const char *hf_lease_name(const hf_lease *lease); /* valid until hf_lease_free */
HF_API int hf_lease_fd(hf_lease *lease); /* readable when lost; the library's to close; -1: see hf_error_text() */

/* The sole reader becomes the writer, with a new token; HF_BUSY: there are other readers, and the read hold stays.
 * Never waits. A writer becomes a reader, with the same token; readers in line enter. HF_IN_DOUBT for either: no answer
 * came; rely on reading only. Leases of one owner are one hold: it is converted as a whole, with those that enter
 * meanwhile. */
HF_API HF_MUST_CHECK hf_status hf_upgrade(hf_lease *lease);
HF_API HF_MUST_CHECK hf_status hf_downgrade(hf_lease *lease);

/* A detached hold as text, and back into a handle of another client or process. The text is a secret: who has it can
 * release. `size` is at least HF_EXPORT_MAX or as much as it takes (HF_FULL). From then on the hold belongs to the
 * text: hf_lease_free and hf_close leave it alone, hf_release still ends it. An attached lease is renewed only by
 * hf_extend. */
HF_API HF_MUST_CHECK hf_status hf_lease_export(hf_lease *lease, char *text, size_t size);
HF_API HF_MUST_CHECK hf_status hf_lease_attach(hf_client *client, const char *text, hf_lease **lease);

/* ---- Your own event loop ------------------------------------------------------------------------------------- */

HF_API int hf_fd(hf_client *client);             /* readable when hf_process has something to do; -1: not offered */
HF_API int64_t hf_timeout_ms(hf_client *client); /* until hf_process must be called even so; -1: no limit */
HF_API hf_status hf_process(hf_client *client);  /* does what is due and runs callbacks; never blocks */

/* ---- Seeing -------------------------------------------------------------------------------------------------- */

typedef enum hf_role { HF_HOLDER = 0, HF_WAITER = 1 } hf_role; /* a row of history is a holder's */

/* One holder or one waiter. Pointers are valid during the call. */
struct hf_row {
    size_t size;
    const char *name;
    hf_role role;
    hf_kind kind;
    uint32_t capacity, used; /* of the resource */
    uint32_t units, count;   /* of this holder; count is the depth of a reentrant hold */
    uint32_t place;          /* waiters: 1 is the next one; holders: 0 */
    uint64_t token;          /* holders */
    int64_t left_ms;         /* holders: until the lease ends unless renewed */
    int64_t since_ms;        /* how long it has held or waited */
    uint64_t ticket;         /* arrival number: of two waiters of a name the smaller came first; 0: never waited */
    int64_t ttl_ms;
    int64_t pid;
    const char *host, *label;
    bool detached;
    hf_status ended;  /* history: HF_OK released, HF_LOST ended by time, by force or by death */
    int64_t ended_ms; /* history: how long ago */
    uint32_t servers; /* redlock: on how many servers it stands; 0: there is only one place where it can */
    bool foreign;     /* another program's lock under the same key: all that is known is that it holds, and left_ms; -1
                         there: it has no end */
    uint32_t servers_all; /* redlock: of how many */
};
typedef void hf_row_fn(void *arg, const struct hf_row *row);

/* Calls fn for every holder and waiter of every name that begins with `prefix` (NULL: all), in byte order of the names,
 * holders first, then waiters in their order. What it shows was true for each name at one moment. */
HF_API HF_MUST_CHECK hf_status hf_list(hf_client *client, const char *prefix, hf_row_fn *fn, void *arg);

/* The same for one name. HF_OK without a call of fn: nobody holds it or waits for it. */
HF_API HF_MUST_CHECK hf_status hf_show(hf_client *client, const char *name, hf_row_fn *fn, void *arg);

/* What one server says of a name. Pointers are valid during the call. */
struct hf_standing {
    size_t size;
    const char *where;           /* the server: host:port */
    hf_status status;            /* HF_OK: it answered; else text says why it did not */
    bool counts;                 /* its word counts; false: text says why not, and when it will again */
    const struct hf_row *holder; /* who holds it there; NULL: nobody does, or it did not answer */
    const char *text;            /* "": there is nothing more to say */
};
typedef void hf_standing_fn(void *arg, const struct hf_standing *standing);

/* Where a lock stands on several servers (redlock): calls fn for each of them, in the order of the URL, also for those
 * that do not answer. HF_OK without a call of fn: there is only one place where it can stand. */
HF_API HF_MUST_CHECK hf_status hf_show_servers(hf_client *client, const char *name, hf_standing_fn *fn, void *arg);

/* Tells of changes of names that begin with `prefix` until fn returns false: "queued", "left", "granted", "released"
 * (given back, lost or broken), "resized". Changes that follow each other within moments may be told as one; the token
 * shows how many grants there were. fn is also called about once a second with NULL, so that it can end an idle watch.
 */
typedef bool hf_watch_fn(void *arg, const struct hf_log_event *event);
HF_API HF_MUST_CHECK hf_status hf_watch(hf_client *client, const char *prefix, hf_watch_fn *fn, void *arg);

/* Past holds of a name, newest first, as far as the engine keeps them (settings history, history_age). */
HF_API HF_MUST_CHECK hf_status hf_history(hf_client *client, const char *name, hf_row_fn *fn, void *arg);

/* Takes a hold away; the token proves that the caller saw who holds. HF_NOT_HELD: nobody holds with that token. Holds
 * without a token (HF_TOKENLESS) all have 1, which proves only that one of them was seen. */
HF_API HF_MUST_CHECK hf_status hf_break(hf_client *client, const char *name, uint64_t token, const char *reason);

/* Changes the capacity of a semaphore for all; shrinking revokes nobody and takes effect as permits come back. */
HF_API HF_MUST_CHECK hf_status hf_resize(hf_client *client, const char *name, uint32_t capacity);

/* What the engine finds out about itself and its servers, for people who look for trouble. Pointers are valid during
 * the call. */
typedef enum hf_health { HF_HEALTH_OK = 0, HF_HEALTH_NOTE = 1, HF_HEALTH_WARN = 2, HF_HEALTH_BAD = 3 } hf_health;
struct hf_finding {
    size_t size;
    const char *where; /* which server; "" where there is only one place */
    const char *what;  /* one word: "persistence", "clock" */
    hf_health health;
    const char *text;   /* what was found, and what it means */
    const char *advice; /* what to do; "": nothing */
};
typedef void hf_finding_fn(void *arg, const struct hf_finding *finding);
HF_API HF_MUST_CHECK hf_status hf_examine(hf_client *client, hf_finding_fn *fn, void *arg);

struct hf_counters {
    size_t size;
    uint64_t asked, granted, queued, busy, timed_out, cancelled, failed, extended, released, lost;
};
HF_API hf_status hf_client_counters(const hf_client *client,
                                    struct hf_counters *counters); /* fills up to counters->size */

/* ---- Fencing ------------------------------------------------------------------------------------------------- */

/* The checking side, for a service that keeps its state in memory: remembers the largest token seen. One for each
 * resource; static zero is a valid start. Safe from any thread. Only for exclusive holds and writers: readers and
 * permits of a semaphore are valid at once with different tokens, and a maximum would refuse the older one. */
struct hf_fence {
    uint64_t highest;
};

/* HF_OK: at least as new as everything admitted before (equal: the same holder writes again). HF_LOST: an older one. */
HF_API HF_MUST_CHECK hf_status hf_fence_admit(struct hf_fence *fence, uint64_t token);

/* ---- Settings ------------------------------------------------------------------------------------------------ */

enum hf_setting_where { HF_IN_REQUEST = 1, HF_IN_URL = 2, HF_IN_ENVIRONMENT = 4 };
enum hf_unit { HF_UNIT_MS = 0, HF_UNIT_COUNT = 1, HF_UNIT_OCTAL = 2, HF_UNIT_TEXT = 3, HF_UNIT_US = 4 };

struct hf_setting {
    const char *name; /* "ttl"; in the environment HOLDFAST_TTL */
    enum hf_unit unit;
    int64_t min, max, standard; /* in that unit; standard is the default, -1 where it follows from others */
    unsigned where;             /* enum hf_setting_where */
    const char *help;           /* one line */
};

/* Every setting that this library knows, *count of them: what `holdfast explain` and the man page are made from. Never
 * freed. */
HF_API const struct hf_setting *hf_settings(size_t *count);

/* "500ms", "5s", "2m", "1h", "1.5s"; a bare number is seconds; "forever" is HF_FOREVER. HF_INVALID names the text. */
HF_API hf_status hf_parse_duration(const char *text, int64_t *ms);

/* The timing that follows from a ttl on the client's engine: when it is renewed, when it warns, when its use must stop.
 * Milliseconds from the grant. */
struct hf_timing_sheet {
    size_t size;
    int64_t ttl_ms, renew_ms, warn_ms, stop_ms, drift_ms, op_timeout_ms, retry_min_ms, retry_max_ms;
};
HF_API hf_status hf_explain(const hf_client *client, int64_t ttl_ms, struct hf_timing_sheet *sheet);

#ifdef __cplusplus
}
#endif
#endif
