/* chaos_clients.h - what each process does until it is killed or all is over: it takes a lock, a
 * part of a semaphore or a lock for readers and writers, works, gives back, and writes down what it
 * saw, for the judge of histories. */
#pragma once
#include "chaos_outcomes.h"
#include "checker/history_recording.h"

enum {
    CLIENTS = 5,
    SLACK_MS = 1000, /* for a call to be let run, on a machine with much else to do */
    REACH_MS = 300, /* a hand-over may outlast a short ttl by that much: the waiter's next look, and
                       a grace */
    OP_LEAST_MS = 50, /* what one request may take */
    LAST_WORDS = 4,   /* requests that may follow the end of a wait */
    SEATS = 3,
    READERS = 1000,     /* a writer is as many in the history */
    NEWS_NS = 10000000, /* a belief that reaches that much further is written down */
};

enum { JOB, PLACES, PAGE }; /* the locks: a number each */

struct shared {
    struct recording *told;
    _Atomic bool over;
    _Atomic unsigned grants, refusals, lost, extended;
    _Atomic unsigned seats, readers, writers; /* of the grants */
};

struct part {
    struct shared *shared;
    unsigned number, life;
    char url[160];
};

/* ---- What is written down ---- */

struct holding {
    struct part *part;
    hf_lease *lease;
    uint32_t number; /* in the history */
    struct want want;
    int64_t ttl_ms, asked, until;
    struct loss *loss;
};

#define TELL(h, ...)                                                                               \
    RECORD((h)->part->shared->told, .at = now_ns(), .who = (h)->number, __VA_ARGS__)

/* So much later than it should a call may return: what it has to ask after that, and a machine with
 * much else to do. */
static inline int64_t slack_ns(const struct holding *h)
{
    int64_t op_ms = h->ttl_ms / 20 > OP_LEAST_MS ? h->ttl_ms / 20 : OP_LEAST_MS;
    return (LAST_WORDS * op_ms + SLACK_MS) * 1000000LL;
}

static inline void tell_ask(struct holding *h)
{
    hf_kind kind = h->want.kind;
    bool reads = kind == HF_READ, seats = kind == HF_SEMAPHORE, pages = reads || kind == HF_WRITE;
    uint32_t capacity = seats ? SEATS : READERS;
    h->asked = now_ns();
    RECORD(h->part->shared->told, .at = h->asked, .what = H_ASKED, .who = h->number,
           .process = h->part->number, .life = h->part->life,
           .lock = seats   ? PLACES
                   : pages ? PAGE
                           : JOB,
           .units = seats   ? h->want.units
                    : reads ? 1
                            : capacity,
           .capacity = capacity, .owner = h->number, .other = H_NOBODY,
           .until = h->asked + h->want.wait_ms * 1000000, .slack = slack_ns(h),
           .reach = (h->ttl_ms + REACH_MS) * 1000000);
}

/* It returns when what it is asked to do at once is done. */
static inline int64_t tell_call(const struct holding *h)
{
    int64_t from = now_ns();
    TELL(h, .what = H_CALLED, .until = from, .slack = slack_ns(h));
    return from;
}

/* Until when it is good, as it says itself; 0: it is not. */
static inline int64_t good_until(const struct holding *h)
{
    int64_t time = now_ns(), left_ms = hf_lease_left_ms(h->lease);
    return left_ms > 0 ? time + left_ms * 1000000 : 0;
}

/* `yes`: when that was asked for which was just answered; 0: nothing was. */
static inline bool tell_belief(struct holding *h, int64_t yes)
{
    int64_t time = now_ns(), until = good_until(h);
    if (until && (yes || until > h->until + NEWS_NS)) {
        RECORD(h->part->shared->told, .at = time, .what = H_BELIEVES, .who = h->number,
               .token = hf_lease_token(h->lease), .from = yes, .until = until);
        h->until = until;
    }
    return until;
}

static inline void count_grant(const struct holding *h)
{
    struct shared *s = h->part->shared;
    atomic_fetch_add(&s->grants, 1);
    atomic_fetch_add(&s->seats, h->want.kind == HF_SEMAPHORE);
    atomic_fetch_add(&s->readers, h->want.kind == HF_READ);
    atomic_fetch_add(&s->writers, h->want.kind == HF_WRITE);
}

/* ---- One hold ---- */

static inline void extend(struct holding *h)
{
    int64_t from = tell_call(h);
    TELL(h, .what = H_EXTENDS, .reach = (h->ttl_ms + REACH_MS) * 1000000);
    hf_status status = hf_extend(h->lease, h->ttl_ms);
    TELL(h, .what = H_RETURNED);
    part_must(status == HF_OK || status == HF_LOST || status == HF_IN_DOUBT ||
              status == HF_UNAVAILABLE || status == HF_FULL);
    if (status == HF_OK)
        tell_belief(h, from);
    atomic_fetch_add(&h->part->shared->extended, status == HF_OK);
}

/* Many are brief; some last for as long as they are good, where a belief that is too long shows. */
static inline void work(struct holding *h)
{
    int64_t ms = draw(5) ? draw(20) : draw(1000), until = now_ns() + ms * 1000000;
    bool extends = draw(3) == 0;
    while (tell_belief(h, 0) && now_ns() < until) {
        nap_us(200 + draw(3000));
        if (extends && draw(30) == 0)
            extend(h);
    }
}

/* One for each round: it may be told of when that is long over. */
struct loss {
    struct recording *told;
    uint32_t number;
    _Atomic unsigned times;
};

static inline void tell_loss(hf_lease *lease, hf_status why, void *arg)
{
    struct loss *loss = arg;
    (void)lease, (void)why;
    RECORD(loss->told, .at = now_ns(), .what = H_LOST, .who = loss->number);
    atomic_fetch_add(&loss->times, 1);
}

static inline bool may_refuse(hf_status status)
{
    return status == HF_TIMEOUT || status == HF_BUSY || status == HF_UNAVAILABLE ||
           status == HF_IN_DOUBT || status == HF_FULL || status == HF_CANCELLED;
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

/* True: it holds. One that was granted and is over already was refused. */
static inline bool acquire(struct holding *h, hf_client *client)
{
    struct want want = h->want = draw_want(h->ttl_ms);
    struct hf_request request = request_of(&want);
    request.on_lost = tell_loss;
    request.lost_arg = h->loss;
    tell_ask(h);
    hf_status status = draw(4) ? hf_acquire(client, &request, &h->lease)
                               : acquire_later(client, &request, &h->lease);
    int64_t time = now_ns();
    h->until = status == HF_OK ? good_until(h) : 0;
    if (h->until)
        RECORD(h->part->shared->told, .at = time, .what = H_GRANTED, .who = h->number,
               .token = hf_lease_token(h->lease), .from = h->asked, .until = h->until);
    else
        RECORD(h->part->shared->told, .at = time, .what = H_REFUSED, .who = h->number);
    if (status != HF_OK && !may_refuse(status))
        print_error("%s: %s\n", hf_status_name(status), hf_error_text());
    part_must(status == HF_OK || may_refuse(status));
    return h->until;
}

static inline void give_back(const struct holding *h)
{
    TELL(h, .what = H_ENDED);
    tell_call(h);
    hf_status status = hf_release(h->lease);
    TELL(h, .what = H_RETURNED);
    part_must(status == HF_OK || status == HF_NOT_HELD || status == HF_LOST ||
              status == HF_IN_DOUBT);
    atomic_fetch_add(&h->part->shared->lost, atomic_load(&h->loss->times));
}

static inline void hold_once(struct part *part, hf_client *client, unsigned round)
{
    static struct loss losses[ROUNDS];
    struct holding h = {.part = part, .ttl_ms = 100 + draw(400), .loss = &losses[round]};
    h.number = recording_attempt(part->shared->told);
    h.loss->told = part->shared->told;
    h.loss->number = h.number;
    if (acquire(&h, client)) {
        count_grant(&h);
        work(&h);
        give_back(&h);
    } else {
        atomic_fetch_add(&part->shared->refusals, 1);
        nap_us(2000 + draw(20000));
    }
    hf_lease_free(h.lease);
    TELL(&h, .what = H_OVER);
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
