/* client.c - a client opens and closes. */
#include "client.h"

#include "base/url.h"
#include "base/why.h"
#include "sys/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOOK_AGAIN_MS = 20 }; /* whether another thread has done what hf_close waits for */

/* ---- What the engine says ---- */

static void nudge(void *ctx, struct hf_ask *ask)
{
    (void)ctx;
    hf_keeper_look((struct hf_lease *)(void *)((char *)ask - offsetof(struct hf_lease, ask)));
}

/* Inside a submit, and so inside a lease's lock: only noted here. */
static void lost_all(void *ctx, hf_status status, const char *text)
{
    struct hf_client *client = ctx;
    hf_latch_lock(&client->lock);
    client->sweep = HF_SWEEP_LOST;
    client->lost_status = status;
    snprintf(client->lost_text, sizeof client->lost_text, "%s", text);
    hf_latch_unlock(&client->lock);
    hf_keeper_wake(client);
}

static void recheck(void *ctx)
{
    hf_keeper_recheck(ctx);
}

/* ---- Opening ---- */

static hf_status read_settings(struct hf_client *client, const struct hf_url *url, bool environment)
{
    hf_settings_defaults(&client->settings);
    hf_status status = environment ? hf_settings_from_environment(&client->settings, getenv) : HF_OK;
    if (status == HF_OK)
        status = hf_settings_from_query(&client->settings, url->query);
    client->wishes = hf_timing_wishes_of(&client->settings);
    return status;
}

static void name_client(struct hf_client *client, const struct hf_url *url)
{
    const char *host = strrchr(url->body, '@'); /* no password in a message */
    const char *place = host ? host + 1 : url->body;
    size_t size = strlen(url->scheme) + strlen(place) + 2;
    client->url = malloc(size);
    if (client->url)
        snprintf(client->url, size, "%s:%s", url->scheme, place);
}

/* The keeper takes no signal: they are the application's. */
static hf_status start_keeper(struct hf_client *client)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&client->keeper, NULL, hf_keeper_main, client);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return hf_why(HF_NO_MEMORY, "%s: cannot start a thread: %s", client->url, strerror(error));
    while (!atomic_load(&client->keeper_up))
        hf_futex_wait(&client->keeper_up, 0, HF_NEVER);
    if (client->keeper_status == HF_OK)
        return HF_OK;
    pthread_join(client->keeper, NULL);
    return hf_why(client->keeper_status, "%s", client->keeper_text);
}

static void free_client(struct hf_client *client)
{
    if (client->engine)
        client->type->close(client->engine); /* it may know the asks, which are in the leases */
    hf_journal_free(client);
    hf_heap_free(&client->timers); /* its nodes are in the leases */
    hf_leases_free(client);
    if (client->no_thread && client->fd >= 0)
        close(client->fd);
    if (client->mark.page)
        hf_forkmark_clear(&client->mark);
    free(client->url);
    free(client);
}

static hf_status open_parts(struct hf_client *client, const struct hf_url *url)
{
    name_client(client, url);
    if (!client->url)
        return hf_why(HF_NO_MEMORY, "no memory for a client");
    int error = hf_forkmark_set(&client->mark);
    if (!error)
        error = hf_entropy_seed(&client->entropy);
    if (!error && client->no_thread && (client->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        error = errno;
    if (error)
        return hf_why(HF_NO_MEMORY, "%s: %s", client->url, strerror(error));
    hf_entropy_take(&client->entropy, client->next_id, sizeof client->next_id);
    hf_clock_tune();
    client->limits = client->type->limits;
    hf_timing_set_drift(&client->limits, &client->settings);
    client->host = (struct hf_host){.ctx = client, .nudge = nudge, .recheck = recheck, .lost_all = lost_all};
    hf_status status = client->type->open(&client->engine, url, &client->settings, &client->host);
    return status == HF_OK ? start_keeper(client) : status;
}

hf_status hf_client_open_with(const struct hf_engine_type *type, const struct hf_url *url,
                              const struct hf_client_options *options, struct hf_client **out)
{
    struct hf_client *client = calloc(1, sizeof *client);
    if (!client)
        return hf_why(HF_NO_MEMORY, "no memory for a client");
    client->type = type;
    client->armed_at = INT64_MIN;
    client->no_thread = options->no_thread;
    client->fd = -1;
    client->on_log = options->on_log;
    client->log_arg = options->log_arg;
    client->log_level = options->log_level ? options->log_level : HF_LOG_INFO;
    hf_status status = read_settings(client, url, !options->no_environment);
    if (status == HF_OK)
        status = open_parts(client, url);
    if (status == HF_OK)
        *out = client;
    else
        free_client(client);
    return status;
}

hf_status hf_client_open(const char *text, const struct hf_client_options *options, struct hf_client **client)
{
    struct hf_url url;
    hf_status status = hf_url_parse(&url, text);
    if (status != HF_OK)
        return status;
    const struct hf_engine_type *type = hf_engine_find(url.scheme, strlen(url.scheme));
    if (!type)
        return hf_why(HF_CONFIG, "%s: no such engine; this library has: %s", url.scheme, hf_engine_names());
    return hf_client_open_with(type, &url, options, client);
}

/* ---- Closing ---- */

static void end_hold(struct hf_lease *lease, bool in_time)
{
    struct hf_news hint = {.cue = HF_N_HINT};
    struct hf_event check = {.in = HF_I_HINT, .now = hf_clock_boot(), .news = &hint};
    bool stays = lease->ask.detached || lease->exported, later = hf_client_hears_later(lease->client);
    if (stays && later)
        hf_drive_disown(lease);
    else if (stays && in_time) /* a detached hold that could not be cut loose yet is now */
        hf_drive(lease, &check);
    else if (!stays && (in_time || later)) /* to hand a release over takes no time there */
        hf_drive_input(lease, HF_I_RELEASE, HF_OK);
}

/* Without the time to ask the engine, which frees what a client leaves behind, the caller still hears its outcome. */
static void end_lease(struct hf_lease *lease, bool in_time)
{
    hf_latch_lock(&lease->lock);
    if (hf_lease_held(lease))
        end_hold(lease, in_time);
    else if (!lease->decided)
        hf_drive_input(lease, in_time ? HF_I_CANCEL : HF_I_LOST_ALL, HF_CLOSED);
    if (lease->alive && !lease->awaited && !hf_lease_held(lease)) {
        lease->awaited = true;
        atomic_fetch_add(&lease->client->awaited, 1);
    }
    hf_latch_unlock(&lease->lock);
}

static void end_leases(struct hf_client *client, hf_nanos until)
{
    struct hf_walk walk = {0};
    for (struct hf_lease *l; (l = hf_lease_walk(client, &walk)) != NULL;)
        end_lease(l, hf_clock_boot() < until);
    hf_keeper_flush(client);
}

/* Without a keeper its work is done here, unless another thread is still at it. */
static void work_until(struct hf_client *client, hf_nanos until)
{
    hf_nanos look_again = hf_clock_boot() + HF_MS(LOOK_AGAIN_MS);
    hf_keeper_process(client);
    int64_t timer_ms = hf_keeper_timeout(client);
    hf_nanos left = (until < look_again ? until : look_again) - hf_clock_boot();
    int left_ms = left > 0 ? (int)((left + HF_MS(1) - 1) / HF_MS(1)) : 0;
    struct pollfd rung = {.fd = client->fd, .events = POLLIN};
    if (atomic_load(&client->awaited))
        poll(&rung, 1, timer_ms >= 0 && timer_ms < left_ms ? (int)timer_ms : left_ms);
}

/* The engine has yet to answer for what was released and cancelled. Returns for how many it did not, in time. */
static unsigned await_answers(struct hf_client *client, hf_nanos until)
{
    for (uint32_t awaited; (awaited = atomic_load(&client->awaited)) && hf_clock_boot() < until;) {
        if (client->no_thread)
            work_until(client, until);
        else
            hf_futex_wait(&client->awaited, awaited, until);
    }
    return atomic_load(&client->awaited);
}

/* No answer came in time: whoever waits for the outcome hears of it now. */
static void give_up_waits(struct hf_client *client)
{
    struct hf_walk walk = {0};
    for (struct hf_lease *l; (l = hf_lease_walk(client, &walk)) != NULL;) {
        hf_latch_lock(&l->lock);
        if (!l->decided)
            hf_drive_input(l, HF_I_LOST_ALL, HF_CLOSED);
        hf_latch_unlock(&l->lock);
    }
}

/* Whoever is at a lease now, and has not given its lock up to sleep, is done with it after this. */
static void pass_leases(struct hf_client *client)
{
    struct hf_walk walk = {0};
    for (struct hf_lease *l; (l = hf_lease_walk(client, &walk)) != NULL;) {
        hf_latch_lock(&l->lock);
        hf_latch_unlock(&l->lock);
    }
}

/* Blocked callers have been told; they need a moment to leave. One that wakes is at its lease before it is out. */
static bool wait_until_empty(struct hf_client *client, hf_nanos until)
{
    for (uint32_t inside; (inside = atomic_load(&client->inside)) != HF_CLOSING;) {
        if (hf_clock_boot() >= until)
            return false;
        hf_futex_wait(&client->inside, inside, until);
    }
    pass_leases(client);
    return atomic_load(&client->inside) == HF_CLOSING || wait_until_empty(client, until);
}

hf_status hf_client_close(struct hf_client *client, int64_t timeout_ms)
{
    if (!hf_forkmark_ours(&client->mark))
        return hf_why(HF_FORKED, "%s: the client belongs to the parent process", client->url);
    if (hf_keeper_is_me(client))
        return hf_why(HF_INVALID, "%s: hf_close inside a callback", client->url);
    hf_nanos until = hf_deadline(hf_clock_boot(), timeout_ms);
    atomic_fetch_or(&client->inside, HF_CLOSING);
    end_leases(client, until);
    unsigned unanswered = await_answers(client, until);
    if (unanswered)
        give_up_waits(client);
    if (!wait_until_empty(client, until))
        return hf_why(HF_TIMEOUT, "%s: another thread is still inside a call", client->url);
    hf_latch_lock(&client->lock);
    client->stop = true;
    hf_latch_unlock(&client->lock);
    if (client->no_thread) { /* the last callbacks run here */
        do
            hf_keeper_process(client);
        while (hf_keeper_has_calls(client));
    }
    client->type->attend_wake(client->engine);
    pthread_join(client->keeper, NULL);
    if (client->type->finish)
        client->type->finish(client->engine, until);
    hf_status status = unanswered ? hf_why(HF_IN_DOUBT, "%s: %u holds could not be released and end by themselves",
                                           client->url, unanswered)
                                  : HF_OK;
    free_client(client);
    return status;
}
