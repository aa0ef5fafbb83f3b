/* asking.c - the acquire: held, queued, busy, or refused. */
#include "base/why.h"
#include "holders.h"
#include "members.h"
#include "visit.h"

#include <string.h>

/* How much later than the first the second in line looks, and so on: one look is enough unless the one ahead is
 * stopped. */
#define LOOK_STAGGER HF_MS(20)

/* Read and write share a resource; the others must agree. */
static inline uint8_t resource_kind(hf_kind kind)
{
    return (uint8_t)(kind == HF_WRITE ? HF_READ : kind);
}

/* Kind and capacity belong to a name while it is held or waited for. */
static hf_status agree_with_others(const struct hf_resource *r, const struct hf_ask *ask)
{
    static const char *const kinds[] = {"exclusive", "a semaphore", "read-write"};
    uint8_t kind = resource_kind(ask->kind);
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

static inline hf_status agree(struct hf_resource *r, const struct hf_ask *ask)
{
    if (r->holders.count || r->waiters.count)
        return agree_with_others(r, ask);
    r->kind = resource_kind(ask->kind);
    r->capacity = r->declared = ask->capacity;
    return HF_OK;
}

/* Nobody is ahead that may not be passed, and there are units enough. */
static inline bool fits(const struct hf_resource *r, const struct hf_ask *ask)
{
    bool pass = !r->waiters.count || ask->barging;
    return pass && (uint64_t)r->used + ask->units <= r->capacity;
}

static inline void fill_entry(struct hf_entry *e, struct hf_spot home, const struct hf_visit *v)
{
    const struct hf_ask *ask = v->ask;
    e->resource = home.index;
    e->client = v->who->member;
    e->units = ask->units;
    /* Nobody looks at it before it is committed. */
    atomic_store_explicit(&e->cookie, hf_slot_cookie(ask->slot), memory_order_relaxed);
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
    e->since = v->now;
    e->check_at = HF_NEVER;
    e->pid = v->who->pid;
    if (ask->label_len)
        memcpy(e->label, ask->label, ask->label_len);
}

static void answer_queued(struct hf_visit *v)
{
    struct hf_table *t = v->table;
    struct hf_entry *e = v->entry;
    struct hf_resource *r = &hf_cell_at(t, e->resource)->resource;
    uint64_t ahead = e->ticket - hf_cell_at(t, r->waiters.head)->entry.ticket; /* at most: some of them may have left */
    ahead = ahead < r->waiters.count ? ahead : r->waiters.count - 1;
    e->check_at = hf_after(r->next_end, (hf_nanos)ahead * LOOK_STAGGER);
    v->ask->seen = atomic_load(&e->head.word);
    hf_visit_answer(v, HF_N_QUEUED);
    v->news->retry_at = e->check_at;
    v->news->place = (uint32_t)ahead + 1;
}

/* ---- Asked before ---- */

/* Looks for the dead ahead; that may grant this very ask, or refuse it. */
static void look_ahead(struct hf_visit *v)
{
    struct hf_resource *r = &hf_cell_at(v->table, v->entry->resource)->resource;
    hf_resource_reap_dead(v->table, r, v->now);
    hf_resource_admit(v->table, r, v->now);
}

/* What became of it? False: its hold has ended unseen, and the ask begins anew. */
static bool ask_again(struct hf_visit *v)
{
    struct hf_entry *e = v->entry;
    if (hf_visit_state(v) == CELL_WAITING)
        look_ahead(v);
    hf_status why = (hf_status)e->why;
    switch (hf_visit_state(v)) {
    case CELL_HELD: /* the same grant again, extended, never shortened */
        if (hf_after(v->now, e->ttl) > e->end)
            e->end = hf_after(v->now, e->ttl);
        hf_visit_hold(v, HF_N_GRANTED);
        return true;
    case CELL_WAITING:
        answer_queued(v);
        return true;
    default:
        hf_visit_drop(v);
        if (why != HF_TOO_BIG)
            return false;
        hf_why(why, "%u units are more than its capacity, which was changed", v->ask->units);
        hf_visit_fail(v, why);
        return true;
    }
}

/* ---- Asked for the first time ---- */

/* Asks with an owner or attempt that already holds: the same attempt again is the same grant; another one of the same
 * owner makes the hold's count rise. HF_N_CUES: neither. */
static enum hf_cue reenter(const struct hf_visit *v, struct hf_spot home, struct hf_spot own)
{
    struct hf_table *t = v->table;
    struct hf_resource *r = &home.cell->resource;
    uint32_t sibling = hf_resource_owned(t, r, &v->ask->owner);
    if (!sibling)
        return HF_N_CUES;
    if (v->ask->kind == HF_WRITE && hf_cell_at(t, sibling)->entry.kind == HF_READ) {
        hf_why(HF_MISMATCH, "this owner reads it; hf_upgrade makes it the writer");
        return HF_N_FAILED;
    }
    fill_entry(&own.cell->entry, home, v);
    hf_resource_join(t, r, own.index, sibling, v->now, true);
    return HF_N_GRANTED;
}

/* Those who wait may have died, or those who hold. */
static bool look_whether_it_fits(const struct hf_visit *v, struct hf_resource *r)
{
    hf_resource_reap_dead(v->table, r, v->now);
    hf_resource_admit(v->table, r, v->now);
    return fits(r, v->ask);
}

/* Hold, queue or busy. */
static inline enum hf_cue decide(const struct hf_visit *v, struct hf_spot home, struct hf_spot own)
{
    struct hf_table *t = v->table;
    struct hf_resource *r = &home.cell->resource;
    bool now = fits(r, v->ask) || look_whether_it_fits(v, r);
    if (!now && !v->ask->queue)
        return HF_N_BUSY;
    fill_entry(&own.cell->entry, home, v);
    if (!now) {
        hf_entry_enqueue(t, r, own.index, v->now);
        return HF_N_QUEUED;
    }
    hf_entry_hold(t, r, own, ++r->token, v->now);
    if (v->ask->named) { /* others of this owner may wait: it has passed them */
        hf_resource_gather(t, r, own.index, v->now);
        hf_resource_admit(t, r, v->now);
    }
    return HF_N_GRANTED;
}

static inline enum hf_cue agree_and_decide(const struct hf_visit *v, struct hf_spot home, struct hf_spot own,
                                           hf_status *status)
{
    struct hf_resource *r = &home.cell->resource;
    if (v->now >= r->next_end) {
        hf_resource_reap_ended(v->table, r, v->now);
        hf_resource_admit(v->table, r, v->now);
    }
    r->history = v->who->history;
    r->history_age = v->who->history_age;
    *status = agree(r, v->ask);
    if (*status != HF_OK)
        return HF_N_FAILED;
    *status = HF_MISMATCH; /* should reenter refuse */
    enum hf_cue cue = v->ask->named ? reenter(v, home, own) : HF_N_CUES;
    return cue == HF_N_CUES ? decide(v, home, own) : cue;
}

/* Neither held nor queued: nothing of it stays. */
static void turn_away(struct hf_visit *v, struct hf_spot home, struct hf_spot own, enum hf_cue cue, hf_status status)
{
    if (own.index)
        hf_cell_give_cell(v->table, v->shard, own.index, own.cell);
    if (cue == HF_N_FAILED) {
        hf_visit_fail(v, status);
    } else {
        hf_visit_answer(v, cue);
        v->news->retry_at = home.cell->resource.next_end;
    }
    if (home.index)
        hf_resource_settle_cell(v->table, home.index, home.cell);
}

/* The entry's cell is taken first, because taking one may drop idle resources. */
static inline void ask_first(struct hf_visit *v)
{
    struct hf_ask *ask = v->ask;
    struct hf_spot home = {.index = 0}, own = hf_cell_take(v->table, v->shard, ask->until);
    if (own.index)
        home = hf_resource_need(v->table, hf_visit_hash(v), ask->name, ask->name_len, ask->until);
    hf_status status = home.index ? HF_OK : hf_why_status();
    enum hf_cue cue = home.index ? agree_and_decide(v, home, own, &status) : HF_N_FAILED;
    if (cue != HF_N_GRANTED && cue != HF_N_QUEUED) {
        turn_away(v, home, own, cue, status);
        return;
    }
    ask->slot = hf_slot(own.index, hf_slot_cookie(ask->slot));
    v->entry = &own.cell->entry;
    if (cue == HF_N_GRANTED)
        hf_visit_hold(v, cue);
    else
        answer_queued(v);
}

static inline void ask(struct hf_visit *v)
{
    if (v->entry && ask_again(v))
        return;
    if (__builtin_expect(hf_cell_state(hf_cell_at(v->table, v->who->member)) == CELL_CLIENT, true)) {
        ask_first(v);
        return;
    }
    hf_why(HF_CLOSED, "%s: this client was declared dead", v->table->path);
    hf_visit_fail(v, HF_CLOSED);
}

bool hf_lease_ask(struct hf_table *t, const struct hf_asker *who, struct hf_ask *asked, hf_nanos now,
                  struct hf_news *news)
{
    struct hf_visit v = {.table = t, .who = who, .ask = asked, .now = now, .news = news};
    if (!hf_visit_enter(&v))
        return true;
    ask(&v);
    return hf_visit_leave(&v);
}
