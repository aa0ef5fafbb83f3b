/* clang-format off */
/* holdfast.h - the interface of libholdfast: leases on named resources, on one machine or on many.
 *
 * A lease says that a client may use NAME until a certain time, and carries a number (the token)
 * that proves it. A mutex, a semaphore and a read-write lock are the same lease on resources of
 * different capacity.
 *
 *     struct hf_request want = {.size = sizeof want, .name = "nightly", .ttl_ms = 30000,
 *                               .flags = HF_AUTO_RENEW};
 *     hf_client *client;
 *     hf_lease *lease;
 *     if (hf_open("local:", NULL, &client) == HF_OK &&
 *         hf_acquire(client, &want, &lease) == HF_OK) {
 *         do_the_work(hf_lease_token(lease));
 *         hf_release(lease);
 *         hf_lease_free(lease);
 *     }
 *     hf_close(client, 1000);
 *
 * READ THIS FIRST
 * - A lease ends. A process that is stopped for longer than the ttl loses its lease without
 *   noticing. Check hf_lease_ok() before work that must not be done twice, and pass the token to
 *   every service that can check it (fencing).
 * - Renewal never revives a lost lease, and on_lost is called exactly once.
 * - After fork() the child must not use the parent's handles: every call returns HF_FORKED and
 *   changes nothing.
 * - Functions may be called from any thread unless they say otherwise; leases belong to no thread.
 * - No thread may be cancelled (pthread_cancel) inside a call.
 * - Callbacks run on the client's background thread (or inside hf_process), one at a time, with no
 *   lock of the library held. They may call anything here except hf_close and calls that would wait
 *   (an acquire with wait_ms, hf_watch). The last ones may run inside hf_close.
 * - The first member of a struct of options is its size; zero means default. The library reads such
 *   a struct during the call only and never writes to it.
 * - Every function that can fail returns a status; hf_error_text() then says in words what happened
 *   to which thing. It also works inside a callback that reports a failure. */
/* clang-format on */
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
#define HF_VERSION_MINOR 2
#define HF_VERSION_PATCH 0

/* Special values of wait_ms. HF_FOREVER: wait until granted or cancelled. HF_WAIT_DEFAULT: use the
 * value of URL or environment, which is 0 if they have none. */
#define HF_FOREVER (-1)
#define HF_WAIT_DEFAULT (-2)

/* Longest texts, in bytes. Each is valid UTF-8 without control characters. */
#define HF_NAME_MAX 512       /* a name; it has at least 1 byte */
#define HF_LABEL_MAX 96       /* a label; shown to others */
#define HF_CORRELATION_MAX 64 /* a correlation id; shown in logs */
#define HF_EXPORT_MAX 1024    /* the text of hf_lease_export, with its final NUL */

#define HF_CAPACITY_MAX 1048576 /* the largest capacity of a semaphore */

/* ---- Statuses ---- */

/* HF_OK = 0; the others, with text, exit code, HTTP status and whether a retry can help, are in
 * holdfast/status.def. */
typedef enum hf_status {
#define HF_STATUS(name, number, exit_code, http, retry, text) HF_##name = (number),
#include "holdfast/status.def"
#undef HF_STATUS
} hf_status;

/* The columns of status.def for a status: its name ("BUSY"), its text ("held by another"), the exit
 * code of the command, the HTTP status of the service, and whether the same call may succeed later.
 * For an unknown number the name is "UNKNOWN". The texts are never freed. */
HF_API const char *hf_status_name(hf_status status);
HF_API const char *hf_status_text(hf_status status);
HF_API int hf_status_exit_code(hf_status status);
HF_API int hf_status_http(hf_status status);
HF_API bool hf_status_retry(hf_status status);

/* Returns the message of the last call of this thread that did not return HF_OK: which thing, what
 * was wrong with it, what was expected. Never NULL; valid until this thread's next call into the
 * library. */
HF_API const char *hf_error_text(void);

struct hf_row;

/* Fills in the hold that was in the way, if the last call of this thread returned HF_BUSY or
 * HF_TIMEOUT; also inside a callback that reports one of them. The caller sets holder->size;
 * pointers in it are valid until this thread's next call into the library. No server is asked: the
 * values are those that the engine gave when it refused. left_ms: until that hold ends unless it is
 * renewed; -1: not known. If the engine said only when the hold ends, pid is 0 and host is "".
 * Returns false if nothing is known. */
HF_API bool hf_error_holder(struct hf_row *holder);

/* Returns the version of the library that is running: "0.2.0". */
HF_API const char *hf_version(void);

/* Returns the engines that were built in, separated by blanks: "local redis redlock". */
HF_API const char *hf_engines(void);

/* Returns the engines that this version has and this build was made without, one a line, each with
 * the reason: "redis: libhiredis was not found (Debian: libhiredis-dev)
 * ". "" if there is none. */
HF_API const char *hf_engines_left_out(void);

/* ---- Kinds ---- */

/* Kind and capacity belong to a name while it is held or waited for; asking for another is
 * HF_MISMATCH. */
typedef enum hf_kind {
    HF_EXCLUSIVE = 0, /* one holder: capacity 1, units 1 (both may be left 0) */
    HF_SEMAPHORE = 1, /* capacity N, each holder takes `units` of them (0 = 1) */
    HF_READ = 2,      /* one reader among many; excluded by HF_WRITE on the same name */
    HF_WRITE = 3,     /* the only holder; readers and writers share one first-come queue */
} hf_kind;

/* Returns "exclusive", "semaphore", "read" or "write"; "unknown" for an unknown number. */
HF_API const char *hf_kind_name(hf_kind kind);

enum hf_flags {
    /* Renewed in the background until released, lost, or held for max_hold_ms. */
    HF_AUTO_RENEW = 1,
    /* Lives by its ttl alone, even after this process has ended. Without this flag a hold ends with
     * its process if the engine can tell (local: at once), else by its ttl. */
    HF_DETACHED = 2,
    /* May pass waiters if it fits at this moment; otherwise it queues behind them. */
    HF_BARGING = 4,
    /* Needs no fencing token. Where that is cheaper (an exclusive lock on Redis), a free lock is
     * taken without one. Such a request may pass waiters when a dead holder's ttl ends. Its token
     * is then 1, which a store that checks tokens refuses after any other. */
    HF_TOKENLESS = 8,
};

/* ---- Clients ---- */

/* A connection to an engine, with its background thread. Freed by hf_close. */
typedef struct hf_client hf_client;
/* One request, from its start to its end. Freed by hf_lease_free. */
typedef struct hf_lease hf_lease;

enum hf_log_level { HF_LOG_ERROR = 1, HF_LOG_WARN = 2, HF_LOG_INFO = 3, HF_LOG_DEBUG = 4 };

/* One thing that happened. Pointers are valid during the call. Owner and attempt ids never appear
 * here. */
struct hf_log_event {
    size_t size;
    enum hf_log_level level;
    /* "queued", "granted", "denied", "extended", "warned", "lost", "released", "in_doubt", "broken"
     */
    const char *event;
    const char *name;           /* the resource; NULL if none is concerned */
    const char *correlation_id; /* as given in the request; NULL if none was */
    const char *text;           /* more in words; "" if there is nothing to add */
    /* When it happened, in milliseconds since 1970: the latest possible time of a grant, the
     * earliest of an end. So holds that did not overlap do not overlap in the combined logs of
     * several clients. */
    int64_t wall_ms;
    int64_t ttl_ms, held_ms, waited_ms;
    uint64_t token;    /* 0 when none was given out */
    hf_status status;  /* outcome */
    const char *label; /* of the request; "" if it has none */
};
typedef void hf_log_fn(void *arg, const struct hf_log_event *event);

struct hf_client_options {
    size_t size;       /* sizeof(struct hf_client_options) */
    hf_log_fn *on_log; /* called on the background thread; NULL: no log */
    void *log_arg;
    enum hf_log_level log_level; /* 0 = HF_LOG_INFO */
    bool no_environment;         /* do not read HOLDFAST_* variables */
    /* The caller drives the client with hf_fd, hf_timeout_ms and hf_process. local: still has two
     * threads, which only sleep and prove that this process is alive. */
    bool no_thread;
    /* Callbacks and on_log run inside hf_process: a loop polls hf_fd, and calls hf_process when it
     * is readable. The loop reads its own replies there, too. The background thread still renews,
     * and reads what the loop has left unread for 20 ms, so a loop that is blocked keeps its
     * leases. Ignored with no_thread. */
    bool own_callbacks;
    /* Handles outlive hf_close: calls with them return HF_CLOSED, and each must still be freed with
     * hf_lease_free, from any thread, even while hf_close runs. For languages with finalizers. */
    bool keep_handles;
    /* A program that hangs must not hold for ever: if hf_client_alive was not called for this long,
     * leases are no longer renewed, and end with their ttl. The next call lets the renewal go on.
     * 0: leases are renewed whatever the program does. */
    int64_t max_stall_ms;
    /* Texts that need no file and no place in the URL; copied. PEM is a text of certificates or a
     * key. Each takes the place of the setting ca, cert, key or password_file, which must not be
     * given as well. NULL: none. */
    const char *ca_pem, *cert_pem, *key_pem, *password;
};

/* Opens the engine that `url` names (NULL: $HOLDFAST_URL, else "local:"; an empty text is an
 * error). Options may be NULL. On success *client is the caller's until hf_close; otherwise it is
 * NULL. HF_CONFIG names the setting and where it came from; HF_DAMAGED, HF_DENIED, HF_FULL,
 * HF_UNAVAILABLE come from the engine. */
HF_API HF_MUST_CHECK hf_status hf_open(const char *url, const struct hf_client_options *options,
                                       hf_client **client);

/* Checks a URL as hf_open does, with the settings of the environment, and opens nothing: no thread,
 * no table, no connection. For programs that open a client later, after fork() for example. */
HF_API HF_MUST_CHECK hf_status hf_check_url(const char *url);

/* Releases what is held, takes waiting requests out of their queues (their callbacks run with
 * HF_CLOSED, blocked callers return it), ends the background thread and frees the client and all
 * its leases (with keep_handles the leases stay until hf_lease_free). Takes at most about
 * timeout_ms. With timeout_ms 0 a server is still told to release and to forget the waits, and has
 * 50 ms to answer; as long as it keeps answering, closing goes on, for up to 1 s. HF_IN_DOUBT: the
 * client is closed, but the engine did not answer all of that in time. Holds and places that stayed
 * behind end by themselves; hf_error_text() says how many. HF_TIMEOUT: another thread is still
 * inside a call with this client; nothing was freed, call again. NULL is HF_OK. */
HF_API hf_status hf_close(hf_client *client, int64_t timeout_ms);

/* hf_close without blocking. HF_OK means that `done` will be called exactly once, with the status
 * that hf_close returned, on a thread of its own; by then the client is gone. After any other
 * status `done` is never called. Once this function returned HF_OK, other calls with the client
 * return HF_CLOSED, and hf_process must not be called. The last callbacks may run on the thread of
 * `done`, too. Only after HF_TIMEOUT may the client be closed again. */
typedef void hf_closed_fn(void *arg, hf_status outcome);
HF_API HF_MUST_CHECK hf_status hf_close_start(hf_client *client, int64_t timeout_ms,
                                              hf_closed_fn *done, void *arg);

/* Changes the level of the log while the client is open, from any thread; 0 turns it off. Events
 * that happened before may still be passed to on_log. */
HF_API hf_status hf_client_set_log_level(hf_client *client, enum hf_log_level level);

/* Says that the program does not hang; see max_stall_ms. hf_process says so, too. One store, for
 * timers of event loops. */
HF_API hf_status hf_client_alive(hf_client *client);

/* Sets *value to the value in force of a setting (see hf_settings), and *source to where it came
 * from: "default", "environment", "url" or "options". */
HF_API hf_status hf_client_setting(const hf_client *client, const char *name, int64_t *value,
                                   const char **source);

/* Returns the name of a client's engine, a word of hf_engines(): rediss:// and valkey:// are
 * "redis". Valid for ever. NULL: the client is NULL. */
HF_API const char *hf_client_engine(const hf_client *client);

/* What the engine of a client can do. A request for anything else is refused with
 * HF_UNSUPPORTED. */
enum hf_capability {
    /* No server is asked: a call that does not wait for a lock returns at once. An event loop may
     * then make such calls on its own thread. */
    HF_CAN_ANSWER_AT_ONCE = 1,
    /* The engine keeps a first-come queue. Without it waiters ask again after pauses, and their
     * order is best effort. */
    HF_CAN_QUEUE = 2,
    HF_CAN_DETACH = 4,   /* HF_DETACHED, hf_lease_export, hf_lease_attach */
    HF_CAN_REENTER = 8,  /* hf_request.owner */
    HF_CAN_RESIZE = 16,  /* hf_resize */
    HF_CAN_BREAK = 32,   /* hf_break */
    HF_CAN_CONVERT = 64, /* hf_upgrade, hf_downgrade */
};

struct hf_capabilities {
    size_t size;
    uint32_t can;   /* enum hf_capability, one bit each */
    uint32_t kinds; /* 1 << hf_kind, one bit for each kind that is offered */
};

/* Fills in as much as capabilities->size has room for. Asks no server: the answer is the same for
 * as long as the client is open. */
HF_API hf_status hf_client_capabilities(const hf_client *client,
                                        struct hf_capabilities *capabilities);

/* ---- Acquiring ---- */

/* Called once when a lease that was granted is lost, at the latest when the client's own clock says
 * that it may have ended. Keep it short: renewals wait behind it, unless the client has
 * own_callbacks.
 *
 * It does not begin after hf_lease_free has returned on the thread that runs callbacks: inside a
 * callback, or on the thread that calls hf_process. From then on `arg` is not needed. If another
 * thread frees the handle, the callback may just be beginning, and no call waits for it: `arg` must
 * then live until hf_close has returned. */
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
    /* Owner of the hold, for reentrancy, up to 64 bytes. An owner that already holds the name is
     * granted at once, and its depth goes up. Each level has its own lease and is released by it;
     * the units are those of the first. NULL: a new owner each time. */
    const char *owner;
    const char *label;          /* shown to others; NULL: none */
    const char *correlation_id; /* shown in logs; NULL: none */
    hf_lost_fn *on_lost;        /* NULL: no callback */
    void *lost_arg;
    /* Id of this attempt, up to 64 bytes. A second request with the same id gets the same grant, so
     * a call with unknown outcome can be repeated. The id is a secret: anybody who knows it can
     * release. NULL: a new id. */
    const char *attempt;
    /* For hf_acquire alone: a descriptor that ends the wait with HF_CANCELLED as soon as it is
     * readable; nothing is read from it. So any thread, or a signal handler, ends the wait by a
     * write into an eventfd or a pipe. 0: none, so descriptor 0 cannot be used. Not with
     * no_thread. */
    int cancel_fd;
};

/* Asks for a lease and waits in the queue for at most wait_ms. On HF_OK *lease is held; otherwise
 * it is NULL. HF_BUSY: held by another and wait_ms was 0. HF_TIMEOUT: the wait is over, the place
 * in the queue is given up. HF_MISMATCH, HF_TOO_BIG, HF_INVALID, HF_UNSUPPORTED: see
 * hf_error_text(). HF_IN_DOUBT: no answer; if the request was granted after all, the library
 * releases it in the background. */
HF_API HF_MUST_CHECK hf_status hf_acquire(hf_client *client, const struct hf_request *request,
                                          hf_lease **lease);

/* hf_acquire without blocking. HF_OK means that `done` will be called exactly once with the
 * outcome, never inside this call. After any other status `done` is never called, and *lease is
 * NULL. On HF_OK the caller must free *lease, whatever the outcome. Until `done` has run, the
 * handle can only be passed to hf_cancel and hf_lease_free. The latter cancels: `done` then runs
 * with HF_CANCELLED, unless the outcome was already on its way. */
typedef void hf_done_fn(hf_lease *lease, hf_status outcome, void *arg);
HF_API HF_MUST_CHECK hf_status hf_acquire_start(hf_client *client, const struct hf_request *request,
                                                hf_done_fn *done, void *arg, hf_lease **lease);

/* Ends a wait, from any thread. HF_OK: the outcome will be HF_CANCELLED, or HF_OK if the grant came
 * first. HF_NOT_HELD: the lease does not wait, or not any more. */
HF_API hf_status hf_cancel(hf_lease *lease);

/* Acquires several names, all or nothing, in byte order of the names, so that two callers cannot
 * deadlock. While the call waits for one name, the earlier ones are held and renewed; any failure
 * releases all. Each lease has its own token, in the order of the requests; their own wait_ms is
 * ignored. If one lease is lost, the others are given up and their on_lost runs too.
 *
 * One Redis server, also one that sentinels watch, takes all free names with the same ttl in one
 * script, up to 32 at a time, unless replicas must acknowledge the grants. Elsewhere each name is a
 * request. */
HF_API HF_MUST_CHECK hf_status hf_acquire_many(hf_client *client,
                                               const struct hf_request *const *requests,
                                               size_t count, int64_t wait_ms, hf_lease **leases);

/* Acquires with auto-renewal, calls fn, releases on its return. Returns the status of the acquire
 * if that failed, HF_LOST if the lease was lost while fn ran, else HF_OK; *result is what fn
 * returned. fn should check hf_lease_ok(). */
typedef int hf_with_fn(hf_lease *lease, void *arg);
HF_API HF_MUST_CHECK hf_status hf_with(hf_client *client, const struct hf_request *request,
                                       hf_with_fn *fn, void *arg, int *result);

/* ---- Leases ---- */

/* Makes the lease good for at least ttl_ms from now (0: its own ttl); never shortens. HF_LOST: the
 * lease had ended. HF_IN_DOUBT: no answer in time; the lease is held as before, and perhaps for
 * longer. */
HF_API HF_MUST_CHECK hf_status hf_extend(hf_lease *lease, int64_t ttl_ms);

/* hf_extend without blocking. HF_OK means that `done` will be called exactly once with the outcome,
 * never inside this call; after any other status it is never called. The outcomes are those of
 * hf_extend; HF_NOT_HELD: the lease was released or freed meanwhile. If the call itself returns
 * HF_BUSY, another extend or conversion of this lease has not ended yet. The handle may be freed
 * before `done` runs; `done` must then not use it. */
HF_API HF_MUST_CHECK hf_status hf_extend_start(hf_lease *lease, int64_t ttl_ms, hf_done_fn *done,
                                               void *arg);

/* Releases the hold; the next waiter holds it at once. Cannot be cancelled. HF_NOT_HELD: it was
 * released or lost before, and nothing changed; hf_error_text() says how many milliseconds ago it
 * ended. HF_IN_DOUBT: no answer; HF_DENIED: the server refused. After either the client goes on
 * trying in the background. */
HF_API hf_status hf_release(hf_lease *lease);

/* hf_release without blocking. HF_OK means that `done` will be called exactly once with the
 * outcome, never inside this call; after any other status it is never called. From here on the
 * lease is not held. The handle may be freed at once; `done` must then not use it. */
HF_API HF_MUST_CHECK hf_status hf_release_start(hf_lease *lease, hf_done_fn *done, void *arg);

/* Frees the handle. A lease that is still held is released first, without waiting for the answer;
 * one that still waits is cancelled. NULL is allowed. The pointer is invalid afterwards. */
HF_API void hf_lease_free(hf_lease *lease);

/* Returns true while the lease is held, as far as the library knows: one load, for inner loops. The
 * value may lag behind the clock for as long as the background thread is kept from running;
 * hf_lease_left_ms does not. */
HF_API bool hf_lease_ok(const hf_lease *lease);

/* Returns the time that is certainly left, never optimistic; 0: none. After a wait on a server it
 * may at first be less than the ttl: a handoff is short until the new holder confirms it. The
 * library does that by itself; hf_extend does it now. */
HF_API int64_t hf_lease_left_ms(const hf_lease *lease);

/* Returns the fencing token, which rises strictly with every grant of the name; 0: not granted.
 * Tokens are below 2^53, so JSON and JavaScript have them exactly. */
HF_API uint64_t hf_lease_token(const hf_lease *lease);

/* Returns the name that was asked for. Valid until hf_lease_free. */
HF_API const char *hf_lease_name(const hf_lease *lease);

/* Switches the auto-renewal of a held lease on or off, whatever its request said. On: the lease is
 * renewed at once. Off: it ends with its ttl unless hf_extend is called. max_hold_ms still counts
 * from the grant. */
HF_API HF_MUST_CHECK hf_status hf_lease_renew(hf_lease *lease, bool on);

/* Returns a descriptor that becomes readable when the lease is lost. The library closes it. -1: see
 * hf_error_text(). */
HF_API int hf_lease_fd(hf_lease *lease);

/* hf_upgrade makes the sole reader the writer, with a new token. It never waits: while there are
 * other readers it returns HF_BUSY, and the read hold stays. hf_downgrade makes a writer a reader,
 * with the same token, and admits waiting readers. HF_IN_DOUBT for either: no answer came, or the
 * server failed half-way; rely on reading only. The leases of one owner are one hold: the whole
 * hold is converted, with the leases that the owner acquires meanwhile. */
HF_API HF_MUST_CHECK hf_status hf_upgrade(hf_lease *lease);
HF_API HF_MUST_CHECK hf_status hf_downgrade(hf_lease *lease);

/* hf_upgrade and hf_downgrade without blocking. HF_OK means that `done` will be called exactly once
 * with the outcome, never inside this call; after any other status it is never called. The outcomes
 * are those of hf_upgrade and hf_downgrade; HF_NOT_HELD: the lease was released or freed meanwhile.
 * If the call itself returns HF_BUSY, another extend or conversion of this lease has not ended
 * yet. */
HF_API HF_MUST_CHECK hf_status hf_upgrade_start(hf_lease *lease, hf_done_fn *done, void *arg);
HF_API HF_MUST_CHECK hf_status hf_downgrade_start(hf_lease *lease, hf_done_fn *done, void *arg);

/* hf_lease_export turns a detached hold into text; hf_lease_attach turns the text into a handle of
 * another client or process. The text is a secret: anybody who has it can release. HF_EXPORT_MAX
 * bytes are always enough; HF_FULL: `size` is too small. Once exported, the hold belongs to the
 * text: hf_lease_free and hf_close do not end it, hf_release still does. An attached lease is
 * renewed only by hf_extend. If another handle extends the hold and this handle has not heard of
 * it, this handle counts as lost at the end that it knows; the hold itself goes on. */
HF_API HF_MUST_CHECK hf_status hf_lease_export(hf_lease *lease, char *text, size_t size);
HF_API HF_MUST_CHECK hf_status hf_lease_attach(hf_client *client, const char *text,
                                               hf_lease **lease);

/* hf_lease_attach without asking the engine, so it never blocks: for services that keep texts and
 * release or extend each hold by one request. The text is trusted: until the engine has replied to
 * hf_extend, the time left is assumed to be the ttl in the text. If the hold has ended, hf_extend
 * returns HF_LOST and hf_release HF_NOT_HELD. An attempt that was granted twice has two texts; here
 * either of them is good for the later hold. HF_UNSUPPORTED: the engine must be asked (redlock,
 * etcd, Consul, ZooKeeper). */
HF_API HF_MUST_CHECK hf_status hf_lease_assume(hf_client *client, const char *text,
                                               hf_lease **lease);

/* ---- Your own event loop ---- */

/* For a client that was opened with no_thread or own_callbacks. */

/* Returns a descriptor that is readable when hf_process has something to do; -1: see
 * hf_error_text(). It is the same for as long as the client is open; hf_close closes it, so take it
 * out of the loop before. */
HF_API int hf_fd(hf_client *client);

/* Returns the milliseconds until hf_process must be called even if hf_fd is not readable; -1: no
 * limit, which is always so with own_callbacks. */
HF_API int64_t hf_timeout_ms(hf_client *client);

/* Does what is due and runs callbacks; with own_callbacks it reads replies and runs callbacks.
 * Never blocks. */
HF_API hf_status hf_process(hf_client *client);

/* For a loop that starts many requests in one turn: requests that this thread starts between
 * hf_batch and its hf_flush are held back, and then sent together. They are sent after some 20 ms
 * even without hf_flush. Only one thread can hold requests back at a time: if another thread calls
 * hf_batch, it takes the place of the first. */
HF_API hf_status hf_batch(hf_client *client);
HF_API hf_status hf_flush(hf_client *client);

/* ---- List, show, watch ---- */

typedef enum hf_role { HF_HOLDER = 0, HF_WAITER = 1 } hf_role; /* a row of history is a holder's */

/* One holder or one waiter. Pointers are valid during the call. */
struct hf_row {
    size_t size;
    const char *name;
    hf_role role;
    hf_kind kind;
    uint32_t capacity, used; /* capacity of the resource, and units of it in use */
    uint32_t units, depth;   /* of this holder; depth is how often a reentrant hold was entered */
    uint32_t place;          /* waiters: 1 is the next one; holders: 0 */
    uint64_t token;          /* holders */
    int64_t left_ms;         /* holders: until the lease ends unless renewed */
    int64_t since_ms;        /* how long it has held or waited */
    /* Arrival number: of two waiters of a name the smaller came first; 0: never waited. */
    uint64_t ticket;
    int64_t ttl_ms;
    int64_t pid;
    const char *host, *label;
    bool detached;
    hf_status ended;  /* history: HF_OK released, HF_LOST ended by time, by force or by death */
    int64_t ended_ms; /* history: how long ago */
    uint32_t servers; /* redlock: servers that have the hold; 0: the engine is not a quorum */
    /* Another program's lock under the same key: only left_ms is known, and -1 there means that
     * the lock has no expiry. */
    bool foreign;
    uint32_t servers_all; /* redlock: number of servers in all */
};

/* This and the other functions of this section run inside the call that they were given to, with no
 * lock of the library held: they may call anything here except hf_close. */
typedef void hf_row_fn(void *arg, const struct hf_row *row);

/* Calls fn for every holder and waiter of every name that begins with `prefix` (NULL: all), in byte
 * order of the names, holders first, then waiters in their order. The rows of one name are as of
 * one moment, but not all names as of the same. On redis: and redlock: the call reads an index of
 * the names that were used within the last hour, whatever else the server keeps; a lock of another
 * program is shown if somebody here waited for it within that hour (hf_list_page shows all). All or
 * nothing: if the call fails, fn was not called, and hf_error_text() says which server is in the
 * way, or on local: which process, in which part of the table. The waits for all parts of a table
 * together last for one op_timeout. */
HF_API HF_MUST_CHECK hf_status hf_list(hf_client *client, const char *prefix, hf_row_fn *fn,
                                       void *arg);

/* Some of the names of a list. */
struct hf_page {
    size_t size;        /* sizeof(struct hf_page) */
    const char *prefix; /* names that begin with it; NULL: all */
    const char *except; /* leaves out names that begin with it; NULL: none */
    const char *after;  /* names behind it in byte order; NULL: from the first on */
    /* largest number of names, up to HF_PAGE_MAX, each with all its holders and waiters; 0: all */
    uint32_t names;
    /* Also locks of other programs that nobody here waits for. redis: and redlock: search all keys
     * of the server for them, the other engines show them anyway. */
    bool foreign;
};
#define HF_PAGE_MAX 1000

/* As hf_list, for one page. `next` has HF_NAME_MAX + 1 bytes and gets the `after` of the next page,
 * or "" if this was the last one. A page may have fewer names than asked for, even none, while
 * others follow. local:, redis: and redlock: keep only the page in memory, and read only its names:
 * a page of a long list costs little. */
HF_API HF_MUST_CHECK hf_status hf_list_page(hf_client *client, const struct hf_page *page,
                                            hf_row_fn *fn, void *arg, char *next);

/* As hf_list, for one name. If the call returns HF_OK and fn was not called, nobody holds the name
 * or waits for it. */
HF_API HF_MUST_CHECK hf_status hf_show(hf_client *client, const char *name, hf_row_fn *fn,
                                       void *arg);

/* hf_list and hf_show without blocking. HF_OK means that `done` will be called exactly once, where
 * other callbacks run and never inside this call; after any other status it is never called. The
 * rows are valid during the call of `done`; if the outcome is not HF_OK there are none. Each call
 * costs a thread while the engine answers. */
typedef void hf_rows_fn(void *arg, hf_status outcome, const struct hf_row *rows, size_t count);
HF_API HF_MUST_CHECK hf_status hf_list_start(hf_client *client, const char *prefix,
                                             hf_rows_fn *done, void *arg);
HF_API HF_MUST_CHECK hf_status hf_show_start(hf_client *client, const char *name, hf_rows_fn *done,
                                             void *arg);

/* The state of a name on one server. Pointers are valid during the call. */
struct hf_server_state {
    size_t size;
    const char *where; /* the server: host:port */
    hf_status status;  /* HF_OK: the server answered; otherwise `text` says why it did not */
    /* the vote of the server counts; false: `text` says why not, and when it counts again */
    bool counts;
    /* the holder there; NULL: nobody holds the lock there, or the server did not answer */
    const struct hf_row *holder;
    const char *text; /* "" if there is nothing more to say */
};
typedef void hf_server_state_fn(void *arg, const struct hf_server_state *state);

/* Reports the state of a lock on each server of a quorum (redlock): calls fn for each of them, in
 * the order of the URL, also for those that do not answer. HF_OK without a call of fn: the engine
 * is not a quorum. */
HF_API HF_MUST_CHECK hf_status hf_show_servers(hf_client *client, const char *name,
                                               hf_server_state_fn *fn, void *arg);

/* Reports changes of names that begin with `prefix` until fn returns false: "queued", "left",
 * "granted", "released" (by its holder, lost or broken), "resized". Changes that follow each other
 * within moments may be reported as one; a higher token shows that there were grants in between. A
 * "released" has the status HF_LOST if the lease had run out by then; the waited_ms of a "granted"
 * is how long its holder was seen to wait. fn is also called about once a second with NULL, so that
 * it can end an idle watch. */
typedef bool hf_watch_fn(void *arg, const struct hf_log_event *event);
HF_API HF_MUST_CHECK hf_status hf_watch(hf_client *client, const char *prefix, hf_watch_fn *fn,
                                        void *arg);

/* Reports the past holds of a name, newest first, as far as the engine keeps them (settings
 * history, history_age). */
HF_API HF_MUST_CHECK hf_status hf_history(hf_client *client, const char *name, hf_row_fn *fn,
                                          void *arg);

/* Revokes a hold; the token proves that the caller saw who holds. HF_NOT_HELD: nobody holds with
 * that token. Holds without a token (HF_TOKENLESS) all have 1, which proves only that one of them
 * was seen. */
HF_API HF_MUST_CHECK hf_status hf_break(hf_client *client, const char *name, uint64_t token,
                                        const char *reason);

/* Changes the capacity of a semaphore for all clients; shrinking revokes nothing and takes effect
 * as units are released. */
HF_API HF_MUST_CHECK hf_status hf_resize(hf_client *client, const char *name, uint32_t capacity);

/* Checks the engine and its servers, for people who look for trouble, and calls fn for each
 * finding. Pointers are valid during the call. */
typedef enum hf_health {
    HF_HEALTH_OK = 0,
    HF_HEALTH_NOTE = 1,
    HF_HEALTH_WARN = 2,
    HF_HEALTH_BAD = 3
} hf_health;
struct hf_finding {
    size_t size;
    const char *where; /* which server; "" where there is only one place */
    const char *what;  /* one word: "persistence", "clock" */
    hf_health health;
    const char *text;   /* what was found, and what it means */
    const char *advice; /* what to do; "": nothing */
};
typedef void hf_finding_fn(void *arg, const struct hf_finding *finding);
HF_API HF_MUST_CHECK hf_status hf_diagnose(hf_client *client, hf_finding_fn *fn, void *arg);

/* For administrators of servers in which functions of Holdfast run: Redis, Valkey, PostgreSQL.
 * Installs these functions on every server of the client, so that other users need no right to do
 * it, and calls fn for each server. On Redis and Valkey a library of that name that somebody
 * changed is replaced; in a database the schema is made or upgraded, also with install=0.
 * Nothing is done about locks. HF_UNSUPPORTED: the engine has no such functions. */
HF_API HF_MUST_CHECK hf_status hf_library_install(hf_client *client, hf_finding_fn *fn, void *arg);

/* Removes the libraries of other releases from every server of the client, and calls fn for each of
 * them. The client's own library stays. So does every library that may be in use: a client of one
 * of the servers names it, or some client does not say which library it uses. If a server cannot be
 * asked, nothing is removed. */
HF_API HF_MUST_CHECK hf_status hf_library_prune(hf_client *client, hf_finding_fn *fn, void *arg);

struct hf_counters {
    size_t size;
    uint64_t asked, granted, queued, busy, timed_out, cancelled, failed, extended, released, lost;
};

/* Events of a client since it was opened. Fills in as much as counters->size has room for. */
HF_API hf_status hf_client_counters(const hf_client *client, struct hf_counters *counters);

/* ---- Fencing ---- */

/* The checking side, for a service that keeps its state in memory: remembers the largest token
 * seen. One for each resource; static zero is a valid start. Safe from any thread. Only for
 * exclusive holds and writers: readers and permits of a semaphore are valid at once with different
 * tokens, and a maximum would refuse the older one. */
struct hf_fence {
    uint64_t highest;
};

/* Admits or refuses a token. HF_OK: it is at least as high as every token admitted before (if it is
 * equal, the same holder writes again). HF_LOST: it is lower than one of them. */
HF_API HF_MUST_CHECK hf_status hf_fence_admit(struct hf_fence *fence, uint64_t token);

/* ---- Settings ---- */

enum hf_setting_where { HF_IN_REQUEST = 1, HF_IN_URL = 2, HF_IN_ENVIRONMENT = 4 };
enum hf_unit {
    HF_UNIT_MS = 0,
    HF_UNIT_COUNT = 1,
    HF_UNIT_OCTAL = 2,
    HF_UNIT_TEXT = 3,
    HF_UNIT_US = 4
};

struct hf_setting {
    const char *name; /* "ttl"; in the environment HOLDFAST_TTL */
    enum hf_unit unit;
    int64_t min, max;
    int64_t standard; /* the default; -1 where it follows from other settings */
    unsigned where;   /* enum hf_setting_where */
    const char *help; /* one line */
};

/* Returns every setting that this library knows, *count of them: what `holdfast explain` and the
 * man page are made from. Never freed. */
HF_API const struct hf_setting *hf_settings(size_t *count);

/* Reads "500ms", "5s", "2m", "1h", "1.5s"; a bare number is seconds; "forever" is HF_FOREVER.
 * HF_INVALID names the text. */
HF_API hf_status hf_parse_duration(const char *text, int64_t *ms);

/* The timing that follows from a ttl on the client's engine: when it is renewed, when it warns,
 * when its use must stop. Milliseconds from the grant. */
struct hf_timing_sheet {
    size_t size;
    int64_t ttl_ms, renew_ms, warn_ms, stop_ms, drift_ms, op_timeout_ms, retry_min_ms, retry_max_ms;
};
HF_API hf_status hf_explain(const hf_client *client, int64_t ttl_ms, struct hf_timing_sheet *sheet);

#ifdef __cplusplus
}
#endif
#endif
