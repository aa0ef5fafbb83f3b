/* late_reply_engine.h - an engine that answers when the test says so: never inside submit(). What
 * was submitted is seen by the test when it went out: when a caller parks, or by flush(); and it
 * keeps count of who forgot to say so. */
#pragma once
#include "lib/actors.h"

#include "base/url.h"
#include "client/client.h"
#include "sys/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64, NEWS = 8, REQUESTS = 1 << 16 };

/* One submit, as the engine was told. */
struct request {
    struct engine_op *op; /* to compare with, not to look at: its lease may be gone */
    enum op_verb verb;
    bool in_background, may_be_in_flight, out, read;
    int64_t ttl_ms;
    nanos at;
    unsigned slot;
    uint64_t life; /* of the slot */
};

/* Where an ask is kept. The word only rises, also from one ask to the next. */
struct slot {
    futex_word word;
    struct engine_op *op;
    uint64_t life;
    bool in_background;
    unsigned first, count;
    struct engine_reply reply[NEWS];
};

static struct later {
    pthread_mutex_t lock;
    const struct engine_host *host;
    struct slot slots[SLOTS]; /* 0 is none */
    struct request requests[REQUESTS];
    unsigned count, all_read; /* those below were looked at */
    futex_word changes; /* rises with every request that goes out, and when an ask is left to the
                           bell or forgotten */
    futex_word in_background;
    _Atomic bool woken,
        drags; /* it drags: a flush takes longer than the keeper gives a batch of callbacks */
    _Atomic unsigned parks, unattended, forgotten;
} later = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- The engine ---- */

static void tell_test(void)
{
    atomic_fetch_add(&later.changes, 1);
    futex_wake(&later.changes, INT32_MAX);
}

static void attend_wake_later(void *self)
{
    (void)self;
    atomic_store(&later.woken, true);
    atomic_fetch_add(&later.in_background, 1);
    futex_wake(&later.in_background, INT32_MAX);
}

/* There are news that nobody parks for. */
static void ring(struct engine_op *op)
{
    later.host->notify(later.host->ctx, op);
    attend_wake_later(&later);
}

static hf_status open_later(void **self, const struct url *url, const struct settings *settings,
                            const struct engine_host *host)
{
    (void)url, (void)settings;
    later.host = host;
    *self = &later;
    return HF_OK;
}

static hf_status enter_later(void *self)
{
    (void)self;
    return HF_OK;
}

static void leave_later(void *self)
{
    (void)self;
}

static unsigned slot_of(struct engine_op *op)
{
    if (op->slot)
        return (unsigned)op->slot;
    for (unsigned i = 1; i < SLOTS; i++) {
        struct slot *slot = &later.slots[i];
        if (slot->op)
            continue;
        slot->op = op;
        slot->life++;
        slot->count = 0;
        op->slot = i;
        return i;
    }
    abort();
}

static bool submit_later(void *self, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    (void)self, (void)reply;
    pthread_mutex_lock(&later.lock);
    if (later.count == REQUESTS)
        abort();
    unsigned i = slot_of(op);
    struct slot *slot = &later.slots[i];
    struct request request = {.op = op,
                              .verb = op->verb,
                              .in_background = op->in_background,
                              .may_be_in_flight = op->may_be_in_flight,
                              .at = now};
    request.ttl_ms = op->ttl_ms;
    request.slot = i;
    request.life = slot->life;
    later.requests[later.count++] = request;
    slot->in_background = op->in_background;
    op->seen = atomic_load(&slot->word);
    pthread_mutex_unlock(&later.lock);
    return false;
}

static void flush_later(void *self)
{
    (void)self;
    bool any = false;
    if (atomic_load(&later.drags))
        nap_us(1000);
    pthread_mutex_lock(&later.lock);
    for (unsigned i = later.count; i && !later.requests[i - 1].out; i--)
        any = later.requests[i - 1].out = true;
    pthread_mutex_unlock(&later.lock);
    if (any)
        tell_test();
}

static bool peek_later(void *self, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    (void)self, (void)now;
    pthread_mutex_lock(&later.lock);
    struct slot *slot = &later.slots[op->slot];
    bool some = slot->count;
    if (some) {
        *reply = slot->reply[slot->first++ % NEWS];
        slot->count--;
    }
    op->seen = atomic_load(&slot->word);
    pthread_mutex_unlock(&later.lock);
    return some;
}

static void unattend_later(void *self, struct engine_op *op)
{
    (void)self;
    pthread_mutex_lock(&later.lock);
    struct slot *slot = &later.slots[op->slot];
    slot->in_background = true;
    if (slot->count)
        ring(op);
    pthread_mutex_unlock(&later.lock);
    atomic_fetch_add(&later.unattended, 1);
    tell_test();
}

static void forget_later(void *self, struct engine_op *op)
{
    (void)self;
    pthread_mutex_lock(&later.lock);
    if (op->slot)
        later.slots[op->slot].op = NULL;
    op->slot = 0;
    pthread_mutex_unlock(&later.lock);
    atomic_fetch_add(&later.forgotten, 1);
    tell_test();
}

static nanos park_later(void *self, uint64_t slot, uint32_t seen, nanos until)
{
    flush_later(self);
    atomic_fetch_add(&later.parks, 1);
    futex_wait(&later.slots[slot].word, seen, until);
    return 0;
}

static void wake_later(void *self, uint64_t slot)
{
    (void)self;
    atomic_fetch_add(&later.slots[slot].word, 1);
    futex_wake(&later.slots[slot].word, INT32_MAX);
}

static void attend_later(void *self, nanos until)
{
    (void)self;
    for (;;) {
        uint32_t rung = atomic_load(&later.in_background);
        if (atomic_exchange(&later.woken, false) || clock_boot() >= until)
            return;
        futex_wait(&later.in_background, rung, until);
    }
}

static void close_later(void *self)
{
    (void)self;
    for (unsigned i = 1; i < SLOTS; i++)
        later.slots[i].op = NULL;
}

static const struct engine_type later_type = {
    .name = "later",
    .limits = {.ttl_min_ms = 10,
               .ttl_max_ms = 86400000,
               .drift_ppm = 10000,
               .drift_ms = 2,
               .kinds = 1u << HF_EXCLUSIVE | 1u << HF_READ | 1u << HF_WRITE,
               .offers =
                   ENGINE_QUEUES | ENGINE_REPLIES_LATER | ENGINE_CAN_DETACH | ENGINE_CAN_CONVERT},
    .open = open_later,
    .enter = enter_later,
    .leave = leave_later,
    .submit = submit_later,
    .flush = flush_later,
    .take_reply = peek_later,
    .detach_caller = unattend_later,
    .forget = forget_later,
    .park = park_later,
    .wake = wake_later,
    .background_park = attend_later,
    .background_wake = attend_wake_later,
    .close = close_later,
};

/* ---- The other side: what the server says ---- */

/* The first request of that verb that went out and was not looked at before; false: none. 0: any
 * verb. */
static inline bool take_request(enum op_verb verb, struct request *request)
{
    bool found = false;
    pthread_mutex_lock(&later.lock);
    while (later.all_read < later.count && later.requests[later.all_read].read)
        later.all_read++;
    for (unsigned i = later.all_read; i < later.count && !found; i++) {
        struct request *r = &later.requests[i];
        found = r->out && !r->read && (!verb || r->verb == verb);
        if (found) {
            r->read = true;
            *request = *r;
        }
    }
    pthread_mutex_unlock(&later.lock);
    return found;
}

static inline struct request await_request(enum op_verb verb)
{
    struct request request;
    nanos until = clock_boot() + NANOS_OF_MS(ACTOR_PATIENCE_MS);
    for (uint32_t seen; seen = atomic_load(&later.changes), !take_request(verb, &request);) {
        if (clock_boot() >= until)
            fail_msg("no request with verb %d went out", (int)verb);
        futex_wait(&later.changes, seen, until);
    }
    return request;
}

/* How many requests of that verb were submitted, whether they went out or not. */
static inline unsigned submitted(enum op_verb verb)
{
    unsigned count = 0;
    pthread_mutex_lock(&later.lock);
    for (unsigned i = 0; i < later.count; i++)
        count += later.requests[i].verb == verb;
    pthread_mutex_unlock(&later.lock);
    return count;
}

/* Tells the client, which may have forgotten the ask by now, so many news at once. */
static inline void say_all(const struct request *to, const struct engine_reply *reply,
                           unsigned count)
{
    pthread_mutex_lock(&later.lock);
    struct slot *slot = &later.slots[to->slot];
    bool known = slot->op == to->op && slot->life == to->life;
    for (unsigned i = 0; known && i < count && slot->count < NEWS; i++) {
        struct engine_reply *put = &slot->reply[(slot->first + slot->count++) % NEWS];
        *put = reply[i];
        put->asked_at = to->at;
    }
    if (known && slot->in_background)
        ring(slot->op);
    else if (known)
        wake_later(&later, to->slot);
    pthread_mutex_unlock(&later.lock);
}

static inline void say(const struct request *to, struct engine_reply reply)
{
    say_all(to, &reply, 1);
}

/* The usual words for each cue. */
static inline void reply(const struct request *to, enum reply_kind kind)
{
    struct engine_reply reply = {
        .kind = kind, .good = NANOS_OF_MS(to->ttl_ms), .token = 7, .retry_at = TIME_NEVER};
    reply.status = HF_UNAVAILABLE;
    if (kind == REPLY_FAILED)
        reply.text = "connection refused";
    say(to, reply);
}

static inline hf_client *open_with_later(bool no_thread)
{
    struct url url;
    hf_client *client;
    struct hf_client_options options = {
        .size = sizeof options, .no_environment = true, .no_thread = no_thread};
    assert_int_equal(url_parse(&url, "later:"), HF_OK);
    pthread_mutex_lock(&later.lock);
    later.count = later.all_read = 0;
    pthread_mutex_unlock(&later.lock);
    if (client_open_with(&later_type, &url, &options, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}
