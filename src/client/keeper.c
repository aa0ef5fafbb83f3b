/* keeper.c - the background thread: it renews leases and notices their loss, looks at what the engine nudged about, and
 * runs the callbacks. It alone runs them, one at a time, with no lock held: never inside another thread's blocking
 * call, which may hold a mutex of the application. */
#include "client.h"

#include "base/why.h"
#include "sys/clock.h"

#include <stdio.h>
#include <string.h>

#define AWAKE INT64_MIN

/* ---- From other threads ---- */

bool hf_keeper_is_me(const struct hf_client *client)
{
    return pthread_equal(client->keeper, pthread_self());
}

void hf_keeper_wake(struct hf_client *client)
{
    client->type->attend_wake(client->engine);
}

void hf_keeper_timer(struct hf_lease *lease, hf_nanos when)
{
    struct hf_client *client = lease->client;
    pthread_mutex_lock(&client->lock);
    if (when == HF_NEVER)
        hf_heap_remove(&client->timers, &lease->timer);
    else
        hf_heap_put(&client->timers, &lease->timer, when);
    bool wake = when < client->armed_at;
    if (wake)
        client->armed_at = when;
    pthread_mutex_unlock(&client->lock);
    if (wake)
        hf_keeper_wake(client);
}

void hf_keeper_look(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    pthread_mutex_lock(&client->lock);
    if (!lease->in_look) {
        lease->in_look = true;
        hf_lease_ref(lease);
        lease->look_next = NULL;
        *(client->look.first ? &client->look.last->look_next : &client->look.first) = lease;
        client->look.last = lease;
    }
    pthread_mutex_unlock(&client->lock);
}

void hf_keeper_call(struct hf_lease *lease, enum hf_callback callback)
{
    struct hf_client *client = lease->client;
    pthread_mutex_lock(&client->lock);
    lease->callbacks |= callback;
    if (!lease->in_call) {
        lease->in_call = true;
        hf_lease_ref(lease);
        lease->call_next = NULL;
        *(client->call.first ? &client->call.last->call_next : &client->call.first) = lease;
        client->call.last = lease;
    }
    bool wake = client->armed_at != AWAKE;
    pthread_mutex_unlock(&client->lock);
    if (wake)
        hf_keeper_wake(client);
}

/* ---- The thread's own work ---- */

static bool run_due_timer(struct hf_client *client)
{
    hf_nanos now = hf_clock_boot();
    pthread_mutex_lock(&client->lock);
    struct hf_heap_node *node = hf_heap_first(&client->timers);
    struct hf_lease *lease = NULL;
    if (node && node->key <= now) {
        lease = (struct hf_lease *)(void *)((char *)node - offsetof(struct hf_lease, timer));
        hf_heap_remove(&client->timers, node);
        hf_lease_ref(lease);
    }
    pthread_mutex_unlock(&client->lock);
    if (!lease)
        return false;
    pthread_mutex_lock(&lease->lock);
    if (lease->wake_at <= now && !lease->caller_drives)
        hf_drive_input(lease, HF_I_TIMER, HF_OK);
    else if (!lease->caller_drives)
        hf_keeper_timer(lease, lease->wake_at);
    pthread_mutex_unlock(&lease->lock);
    hf_lease_unref(lease);
    return true;
}

static bool run_look(struct hf_client *client)
{
    pthread_mutex_lock(&client->lock);
    struct hf_lease *lease = client->look.first;
    if (lease) {
        client->look.first = lease->look_next;
        lease->in_look = false;
    }
    pthread_mutex_unlock(&client->lock);
    if (!lease)
        return false;
    pthread_mutex_lock(&lease->lock);
    hf_drive_peek(lease);
    pthread_mutex_unlock(&lease->lock);
    hf_lease_unref(lease);
    return true;
}

static void call_back(struct hf_lease *lease, unsigned callbacks)
{
    pthread_mutex_lock(&lease->lock);
    hf_status outcome = lease->freed && lease->outcome == HF_OK ? HF_CANCELLED : lease->outcome;
    hf_status lost = lease->lost_status;
    hf_lost_fn *on_lost = lease->freed ? NULL : lease->on_lost;
    char words[HF_WHY_MAX];
    snprintf(words, sizeof words, "%s", lease->words ? lease->words : "");
    pthread_mutex_unlock(&lease->lock);
    if (callbacks & HF_CB_DONE) {
        if (outcome != HF_OK)
            hf_why(outcome, "%s%s%s", lease->name, words[0] ? ": " : "", words);
        lease->done(lease, outcome, lease->done_arg);
    }
    if ((callbacks & HF_CB_LOST) && on_lost)
        on_lost(lease, lost, lease->lost_arg);
}

static bool run_callback(struct hf_client *client)
{
    pthread_mutex_lock(&client->lock);
    struct hf_lease *lease = client->call.first;
    unsigned callbacks = 0;
    if (lease) {
        client->call.first = lease->call_next;
        lease->in_call = false;
        callbacks = lease->callbacks;
        lease->callbacks = 0;
    }
    pthread_mutex_unlock(&client->lock);
    if (!lease)
        return false;
    call_back(lease, callbacks);
    hf_lease_unref(lease);
    return true;
}

/* The engine lost everything: so did every lease. */
static void run_lost_all(struct hf_client *client)
{
    char text[sizeof client->lost_text];
    pthread_mutex_lock(&client->lock);
    bool lost = client->lost_all;
    hf_status status = client->lost_status;
    if (lost)
        memcpy(text, client->lost_text, sizeof text);
    client->lost_all = false;
    for (struct hf_lease *l = client->all; lost && l; l = l->next)
        l->to_lose = true;
    for (struct hf_lease *l = client->all; lost && l;) {
        if (!l->to_lose || !hf_lease_ref_listed(l)) {
            l = l->next;
            continue;
        }
        l->to_lose = false;
        pthread_mutex_unlock(&client->lock);
        pthread_mutex_lock(&l->lock);
        hf_lease_words(l, text);
        hf_drive_input(l, HF_I_LOST_ALL, l->decided ? status : HF_UNAVAILABLE);
        pthread_mutex_unlock(&l->lock);
        hf_lease_unref(l);
        pthread_mutex_lock(&client->lock);
        l = client->all; /* the list may have changed meanwhile; those that are done are marked */
    }
    pthread_mutex_unlock(&client->lock);
}

static void run_what_is_due(struct hf_client *client)
{
    bool more;
    do {
        run_lost_all(client);
        more = run_due_timer(client);
        more = run_look(client) || more;
        more = run_callback(client) || more;
        hf_journal_deliver(client);
    } while (more);
}

/* When to wake; false when it is time to stop. Sets armed_at, from which on other threads wake us. */
static bool plan(struct hf_client *client, hf_nanos *until)
{
    pthread_mutex_lock(&client->lock);
    struct hf_heap_node *first = hf_heap_first(&client->timers);
    *until = first ? first->key : HF_NEVER;
    if (client->look.first || client->call.first || client->lost_all || client->log_first)
        *until = 0;
    client->armed_at = *until;
    bool stop = client->stop && *until != 0;
    pthread_mutex_unlock(&client->lock);
    return !stop;
}

static void say_up(struct hf_client *client, hf_status status)
{
    pthread_mutex_lock(&client->lock);
    client->keeper_up = true;
    client->keeper_status = status;
    snprintf(client->keeper_text, sizeof client->keeper_text, "%s", status == HF_OK ? "" : hf_why_text());
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
}

void *hf_keeper_main(void *arg)
{
    struct hf_client *client = arg;
    hf_status status = client->type->enter(client->engine);
    say_up(client, status);
    if (status != HF_OK)
        return NULL;
    hf_nanos until;
    for (;;) {
        run_what_is_due(client);
        if (!plan(client, &until))
            break;
        client->type->attend(client->engine, until);
        pthread_mutex_lock(&client->lock);
        client->armed_at = AWAKE;
        pthread_mutex_unlock(&client->lock);
    }
    client->type->leave(client->engine);
    return NULL;
}
