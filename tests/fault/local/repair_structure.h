/* repair_structure.h - every cell is in exactly one place, every list leads both ways, every count
 * is right. */
#pragma once
#include "repair_history.h"

static uint8_t places[1 << 16]; /* [cell] in how many places it was found */

static uint32_t state_of_cell(struct table *t, uint32_t index)
{
    return cell_state(cell_at(t, index));
}

/* Walks a list, in which all cells must be in that state; `both`: also backwards. */
static bool check_list(struct table *t, const char *what, const struct cell_list *list,
                       uint32_t shard, uint32_t state, bool both)
{
    uint32_t count = 0, before = 0;
    for (uint32_t i = list->head; i; before = i, i = t->cells[i].head.next) {
        if (i >= table_cells(t) || ++count > table_cells(t))
            return complain("%s of shard %u leads outside or round in a circle", what, shard);
        const struct cell_head *head = &t->cells[i].head;
        if (head->shard != shard || state_of_cell(t, i) != state)
            return complain("%s of shard %u has cell %u of shard %u in state %u", what, shard, i,
                            head->shard, state_of_cell(t, i));
        if (both && head->prev != before)
            return complain("%s of shard %u: cell %u says that %u is before it, not %u", what,
                            shard, i, head->prev, before);
        places[i]++;
    }
    if (count != list->count || (both && list->tail != before))
        return complain("%s of shard %u: %u cells up to %u, not %u up to %u", what, shard, count,
                        before, list->count, list->tail);
    return true;
}

static bool check_name(struct table *t, uint32_t index)
{
    const struct resource *r = &t->cells[index].resource;
    char name[HF_NAME_MAX + 1];
    size_t held = sizeof r->name;
    for (uint32_t more = r->more; held < r->name_len; more = t->cells[more].piece.more) {
        if (more == 0 || more >= table_cells(t) || state_of_cell(t, more) != CELL_NAME ||
            t->cells[more].piece.resource != index)
            return complain("resource %u has lost a piece of its name", index);
        places[more]++;
        held += sizeof t->cells[more].piece.name;
    }
    resource_name(t, r, name);
    if (resource_name_hash(name, r->name_len) != r->hash)
        return complain("resource %u does not have the hash of its name", index);
    if (resource_find(t, r->hash, name, r->name_len) != index)
        return complain("resource %u is not found by its name", index);
    return true;
}

static bool check_holders(struct table *t, uint32_t index)
{
    const struct resource *r = &t->cells[index].resource;
    uint64_t used = 0;
    FOR_EACH_CELL (t, i, &r->holders) {
        const struct entry *e = &t->cells[i].entry;
        used += e->units;
        if (e->resource != index)
            return complain("cell %u holds resource %u and is listed by %u", i, e->resource, index);
        if (e->token > r->token)
            return complain("resource %u gave token %llu and says %llu", index,
                            (unsigned long long)e->token, (unsigned long long)r->token);
        if (e->end < r->next_end)
            return complain("a hold of resource %u ends before its next end", index);
    }
    bool shrunk = r->capacity < r->declared; /* which takes nothing from those who hold */
    if (used != r->used || (used > r->capacity && !shrunk))
        return complain("resource %u: %llu units are held, it says %u of %u", index,
                        (unsigned long long)used, r->used, r->capacity);
    return true;
}

static bool same_hold(const struct entry *a, const struct entry *b)
{
    return a->named && b->named && memcmp(&a->owner, &b->owner, sizeof a->owner) == 0;
}

/* One attempt of a hold has its units, all have its token and its kind; who writes has everything.
 */
static bool check_hold(struct table *t, uint32_t index, const struct entry *e)
{
    const struct resource *r = &t->cells[index].resource;
    unsigned carriers = !e->named;
    FOR_EACH_CELL (t, i, &r->holders) {
        const struct entry *other = &t->cells[i].entry;
        if (!same_hold(e, other))
            continue;
        carriers += other->units != 0;
        if (other->token != e->token || other->kind != e->kind)
            return complain("attempts of one hold of resource %u differ in token or kind", index);
    }
    if (carriers != 1)
        return complain("%u attempts of one hold of resource %u have its units", carriers, index);
    if (r->kind == HF_READ && e->units && e->units != (e->kind == HF_WRITE ? r->capacity : 1))
        return complain("a %s of resource %u has %u of %u units",
                        e->kind == HF_WRITE ? "writer" : "reader", index, e->units, r->capacity);
    return true;
}

static bool check_holds(struct table *t, uint32_t index)
{
    const struct resource *r = &t->cells[index].resource;
    FOR_EACH_CELL (t, i, &r->holders)
        if (!check_hold(t, index, &t->cells[i].entry))
            return false;
    FOR_EACH_CELL (t, i, &r->waiters)
        FOR_EACH_CELL (t, j, &r->holders)
            if (same_hold(&t->cells[i].entry, &t->cells[j].entry))
                return complain("cell %u waits for resource %u, which its owner holds", i, index);
    return true;
}

static bool check_waiters(struct table *t, uint32_t index)
{
    const struct resource *r = &t->cells[index].resource;
    uint64_t last = 0;
    FOR_EACH_CELL (t, i, &r->waiters) {
        const struct entry *e = &t->cells[i].entry;
        if (e->resource != index)
            return complain("cell %u waits for resource %u and is listed by %u", i, e->resource,
                            index);
        if (!e->units)
            return complain("cell %u waits for nothing", i);
        if (e->ticket <= last || e->ticket >= r->ticket)
            return complain(
                "the queue of resource %u has ticket %llu behind %llu; the next is %llu", index,
                (unsigned long long)e->ticket, (unsigned long long)last,
                (unsigned long long)r->ticket);
        last = e->ticket;
    }
    if (r->waiters.head && r->used + t->cells[r->waiters.head].entry.units <= r->capacity)
        return complain("resource %u has a first waiter that fits", index);
    return true;
}

static bool check_resource(struct table *t, uint32_t shard, uint32_t index)
{
    const struct resource *r = &t->cells[index].resource;
    int name = name_of(t, index);
    if (!check_name(t, index) ||
        !check_list(t, "the holders", &r->holders, shard, CELL_HELD, true) ||
        !check_list(t, "the queue", &r->waiters, shard, CELL_WAITING, true) ||
        !check_list(t, "the past", &r->past, shard, CELL_PAST, true) || !check_holders(t, index) ||
        !check_holds(t, index) || !check_waiters(t, index) || !check_past(t, index))
        return false;
    bool used = r->holders.count || r->waiters.count;
    if (r->idle == used || places[index] != !used)
        return complain("resource %u is %sin use and %u times on the idle list", index,
                        used ? "" : "not ", places[index]);
    if (name >= 0 && r->token < world.highest[name])
        return complain("%s has forgotten token %llu: it says %llu", names[name].word,
                        (unsigned long long)world.highest[name], (unsigned long long)r->token);
    places[index] = 1;
    return true;
}

static bool check_entry(struct table *t, uint32_t index, uint32_t *detached)
{
    const struct entry *e = &t->cells[index].entry;
    bool ended = state_of_cell(t, index) == CELL_ENDED;
    if (e->client && state_of_cell(t, e->client) != CELL_CLIENT)
        return complain("cell %u belongs to member %u, which is none", index, e->client);
    if (ended && !e->client)
        return complain("cell %u has ended and nobody will free it", index);
    if (e->client && e->ready_link == READY_LINKED && !is_in_ready_list(t, e->client, index))
        return complain("cell %u says that it is in its client's ready list and is not", index);
    *detached += !e->client;
    places[index] = (uint8_t)(places[index] + ended);
    return true;
}

static bool check_cell(struct table *t, uint32_t index, uint32_t *detached)
{
    uint32_t state = state_of_cell(t, index);
    if ((state == CELL_WAITING || state == CELL_HELD || state == CELL_ENDED) &&
        !check_entry(t, index, detached))
        return false;
    return places[index] == 1 || complain("cell %u of shard %u, in state %u, is in %u places",
                                          index, t->cells[index].head.shard, state, places[index]);
}

static bool check_shard(struct table *t, uint32_t shard)
{
    const struct shard *s = &t->shards[shard];
    uint32_t detached = 0;
    if (!check_list(t, "the free list", &s->free, shard, CELL_FREE, false) ||
        !check_list(t, "the idle list", &s->idle, shard,
                    shard == LOCAL_REGISTRY ? CELL_CLIENT : CELL_RESOURCE, true))
        return false;
    for (uint32_t i = 1; i < table_cells(t); i++)
        if (t->cells[i].head.shard == shard && state_of_cell(t, i) == CELL_RESOURCE &&
            !check_resource(t, shard, i))
            return false;
    for (uint32_t i = 1; i < table_cells(t); i++)
        if (t->cells[i].head.shard == shard && !check_cell(t, i, &detached))
            return false;
    return detached == s->detached ||
           complain("shard %u has %u detached holds and says %u", shard, detached, s->detached);
}

/* Every mutex can be had, and what it guards is in order. */
static bool check_structure(struct table *t)
{
    if (table_cells(t) > sizeof places)
        return complain("the table has grown to %u cells", table_cells(t));
    memset(places, 0, sizeof places);
    for (uint32_t s = 0; s <= LOCAL_SHARDS; s++) {
        if (shard_lock(t, s, clock_boot() + NANOS_OF_MS(20)) != HF_OK)
            return complain("%s", error_text());
        bool fine = check_shard(t, s);
        shard_unlock(t, s);
        if (!fine)
            return false;
    }
    return !t->damaged || complain("an index led outside of the table");
}
