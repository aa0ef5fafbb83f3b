/* addon.h - what the files of the Node addon share.
 *
 *     addon_module.c   the module: its functions, in one table
 *     addon_client.c   open, close, settings
 *     addon_lease.c    acquire, cancel, extend, convert, release
 *     addon_event.c    events of the library, brought to the dispatcher of lib/core.js
 *     addon_loop.c     the library's descriptor in Node's event loop
 *     addon_job.c      calls that wait for a server, on threads of the library
 *     addon_value.c    texts, numbers, requests and rows: from JavaScript to C and back
 *
 * Three rules. The library's own thread renews, and reads replies that the event loop does not read
 * for a while: a blocked loop delays what JavaScript is told and never what is held. Nothing waits
 * for a server on the JavaScript thread. A callback carries a ticket (slot and id), no pointer:
 * on_lost may begin after its handle was freed. */
#pragma once
#define NAPI_VERSION 8
#include <node_api.h>

#include <holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ERROR_TEXT_MAX 1024           /* as long as the library makes them */
#define TOKEN_MAX ((uint64_t)1 << 53) /* from here on a JavaScript number is not exact */

/* Its references are counted, on the JavaScript thread alone: the external, each lease and each job
 * have one. */
struct addon_client {
    hf_client *hf; /* NULL: closed */
    napi_env env;
    napi_threadsafe_function deliver;
    napi_ref dispatcher;
    struct addon_loop *loop; /* NULL: events come by `deliver` alone */
    pthread_t thread;        /* the JavaScript thread */
    bool collects;           /* hf_process runs: its events go into `first` */
    struct event *first, **last;
    struct {
        int64_t spin_us; /* the setting `spin`: microseconds to wait for a reply */
        unsigned begun;  /* number of requests begun since events were dispatched last */
        unsigned misses; /* number of times in a row that no reply came within spin_us */
        unsigned skips;  /* number of calls left that do not spin, because of misses */
    } near;
    bool answers_at_once;
    unsigned references;
    unsigned waits; /* promises that keep the process alive */
    unsigned slot;  /* index in the table of clients */

    atomic_bool closing;  /* no call with this client may begin; never false again */
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t close_ended;
    bool close_runs; /* hf_close_start was called, and has not ended */
    bool is_gone;    /* that close has ended, and hf was freed */
};

struct addon_job; /* a list, show or close that was started */
struct addon_loop;
struct event;

struct addon_lease {
    hf_lease *hf; /* NULL: freed */
    struct addon_client *client;
    uint64_t id; /* id that JavaScript gave the lease */
};

/* ---- addon_client.c ---- */

void addon_client_ref(struct addon_client *client);
void addon_client_unref(struct addon_client *client);

/* Call the first one when a close is about to be started, the second one when it has ended. `job`
 * tells JavaScript; NULL: the close did not start. */
void addon_client_closing(struct addon_client *client);
void addon_client_closed(struct addon_client *client, struct addon_job *job);

/* Forgets a client after its close, when no callback runs any more. On the JavaScript thread. */
void addon_client_forget(napi_env env, struct addon_client *client);

/* Returns true if calls with the client may begin. On the JavaScript thread. */
bool addon_client_is_open(const struct addon_client *client);

napi_value addon_open(napi_env env, napi_callback_info info);
napi_value addon_close_now(napi_env env, napi_callback_info info);
napi_value addon_check_url(napi_env env, napi_callback_info info);
napi_value addon_setting(napi_env env, napi_callback_info info);
napi_value addon_counters(napi_env env, napi_callback_info info);
napi_value addon_set_log_level(napi_env env, napi_callback_info info);
napi_value addon_alive(napi_env env, napi_callback_info info);
napi_value addon_duration(napi_env env, napi_callback_info info);

/* ---- addon_event.c ---- */

/* What the dispatcher of a client is told; lib/core.js has the same numbers. */
enum addon_event { EVENT_DONE = 0, EVENT_LOST = 1, EVENT_LOG = 2, EVENT_JOB = 3 };

/* Gives the client a slot and its way to the dispatcher. */
bool addon_event_attach(napi_env env, struct addon_client *client, napi_value dispatcher);
void addon_event_detach(napi_env env, struct addon_client *client);

/* Runs the library's callbacks, then tells the dispatcher what they brought. */
void addon_event_process(napi_env env, napi_async_context context, struct addon_client *client);

/* Makes events come by the thread-safe function alone. Call it before a close begins, because the
 * close takes the descriptor away. */
void addon_event_stop_loop(napi_env env, struct addon_client *client);

/* The argument of a callback: which client, which lease. */
void *addon_event_ticket(const struct addon_client *client, uint64_t id);

/* Keeps the process alive for a promise that the dispatcher will settle. */
void addon_event_wait(napi_env env, struct addon_client *client);

void addon_on_done(hf_lease *lease, hf_status outcome, void *ticket);
void addon_on_lost(hf_lease *lease, hf_status why, void *ticket);
void addon_on_log(void *client, const struct hf_log_event *event);

/* Settles the job on the JavaScript thread, and frees it. */
void addon_event_post_job(struct addon_client *client, struct addon_job *job);

/* ---- addon_loop.c ---- */

bool addon_loop_is_there(void); /* true if this runtime offers a loop that polls descriptors */
bool addon_loop_start(napi_env env, struct addon_client *client);
void addon_loop_stop(struct addon_client *client);
void addon_loop_keep_alive(struct addon_client *client,
                           bool keep); /* keep: the process stays alive while it waits */

/* ---- addon_lease.c ---- */

struct addon_lease *addon_lease_new(struct addon_client *client, uint64_t id);
napi_value addon_acquire(napi_env env, napi_callback_info info);
napi_value addon_cancel(napi_env env, napi_callback_info info);
napi_value addon_left(napi_env env, napi_callback_info info);
napi_value addon_token(napi_env env, napi_callback_info info);
napi_value addon_free(napi_env env, napi_callback_info info);
napi_value addon_release(napi_env env, napi_callback_info info);
napi_value addon_extend(napi_env env, napi_callback_info info);
napi_value addon_convert(napi_env env, napi_callback_info info);

/* ---- addon_job.c ---- */

napi_value addon_list(napi_env env, napi_callback_info info);
napi_value addon_close(napi_env env, napi_callback_info info);
void addon_job_settle(napi_env env, struct addon_job *job);
void addon_job_free(struct addon_job *job);
hf_status addon_job_status(const struct addon_job *job);

/* ---- addon_value.c ---- */

/* Texts of a request, one byte longer than allowed, so that a text that is too long is refused. */
struct addon_texts {
    char name[HF_NAME_MAX + 2], owner[66], label[HF_LABEL_MAX + 2];
    char correlation_id[HF_CORRELATION_MAX + 2];
};

/* Throws an error whose code is the name of the status, with the holder in the way if the library
 * knows one. Returns NULL. */
napi_value addon_throw(napi_env env, hf_status status, const char *text);
/* Returns that error as a value. */
napi_value addon_error(napi_env env, hf_status status, const char *text);

void addon_arguments(napi_env env, napi_callback_info info, size_t count, napi_value *values);
/* throws and returns NULL if the value is none */
void *addon_external(napi_env env, napi_value value);
int64_t addon_integer(napi_env env, napi_value value, int64_t otherwise);
/* Copies a string into the buffer, and cuts it if it does not fit. NULL: the value is not a
 * string. */
char *addon_string(napi_env env, napi_value value, char *buffer, size_t size);
napi_value addon_number(napi_env env, double value);
napi_value addon_text(napi_env env, const char *text);
napi_value addon_boolean(napi_env env, bool value);
void addon_set(napi_env env, napi_value object, const char *name, napi_value value);

/* Reads a request from the array that lib/request.js makes. */
void addon_read_request(napi_env env, napi_value array, struct hf_request *request,
                        struct addon_texts *texts);
/* Who is in the way: what the library said with its last error. */
struct addon_holder {
    bool is_known;
    struct hf_row row; /* its texts are those below */
    char name[HF_NAME_MAX + 1], host[256], label[HF_LABEL_MAX + 1];
};
void addon_read_holder(struct addon_holder *holder);
napi_value addon_holder_value(napi_env env, struct addon_holder *holder); /* undefined: unknown */

/* One holder or waiter, with the names and units of docs/json.md. */
napi_value addon_row(napi_env env, const struct hf_row *row);
