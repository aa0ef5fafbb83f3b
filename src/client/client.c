/* client.c - opens and closes a client. */
#include "client.h"

#include "base/error.h"
#include "base/url.h"
#include "sys/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* interval at which hf_close checks whether another thread has finished */
enum { POLL_AGAIN_MS = 20 };

/* ---- Calls from the engine ---- */

static void notify(void *ctx, struct engine_op *op)
{
    (void)ctx;
    background_notify((struct hf_lease *)(void *)((char *)op - offsetof(struct hf_lease, op)));
}

/* Called inside a submit, under a lease's lock, so it only notes the loss. */
static void lost_all(void *ctx, hf_status status, const char *text)
{
    assert(status != HF_OK && text);

    struct hf_client *client = ctx;
    small_mutex_lock(&client->lock);
    client->sweep = SWEEP_LOST;
    client->lost_status = status;
    snprintf(client->lost_text, sizeof client->lost_text, "%s", text);
    small_mutex_unlock(&client->lock);
    background_wake(client);
}

/* Sheets are made and adapted under the client's lock, so every sheet gets the new time. */
static void takes(void *ctx, nanos length)
{
    assert(length >= 0);

    struct hf_client *client = ctx;
    small_mutex_lock(&client->lock);
    atomic_store_explicit(&client->takes, length, memory_order_relaxed);
    lease_adapt_sheets(client);
    small_mutex_unlock(&client->lock);
}

static void recheck(void *ctx)
{
    background_recheck(ctx);
}

static struct engine_host host_of(struct hf_client *client)
{
    return (struct engine_host){
        .ctx = client, .notify = notify, .recheck = recheck, .lost_all = lost_all, .takes = takes};
}

/* ---- Opening ---- */

static hf_status read_settings(struct hf_client *client, const struct url *url, bool environment)
{
    settings_defaults(&client->settings, engine_settings());
    hf_status status = environment ? settings_from_environment(&client->settings, getenv) : HF_OK;
    if (status == HF_OK)
        status = settings_from_query_except(&client->settings, url->query, client->type->passes_on);
    if (status == HF_OK && client->type->fit_defaults)
        client->type->fit_defaults(&client->settings);
    client->overrides = timing_overrides_of(&client->settings);
    if (client->type->override_timing)
        client->type->override_timing(&client->overrides, &client->settings);
    return status;
}

static void name_client(struct hf_client *client, const struct url *url)
{
    assert(!client->url);

    /* cut, so that the message shows no password */
    const char *host = strrchr(url->body, '@');
    const char *place = host ? host + 1 : url->body;
    size_t size = strlen(url->scheme) + strlen(place) + 2;
    client->url = malloc(size);
    if (client->url)
        snprintf(client->url, size, "%s:%s", url->scheme, place);
}

/* The background thread blocks all signals: they belong to the application. */
static hf_status start_background(struct hf_client *client)
{
    assert(client->engine);

    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&client->background_thread, NULL, background_main, client);

    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return error_set(HF_NO_MEMORY, "%s: cannot start a thread: %s", client->url,
                         strerror(error));

    while (!atomic_load(&client->background_up))
        futex_wait(&client->background_up, 0, TIME_NEVER);
    if (client->background_status == HF_OK)
        return HF_OK;
    pthread_join(client->background_thread, NULL);
    return error_set(client->background_status, "%s", client->background_text);
}

/* Called before the leases are freed: the engine may point to their ops, and the heap to their
 * timers. */
static void close_parts(struct hf_client *client)
{
    if (client->engine)
        client->type->close(client->engine);
    client->engine = NULL;
    event_log_free(client);
    heap_free(&client->timers);
    secrets_drop(&client->secrets);
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
}

void client_free_memory(struct hf_client *client)
{
    assert(!client->engine);

    lease_pool_free(client);
    if (client->mark.page)
        fork_guard_clear(&client->mark);
    free(client->url);
    free(client);
}

/* Frees the client, unless handles keep its memory. From the unlock on another thread may free it.
 */
static void free_client(struct hf_client *client)
{
    close_parts(client);
    small_mutex_lock(&client->lock);
    client->closed = true;
    client->handles = client->keep_handles ? lease_pool_count_handles(client) : 0;
    bool is_free = client->handles == 0;
    small_mutex_unlock(&client->lock);
    if (is_free)
        client_free_memory(client);
}

static hf_status open_parts(struct hf_client *client, const struct url *url)
{
    assert(client->type && !client->engine);

    name_client(client, url);
    if (!client->url)
        return error_set(HF_NO_MEMORY, "no memory for a client");

    int error = fork_guard_set(&client->mark);
    if (!error)
        error = entropy_seed(&client->entropy);
    bool has_loop = client->no_thread || client->own_callbacks;
    if (!error && has_loop && (client->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        error = errno;
    if (error)
        return error_set(HF_NO_MEMORY, "%s: %s", client->url, strerror(error));

    entropy_take(&client->entropy, client->next_id, sizeof client->next_id);
    clock_tune();
    client->limits = client->type->limits;
    if (client->type->fit_limits)
        client->type->fit_limits(&client->limits, &client->settings);
    timing_set_drift(&client->limits, &client->settings);
    client->host = host_of(client);
    hf_status status = client->type->open(&client->engine, url, &client->settings, &client->host);
    return status == HF_OK ? start_background(client) : status;
}

hf_status client_open_with(const struct engine_type *type, const struct url *url,
                           const struct hf_client_options *options, struct hf_client **out)
{
    assert(type && options);

    struct hf_client *client = calloc(1, sizeof *client);
    if (!client)
        return error_set(HF_NO_MEMORY, "no memory for a client");

    client->type = type;
    client->armed_at = INT64_MIN;
    client->no_thread = options->no_thread;
    client->own_callbacks = options->own_callbacks && !options->no_thread;
    client->keep_handles = options->keep_handles;
    client->max_stall = NANOS_OF_MS(options->max_stall_ms);
    client_note_alive(client);
    client->fd = -1;
    client->on_log = options->on_log;
    client->log_arg = options->log_arg;
    client->log_level = options->log_level ? options->log_level : HF_LOG_INFO;

    hf_status status = read_settings(client, url, !options->no_environment);
    if (status == HF_OK)
        status = secrets_keep(&client->secrets, &client->settings, options);
    if (status == HF_OK)
        status = open_parts(client, url);
    if (status == HF_OK)
        *out = client;
    else
        free_client(client);

    return status;
}

static hf_status parse_url(const char *text, struct url *url, const struct engine_type **type)
{
    hf_status status = url_parse(url, text);
    if (status != HF_OK)
        return status;

    *type = engine_find(url->scheme, strlen(url->scheme));
    if (*type)
        return HF_OK;

    const struct engine_type *named = engine_named(url->scheme);
    if (named)
        return error_set(HF_CONFIG, "%s: no such scheme; the engine %s is named %s://", url->scheme,
                         url->scheme, named->schemes[0]);

    const char *left_out = engines_left_out();
    return error_set(HF_CONFIG, "%s: no such engine; this library has %s%s%.*s", url->scheme,
                     engine_names(), *left_out ? "; left out: " : "", (int)strcspn(left_out, "\n"),
                     left_out);
}

hf_status client_open(const char *text, const struct hf_client_options *options,
                      struct hf_client **client)
{
    struct url url;
    const struct engine_type *type;
    hf_status status = parse_url(text, &url, &type);
    return status == HF_OK ? client_open_with(type, &url, options, client) : status;
}

static hf_status check_engine(struct hf_client *client, const struct url *url)
{
    const struct engine_type *type = client->type;
    if (type->check)
        return type->check(url, &client->settings);

    client->host = host_of(client);
    hf_status status = type->open(&client->engine, url, &client->settings, &client->host);
    if (status == HF_OK)
        type->close(client->engine);
    return status;
}

hf_status client_check_url(const char *text)
{
    struct url url;
    const struct engine_type *type;
    hf_status status = parse_url(text, &url, &type);
    if (status != HF_OK)
        return status;
    struct hf_client *client = calloc(1, sizeof *client);
    if (!client)
        return error_set(HF_NO_MEMORY, "no memory to check a URL");

    client->type = type;
    status = read_settings(client, &url, true);
    if (status == HF_OK)
        status = check_engine(client, &url);
    free(client);
    return status;
}

/* ---- Closing ---- */

static void end_hold(struct hf_lease *lease, bool in_time)
{
    assert(lease_is_held(lease));

    struct engine_reply notify = {.kind = REPLY_NOTIFY};
    struct claim_event check = {.in = INPUT_NOTIFY, .now = clock_boot(), .reply = &notify};
    bool stays = lease->op.detached || lease->exported, later = client_replies_later(lease->client);

    if (stays && later)
        claim_driver_disown(lease);
    else if (stays && in_time) /* detaches a hold that could not be detached when it was granted */
        claim_driver_step(lease, &check);
    else if (!stays && (in_time || later)) /* queueing a request for a server takes no time */
        claim_driver_input(lease, INPUT_RELEASE, HF_OK);
}

/* If no time is left, an engine that replies at once is not called: it frees what a closed client
 * leaves behind, and the waiting caller gets its outcome here. An engine that replies later is
 * called in any case. Queueing the request takes no time, and without it the server would keep the
 * place in its queue. */
static void end_lease(struct hf_lease *lease, bool in_time)
{
    bool calls_engine = in_time || client_replies_later(lease->client);
    small_mutex_lock(&lease->lock);
    if (lease_is_held(lease))
        end_hold(lease, in_time);
    else if (!lease->decided && calls_engine)
        claim_driver_cancel(lease, HF_CLOSED);
    else if (!lease->decided)
        claim_driver_input(lease, INPUT_LOST_ALL, HF_CLOSED);

    if (lease->alive && !lease->awaited && !lease_is_held(lease)) {
        lease->awaited = true;
        atomic_fetch_add(&lease->client->awaited, 1);
    }
    small_mutex_unlock(&lease->lock);
}

static void end_leases(struct hf_client *client, nanos until)
{
    assert(client_closing(client));

    struct lease_walk walk = {0};
    for (struct hf_lease *l; (l = lease_walk(client, &walk)) != NULL;)
        end_lease(l, clock_boot() < until);
    background_flush(client);
}

/* Does the background thread's work here, with no_thread, unless another thread is in
 * hf_process. */
static void work_until(struct hf_client *client, nanos until)
{
    assert(client->no_thread);

    nanos poll_again = clock_boot() + NANOS_OF_MS(POLL_AGAIN_MS);
    background_process(client);
    int64_t timer_ms = background_timeout(client);
    nanos left = (until < poll_again ? until : poll_again) - clock_boot();
    int left_ms = left > 0 ? (int)((left + NANOS_OF_MS(1) - 1) / NANOS_OF_MS(1)) : 0;
    struct pollfd woken = {.fd = client->fd, .events = POLLIN};
    if (atomic_load(&client->awaited))
        poll(&woken, 1, timer_ms >= 0 && timer_ms < left_ms ? (int)timer_ms : left_ms);
}

/* Waits for the engine's replies to releases and cancels. Returns how many are still missing at
 * `until`. */
static unsigned await_answers(struct hf_client *client, nanos until)
{
    assert(client_closing(client));

    for (uint32_t awaited; (awaited = atomic_load(&client->awaited)) && clock_boot() < until;) {
        if (client->no_thread)
            work_until(client, until);
        else
            futex_wait(&client->awaited, awaited, until);
    }
    return atomic_load(&client->awaited);
}

/* Gives up a wait because the reply to LEAVE will not be read any more. The claim then sends a
 * RELEASE: a grant that came before the LEAVE would stay otherwise. */
static void give_up_wait(struct hf_lease *lease)
{
    assert(!lease->decided);

    struct engine_reply none = {.kind = REPLY_UNKNOWN, .asked_at = lease->claim.asked_at};
    struct claim_event unanswered = {.in = INPUT_UNKNOWN, .now = clock_boot(), .reply = &none};
    if (lease->claim.state == CLAIM_LEAVING && client_replies_later(lease->client))
        claim_driver_step(lease, &unanswered);
    else
        claim_driver_input(lease, INPUT_LOST_ALL, HF_CLOSED);
}

/* Gives up a release: the callback of hf_release_start gets HF_IN_DOUBT. */
static void give_up_release(struct hf_lease *lease)
{
    struct engine_reply none = {.kind = REPLY_UNKNOWN, .asked_at = lease->claim.asked_at};
    claim_driver_step(
        lease, &(struct claim_event){.in = INPUT_UNKNOWN, .now = clock_boot(), .reply = &none});
}

/* Gives every caller that still waits its outcome, because the engine did not reply in time. */
static void give_up_waits(struct hf_client *client)
{
    assert(client_closing(client));

    struct lease_walk walk = {0};
    for (struct hf_lease *l; (l = lease_walk(client, &walk)) != NULL;) {
        small_mutex_lock(&l->lock);
        bool has_callback = l->callbacks && l->callbacks->release_calls_back;
        if (!l->decided)
            give_up_wait(l);
        else if (has_callback)
            give_up_release(l);
        small_mutex_unlock(&l->lock);
    }
    background_flush(client);
}

/* Takes each lease's lock once: a thread that held one before has released it after this. */
static void pass_leases(struct hf_client *client)
{
    assert(client_closing(client));

    struct lease_walk walk = {0};
    for (struct hf_lease *l; (l = lease_walk(client, &walk)) != NULL;) {
        small_mutex_lock(&l->lock);
        small_mutex_unlock(&l->lock);
    }
}

/* Blocked callers have their outcome and need a moment to leave. A caller that wakes takes its
 * lease's lock before it leaves `active_calls`, so both are checked until neither has changed. */
static bool wait_until_empty(struct hf_client *client, nanos until)
{
    assert(client_closing(client));

    for (uint32_t active_calls;
         (active_calls = atomic_load(&client->active_calls)) != CLIENT_CLOSING;) {
        if (clock_boot() >= until)
            return false;
        futex_wait(&client->active_calls, active_calls, until);
    }

    pass_leases(client);
    return atomic_load(&client->active_calls) == CLIENT_CLOSING || wait_until_empty(client, until);
}

/* Reads the outstanding replies although no caller waits for them: a server whose replies meet a
 * closed connection drops the requests that it has not read yet. */
static void finish(struct hf_client *client, nanos until)
{
    assert(client->stop);

    struct lease_walk walk = {0};
    if (!client->type->finish)
        return;

    for (struct hf_lease *l; (l = lease_walk(client, &walk)) != NULL;)
        if (l->alive)
            client->type->forget(client->engine, &l->op);
    client->type->finish(client->engine, until);
}

static void run_last_callbacks(struct hf_client *client)
{
    do
        background_process(client);
    while (callbacks_are_due(client));
}

hf_status client_check_close(const struct hf_client *client)
{
    if (!fork_guard_ours(&client->mark))
        return error_set(HF_FORKED, "%s: the client belongs to the parent process", client->url);
    if (callbacks_run_here(client))
        return error_set(HF_INVALID, "%s: hf_close must not be called inside a callback",
                         client->url);
    return HF_OK;
}

void client_refuse_calls(struct hf_client *client)
{
    atomic_fetch_or(&client->active_calls, CLIENT_CLOSING);
}

hf_status client_close(struct hf_client *client, int64_t timeout_ms)
{
    nanos until = client_deadline(clock_boot(), timeout_ms);
    client_refuse_calls(client);
    if (client->type->loop_end)
        client->type->loop_end(client->engine);
    end_leases(client, until);
    unsigned unanswered = await_answers(client, until);
    if (unanswered)
        give_up_waits(client);
    if (!wait_until_empty(client, until))
        return error_set(HF_TIMEOUT, "%s: another thread is still inside a call", client->url);

    small_mutex_lock(&client->lock);
    client->stop = true;
    small_mutex_unlock(&client->lock);
    if (client->no_thread)
        run_last_callbacks(client);

    client->type->background_wake(client->engine);
    pthread_join(client->background_thread, NULL);
    /* after the join: until then the background thread may add callbacks */
    if (client->own_callbacks)
        run_last_callbacks(client);
    finish(client, until);
    hf_status status = HF_OK;

    if (unanswered)
        status =
            error_set(HF_IN_DOUBT,
                      "%s: no answer to the release of %u holds or waits; they end by themselves",
                      client->url, unanswered);

    free_client(client);
    return status;
}
