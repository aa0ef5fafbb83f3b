/* later_engine.h - an engine that answers when the test says so: never inside submit(). What was submitted is seen by
 * the test when it went out: when a caller parks, or by flush(); and it keeps count of who forgot to say so. */
#pragma once
#include "actors.h"

#include "base/url.h"
#include "client/client.h"
#include "sys/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64, NEWS = 8, REQUESTS = 1 << 16 };

/* One submit, as the engine was told. */
struct request {
    struct hf_ask *ask; /* to compare with, not to look at: its lease may be gone */
    enum hf_verb verb;
    bool bell, doubt, out, read;
    int64_t ttl_ms;
    hf_nanos at;
    unsigned slot;
    uint64_t life; /* of the slot */
};

/* Where an ask is kept. The word only rises, also from one ask to the next. */
struct slot {
    hf_word word;
    struct hf_ask *ask;
    uint64_t life;
    bool bell;
    unsigned first, count;
    struct hf_news news[NEWS];
};

static struct later {
    pthread_mutex_t lock;
    const struct hf_host *host;
    struct slot slots[SLOTS]; /* 0 is none */
    struct request requests[REQUESTS];
    unsigned count, all_read; /* those below were looked at */
    hf_word changes; /* rises with every request that goes out, and when an ask is left to the bell or forgotten */
    hf_word bell;
    _Atomic bool woken, drags; /* it drags: a flush takes longer than the keeper gives a batch of callbacks */
    _Atomic unsigned parks, unattended, forgotten;
} later = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- The engine ---- */

static void tell_test(void)
{
    atomic_fetch_add(&later.changes, 1);
    hf_futex_wake(&later.changes, INT32_MAX);
}

static void attend_wake_later(void *self)
{
    (void)self;
    atomic_store(&later.woken, true);
    atomic_fetch_add(&later.bell, 1);
    hf_futex_wake(&later.bell, INT32_MAX);
}

/* There are news that nobody parks for. */
static void ring(struct hf_ask *ask)
{
    later.host->nudge(later.host->ctx, ask);
    attend_wake_later(&later);
}

static hf_status open_later(void **self, const struct hf_url *url, const struct hf_settings *settings,
                            const struct hf_host *host)
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

static unsigned slot_of(struct hf_ask *ask)
{
    if (ask->slot)
        return (unsigned)ask->slot;
    for (unsigned i = 1; i < SLOTS; i++) {
        struct slot *slot = &later.slots[i];
        if (slot->ask)
            continue;
        slot->ask = ask;
        slot->life++;
        slot->count = 0;
        ask->slot = i;
        return i;
    }
    abort();
}

static bool submit_later(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    (void)self, (void)news;
    pthread_mutex_lock(&later.lock);
    if (later.count == REQUESTS)
        abort();
    unsigned i = slot_of(ask);
    struct slot *slot = &later.slots[i];
    struct request request = {.ask = ask, .verb = ask->verb, .bell = ask->bell, .doubt = ask->doubt, .at = now};
    request.ttl_ms = ask->ttl_ms;
    request.slot = i;
    request.life = slot->life;
    later.requests[later.count++] = request;
    slot->bell = ask->bell;
    ask->seen = atomic_load(&slot->word);
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

static bool peek_later(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    (void)self, (void)now;
    pthread_mutex_lock(&later.lock);
    struct slot *slot = &later.slots[ask->slot];
    bool some = slot->count;
    if (some) {
        *news = slot->news[slot->first++ % NEWS];
        slot->count--;
    }
    ask->seen = atomic_load(&slot->word);
    pthread_mutex_unlock(&later.lock);
    return some;
}

static void unattend_later(void *self, struct hf_ask *ask)
{
    (void)self;
    pthread_mutex_lock(&later.lock);
    struct slot *slot = &later.slots[ask->slot];
    slot->bell = true;
    if (slot->count)
        ring(ask);
    pthread_mutex_unlock(&later.lock);
    atomic_fetch_add(&later.unattended, 1);
    tell_test();
}

static void forget_later(void *self, struct hf_ask *ask)
{
    (void)self;
    pthread_mutex_lock(&later.lock);
    if (ask->slot)
        later.slots[ask->slot].ask = NULL;
    ask->slot = 0;
    pthread_mutex_unlock(&later.lock);
    atomic_fetch_add(&later.forgotten, 1);
    tell_test();
}

static hf_nanos park_later(void *self, uint64_t slot, uint32_t seen, hf_nanos until)
{
    flush_later(self);
    atomic_fetch_add(&later.parks, 1);
    hf_futex_wait(&later.slots[slot].word, seen, until);
    return 0;
}

static void wake_later(void *self, uint64_t slot)
{
    (void)self;
    atomic_fetch_add(&later.slots[slot].word, 1);
    hf_futex_wake(&later.slots[slot].word, INT32_MAX);
}

static void attend_later(void *self, hf_nanos until)
{
    (void)self;
    for (;;) {
        uint32_t rung = atomic_load(&later.bell);
        if (atomic_exchange(&later.woken, false) || hf_clock_boot() >= until)
            return;
        hf_futex_wait(&later.bell, rung, until);
    }
}

static void close_later(void *self)
{
    (void)self;
    for (unsigned i = 1; i < SLOTS; i++)
        later.slots[i].ask = NULL;
}

static const struct hf_engine_type later_type = {
    .name = "later",
    .limits = {.ttl_min_ms = 10,
               .ttl_max_ms = 86400000,
               .drift_ppm = 10000,
               .drift_ms = 2,
               .kinds = 1u << HF_EXCLUSIVE | 1u << HF_READ | 1u << HF_WRITE,
               .offers = HF_QUEUES | HF_LATER | HF_CAN_DETACH | HF_CAN_CONVERT},
    .open = open_later,
    .enter = enter_later,
    .leave = leave_later,
    .submit = submit_later,
    .flush = flush_later,
    .peek = peek_later,
    .unattend = unattend_later,
    .forget = forget_later,
    .park = park_later,
    .wake = wake_later,
    .attend = attend_later,
    .attend_wake = attend_wake_later,
    .close = close_later,
};

/* ---- The other side: what the server says ---- */

/* The first request of that verb that went out and was not looked at before; false: none. 0: any verb. */
static inline bool take_request(enum hf_verb verb, struct request *request)
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

static inline struct request await_request(enum hf_verb verb)
{
    struct request request;
    hf_nanos until = hf_clock_boot() + HF_MS(ACTOR_PATIENCE_MS);
    for (uint32_t seen; seen = atomic_load(&later.changes), !take_request(verb, &request);) {
        if (hf_clock_boot() >= until)
            fail_msg("no request with verb %d went out", (int)verb);
        hf_futex_wait(&later.changes, seen, until);
    }
    return request;
}

/* How many requests of that verb were submitted, whether they went out or not. */
static inline unsigned submitted(enum hf_verb verb)
{
    unsigned count = 0;
    pthread_mutex_lock(&later.lock);
    for (unsigned i = 0; i < later.count; i++)
        count += later.requests[i].verb == verb;
    pthread_mutex_unlock(&later.lock);
    return count;
}

/* Tells the client, which may have forgotten the ask by now, so many news at once. */
static inline void say_all(const struct request *to, const struct hf_news *news, unsigned count)
{
    pthread_mutex_lock(&later.lock);
    struct slot *slot = &later.slots[to->slot];
    bool known = slot->ask == to->ask && slot->life == to->life;
    for (unsigned i = 0; known && i < count && slot->count < NEWS; i++) {
        struct hf_news *put = &slot->news[(slot->first + slot->count++) % NEWS];
        *put = news[i];
        put->asked_at = to->at;
    }
    if (known && slot->bell)
        ring(slot->ask);
    else if (known)
        wake_later(&later, to->slot);
    pthread_mutex_unlock(&later.lock);
}

static inline void say(const struct request *to, struct hf_news news)
{
    say_all(to, &news, 1);
}

/* The usual words for each cue. */
static inline void reply(const struct request *to, enum hf_cue cue)
{
    struct hf_news news = {.cue = cue, .good = HF_MS(to->ttl_ms), .token = 7, .retry_at = HF_NEVER};
    news.status = HF_UNAVAILABLE;
    if (cue == HF_N_FAILED)
        news.text = "connection refused";
    say(to, news);
}

static inline hf_client *open_with_later(bool no_thread)
{
    struct hf_url url;
    hf_client *client;
    struct hf_client_options options = {.size = sizeof options, .no_environment = true, .no_thread = no_thread};
    assert_int_equal(hf_url_parse(&url, "later:"), HF_OK);
    pthread_mutex_lock(&later.lock);
    later.count = later.all_read = 0;
    pthread_mutex_unlock(&later.lock);
    if (hf_client_open_with(&later_type, &url, &options, &client) != HF_OK)
        fail_msg("%s", hf_error_text());
    return client;
}
