/* local.c - the engine `local:`: a table in a shared memory file, in which processes of one machine meet. No server.
 *
 * The way through this folder: local.c is the door (engine.h). A verb goes to asking.c or lease.c, visits the shard of
 * its name (shard.c), finds the resource (resource.c) with its holders and waiters (holders.c) and the notes of past
 * ones (past.c), in cells (cells.c) of the file (table.c, layout.h). members.c knows the clients: who lives, who
 * watches whom, who buries the dead. pending.c is this process's own memory of the asks that wait for the bell.
 * oversee.c is for people: list, break, resize.
 *
 * Costs: an uncontended acquire or release is one shard mutex, one read of the clock (the release: of its last tick)
 * and no system call; a hand-over is one futex wake, made inside the mutex: a granter that dies before it leaves the
 * mutex marked, and the repair wakes. */
#include "engines/engine.h"

#include "base/settings.h"
#include "base/url.h"
#include "base/why.h"
#include "lease.h"
#include "members.h"
#include "pending.h"
#include "sys/clock.h"
#include "sys/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct hf_local {
    struct hf_table table;
    struct hf_asker who;
    struct hf_member *me; /* looked up once: whatever becomes of the table, sleeper and waker mean the same bell */
    const struct hf_host *host;
    struct hf_pending pending;
    _Atomic bool woken; /* attend_wake was called */
    /* The background thread's own: */
    uint32_t next, ring; /* whom it watches, and of which version of the ring that is */
    bool knows_next;
    bool no_waitv; /* the kernel cannot wait for two words: look every 10 ms */
};

enum { LOOK_EVERY_MS = 10, JOIN_TIMEOUT_MS = 500, WATCH_FOR_MS = 10000 };

/* ---- Opening and closing ---- */

static hf_status open_local(void **self, const struct hf_url *url, const struct hf_settings *settings,
                            const struct hf_host *host)
{
    *self = NULL;
    char path[sizeof((struct hf_table *)0)->path];
    hf_status status = hf_url_decode(url->body, strlen(url->body), path, sizeof path - 16);
    if (status != HF_OK)
        return hf_why(status, "local:%.80s%s: the path of a table: %s", url->body, strlen(url->body) > 80 ? "..." : "",
                      hf_why_text());
    if (path[0] && path[0] != '/')
        return hf_why(HF_CONFIG, "local:%s: the path of a table must be absolute", path);
    struct hf_local *l = calloc(1, sizeof *l);
    if (!l)
        return hf_why(HF_NO_MEMORY, "local: no memory for a client");
    status = hf_table_open(&l->table, path[0] ? path : NULL, (mode_t)settings->value[HF_SET_MODE]);
    if (status != HF_OK) {
        free(l);
        return status;
    }
    l->host = host;
    l->who.pid = hf_process_id();
    l->who.history = (uint32_t)settings->value[HF_SET_HISTORY];
    l->who.history_age = HF_MS(settings->value[HF_SET_HISTORY_AGE]);
    hf_pending_init(&l->pending);
    *self = l;
    return HF_OK;
}

static void close_local(void *self)
{
    struct hf_local *l = self;
    hf_table_close(&l->table);
    hf_pending_free(&l->pending);
    free(l);
}

static hf_status enter_local(void *self)
{
    struct hf_local *l = self;
    hf_status status = hf_member_join(&l->table, l->who.pid, hf_clock_boot() + HF_MS(JOIN_TIMEOUT_MS), &l->who.member);
    if (status == HF_OK)
        l->me = &hf_cell_at(&l->table, l->who.member)->member;
    return status;
}

static void leave_local(void *self)
{
    struct hf_local *l = self;
    hf_member_leave(&l->table, l->who.member);
}

/* ---- Verbs ---- */

static void retire(struct hf_local *l)
{
    hf_why(HF_LOST, "%s: the table was deleted or replaced", l->table.path);
    atomic_store(&l->table.state->retired, 1);
    l->host->lost_all(l->host->ctx, HF_LOST, hf_why_text());
}

__attribute__((noinline)) static bool look_whether_retired(struct hf_local *l)
{
    if (!atomic_load_explicit(&l->table.state->retired, memory_order_relaxed) && hf_table_in_place(&l->table))
        return false;
    retire(l);
    return true;
}

/* One load; the stat is made where time has passed anyway. */
static inline bool is_retired(struct hf_local *l, bool look)
{
    bool known = atomic_load_explicit(&l->table.state->retired, memory_order_relaxed);
    return (look || known) && look_whether_retired(l);
}

static bool answer_retired(struct hf_news *news, hf_nanos now, enum hf_cue cue)
{
    *news = (struct hf_news){
        .cue = cue, .asked_at = now, .retry_at = HF_NEVER, .status = HF_UNAVAILABLE, .text = hf_why_text()};
    return true;
}

static void forget(void *self, struct hf_ask *ask)
{
    struct hf_local *l = self;
    if (!hf_slot_cookie(ask->slot))
        return;
    hf_pending_remove(&l->pending, hf_slot_cookie(ask->slot));
    ask->slot = hf_slot(hf_slot_cell(ask->slot), 0);
}

static void attend_wake(void *self)
{
    struct hf_local *l = self;
    atomic_store(&l->woken, true);
    hf_member_ring_bell(l->me);
}

/* Once nobody answers for the cell it may become something else at any time, so it must be off our ready list. */
static void detach(struct hf_local *l, struct hf_ask *ask)
{
    if (hf_lease_detach(&l->table, ask, false))
        return;
    hf_pending_drain(&l->pending, &l->table, l->who.member, l->host->nudge, l->host->ctx);
    attend_wake(l); /* for those that were nudged beside it */
    hf_lease_detach(&l->table, ask, true);
}

/* An ask whose news come by the bell needs a cookie. */
static bool add_cookie(struct hf_local *l, struct hf_ask *ask)
{
    uint32_t cookie = hf_pending_add(&l->pending, ask);
    ask->slot = hf_slot(hf_slot_cell(ask->slot), cookie);
    return cookie != 0;
}

static bool answer_no_memory(struct hf_news *news, hf_nanos now)
{
    hf_why(HF_NO_MEMORY, "no memory to wait");
    *news = (struct hf_news){
        .cue = HF_N_FAILED, .asked_at = now, .retry_at = HF_NEVER, .status = HF_NO_MEMORY, .text = hf_why_text()};
    return true;
}

/* The verbs of a hold on which time has passed. */
static void submit_later(struct hf_local *l, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    if (ask->verb == HF_V_LEAVE) {
        hf_lease_leave(&l->table, ask, now, news);
        if (news->cue == HF_N_GRANTED && is_retired(l, true)) /* as in peek() */
            answer_retired(news, now, HF_N_FAILED);
    } else if (is_retired(l, true)) {
        answer_retired(news, now, HF_N_GONE);
    } else if (ask->verb == HF_V_EXTEND || ask->verb == HF_V_CHECK) {
        hf_lease_extend(&l->table, ask, now, ask->verb == HF_V_CHECK, news);
    } else {
        hf_lease_convert(&l->table, ask, now, news);
    }
}

__attribute__((noinline)) static bool submit_any(struct hf_local *l, struct hf_ask *ask, hf_nanos now,
                                                 struct hf_news *news)
{
    if (ask->verb == HF_V_ACQUIRE) {
        if (is_retired(l, hf_slot_cell(ask->slot) != 0))
            return answer_retired(news, now, HF_N_FAILED);
        if (ask->bell && ask->queue && !hf_slot_cookie(ask->slot) && !add_cookie(l, ask))
            return answer_no_memory(news, now);
        hf_lease_ask(&l->table, &l->who, ask, now, news);
    } else if (ask->verb == HF_V_RELEASE) {
        hf_lease_release(&l->table, ask, now, news);
    } else {
        submit_later(l, ask, now, news);
    }
    if (hf_slot_cookie(ask->slot) && news->cue != HF_N_QUEUED && !(news->cue == HF_N_FAILED && hf_slot_cell(ask->slot)))
        forget(l, ask);
    if (news->cue == HF_N_GRANTED && ask->detached)
        detach(l, ask);
    return true;
}

static bool submit(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    struct hf_local *l = self;
    bool alone = !ask->detached && !(ask->bell && ask->queue); /* else there is more to do than the verb itself */
    if (alone && ask->verb == HF_V_ACQUIRE && !ask->slot && !is_retired(l, false))
        return hf_lease_ask(&l->table, &l->who, ask, now, news);
    if (alone && ask->verb == HF_V_RELEASE && !hf_slot_cookie(ask->slot))
        return hf_lease_release(&l->table, ask, now, news);
    return submit_any(l, ask, now, news);
}

static bool peek(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    struct hf_local *l = self;
    if (!hf_lease_peek(&l->table, ask, now, news))
        return false;
    if (news->cue != HF_N_GRANTED)
        return true;
    if (is_retired(l, true)) /* handed on by somebody who had not noticed */
        return answer_retired(news, now, HF_N_FAILED);
    forget(l, ask);
    if (ask->detached)
        detach(l, ask);
    return true;
}

static hf_status list(void *self, const struct hf_seen *what, hf_nanos now, hf_row_fn *fn, void *arg)
{
    struct hf_local *l = self;
    if (is_retired(l, true)) /* what is seen there concerns nobody any more */
        return hf_why(HF_UNAVAILABLE, "%s: the table was deleted or replaced", l->table.path);
    return hf_lease_list(&l->table, what, now, fn, arg);
}

static hf_status break_hold(void *self, const struct hf_seen *what, uint64_t token, hf_nanos now)
{
    struct hf_local *l = self;
    return hf_lease_break(&l->table, what, token, now);
}

static hf_status resize(void *self, const struct hf_seen *what, uint32_t capacity, hf_nanos now)
{
    struct hf_local *l = self;
    return hf_lease_resize(&l->table, what, capacity, now);
}

/* ---- Sleeping ---- */

static hf_nanos park(void *self, uint64_t slot, uint32_t seen, hf_nanos until)
{
    struct hf_local *l = self;
    hf_futex_wait(&hf_cell_at(&l->table, hf_slot_cell(slot))->head.word, seen, until);
    return 0;
}

static void wake(void *self, uint64_t slot)
{
    struct hf_local *l = self;
    hf_word *word = &hf_cell_at(&l->table, hf_slot_cell(slot))->head.word;
    atomic_fetch_add(word, 1);
    hf_futex_wake(word, 1);
}

/* A table that nobody watches pays one load a change for it. A watcher says until when it watches, so that one that
 * dies costs nothing for longer than that. */
static void watch(void *self, uint32_t *seen, hf_nanos until)
{
    struct hf_local *l = self;
    struct hf_local_state *state = l->table.state;
    hf_nanos now = hf_clock_boot(), again = now + HF_MS(WATCH_FOR_MS) / 2;
    atomic_store(&state->watched_until, now + HF_MS(WATCH_FOR_MS));
    hf_futex_wait(&state->changes, *seen, until < again ? until : again);
    *seen = atomic_load(&state->changes);
}

/* The kernel wakes one watcher of a life word, and while the ring changes there may be two: a death that we were woken
 * for is ours to deal with, even if another one is our neighbour now. False: it could not be done yet. */
static bool bury_old_neighbour(struct hf_local *l)
{
    if (!l->knows_next || !l->next || hf_member_lives(&l->table, l->next))
        return true;
    return hf_member_bury(&l->table, l->next) != HF_BURIAL_LATER;
}

/* Watches the neighbour: the value of its life word to sleep on, or 0 with *until moved up when it must be looked at
 * again. */
static uint32_t watch_neighbour(struct hf_local *l, hf_nanos *until)
{
    hf_nanos soon = hf_clock_boot() + HF_MS(LOOK_EVERY_MS);
    for (;;) {
        bool moved = l->ring != atomic_load(&l->table.state->ring);
        if (moved && !bury_old_neighbour(l)) {
            *until = soon < *until ? soon : *until;
            return 0;
        }
        if (!l->knows_next || moved)
            l->knows_next = hf_member_next(&l->table, l->who.member, &l->next, &l->ring) == HF_OK;
        if (l->knows_next && !l->next)
            return 0;
        if (l->knows_next) {
            uint32_t value = hf_robust_watch(&hf_cell_at(&l->table, l->next)->member.life);
            if (value && !hf_robust_mine(&hf_cell_at(&l->table, l->next)->member.life)) {
                if (l->no_waitv && soon < *until)
                    *until = soon;
                return value;
            }
            enum hf_burial done = hf_member_bury(&l->table, l->next);
            l->knows_next = done == HF_BURIAL_LATER; /* its life word may be ours already: it must not be forgotten */
            if (done == HF_BURIAL_DONE)
                continue;
        }
        if (soon < *until)
            *until = soon;
        return 0;
    }
}

static void sleep_by_bell(struct hf_local *l, uint32_t rung, hf_nanos until)
{
    struct hf_member *me = l->me;
    uint32_t value = watch_neighbour(l, &until);
    if (atomic_load(&me->bell) != rung)
        return;
    if (value && !l->no_waitv) {
        hf_word *life = hf_robust_word(&hf_cell_at(&l->table, l->next)->member.life);
        l->no_waitv = !hf_futex_wait_two(&me->bell, rung, life, value, until);
    } else {
        hf_futex_wait(&me->bell, rung, until);
    }
}

static void attend(void *self, hf_nanos until)
{
    struct hf_local *l = self;
    struct hf_member *me = l->me;
    for (;;) {
        uint32_t rung = atomic_load(&me->bell); /* before everything that a ring announces */
        bool told = atomic_load(&me->ready) != 0;
        if (told)
            hf_pending_drain(&l->pending, &l->table, l->who.member, l->host->nudge, l->host->ctx);
        if (atomic_exchange(&me->rescan, 0)) {
            hf_pending_nudge_all(&l->pending, l->host->nudge, l->host->ctx);
            told = true;
        }
        if (atomic_exchange(&me->recheck, 0)) {
            l->host->recheck(l->host->ctx);
            told = true;
        }
        if (told || atomic_exchange(&l->woken, false) || hf_clock_boot() >= until)
            return;
        sleep_by_bell(l, rung, until);
    }
}

static const char *const schemes[] = {"local", NULL};

const struct hf_engine_type hf_engine_local = {
    .name = "local",
    .schemes = schemes,
    .limits =
        {
            .ttl_min_ms = 10,
            .ttl_max_ms = 24 * 3600 * 1000,
            .kinds = 1u << HF_EXCLUSIVE | 1u << HF_SEMAPHORE | 1u << HF_READ | 1u << HF_WRITE,
            .offers = HF_QUEUES | HF_CAN_DETACH | HF_REENTRANT | HF_CAN_RESIZE | HF_CAN_BREAK | HF_CAN_CONVERT,
        },
    .open = open_local,
    .enter = enter_local,
    .leave = leave_local,
    .submit = submit,
    .peek = peek,
    .forget = forget,
    .park = park,
    .wake = wake,
    .attend = attend,
    .attend_wake = attend_wake,
    .list = list,
    .break_hold = break_hold,
    .resize = resize,
    .watch = watch,
    .close = close_local,
};
