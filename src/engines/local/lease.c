/* lease.c - the verbs on a table: acquire, leave, extend, check, release. */
#include "lease.h"

#include "base/why.h"
#include "holders.h"
#include "members.h"
#include "shard.h"
#include "sys/clock.h"

#include <string.h>

/* How much later than the first the second in line looks, and so on: one look is enough unless the one ahead is
 * stopped. */
#define LOOK_STAGGER HF_MS(20)

/* ---- Answers ---- */

static void answer(struct hf_news *news, enum hf_cue cue, hf_nanos now)
{
    *news = (struct hf_news){.cue = cue, .asked_at = now, .retry_at = HF_NEVER};
}

static void answer_failed(struct hf_news *news, hf_nanos now, hf_status status)
{
    answer(news, HF_N_FAILED, now);
    news->status = status;
    news->text = hf_why_text();
}

/* GRANTED or EXTENDED: the hold's end is on the same clock for everybody here, so what is good is exact. */
static void answer_held(struct hf_news *news, enum hf_cue cue, const struct hf_entry *e, hf_nanos now)
{
    answer(news, cue, now);
    news->good = hf_until(now, e->end);
    news->token = e->token;
}

static void forget_cell(struct hf_ask *ask)
{
    ask->slot = hf_slot(0, hf_slot_cookie(ask->slot));
}

/* ---- Finding ---- */

/* The ask's own cell, if it still is. Its shard's mutex is held. */
static struct hf_entry *own_entry(struct hf_table *t, const struct hf_ask *ask)
{
    uint32_t index = hf_slot_cell(ask->slot);
    if (!index)
        return NULL;
    union hf_cell *cell = hf_cell_at(t, index);
    uint32_t state = hf_cell_state(cell);
    bool is_entry = state == CELL_WAITING || state == CELL_HELD || state == CELL_ENDED;
    bool ours = is_entry && memcmp(&cell->entry.attempt, &ask->attempt, sizeof ask->attempt) == 0;
    return ours ? &cell->entry : NULL;
}

static uint32_t state_of(struct hf_table *t, const struct hf_ask *ask)
{
    return hf_cell_state(hf_cell_at(t, hf_slot_cell(ask->slot)));
}

/* A detached hold may be found by its attempt alone. */
static uint32_t find_attempt(struct hf_table *t, const struct hf_ask *ask, uint64_t hash)
{
    uint32_t ri = hf_resource_find(t, hash, ask->name, ask->name_len);
    if (!ri)
        return 0;
    HF_EACH_CELL(t, i, &hf_cell_at(t, ri)->resource.holders)
    if (memcmp(&hf_cell_at(t, i)->entry.attempt, &ask->attempt, sizeof ask->attempt) == 0)
        return i;
    return 0;
}

/* Enters the shard of an ask and finds its entry, its resource's ended holds reaped; *now is moved on if that took
 * time. NULL in *e: there is none (any more). HF_OK: the mutex is held. */
static hf_status enter(struct hf_table *t, struct hf_ask *ask, hf_nanos *now, uint32_t *shard, struct hf_entry **e)
{
    uint64_t hash = hf_name_hash(ask->name, ask->name_len);
    *shard = hf_shard_of(hash);
    hf_status status = hf_shard_enter(t, *shard, ask->until, now);
    if (status != HF_OK)
        return status;
    *e = own_entry(t, ask);
    if (!*e) {
        uint32_t found = ask->detached ? find_attempt(t, ask, hash) : 0;
        ask->slot = hf_slot(found, hf_slot_cookie(ask->slot));
        *e = own_entry(t, ask);
    }
    if (*e && state_of(t, ask) != CELL_ENDED) {
        uint32_t ri = (*e)->resource;
        struct hf_resource *r = &hf_cell_at(t, ri)->resource;
        hf_resource_reap(t, r, *now);
        hf_resource_admit(t, r, *now);
        hf_resource_settle(t, ri);
        *e = own_entry(t, ask);
    }
    return HF_OK;
}

/* Leaves the shard, and says so if the table turned out to be damaged. */
static void leave_shard(struct hf_table *t, uint32_t shard, hf_nanos now, struct hf_news *news)
{
    hf_shard_unlock(t, shard);
    if (atomic_load_explicit(&t->damaged, memory_order_relaxed)) {
        hf_why(HF_DAMAGED, "%s: damaged: it refers to places outside of itself", t->path);
        answer_failed(news, now, HF_DAMAGED);
    }
}

/* ---- Acquiring ---- */

/* Read and write share a resource; the others must agree. */
static uint8_t resource_kind(hf_kind kind)
{
    return (uint8_t)(kind == HF_WRITE ? HF_READ : kind);
}

/* Kind and capacity belong to a name while it is held or waited for. */
static hf_status agree(struct hf_resource *r, const struct hf_ask *ask)
{
    static const char *const kinds[] = {"exclusive", "a semaphore", "read-write"};
    uint8_t kind = resource_kind(ask->kind);
    if (!r->holders.count && !r->waiters.count) {
        r->kind = kind;
        r->capacity = r->declared = ask->capacity;
        return HF_OK;
    }
    if (r->kind != kind)
        return hf_why(HF_MISMATCH, "is in use as %s, not as %s", r->kind <= HF_READ ? kinds[r->kind] : "something else",
                      kinds[kind]);
    if (r->capacity != ask->capacity &&
        r->declared != ask->capacity) /* a resize leaves those who have not heard of it alone */
        return hf_why(HF_MISMATCH, "is in use with capacity %u, not %u", r->capacity, ask->capacity);
    if (ask->units > r->capacity && r->kind == HF_SEMAPHORE)
        return hf_why(HF_TOO_BIG, "%u units are more than its capacity, which was changed to %u", ask->units,
                      r->capacity);
    return HF_OK;
}

static void fill_entry(struct hf_entry *e, uint32_t ri, const struct hf_asker *who, const struct hf_ask *ask,
                       hf_nanos now)
{
    e->resource = ri;
    e->client = who->member;
    e->units = ask->units;
    e->cookie = hf_slot_cookie(ask->slot);
    atomic_store_explicit(&e->linked, 0, memory_order_relaxed);
    e->kind = (uint8_t)ask->kind;
    e->named = ask->named;
    e->why = HF_OK;
    e->label_len = (uint8_t)ask->label_len;
    e->owner = ask->owner;
    e->attempt = ask->attempt;
    e->ticket = 0;
    e->token = 0;
    e->end = 0;
    e->ttl = HF_MS(ask->ttl_ms);
    e->since = now;
    e->check_at = HF_NEVER;
    e->pid = who->pid;
    if (ask->label_len)
        memcpy(e->label, ask->label, ask->label_len);
}

static void answer_queued(struct hf_table *t, struct hf_ask *ask, struct hf_entry *e, hf_nanos now,
                          struct hf_news *news)
{
    struct hf_resource *r = &hf_cell_at(t, e->resource)->resource;
    uint64_t ahead = e->ticket - hf_cell_at(t, r->waiters.head)->entry.ticket; /* at most: some of them may have left */
    ahead = ahead < r->waiters.count ? ahead : r->waiters.count - 1;
    e->check_at = hf_after(r->next_end, (hf_nanos)ahead * LOOK_STAGGER);
    ask->seen = atomic_load(&e->head.word);
    answer(news, HF_N_QUEUED, now);
    news->retry_at = e->check_at;
    news->place = (uint32_t)ahead + 1;
}

/* An ask that is repeated: what became of it? False: its hold has ended unseen, and the ask begins anew. */
static bool ask_again(struct hf_table *t, struct hf_ask *ask, struct hf_entry *e, hf_nanos now, struct hf_news *news)
{
    hf_status why = (hf_status)e->why;
    switch (state_of(t, ask)) {
    case CELL_HELD: /* the same grant again, extended, never shortened */
        if (hf_after(now, e->ttl) > e->end)
            e->end = hf_after(now, e->ttl);
        answer_held(news, HF_N_GRANTED, e, now);
        return true;
    case CELL_WAITING:
        hf_resource_reap_dead(t, &hf_cell_at(t, e->resource)->resource, now);
        hf_resource_admit(t, &hf_cell_at(t, e->resource)->resource, now);
        if (state_of(t, ask) == CELL_HELD)
            answer_held(news, HF_N_GRANTED, e, now);
        else
            answer_queued(t, ask, e, now, news);
        return true;
    default:
        hf_entry_drop(t, hf_slot_cell(ask->slot), now);
        forget_cell(ask);
        if (why != HF_TOO_BIG)
            return false;
        hf_why(why, "%u units are more than its capacity, which was changed", ask->units);
        answer_failed(news, now, why);
        return true;
    }
}

/* Asks with an owner or attempt that already holds: the same attempt again is the same grant; another one of the same
 * owner makes the hold's count rise. HF_N_CUES: neither. */
static enum hf_cue reenter(struct hf_table *t, const struct hf_asker *who, struct hf_ask *ask, uint32_t ri, uint32_t ei,
                           hf_nanos now)
{
    struct hf_resource *r = &hf_cell_at(t, ri)->resource;
    uint32_t sibling = ask->named ? hf_resource_owned(t, r, &ask->owner) : 0;
    if (!sibling)
        return HF_N_CUES;
    if (ask->kind == HF_WRITE && hf_cell_at(t, sibling)->entry.kind == HF_READ) {
        hf_why(HF_MISMATCH, "this owner reads it; hf_upgrade makes it the writer");
        return HF_N_FAILED;
    }
    fill_entry(&hf_cell_at(t, ei)->entry, ri, who, ask, now);
    hf_resource_join(t, r, ei, sibling, now, true);
    return HF_N_GRANTED;
}

/* The decision: hold, queue or busy. The entry's cell was taken before, because taking one may drop idle resources. */
static enum hf_cue decide(struct hf_table *t, const struct hf_asker *who, const struct hf_ask *ask, uint32_t ri,
                          uint32_t ei, hf_nanos now)
{
    struct hf_resource *r = &hf_cell_at(t, ri)->resource;
    bool pass = !r->waiters.count || ask->barging;
    if (!pass || (uint64_t)r->used + ask->units > r->capacity) {
        hf_resource_reap_dead(t, r, now);
        hf_resource_admit(t, r, now);
        pass = !r->waiters.count || ask->barging;
    }
    bool fits = pass && (uint64_t)r->used + ask->units <= r->capacity;
    if (!fits && !ask->queue)
        return HF_N_BUSY;
    struct hf_entry *e = &hf_cell_at(t, ei)->entry;
    fill_entry(e, ri, who, ask, now);
    if (fits) {
        hf_resource_grant(t, r, ei, now, true);
        if (ask->named) { /* others of this owner may wait: it has passed them */
            hf_resource_gather(t, r, ei, now);
            hf_resource_admit(t, r, now);
        }
        return HF_N_GRANTED;
    }
    hf_entry_enqueue(t, r, ei, now);
    return HF_N_QUEUED;
}

static void ask_first(struct hf_table *t, const struct hf_asker *who, struct hf_ask *ask, uint32_t shard, hf_nanos now,
                      struct hf_news *news)
{
    uint64_t hash = hf_name_hash(ask->name, ask->name_len);
    uint32_t ei = hf_cell_take(t, shard, ask->until);
    uint32_t ri = ei ? hf_resource_need(t, hash, ask->name, ask->name_len, ask->until) : 0;
    if (!ri) {
        if (ei)
            hf_cell_give(t, shard, ei);
        answer_failed(news, now, HF_FULL);
        return;
    }
    struct hf_resource *r = &hf_cell_at(t, ri)->resource;
    hf_resource_reap(t, r, now);
    hf_resource_admit(t, r, now);
    r->history = ask->history;
    r->history_age = HF_MS(ask->history_age_ms);
    hf_status status = agree(r, ask);
    enum hf_cue cue = status == HF_OK ? reenter(t, who, ask, ri, ei, now) : HF_N_FAILED;
    if (cue == HF_N_FAILED && status == HF_OK)
        status = HF_MISMATCH;
    if (cue == HF_N_CUES)
        cue = decide(t, who, ask, ri, ei, now);
    if (cue == HF_N_GRANTED || cue == HF_N_QUEUED)
        ask->slot = hf_slot(ei, hf_slot_cookie(ask->slot));
    else
        hf_cell_give(t, shard, ei);
    if (cue == HF_N_GRANTED)
        answer_held(news, cue, &hf_cell_at(t, ei)->entry, now);
    else if (cue == HF_N_QUEUED)
        answer_queued(t, ask, &hf_cell_at(t, ei)->entry, now, news);
    else if (cue == HF_N_FAILED)
        answer_failed(news, now, status);
    else
        answer(news, cue, now), news->retry_at = r->next_end;
    hf_resource_settle(t, ri);
}

void hf_lease_ask(struct hf_table *t, const struct hf_asker *who, struct hf_ask *ask, hf_nanos now,
                  struct hf_news *news)
{
    uint32_t shard;
    struct hf_entry *e;
    hf_nanos inside = now;
    hf_status status = enter(t, ask, &inside, &shard, &e);
    if (status != HF_OK) {
        answer_failed(news, inside, status);
        return;
    }
    if (!e || !ask_again(t, ask, e, inside, news)) {
        if (hf_cell_state(hf_cell_at(t, who->member)) == CELL_CLIENT) {
            ask_first(t, who, ask, shard, inside, news);
        } else {
            hf_why(HF_CLOSED, "%s: this client was declared dead", t->path);
            answer_failed(news, inside, HF_CLOSED);
        }
    }
    leave_shard(t, shard, now, news);
}

bool hf_lease_peek(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    struct hf_entry *e = own_entry(t, ask);
    uint32_t word = e ? atomic_load(&e->head.word) : 0; /* before the state: what comes later must not count as seen */
    if (!e || word == ask->seen)
        return false;
    if (state_of(t, ask) == CELL_HELD && now < e->end)
        answer_held(news, HF_N_GRANTED, e, now);
    else
        answer(news, HF_N_HINT, now);
    ask->seen = word;
    return true;
}

/* ---- What an entry's client does with it ---- */

void hf_lease_leave(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    uint32_t shard;
    struct hf_entry *e;
    hf_nanos inside = now;
    hf_status status = enter(t, ask, &inside, &shard, &e);
    if (status != HF_OK) {
        answer_failed(news, inside, status);
        return;
    }
    if (e && state_of(t, ask) == CELL_HELD) {
        answer_held(news, HF_N_GRANTED, e, inside);
    } else {
        if (e)
            hf_entry_drop(t, hf_slot_cell(ask->slot), inside);
        forget_cell(ask);
        answer(news, HF_N_RELEASED, inside);
    }
    leave_shard(t, shard, now, news);
}

void hf_lease_extend(struct hf_table *t, struct hf_ask *ask, hf_nanos now, bool check_only, struct hf_news *news)
{
    uint32_t shard;
    struct hf_entry *e;
    hf_nanos inside = now;
    hf_status status = enter(t, ask, &inside, &shard, &e);
    if (status != HF_OK) {
        answer_failed(news, inside, status);
        return;
    }
    if (e && state_of(t, ask) == CELL_HELD) {
        hf_nanos end = inside + HF_MS(ask->ttl_ms);
        if (!check_only && end > e->end) /* never shortens */
            e->end = end;
        answer_held(news, HF_N_EXTENDED, e, inside);
    } else {
        answer(news, HF_N_GONE, inside);
    }
    leave_shard(t, shard, now, news);
}

/* A release goes by attempt: clients that repeated it have the same grant, and it ends for all of them. */
static void end_repeats(struct hf_table *t, const struct hf_entry *e, hf_nanos now)
{
    struct hf_resource *r = &hf_cell_at(t, e->resource)->resource;
    HF_EACH_CELL(t, i, &r->holders)
    {
        struct hf_entry *other = &hf_cell_at(t, i)->entry;
        uint32_t client = other->client;
        if (other == e || memcmp(&other->attempt, &e->attempt, sizeof e->attempt) != 0)
            continue;
        hf_entry_end(t, r, i, HF_OK, now);
        if (client)
            hf_member_recheck(t, client);
    }
}

void hf_lease_release(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    uint32_t shard;
    struct hf_entry *e;
    hf_nanos inside = now;
    hf_status status = enter(t, ask, &inside, &shard, &e);
    if (status != HF_OK) {
        answer_failed(news, inside, status);
        return;
    }
    bool held = e && state_of(t, ask) == CELL_HELD;
    if (held && e->named)
        end_repeats(t, e, inside);
    if (e)
        hf_entry_drop(t, hf_slot_cell(ask->slot), inside);
    forget_cell(ask);
    answer(news, held ? HF_N_RELEASED : HF_N_GONE, inside);
    leave_shard(t, shard, now, news);
}

/* The entry that has the units of the hold, if no other owner holds. */
static struct hf_entry *sole_carrier(struct hf_table *t, const struct hf_resource *r, struct hf_entry *e)
{
    struct hf_entry *carrier = e;
    HF_EACH_CELL(t, i, &r->holders)
    {
        struct hf_entry *other = &hf_cell_at(t, i)->entry;
        if (memcmp(&other->owner, &e->owner, sizeof e->owner) != 0)
            return NULL;
        if (other->units)
            carrier = other;
    }
    return carrier;
}

/* A new token, because readers that left may have shown a higher one than ours. What the carrier's units say is true,
 * so its token comes before them; the rest a repair makes from them. */
static enum hf_cue upgrade(struct hf_table *t, struct hf_resource *r, struct hf_entry *e)
{
    if (e->kind == HF_WRITE)
        return HF_N_EXTENDED;
    struct hf_entry *carrier = sole_carrier(t, r, e);
    if (!carrier)
        return HF_N_BUSY;
    carrier->token = ++r->token;
    atomic_signal_fence(memory_order_seq_cst);
    carrier->units = r->used = r->capacity;
    atomic_signal_fence(memory_order_seq_cst);
    HF_EACH_CELL(t, i, &r->holders)
    {
        hf_cell_at(t, i)->entry.token = carrier->token;
        hf_cell_at(t, i)->entry.kind = HF_WRITE;
    }
    return HF_N_EXTENDED;
}

static enum hf_cue downgrade(struct hf_table *t, struct hf_resource *r, struct hf_entry *e, hf_nanos now)
{
    struct hf_entry *carrier = e->kind == HF_WRITE ? sole_carrier(t, r, e) : NULL;
    if (!carrier)
        return HF_N_EXTENDED; /* a reader already */
    carrier->units = r->used = 1;
    atomic_signal_fence(memory_order_seq_cst);
    HF_EACH_CELL(t, i, &r->holders) hf_cell_at(t, i)->entry.kind = HF_READ;
    hf_resource_admit(t, r, now);
    return HF_N_EXTENDED;
}

void hf_lease_convert(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    uint32_t shard;
    struct hf_entry *e;
    hf_nanos inside = now;
    hf_status status = enter(t, ask, &inside, &shard, &e);
    if (status != HF_OK) {
        answer_failed(news, inside, status);
        return;
    }
    enum hf_cue cue = HF_N_GONE;
    if (e && state_of(t, ask) == CELL_HELD) {
        struct hf_resource *r = &hf_cell_at(t, e->resource)->resource;
        cue = ask->verb == HF_V_UPGRADE ? upgrade(t, r, e) : downgrade(t, r, e, inside);
        hf_table_changed(t, inside);
    }
    if (cue == HF_N_EXTENDED)
        answer_held(news, cue, e, inside);
    else
        answer(news, cue, inside);
    leave_shard(t, shard, now, news);
}

void hf_lease_discard(struct hf_table *t, uint32_t index, uint32_t member)
{
    uint32_t shard = hf_cell_at(t, index)->head.shard;
    hf_nanos now = hf_clock_boot();
    if (shard >= LOCAL_SHARDS || hf_shard_lock(t, shard, now + HF_MS(5)) != HF_OK)
        return; /* the cell is freed with its client */
    union hf_cell *cell = hf_cell_at(t, index);
    if (hf_cell_state(cell) == CELL_ENDED && cell->entry.client == member && !cell->entry.cookie)
        hf_entry_drop(t, index, now);
    hf_shard_unlock(t, shard);
}

bool hf_lease_detach(struct hf_table *t, struct hf_ask *ask, bool drained)
{
    uint32_t shard;
    struct hf_entry *e;
    hf_nanos inside = hf_clock_boot();
    if (enter(t, ask, &inside, &shard, &e) != HF_OK)
        return true;
    bool linked = e && atomic_load(&e->linked) && !drained;
    if (e && !linked && e->client && state_of(t, ask) == CELL_HELD) {
        e->client = 0;
        t->shards[shard].detached++;
    }
    hf_shard_unlock(t, shard);
    return !linked;
}
