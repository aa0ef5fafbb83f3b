/* addon_event.c - events of the library, brought to the dispatcher of lib/core.js, in order. Mostly
 * they come out of hf_process on the JavaScript thread. Without a loop, and while a client is being
 * closed, they come on other threads; then a thread-safe function brings them. */
#include "addon.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Callbacks find their client by its index here; see addon.h. A client leaves the table after
 * hf_close has returned, and from then on no callback runs that could read the slot. */
enum { SLOTS = 4096, ID_BITS = 48 };
static _Atomic(struct addon_client *) slots[SLOTS];

_Static_assert(sizeof(uintptr_t) >= 8, "a ticket needs 64 bits");

struct event {
    struct event *next;
    enum addon_event kind;
    uint64_t id;
    hf_status status;
    uint64_t token;
    struct log_fields *log;      /* EVENT_LOG alone */
    struct addon_job *job;       /* EVENT_JOB alone */
    struct addon_holder *holder; /* EVENT_DONE that is refused; may be NULL */
    char text[ERROR_TEXT_MAX];
};

struct log_fields {
    enum hf_log_level level;
    char event[32], name[HF_NAME_MAX + 1], correlation_id[HF_CORRELATION_MAX + 1];
    int64_t held_ms, waited_ms;
};

/* ---- Where callbacks run ---- */

static struct event *event_new(enum addon_event kind, hf_status status, const char *text)
{
    struct event *event = malloc(sizeof *event);

    if (!event)
        return NULL;
    event->next = NULL;
    event->kind = kind;
    event->status = status;
    event->id = 0;
    event->token = 0;
    event->log = NULL;
    event->job = NULL;
    event->holder = NULL;
    snprintf(event->text, sizeof event->text, "%s", text);
    return event;
}

static void event_free(struct event *event)
{
    if (event->job)
        addon_job_free(event->job);
    free(event->holder);
    free(event->log);
    free(event);
}

/* The queue has no bound, so a call never blocks. It fails only if the environment is ending; then
 * nobody is left to be told. */
static void post(struct addon_client *client, struct event *event)
{
    if (pthread_equal(client->thread, pthread_self()) && client->collects) {
        *client->last = event;
        client->last = &event->next;
        return;
    }
    napi_status status =
        napi_call_threadsafe_function(client->deliver, event, napi_tsfn_nonblocking);

    if (status != napi_ok)
        event_free(event);
}

static void post_lease(void *ticket, enum addon_event kind, hf_status status, uint64_t token)
{
    uint64_t number = (uintptr_t)ticket;
    struct addon_client *client = atomic_load(&slots[number >> ID_BITS]);
    struct event *event = client ? event_new(kind, status, status ? hf_error_text() : "") : NULL;

    if (!event)
        return;
    event->id = number & (((uint64_t)1 << ID_BITS) - 1);
    event->token = token;
    bool is_refused = status == HF_BUSY || status == HF_TIMEOUT;
    if (is_refused && (event->holder = malloc(sizeof *event->holder)))
        addon_read_holder(event->holder);
    post(client, event);
}

void addon_event_post_job(struct addon_client *client, struct addon_job *job)
{
    struct event *event = event_new(EVENT_JOB, addon_job_status(job), "");

    if (!event)
        return; /* the promise stays pending: there is no memory to settle it */
    event->job = job;
    post(client, event);
}

void addon_on_done(hf_lease *lease, hf_status outcome, void *ticket)
{
    (void)lease; /* it may be freed already; JavaScript reads the token from its own handle */
    post_lease(ticket, EVENT_DONE, outcome, 0);
}

void addon_on_lost(hf_lease *lease, hf_status why, void *ticket)
{
    (void)lease;
    post_lease(ticket, EVENT_LOST, why, 0);
}

static struct log_fields *copy_log(const struct hf_log_event *log)
{
    struct log_fields *copy = calloc(1, sizeof *copy);

    if (!copy)
        return NULL;
    copy->level = log->level;
    copy->held_ms = log->held_ms;
    copy->waited_ms = log->waited_ms;
    snprintf(copy->event, sizeof copy->event, "%s", log->event);
    snprintf(copy->name, sizeof copy->name, "%s", log->name ? log->name : "");
    snprintf(copy->correlation_id, sizeof copy->correlation_id, "%s",
             log->correlation_id ? log->correlation_id : "");
    return copy;
}

void addon_on_log(void *client, const struct hf_log_event *log)
{
    struct event *event = event_new(EVENT_LOG, log->status, log->text ? log->text : "");

    if (!event)
        return;
    event->token = log->token;
    event->log = copy_log(log);
    if (event->log)
        post(client, event);
    else
        event_free(event);
}

/* ---- On the JavaScript thread ---- */

static void keep_alive(napi_env env, struct addon_client *client, bool keep)
{
    if (client->loop)
        addon_loop_keep_alive(client, keep);
    else if (keep)
        napi_ref_threadsafe_function(env, client->deliver);
    else
        napi_unref_threadsafe_function(env, client->deliver);
}

void addon_event_wait(napi_env env, struct addon_client *client)
{
    client->near.begun++;
    if (client->waits++ == 0)
        keep_alive(env, client, true);
}

static void end_wait(napi_env env, struct addon_client *client)
{
    if (--client->waits == 0 && client->deliver)
        keep_alive(env, client, false);
}

void addon_event_stop_loop(napi_env env, struct addon_client *client)
{
    if (!client->loop)
        return;
    addon_loop_stop(client);
    if (client->waits && client->deliver)
        keep_alive(env, client, true);
}

static napi_value log_object(napi_env env, const struct event *event)
{
    static const char *const levels[] = {"", "error", "warn", "info", "debug"};
    const struct log_fields *log = event->log;
    napi_value object = NULL;

    napi_create_object(env, &object);
    addon_set(env, object, "level", addon_text(env, levels[log->level]));
    addon_set(env, object, "event", addon_text(env, log->event));
    addon_set(env, object, "name", addon_text(env, log->name));
    addon_set(env, object, "correlationId", addon_text(env, log->correlation_id));
    addon_set(env, object, "text", addon_text(env, event->text));
    addon_set(env, object, "token", addon_number(env, (double)event->token));
    addon_set(env, object, "heldMs", addon_number(env, (double)log->held_ms));
    addon_set(env, object, "waitedMs", addon_number(env, (double)log->waited_ms));
    return object;
}

/* dispatcher(kind, id, code, text, holder) or dispatcher(EVENT_LOG, 0, code, entry) */
static void dispatch(napi_env env, napi_value dispatcher, const struct event *event)
{
    napi_value arguments[5], undefined;

    napi_get_undefined(env, &undefined);
    arguments[0] = addon_number(env, event->kind);
    arguments[1] = addon_number(env, (double)event->id);
    arguments[2] = undefined;
    arguments[3] = undefined;
    arguments[4] = event->holder ? addon_holder_value(env, event->holder) : undefined;
    if (event->status != HF_OK) {
        arguments[2] = addon_text(env, hf_status_name(event->status));
        arguments[3] = addon_text(env, event->text);
    }
    if (event->log)
        arguments[3] = log_object(env, event);
    napi_call_function(env, undefined, dispatcher, 5, arguments, NULL);
}

/* env is NULL if the environment ends: then the event is only freed. */
static void deliver(napi_env env, napi_value dispatcher, void *context, void *data)
{
    struct event *event = data;

    bool ends_wait = event->kind == EVENT_DONE || event->kind == EVENT_JOB;
    if (env && ends_wait)
        end_wait(env, context);
    if (env && event->job)
        addon_job_settle(env, event->job);
    else if (env && dispatcher)
        dispatch(env, dispatcher, event);
    event_free(event);
}

/* Reports what a listener of JavaScript threw. */
static void report_exception(napi_env env)
{
    napi_value error = NULL;
    bool thrown = false;

    if (napi_is_exception_pending(env, &thrown) == napi_ok && thrown &&
        napi_get_and_clear_last_exception(env, &error) == napi_ok)
        napi_fatal_exception(env, error);
}

static void deliver_here(napi_env env, struct addon_client *client, struct event *event)
{
    napi_value dispatcher = NULL;

    if (client->dispatcher)
        napi_get_reference_value(env, client->dispatcher, &dispatcher);
    deliver(env, dispatcher, client, event);
    report_exception(env);
}

/* A listener may close the client, which must not happen inside hf_process. So the events are
 * collected, and dispatched after it. Returns true if there are any. */
static bool collect(struct addon_client *client)
{
    client->last = &client->first;
    client->collects = true;
    (void)hf_process(client->hf);
    client->collects = false;
    return client->first;
}

/* Dispatches the collected events. One scope is around all of them, so that code which awaits one
 * runs when all have been dispatched. */
static void dispatch_all(napi_env env, napi_async_context context, struct addon_client *client)
{
    napi_handle_scope handles;
    napi_callback_scope scope;
    napi_value resource;
    struct event *event = client->first;

    client->first = NULL;
    napi_open_handle_scope(env, &handles);
    napi_create_object(env, &resource);
    (void)hf_batch(client->hf);
    napi_open_callback_scope(env, resource, context, &scope);
    while (event) {
        struct event *next = event->next;
        deliver_here(env, client, event);
        event = next;
    }
    napi_close_callback_scope(env,
                              scope); /* here JavaScript goes on, and starts its next requests */
    if (addon_client_is_open(client))
        (void)hf_flush(client->hf);
    napi_close_handle_scope(env, handles);
}

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static bool is_readable(struct addon_client *client)
{
    struct pollfd replies = {.fd = hf_fd(client->hf), .events = POLLIN};
    return poll(&replies, 1, 0) > 0;
}

/* A server on this machine replies sooner than a sleeping thread wakes up. So the JavaScript thread
 * spins for a moment before its loop goes round, as the library does for blocking callers. Spinning
 * never pays if both share a processor, or if the server is far away: each miss in a row doubles
 * the number of calls that do not spin. Returns true if there are events. */
static bool await_near(struct addon_client *client)
{
    enum { MISSES_MAX = 12 };
    int64_t end = now_us() + client->near.spin_us;
    bool hit = false;

    if (client->near.skips) {
        client->near.skips--;
        return false;
    }
    while (!hit && now_us() < end)
        hit = is_readable(client) && collect(client);
    client->near.misses =
        hit ? client->near.misses / 2 : client->near.misses + (client->near.misses < MISSES_MAX);
    client->near.skips = (1U << client->near.misses) - 1;
    return hit;
}

/* The requests that JavaScript begins when it gets its events are sent at once, and their replies
 * may be near. The other work of the loop waits for at most ROUNDS_US, and for the last round. */
void addon_event_process(napi_env env, napi_async_context context, struct addon_client *client)
{
    enum { ROUNDS_US = 250 };

    if (!collect(client))
        return;
    addon_client_ref(client);
    int64_t end = now_us() + ROUNDS_US;
    bool may_be_near;
    do {
        client->near.begun = 0;
        dispatch_all(env, context, client);
        may_be_near = client->near.spin_us && client->near.begun && addon_client_is_open(client) &&
                      now_us() < end;
    } while (may_be_near && await_near(client));
    addon_client_unref(client);
}

static bool take_slot(struct addon_client *client)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct addon_client *nobody = NULL;

        client->slot = i;
        if (atomic_compare_exchange_strong(&slots[i], &nobody, client))
            return true;
    }
    return false;
}

bool addon_event_attach(napi_env env, struct addon_client *client, napi_value dispatcher)
{
    napi_value name = addon_text(env, "holdfast");
    napi_status status = napi_create_threadsafe_function(env, dispatcher, NULL, name, 0, 1, NULL,
                                                         NULL, client, deliver, &client->deliver);

    if (status != napi_ok)
        return false;
    napi_unref_threadsafe_function(env, client->deliver);
    client->thread = pthread_self();
    napi_create_reference(env, dispatcher, 1, &client->dispatcher);
    if (take_slot(client))
        return true;
    napi_release_threadsafe_function(client->deliver, napi_tsfn_abort);
    return false;
}

void addon_event_detach(napi_env env, struct addon_client *client)
{
    addon_event_stop_loop(env, client);
    atomic_store(&slots[client->slot], NULL);
    if (client->dispatcher)
        napi_delete_reference(env, client->dispatcher);
    client->dispatcher = NULL;
    if (client->deliver)
        napi_release_threadsafe_function(client->deliver, napi_tsfn_abort);
    client->deliver = NULL;
}

void *addon_event_ticket(const struct addon_client *client, uint64_t id)
{
    return (void *)(uintptr_t)((uint64_t)client->slot << ID_BITS | id);
}
