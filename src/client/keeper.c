/* keeper.c - the background thread: it renews leases and notices their loss, looks at what the engine nudged about, and
 * runs the callbacks. It alone runs them, one at a time, with no lock held: never inside another thread's blocking
 * call, which may hold a mutex of the application. */
#include "client.h"

#include "base/status.h"
#include "base/why.h"
#include "sys/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define AWAKE INT64_MIN
#define BATCH_TIME 100000   /* ns: slower callbacks run one by one */
#define LOOK_AGAIN HF_MS(5) /* at a lease that a caller is at */

enum { BATCH = 256, ROUNDS = 4 };

/* ---- From other threads ---- */

/* Wakes whoever does the work: the keeper, or the caller's own loop. */
void hf_keeper_wake(struct hf_client *client)
{
    static const uint64_t one = 1;
    if (!client->no_thread)
        client->type->attend_wake(client->engine);
    else if (write(client->fd, &one, sizeof one) < 0) {
        /* An eventfd refuses only when it is already as readable as can be. */
    }
}

static void flush(struct hf_client *client)
{
    if (client->type->flush)
        client->type->flush(client->engine);
}

void hf_keeper_flush(struct hf_client *client)
{
    if (!hf_keeper_is_me(client))
        flush(client);
}

/* A timer that is set for sooner stays, and also when there is nothing to time any more: the keeper finds that nothing
 * is due, and sets it anew. So of many short holds that use the same handle only one in a while touches the heap. */
void hf_keeper_timer(struct hf_lease *lease, hf_nanos when)
{
    struct hf_client *client = lease->client;
    if (when >= atomic_load_explicit(&lease->timer.key, memory_order_relaxed))
        return;
    hf_latch_lock(&client->lock);
    hf_heap_put(&client->timers, &lease->timer, when);
    bool wake = when < client->armed_at;
    if (wake)
        client->armed_at = when;
    hf_latch_unlock(&client->lock);
    if (wake)
        hf_keeper_wake(client);
}

/* The engine's attend() returns after this. */
void hf_keeper_look(struct hf_lease *lease)
{
    struct hf_client *client = lease->client;
    hf_latch_lock(&client->lock);
    if (!lease->in_look) {
        lease->in_look = true;
        hf_lease_ref(lease);
        lease->look_next = NULL;
        *(client->look.first ? &client->look.last->look_next : &client->look.first) = lease;
        client->look.last = lease;
    }
    hf_latch_unlock(&client->lock);
}

void hf_keeper_call(struct hf_lease *lease, enum hf_callback callback)
{
    struct hf_client *client = lease->client;
    hf_latch_lock(&client->lock);
    lease->callbacks |= (uint8_t)callback;
    if (!lease->in_call) {
        lease->in_call = true;
        hf_lease_ref(lease);
        lease->hooks->call_next = NULL;
        *(client->call.first ? &client->call.last->hooks->call_next : &client->call.first) = lease;
        client->call.last = lease;
    }
    bool wake = client->armed_at != AWAKE;
    hf_latch_unlock(&client->lock);
    if (wake)
        hf_keeper_wake(client);
}

/* ---- The thread's own work ---- */

static bool run_due_timer(struct hf_client *client)
{
    hf_nanos now = hf_clock_boot();
    hf_latch_lock(&client->lock);
    struct hf_heap_node *node = hf_heap_first(&client->timers);
    struct hf_lease *lease = NULL;
    if (node && node->key <= now) {
        lease = (struct hf_lease *)(void *)((char *)node - offsetof(struct hf_lease, timer));
        hf_heap_remove(&client->timers, node); /* before its lock is taken: whoever has it now sets wake_at first */
        if (!hf_lease_ref_listed(lease)) {
            hf_latch_unlock(&client->lock);
            return true;
        }
    }
    hf_latch_unlock(&client->lock);
    if (!lease)
        return false;
    if (!hf_latch_try(&lease->lock)) { /* a caller is at it, who may not get through for long */
        hf_keeper_timer(lease, now + LOOK_AGAIN);
        hf_lease_unref(lease);
        return true;
    }
    if (lease->wake_at <= now && !lease->caller_drives)
        hf_drive_input(lease, HF_I_TIMER, HF_OK);
    else if (!lease->caller_drives)
        hf_keeper_timer(lease, lease->wake_at);
    hf_latch_unlock(&lease->lock);
    hf_lease_unref(lease);
    return true;
}

static bool run_look(struct hf_client *client)
{
    hf_latch_lock(&client->lock);
    struct hf_lease *lease = client->look.first;
    if (lease) {
        client->look.first = lease->look_next;
        lease->in_look = false;
    }
    hf_latch_unlock(&client->lock);
    if (!lease)
        return false;
    hf_latch_lock(&lease->lock);
    hf_drive_peek(lease, hf_clock_boot());
    hf_latch_unlock(&lease->lock);
    hf_lease_unref(lease);
    return true;
}

static void call_back(struct hf_lease *lease, unsigned callbacks)
{
    hf_latch_lock(&lease->lock);
    hf_status outcome = lease->freed && lease->outcome == HF_OK ? HF_CANCELLED : lease->outcome;
    hf_status lost = lease->lost_status;
    struct hf_hooks hooks = *lease->hooks;
    if (callbacks & HF_CB_DONE)
        hf_hooks_done(lease);
    hf_lost_fn *on_lost = lease->freed ? NULL : hooks.on_lost;
    char words[HF_WHY_MAX];
    snprintf(words, sizeof words, "%s", lease->words ? lease->words : "");
    hf_latch_unlock(&lease->lock);
    if (callbacks & HF_CB_DONE) {
        if (outcome != HF_OK)
            hf_why(outcome, "%s: %s", lease->ask.name, words[0] ? words : hf_status_row(outcome)->text);
        hooks.done(lease, outcome, hooks.done_arg);
    }
    if ((callbacks & HF_CB_LOST) && on_lost) {
        hf_why(lost, "%s: %s", lease->ask.name, words[0] ? words : hf_status_row(lost)->text);
        on_lost(lease, lost, hooks.lost_arg);
    }
    if (callbacks & HF_CB_GROUP)
        hf_group_lose(lease);
}

static bool run_callback(struct hf_client *client)
{
    hf_latch_lock(&client->lock);
    struct hf_lease *lease = client->call.first;
    unsigned callbacks = 0;
    if (lease) {
        client->call.first = lease->hooks->call_next;
        lease->in_call = false;
        callbacks = lease->callbacks;
        lease->callbacks = 0;
    }
    hf_latch_unlock(&client->lock);
    if (!lease)
        return false;
    call_back(lease, callbacks);
    hf_lease_unref(lease);
    return true;
}

/* Something that happened to all leases. */
struct sweep {
    enum hf_sweep what;
    hf_status status;
    char text[sizeof((struct hf_client *)0)->lost_text];
};

static void sweep_one(struct hf_lease *lease, const struct sweep *sweep)
{
    hf_latch_lock(&lease->lock);
    if (sweep->what == HF_SWEEP_LOST) {
        hf_lease_words(lease, sweep->text);
        hf_drive_input(lease, HF_I_LOST_ALL, lease->decided ? sweep->status : HF_UNAVAILABLE);
    } else if (hf_lease_held(lease)) {
        struct hf_news hint = {.cue = HF_N_HINT};
        struct hf_event event = {.in = HF_I_HINT, .now = hf_clock_boot(), .news = &hint};
        hf_drive(lease, &event);
    }
    hf_latch_unlock(&lease->lock);
}

/* The engine lost everything, or took something away: every lease hears of it. */
static void run_sweep(struct hf_client *client)
{
    hf_latch_lock(&client->lock);
    struct sweep sweep = {.what = client->sweep, .status = client->lost_status};
    memcpy(sweep.text, client->lost_text, sizeof sweep.text);
    client->sweep = HF_SWEEP_NONE;
    hf_latch_unlock(&client->lock);
    struct hf_walk walk = {0};
    for (struct hf_lease *l; sweep.what && (l = hf_lease_walk(client, &walk)) != NULL;)
        sweep_one(l, &sweep);
}

void hf_keeper_recheck(struct hf_client *client)
{
    hf_latch_lock(&client->lock);
    if (client->sweep == HF_SWEEP_NONE)
        client->sweep = HF_SWEEP_CHECK;
    bool wake = client->armed_at != AWAKE && !hf_keeper_is_me(client);
    hf_latch_unlock(&client->lock);
    if (wake)
        hf_keeper_wake(client);
}

/* What the timers submit goes out together, and before a callback that may take its time. */
static bool run_due_timers(struct hf_client *client)
{
    bool any = false;
    while (run_due_timer(client))
        any = true;
    if (any)
        flush(client);
    return any;
}

static bool run_looks(struct hf_client *client)
{
    int looks = 0;
    while (looks < BATCH && run_look(client))
        looks++;
    return looks > 0;
}

/* What quick callbacks ask for goes out together. One that takes its time holds up those before it in the batch, once.
 */
static bool run_callbacks(struct hf_client *client)
{
    int calls = 0;
    flush(client);
    hf_nanos begun = hf_clock_boot();
    /* One at least: whoever closes takes a round without any for the end of them. */
    while (calls < BATCH && (calls == 0 || hf_clock_boot() - begun < BATCH_TIME) && run_callback(client))
        calls++;
    flush(client);
    return calls > 0;
}

/* True: there was something, and there may be more. */
static bool run_what_is_due(struct hf_client *client)
{
    run_sweep(client);
    bool more = run_due_timers(client);
    more = run_looks(client) || more;
    more = run_callbacks(client) || more;
    hf_journal_deliver(client);
    return more;
}

/* When to wake; false when it is time to stop. Sets armed_at, from which on other threads wake us. */
static bool plan(struct hf_client *client, hf_nanos *until)
{
    hf_latch_lock(&client->lock);
    struct hf_heap_node *first = hf_heap_first(&client->timers);
    *until = first ? first->key : HF_NEVER;
    if (client->look.first || client->call.first || client->sweep || client->log_first)
        *until = 0;
    client->armed_at = *until;
    bool stop = client->stop && *until != 0;
    hf_latch_unlock(&client->lock);
    return !stop;
}

static void say_up(struct hf_client *client, hf_status status)
{
    client->keeper_status = status;
    snprintf(client->keeper_text, sizeof client->keeper_text, "%s", status == HF_OK ? "" : hf_why_text());
    atomic_store(&client->keeper_up, 1);
    hf_futex_wake(&client->keeper_up, 1);
}

static void set_awake(struct hf_client *client)
{
    hf_clock_tune();
    hf_latch_lock(&client->lock);
    client->armed_at = AWAKE;
    hf_latch_unlock(&client->lock);
}

static void keep(struct hf_client *client)
{
    for (hf_nanos until;;) {
        while (run_what_is_due(client))
            ;
        if (!plan(client, &until))
            return;
        client->type->attend(client->engine, until);
        set_awake(client);
    }
}

/* Without a keeper the thread only holds the life word and hears the bell. */
static void attend_only(struct hf_client *client)
{
    for (;;) {
        client->type->attend(client->engine, HF_NEVER);
        hf_latch_lock(&client->lock);
        bool stop = client->stop, due = client->look.first || client->sweep;
        hf_latch_unlock(&client->lock);
        if (stop)
            return;
        if (due)
            hf_keeper_wake(client);
    }
}

void *hf_keeper_main(void *arg)
{
    struct hf_client *client = arg;
    hf_status status = client->type->enter(client->engine);
    say_up(client, status);
    if (status != HF_OK)
        return NULL;
    if (client->no_thread)
        attend_only(client);
    else
        keep(client);
    client->type->leave(client->engine);
    return NULL;
}

/* ---- The caller's own loop ---- */

int64_t hf_keeper_timeout(struct hf_client *client)
{
    hf_nanos until;
    plan(client, &until);
    if (until == HF_NEVER)
        return -1;
    hf_nanos left = until - hf_clock_boot();
    return left > 0 ? (left + HF_MS(1) - 1) / HF_MS(1) : 0;
}

bool hf_keeper_has_calls(struct hf_client *client)
{
    hf_latch_lock(&client->lock);
    bool has = client->call.first != NULL;
    hf_latch_unlock(&client->lock);
    return has;
}

hf_status hf_keeper_process(struct hf_client *client)
{
    uint64_t rung;
    pthread_t nobody = 0;
    if (!atomic_compare_exchange_strong(&client->processor, &nobody, pthread_self()))
        return hf_why(HF_INVALID, "%s: hf_process is already running", client->url);
    if (read(client->fd, &rung, sizeof rung) < 0) {
        /* Nothing was rung: a timer is due, or nothing. */
    }
    set_awake(client);
    /* Callbacks that ask again at once must not keep the caller's loop for ever. */
    for (int rounds = 0; rounds < ROUNDS && run_what_is_due(client); rounds++)
        ;
    hf_nanos until;
    plan(client, &until);
    if (until == 0)
        hf_keeper_wake(client);
    atomic_store(&client->processor, 0);
    return HF_OK;
}
