/* lease.c - the verbs on a table, but for the acquire (asking.c): leave, extend, check, convert, release. */
#include "lease.h"

#include "base/why.h"
#include "holders.h"
#include "members.h"
#include "shard.h"
#include "sys/clock.h"
#include "visit.h"

#include <string.h>

/* ---- In and out ---- */

void hf_visit_fail(struct hf_visit *v, hf_status status)
{
    hf_visit_answer(v, HF_N_FAILED);
    v->news->status = status;
    v->news->text = hf_why_text();
}

/* A detached hold may be found by its attempt alone. */
static uint32_t find_attempt(struct hf_table *t, const struct hf_ask *ask, uint64_t hash)
{
    uint32_t ri = hf_resource_find(t, hash, ask->name, ask->name_len);
    if (!ri)
        return 0;
    HF_EACH_CELL(t, i, &hf_cell_at(t, ri)->resource.holders)
    if (hf_id_same(&hf_cell_at(t, i)->entry.attempt, &ask->attempt))
        return i;
    return 0;
}

/* The ask has no cell that is its own: it may have had one, or be about a hold that somebody else made. */
void hf_visit_find_entry(struct hf_visit *v)
{
    struct hf_ask *ask = v->ask;
    uint32_t found = ask->detached ? find_attempt(v->table, ask, hf_visit_hash(v)) : 0;
    ask->slot = hf_slot(found, hf_slot_cookie(ask->slot));
    v->entry = found ? hf_own_entry(v->table, ask) : NULL;
}

/* Ends the holds of the entry's resource whose time is over; that may be its own. */
void hf_visit_reap(struct hf_visit *v)
{
    struct hf_table *t = v->table;
    uint32_t ri = v->entry->resource;
    struct hf_resource *r = &hf_cell_at(t, ri)->resource;
    hf_resource_reap(t, r, v->now);
    hf_resource_admit(t, r, v->now);
    hf_resource_settle(t, ri);
    v->entry = hf_own_entry(t, v->ask);
}

void hf_visit_damaged(struct hf_visit *v)
{
    hf_why(HF_DAMAGED, "%s: damaged: it refers to places outside of itself", v->table->path);
    hf_visit_fail(v, HF_DAMAGED);
}

static inline bool is_held(const struct hf_visit *v)
{
    return v->entry && hf_visit_state(v) == CELL_HELD;
}

/* Nobody answers for a detached hold any more. */
static void cut_loose(struct hf_visit *v)
{
    if (is_held(v) && v->entry->client) {
        v->entry->client = 0;
        v->table->shards[v->shard].detached++;
    }
}

/* ---- The verbs ---- */

static void leave(struct hf_visit *v)
{
    if (is_held(v)) { /* the grant came first */
        hf_visit_hold(v, HF_N_GRANTED);
        return;
    }
    hf_visit_drop(v);
    hf_visit_answer(v, HF_N_RELEASED);
}

void hf_lease_leave(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    struct hf_visit v = {.table = t, .ask = ask, .now = now, .news = news};
    if (!hf_visit_enter(&v))
        return;
    leave(&v);
    hf_visit_leave(&v);
}

/* It is not ours any more: neither is its cell. */
static void answer_gone(struct hf_visit *v)
{
    hf_visit_drop(v);
    hf_visit_answer(v, HF_N_GONE);
}

static void check(struct hf_visit *v)
{
    if (!is_held(v)) {
        answer_gone(v);
        return;
    }
    if (v->ask->detached && !atomic_load(&v->entry->linked)) /* should that have failed when it was granted */
        cut_loose(v);
    hf_visit_hold(v, HF_N_EXTENDED);
}

static void extend(struct hf_visit *v)
{
    hf_nanos end = v->now + HF_MS(v->ask->ttl_ms);
    if (is_held(v) && end > v->entry->end) /* never shortens */
        v->entry->end = end;
}

void hf_lease_extend(struct hf_table *t, struct hf_ask *ask, hf_nanos now, bool check_only, struct hf_news *news)
{
    struct hf_visit v = {.table = t, .ask = ask, .now = now, .news = news};
    if (!hf_visit_enter(&v))
        return;
    if (!check_only)
        extend(&v);
    check(&v);
    hf_visit_leave(&v);
}

/* A release goes by attempt: clients that repeated it have the same grant, and it ends for all of them. */
static void end_repeats(struct hf_table *t, const struct hf_entry *e, hf_nanos now)
{
    struct hf_resource *r = &hf_cell_at(t, e->resource)->resource;
    HF_EACH_CELL(t, i, &r->holders)
    {
        struct hf_entry *other = &hf_cell_at(t, i)->entry;
        uint32_t client = other->client;
        if (other == e || !hf_id_same(&other->attempt, &e->attempt))
            continue;
        hf_entry_end(t, r, i, HF_OK, now);
        if (client)
            hf_member_recheck(t, client);
    }
}

static void release(struct hf_visit *v)
{
    bool held = is_held(v);
    if (held && v->entry->named)
        end_repeats(v->table, v->entry, v->now);
    hf_visit_drop(v);
    hf_visit_answer(v, held ? HF_N_RELEASED : HF_N_GONE);
}

bool hf_lease_release(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    struct hf_visit v = {.table = t, .ask = ask, .now = now, .news = news};
    if (!hf_visit_enter(&v))
        return true;
    release(&v);
    return hf_visit_leave(&v);
}

/* ---- Reading and writing ---- */

/* The entry that has the units of the hold, if no other owner holds. */
static struct hf_entry *sole_carrier(struct hf_table *t, const struct hf_resource *r, struct hf_entry *e)
{
    struct hf_entry *carrier = e;
    HF_EACH_CELL(t, i, &r->holders)
    {
        struct hf_entry *other = &hf_cell_at(t, i)->entry;
        if (!hf_id_same(&other->owner, &e->owner))
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

static void convert(struct hf_visit *v)
{
    if (!is_held(v)) {
        answer_gone(v);
        return;
    }
    struct hf_resource *r = &hf_cell_at(v->table, v->entry->resource)->resource;
    enum hf_cue cue =
        v->ask->verb == HF_V_UPGRADE ? upgrade(v->table, r, v->entry) : downgrade(v->table, r, v->entry, v->now);
    hf_table_changed(v->table, v->now);
    if (cue == HF_N_EXTENDED)
        hf_visit_hold(v, cue);
    else
        hf_visit_answer(v, cue);
}

void hf_lease_convert(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    struct hf_visit v = {.table = t, .ask = ask, .now = now, .news = news};
    if (!hf_visit_enter(&v))
        return;
    convert(&v);
    hf_visit_leave(&v);
}

/* ---- Without a verb ---- */

bool hf_lease_peek(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news)
{
    struct hf_entry *e = hf_own_entry(t, ask);
    uint32_t word = e ? atomic_load(&e->head.word) : 0; /* before the state: what comes later must not count as seen */
    if (!e || word == ask->seen)
        return false;
    struct hf_visit v = {.table = t, .ask = ask, .entry = e, .now = now, .news = news};
    if (hf_visit_state(&v) == CELL_HELD && now < e->end)
        hf_visit_hold(&v, HF_N_GRANTED);
    else
        hf_visit_answer(&v, HF_N_HINT);
    ask->seen = word;
    return true;
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
    struct hf_news news;
    hf_nanos now = hf_clock_boot();
    ask->until = now + HF_MS(5); /* its own may be long over, and this may be the background thread */
    struct hf_visit v = {.table = t, .ask = ask, .now = now, .news = &news};
    if (!hf_visit_enter(&v))
        return true; /* the next check or extend does it */
    bool linked = !drained && v.entry && atomic_load(&v.entry->linked);
    if (!linked)
        cut_loose(&v);
    hf_visit_leave(&v);
    return !linked;
}
