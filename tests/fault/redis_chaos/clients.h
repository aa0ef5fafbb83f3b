/* clients.h - what each process does until it is killed or all is over: it takes a lock, a part of a semaphore or a
 * lock for readers and writers, works, gives back, and writes down what it saw, for history_check to judge. */
#pragma once
#include "fault/history.h"
#include "outcomes.h"

enum {
    CLIENTS = 5,
    SLACK_MS = 1000,  /* for a call to be let run, on a machine with much else to do */
    REACH_MS = 300,   /* a hand-over may outlast a short ttl by that much: the waiter's next look, and a grace */
    OP_LEAST_MS = 50, /* what one request may take */
    LAST_WORDS = 4,   /* requests that may follow the end of a wait */
    SEATS = 3,
    READERS = 1000, /* a writer is as many in the history */
};

struct shared {
    int log;
    _Atomic bool over;
    _Atomic unsigned grants, refusals, lost, extended;
    _Atomic unsigned seats, readers, writers; /* of the grants */
    _Atomic int64_t stopped_ns[CLIENTS];      /* how long each stood still so far */
};

struct part {
    struct shared *shared;
    unsigned number;
    char url[160];
};

/* ---- What is written down ---- */

struct holding {
    struct part *part;
    hf_lease *lease;
    char name[40];
    struct want want;
    int64_t ttl_ms, reach_ms, asked;
    _Atomic unsigned *losses;
};

#define NOTE(part, ...) part_must(history_note((part)->shared->log, __VA_ARGS__))

static inline void note(const struct holding *h, const char *what, int64_t time)
{
    NOTE(h->part, "%s %s %llu %lld\n", what, h->name, (unsigned long long)hf_lease_token(h->lease), (long long)time);
}

/* A call into the library that should return within a time. That in which the process stood still does not count. */
struct call {
    const struct holding *h;
    const char *what;
    unsigned number;
    int64_t from, stopped, within_ms;
};

static inline int64_t stopped_so_far(const struct part *part)
{
    return atomic_load(&part->shared->stopped_ns[part->number]);
}

static inline struct call begin_call(const struct holding *h, const char *what, int64_t wait_ms)
{
    static unsigned calls;
    int64_t op_ms = h->ttl_ms / 20 > OP_LEAST_MS ? h->ttl_ms / 20 : OP_LEAST_MS;
    struct call c = {.h = h, .what = what, .number = calls++, .stopped = stopped_so_far(h->part), .from = now_ns()};
    c.within_ms = wait_ms + LAST_WORDS * op_ms + SLACK_MS;
    NOTE(h->part, "call %s.%s%u 0 %lld\n", h->name, what, c.number, (long long)c.from);
    return c;
}

static inline void end_call(const struct call *c)
{
    int64_t time = now_ns(), stood = stopped_so_far(c->h->part) - c->stopped;
    NOTE(c->h->part, "return %s.%s%u 0 %lld %lld\n", c->h->name, c->what, c->number, (long long)time,
         (long long)(c->from + stood + c->within_ms * 1000000));
}

/* It is good now if it is good a little later. */
static inline bool note_valid(const struct holding *h)
{
    int64_t time = now_ns();
    if (hf_lease_left_ms(h->lease) <= 0)
        return false;
    note(h, "valid", time);
    return true;
}

static inline void note_grant(const struct holding *h, int64_t time)
{
    struct shared *s = h->part->shared;
    hf_kind what = h->want.kind;
    bool reads = what == HF_READ, seats = what == HF_SEMAPHORE;
    unsigned capacity = seats ? SEATS : READERS;
    NOTE(h->part, "grant %s %llu %lld %lld %lld %s %u %u\n", h->name, (unsigned long long)hf_lease_token(h->lease),
         (long long)time, (long long)h->asked, (long long)h->reach_ms * 1000000, h->want.name,
         seats   ? h->want.units
         : reads ? 1
                 : capacity,
         capacity);
    atomic_fetch_add(&s->grants, 1);
    atomic_fetch_add(&s->seats, seats);
    atomic_fetch_add(&s->readers, reads);
    atomic_fetch_add(&s->writers, what == HF_WRITE);
}

/* ---- One hold ---- */

static inline void extend(const struct holding *h)
{
    struct call c = begin_call(h, "extend", 0);
    hf_status status = hf_extend(h->lease, h->ttl_ms);
    end_call(&c);
    part_must(status == HF_OK || status == HF_LOST || status == HF_IN_DOUBT || status == HF_UNAVAILABLE ||
              status == HF_FULL);
    atomic_fetch_add(&h->part->shared->extended, status == HF_OK);
}

/* Many are brief; some last for as long as they are good, where a belief that is too long shows. */
static inline void work(const struct holding *h)
{
    int64_t ms = draw(5) ? draw(20) : draw(1000), until = now_ns() + ms * 1000000;
    bool extends = draw(3) == 0;
    while (note_valid(h) && now_ns() < until) {
        nap_us(200 + draw(3000));
        if (extends && draw(30) == 0)
            extend(h);
    }
}

static inline void count_loss(hf_lease *lease, hf_status why, void *losses)
{
    (void)lease, (void)why;
    atomic_fetch_add((_Atomic unsigned *)losses, 1);
}

static inline bool may_refuse(hf_status status)
{
    return status == HF_TIMEOUT || status == HF_BUSY || status == HF_UNAVAILABLE || status == HF_IN_DOUBT ||
           status == HF_FULL || status == HF_CANCELLED;
}

/* Half of them want the lock. */
static inline struct want draw_want(int64_t ttl_ms)
{
    struct want want = {.name = "job", .ttl_ms = ttl_ms, .wait_ms = draw(4) ? draw(2500) : 0};
    uint32_t which = draw(4), units = 1 + draw(SEATS);
    bool writes = draw(3) == 0;
    want.flags = draw(3) ? 0 : HF_AUTO_RENEW;
    if (which == 2) {
        want.name = "seats";
        want.kind = HF_SEMAPHORE;
        want.units = units;
        want.capacity = SEATS;
    } else if (which == 3) {
        want.name = "page";
        want.kind = writes ? HF_WRITE : HF_READ;
    }
    return want;
}

static inline hf_status acquire(struct holding *h, hf_client *client)
{
    struct want want = h->want = draw_want(h->ttl_ms);
    struct hf_request request = request_of(&want);
    request.on_lost = count_loss;
    request.lost_arg = h->losses;
    struct call c = begin_call(h, "acquire", want.wait_ms);
    h->asked = c.from;
    hf_status status = draw(4) ? hf_acquire(client, &request, &h->lease) : acquire_later(client, &request, &h->lease);
    end_call(&c);
    if (status != HF_OK && !may_refuse(status))
        print_error("%s: %s: %s\n", h->name, hf_status_name(status), hf_error_text());
    part_must(status == HF_OK || may_refuse(status));
    return status;
}

static inline void give_back(const struct holding *h)
{
    note(h, "end", now_ns());
    struct call c = begin_call(h, "release", 0);
    hf_status status = hf_release(h->lease);
    end_call(&c);
    part_must(status == HF_OK || status == HF_NOT_HELD || status == HF_LOST || status == HF_IN_DOUBT);
    unsigned losses = atomic_load(h->losses);
    part_must(losses <= 1);
    atomic_fetch_add(&h->part->shared->lost, losses);
    hf_lease_free(h->lease);
}

static inline void hold_once(struct part *part, hf_client *client, unsigned round)
{
    static _Atomic unsigned losses[ROUNDS];
    struct holding h = {.part = part, .ttl_ms = 100 + draw(400), .losses = &losses[round]};
    h.reach_ms = h.ttl_ms + REACH_MS;
    snprintf(h.name, sizeof h.name, "%u-%d-%u", part->number, (int)getpid(), round);
    if (acquire(&h, client) != HF_OK) {
        atomic_fetch_add(&part->shared->refusals, 1);
        nap_us(2000 + draw(20000));
        return;
    }
    int64_t time = now_ns();
    if (hf_lease_left_ms(h.lease) > 0) {
        note_grant(&h, time);
        work(&h);
        give_back(&h);
    } else {
        hf_lease_free(h.lease);
    }
}

static inline void play(struct actor *me, void *arg)
{
    struct part *part = arg;
    hf_client *client;
    draw_apart();
    part_must(hf_open(part->url, NULL, &client) == HF_OK);
    part_says(me, &(struct answer){.what = ORDER_GO});
    for (unsigned round = 0; round < ROUNDS && !atomic_load(&part->shared->over); round++)
        hold_once(part, client, round);
    hf_status closed = hf_close(client, 5000);
    part_says(me, &(struct answer){.what = ORDER_CLOSE, .status = closed});
}
