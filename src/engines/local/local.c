/* local.c - the engine `local:`: a table in a shared memory file, used by the processes of one
 * machine without a server. table_ops.h has the page that explains this folder. */
#include "engines/engine.h"

#include "async_waiters.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/url.h"
#include "clients.h"
#include "sys/clock.h"
#include "sys/process.h"
#include "sys/shm_guard.h"
#include "table_ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct local {
    struct table table;
    struct table_caller who;
    /* Address of the client's cell, kept so that sleeper and waker use the same word even if the
     * table is damaged. */
    struct table_client *me;
    const struct engine_host *host;
    struct async_waiters pending;
    _Atomic bool woken; /* set by background_wake() */
    /* The fields below are used by the background thread only. */
    uint32_t next, ring; /* the watched neighbour, and the version of the ring that named it */
    nanos next_since;    /* time when that client became the neighbour */
    bool knows_next;
    bool no_waitv; /* the kernel has no FUTEX_WAITV: poll every 10 ms */
};

enum {
    POLL_EVERY_MS = 10,
    REAP_AT_ONCE = 64,
    SLEEP_AT_MOST_MS = 60000,
    JOIN_TIMEOUT_MS = 500,
    WATCH_FOR_MS = 10000,
    NEW_NEIGHBOUR_MS = 50
};

enum local_setting_id {
#define SETTING SETTING_INDEX
#include "local_settings.def"
#undef SETTING
};

/* ---- Opening and closing ---- */

/* Reads the table's path from the URL; "": the user's own table. */
static hf_status read_path(const struct url *url, char *path, size_t size)
{
    hf_status status = url_decode(url->body, strlen(url->body), path, size - 16);

    if (status != HF_OK)
        return error_set(status, "local:%.80s%s: the path of a table: %s", url->body,
                         strlen(url->body) > 80 ? "..." : "", error_text());
    if (path[0] && path[0] != '/')
        return error_set(HF_CONFIG, "local:%s: the path of a table must be absolute", path);
    return HF_OK;
}

static hf_status check_local(const struct url *url, const struct settings *settings)
{
    (void)settings;
    char path[sizeof((struct table *)0)->path];
    return read_path(url, path, sizeof path);
}

static hf_status open_local(void **self, const struct url *url, const struct settings *settings,
                            const struct engine_host *host)
{
    assert(self && url && settings && host);
    *self = NULL;
    char path[sizeof((struct table *)0)->path];
    hf_status status = read_path(url, path, sizeof path);
    if (status != HF_OK)
        return status;

    struct local *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(HF_NO_MEMORY, "local: no memory for a client");

    status = table_open(&l->table, path[0] ? path : NULL, (mode_t)settings->value[SETTING_MODE]);
    if (status != HF_OK) {
        free(l);
        return status;
    }

    l->host = host;
    l->who.pid = process_id();
    l->who.history = (uint32_t)settings->value[SETTING_HISTORY];
    l->who.history_age = NANOS_OF_MS(settings->value[SETTING_HISTORY_AGE]);
    async_waiters_init(&l->pending);
    *self = l;

    return HF_OK;
}

static void close_local(void *self)
{
    struct local *l = self;
    table_close(&l->table);
    async_waiters_free(&l->pending);
    free(l);
}

static hf_status enter_local(void *self)
{
    struct local *l = self;
    assert(!l->me);
    shm_guard_this_thread();
    hf_status status = table_client_join(
        &l->table, l->who.pid, clock_boot() + NANOS_OF_MS(JOIN_TIMEOUT_MS), &l->who.client);
    if (status == HF_OK)
        l->me = &cell_at(&l->table, l->who.client)->client;
    return status;
}

static void leave_local(void *self)
{
    struct local *l = self;
    assert(l->me && l->who.client);
    table_client_leave(&l->table, l->who.client);
}

/* ---- Ops ---- */

static void retire(struct local *l)
{
    error_set(HF_LOST, "%s: the table was deleted or replaced", l->table.path);
    atomic_store(&l->table.state->retired, 1);
    l->host->lost_all(l->host->ctx, HF_LOST, error_text());
}

__attribute__((noinline)) static bool check_retired(struct local *l)
{
    if (!atomic_load_explicit(&l->table.state->retired, memory_order_relaxed) &&
        table_in_place(&l->table))
        return false;
    retire(l);
    return true;
}

/* Returns true if the table was replaced, at the cost of one load. With `check` it also calls
 * stat(); ops after a wait use that. */
static inline bool is_retired(struct local *l, bool check)
{
    bool known = atomic_load_explicit(&l->table.state->retired, memory_order_relaxed);
    return (check || known) && check_retired(l);
}

static bool answer_retired(struct engine_reply *reply, nanos now, enum reply_kind kind)
{
    assert(kind == REPLY_FAILED || kind == REPLY_NOT_HELD);
    *reply = (struct engine_reply){.kind = kind,
                                   .asked_at = now,
                                   .retry_at = TIME_NEVER,
                                   .status = HF_UNAVAILABLE,
                                   .text = error_text()};
    return true;
}

static void forget(void *self, struct engine_op *op)
{
    struct local *l = self;
    if (!slot_cookie(op->slot))
        return;
    async_waiters_remove(&l->pending, slot_cookie(op->slot));
    op->slot = slot_make(slot_cell(op->slot), 0);
}

static void background_wake(void *self)
{
    struct local *l = self;
    atomic_store(&l->woken, true);
    table_client_wake(l->me);
}

/* A detached hold has no client, so its cell may be reused at any time: take it off the ready list
 * first. */
static void detach(struct local *l, struct engine_op *op)
{
    assert(op->detached);
    if (table_detach(&l->table, op, false))
        return;
    async_waiters_drain(&l->pending, &l->table, l->who.client, l->host->notify, l->host->ctx);
    /* wakes the background thread for ops that were notified at the same time */
    background_wake(l);
    table_detach(&l->table, op, true);
}

/* An op whose reply arrives through the background thread needs a cookie. */
static bool add_cookie(struct local *l, struct engine_op *op)
{
    assert(!slot_cookie(op->slot));
    uint32_t cookie = async_waiters_add(&l->pending, op);
    op->slot = slot_make(slot_cell(op->slot), cookie);
    return cookie != 0;
}

static bool answer_no_memory(struct engine_reply *reply, nanos now)
{
    error_set(HF_NO_MEMORY, "no memory to wait");
    *reply = (struct engine_reply){.kind = REPLY_FAILED,
                                   .asked_at = now,
                                   .retry_at = TIME_NEVER,
                                   .status = HF_NO_MEMORY,
                                   .text = error_text()};

    return true;
}

/* Submits an op on a hold that may have changed since it was granted. */
static void submit_later(struct local *l, struct engine_op *op, nanos now,
                         struct engine_reply *reply)
{
    assert(op->verb != OP_ACQUIRE && op->verb != OP_RELEASE);
    if (op->verb == OP_LEAVE) {
        table_leave(&l->table, op, now, reply);
        /* checked again, as in take_reply() */
        if (reply->kind == REPLY_GRANTED && is_retired(l, true))
            answer_retired(reply, now, REPLY_FAILED);
    } else if (is_retired(l, true)) {
        answer_retired(reply, now, REPLY_NOT_HELD);
    } else if (op->verb == OP_EXTEND || op->verb == OP_CHECK) {
        table_extend(&l->table, op, now, op->verb == OP_CHECK, reply);
    } else {
        table_convert(&l->table, op, now, reply);
    }
}

__attribute__((noinline)) static bool submit_any(struct local *l, struct engine_op *op, nanos now,
                                                 struct engine_reply *reply)
{
    assert(l->me);
    if (op->verb == OP_ACQUIRE) {
        if (is_retired(l, slot_cell(op->slot) != 0))
            return answer_retired(reply, now, REPLY_FAILED);
        bool needs_cookie = op->in_background && op->queue && !slot_cookie(op->slot);
        if (needs_cookie && !add_cookie(l, op))
            return answer_no_memory(reply, now);
        table_acquire(&l->table, &l->who, op, now, reply);
    } else if (op->verb == OP_RELEASE) {
        table_release(&l->table, op, now, reply);
    } else {
        submit_later(l, op, now, reply);
    }

    bool still_queued =
        reply->kind == REPLY_QUEUED || (reply->kind == REPLY_FAILED && slot_cell(op->slot));
    if (slot_cookie(op->slot) && !still_queued)
        forget(l, op);
    if (reply->kind == REPLY_GRANTED && op->detached)
        detach(l, op);
    return true;
}

static bool submit(void *self, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    struct local *l = self;
    bool waits_in_background = op->in_background && op->queue;
    bool is_plain = !op->detached && !waits_in_background;
    bool is_new_acquire = op->verb == OP_ACQUIRE && !op->slot;
    bool is_last_release = op->verb == OP_RELEASE && !slot_cookie(op->slot);

    /* A plain op is one table operation and nothing else. */
    if (is_plain && is_new_acquire && !is_retired(l, false))
        return table_acquire(&l->table, &l->who, op, now, reply);
    if (is_plain && is_last_release)
        return table_release(&l->table, op, now, reply);

    return submit_any(l, op, now, reply);
}

static bool take_reply(void *self, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    struct local *l = self;
    assert(op && reply);
    if (!table_take_reply(&l->table, op, now, reply))
        return false;
    if (reply->kind != REPLY_GRANTED)
        return true;
    if (is_retired(l, true)) /* the granter had not noticed that the table was replaced */
        return answer_retired(reply, now, REPLY_FAILED);
    forget(l, op);
    if (op->detached)
        detach(l, op);
    return true;
}

static hf_status list(void *self, const struct admin_target *what, nanos now, hf_row_fn *fn,
                      void *arg)
{
    struct local *l = self;
    assert(what && fn);
    if (is_retired(l, true)) /* its rows would describe a table that is no longer in use */
        return error_set(HF_UNAVAILABLE, "%s: the table was deleted or replaced", l->table.path);
    return table_list(&l->table, what, now, fn, arg);
}

static hf_status break_hold(void *self, const struct admin_target *what, uint64_t token, nanos now)
{
    struct local *l = self;
    return table_break(&l->table, what, token, now);
}

static hf_status resize(void *self, const struct admin_target *what, uint32_t capacity, nanos now)
{
    struct local *l = self;
    return table_resize(&l->table, what, capacity, now);
}

/* ---- Sleeping ---- */

static nanos park(void *self, uint64_t slot, uint32_t seen, nanos until)
{
    struct local *l = self;
    assert(slot_cell(slot));
    futex_wait(&cell_at(&l->table, slot_cell(slot))->head.word, seen, until);
    return 0;
}

static void wake(void *self, uint64_t slot)
{
    struct local *l = self;
    futex_word *word = &cell_at(&l->table, slot_cell(slot))->head.word;
    atomic_fetch_add(word, 1);
    futex_wake_all(word);
}

/* A watcher stores the time until which it watches. So a table without watchers pays one load per
 * change, and a dead watcher costs nothing after that time. */
static void watch(void *self, uint32_t *seen, nanos until)
{
    struct local *l = self;
    assert(seen);
    struct table_state *state = l->table.state;
    nanos now = clock_boot(), again = now + NANOS_OF_MS(WATCH_FOR_MS) / 2;
    atomic_store(&state->watched_until, now + NANOS_OF_MS(WATCH_FOR_MS));
    futex_wait(&state->changes, *seen, until < again ? until : again);
    *seen = atomic_load(&state->changes);
}

/* Cleans up after a dead client. The kernel wakes only one watcher of a life word, and while the
 * ring changes there may be two. So the client that was woken does the clean-up, even if another
 * client is its neighbour by now. Returns false if it must try again. */
static bool reap_old_neighbour(struct local *l)
{
    assert(l->me);
    bool has_neighbour = l->knows_next && l->next;
    if (!has_neighbour || table_client_lives(&l->table, l->next))
        return true;

    return table_client_reap(&l->table, l->next) != REAP_LATER;
}

/* Returns when to check a neighbour that seems alive. The kernel wakes only one watcher of a life
 * word. That may be a thread of a killed client, which stays in the kernel's queue of the word
 * until it has ended, and does nothing with the wake. So after a clean-up checks come at doubling
 * intervals: they delay the next clean-up at most by the time that such a thread needed to end. A
 * new neighbour is checked twice within its first 100 ms, because its earlier watcher may not have
 * seen yet that the ring changed. After that idle clients sleep. */
static nanos next_check(const struct local *l)
{
    nanos now = clock_boot(), reaped_at = atomic_load(&l->table.state->reaped_at);
    bool was_reaped_since = reaped_at > l->next_since && reaped_at < now;
    nanos age = now - (was_reaped_since ? reaped_at : l->next_since);
    if (!was_reaped_since && age > NANOS_OF_MS(NEW_NEIGHBOUR_MS))
        return TIME_NEVER;

    nanos pause = was_reaped_since ? age : 7 * age, shortest = NANOS_OF_MS(POLL_EVERY_MS);
    return now + (pause > shortest ? pause : shortest);
}

/* Asks the registry which client to watch. Returns false if the registry could not be locked. */
static bool find_next(struct local *l)
{
    uint32_t before = l->next;
    if (table_client_next(&l->table, l->who.client, &l->next, &l->ring) != HF_OK)
        return false;

    if (l->next != before)
        l->next_since = clock_boot();
    return true;
}

/* Returns the value of the neighbour's life word to sleep on. Returns 0 and shortens *until if the
 * neighbour must be checked again soon. */
static uint32_t watch_neighbour(struct local *l, nanos *until)
{
    nanos soon = clock_boot() + NANOS_OF_MS(POLL_EVERY_MS);
    for (int reaped = 0; reaped < REAP_AT_ONCE; reaped++) {
        bool moved = l->ring != atomic_load(&l->table.state->ring);
        if (moved && !reap_old_neighbour(l)) {
            *until = soon < *until ? soon : *until;
            return 0;
        }
        if (!l->knows_next || moved)
            l->knows_next = find_next(l);
        if (l->knows_next && !l->next)
            return 0;
        if (l->knows_next) {
            uint32_t value = robust_mutex_watch(&cell_at(&l->table, l->next)->client.life);
            if (value &&
                !robust_mutex_is_mine(&l->table.owner, &cell_at(&l->table, l->next)->client.life)) {
                nanos check = l->no_waitv ? soon : next_check(l);
                *until = check < *until ? check : *until;
                return value;
            }
            enum reap_result done = table_client_reap(&l->table, l->next);
            /* After REAP_LATER this process owns the neighbour's life word: keep the neighbour
             * until the clean-up is done. */
            l->knows_next = done == REAP_LATER;
            if (done == REAP_DONE)
                continue;
        }
        break;
    }

    if (soon < *until)
        *until = soon;
    return 0;
}

static void sleep_on_wake_word(struct local *l, uint32_t woken, nanos until)
{
    assert(l->me);
    struct table_client *me = l->me;
    /* A wake does not reach a thread that sleeps on a page that was truncated away. */
    nanos longest = clock_boot() + NANOS_OF_MS(SLEEP_AT_MOST_MS);
    until = until < longest ? until : longest;
    uint32_t value = watch_neighbour(l, &until);
    if (atomic_load(&me->wake_word) != woken)
        return;
    if (value && !l->no_waitv) {
        futex_word *life = &cell_at(&l->table, l->next)->client.life.word;
        l->no_waitv = !futex_wait_two(&me->wake_word, woken, life, value, until);
    } else {
        futex_wait(&me->wake_word, woken, until);
    }
}

static void background_park(void *self, nanos until)
{
    struct local *l = self;
    assert(l->me && l->who.client);
    struct table_client *me = l->me;

    for (;;) {
        /* Load the word before the flags. If a flag is set after it was read, the word has changed,
         * and the sleep ends at once. */
        uint32_t woken = atomic_load(&me->wake_word);
        bool is_notified = atomic_load(&me->ready) != 0;
        if (is_notified)
            async_waiters_drain(&l->pending, &l->table, l->who.client, l->host->notify,
                                l->host->ctx);
        if (atomic_exchange(&me->rescan, 0)) {
            async_waiters_notify_all(&l->pending, l->host->notify, l->host->ctx);
            is_notified = true;
        }
        if (atomic_exchange(&me->recheck, 0)) {
            l->host->recheck(l->host->ctx);
            is_notified = true;
        }
        bool must_return = is_notified || atomic_exchange(&l->woken, false);
        if (must_return || clock_boot() >= until)
            return;
        sleep_on_wake_word(l, woken, until);
    }
}

static const char *const schemes[] = {"local", NULL};

static const struct setting_row setting_rows[] = {
#define SETTING SETTING_ROW
#include "local_settings.def"
#undef SETTING
};
static const struct setting_rows local_settings = {setting_rows,
                                                   sizeof setting_rows / sizeof *setting_rows};
static const struct setting_rows *const settings_of_local[] = {&local_settings, NULL};

const struct engine_type local_engine = {
    .name = "local",
    .schemes = schemes,
    .settings = settings_of_local,
    .limits =
        {
            .ttl_min_ms = 10,
            .ttl_max_ms = 24 * 3600 * 1000,
            .kinds = 1u << HF_EXCLUSIVE | 1u << HF_SEMAPHORE | 1u << HF_READ | 1u << HF_WRITE,
            .offers = ENGINE_QUEUES | ENGINE_CAN_DETACH | ENGINE_REENTRANT | ENGINE_CAN_RESIZE |
                      ENGINE_CAN_BREAK | ENGINE_CAN_CONVERT | ENGINE_FINDS_HOLDS,
        },
    .check = check_local,
    .open = open_local,
    .enter = enter_local,
    .leave = leave_local,
    .submit = submit,
    .take_reply = take_reply,
    .forget = forget,
    .park = park,
    .wake = wake,
    .background_park = background_park,
    .background_wake = background_wake,
    .list = list,
    .break_hold = break_hold,
    .resize = resize,
    .watch = watch,
    .close = close_local,
};
