/* repair.c - rebuilds a shard after a death inside its mutex. The cells are the truth; lists,
 * chains and counts are made from them. */
#include "repair.h"

#include "clients.h"
#include "sys/clock.h"
#include "wait_queue.h"

/* Visits each cell of a shard. A chunk belongs to the shard that its first cell names. */
#define EACH_CELL_OF_SHARD(t, i, shard_index)                                                      \
    for (uint32_t i##_first = 0; i##_first < table_cells(t); i##_first += LOCAL_PER_CHUNK)         \
        if ((t)->cells[i##_first].head.shard == (shard_index))                                     \
            for (uint32_t i = i##_first; i < i##_first + LOCAL_PER_CHUNK; i++)

static void empty_lists(struct shard *s)
{
    s->free = s->idle = (struct cell_list){0};
    s->detached = 0;
    for (uint32_t b = 0; b < LOCAL_BUCKETS; b++)
        s->bucket[b] = 0;
}

static void collect_resource(struct table *t, uint32_t index)
{
    assert(index);
    struct resource *r = &t->cells[index].resource;
    r->holders = r->waiters = r->past = (struct cell_list){0};
    r->used = 0;
    r->idle = false;
    r->next_end = TIME_NEVER;
    resource_chain(t, index);
}

static bool is_piece_of(struct table *t, uint32_t index)
{
    uint32_t owner = read_once(t->cells[index].piece.resource);
    bool exists = owner != 0 && owner < table_cells(t);
    if (!exists || cell_state(&t->cells[owner]) != CELL_RESOURCE)
        return false;

    uint32_t first = t->cells[owner].resource.more;
    return first == index || (first != 0 && cell_at(t, first)->piece.more == index);
}

/* Returns the resource of an entry, or 0 if the entry was never finished. */
static uint32_t resource_of(struct table *t, const struct entry *e)
{
    uint32_t ri = read_once(e->resource);
    bool whole = ri != 0 && ri < table_cells(t) && cell_state(&t->cells[ri]) == CELL_RESOURCE &&
                 t->cells[ri].head.shard == e->head.shard;
    return whole ? ri : 0;
}

static void collect_entry(struct table *t, uint32_t shard, uint32_t index)
{
    assert(index && shard < LOCAL_REGISTRY);
    struct entry *e = &t->cells[index].entry;
    uint32_t state = cell_state(&t->cells[index]), ri = resource_of(t, e);

    if (state == CELL_ENDED &&
        e->client) { /* kept for its client, which may not know yet that the hold ended */
        table_client_rescan(t, index);
        table_client_recheck(t, e->client);
        return;
    }

    if (!ri || state == CELL_ENDED) {
        cell_give_back(t, shard, index);
        return;
    }

    struct resource *r = &t->cells[ri].resource;
    if (state == CELL_PAST) {
        cell_list_push(t, &r->past, index);
        return;
    }

    if (!e->client)
        t->shards[shard].detached++;
    if (e->ticket >= r->ticket)
        r->ticket = e->ticket + 1;
    if (state == CELL_WAITING) {
        cell_list_push(t, &r->waiters, index);
        return;
    }

    if (e->named && resource_carrier(t, r, &e->owner))
        /* the dead process was passing the units on, and another entry already has them */
        e->units = 0;
    cell_list_push(t, &r->holders, index);
    r->used += e->units;
    if (e->token > r->token)
        r->token = e->token;
    if (e->end < r->next_end)
        r->next_end = e->end;
}

/* Rebuilds the registry from clients only. Any other cell is freed: a hostile user may have put it
 * there. */
static void collect_client(struct table *t, uint32_t index)
{
    assert(index);
    uint32_t state = cell_state(&t->cells[index]);

    if (state == CELL_CLIENT || state == CELL_DEAD)
        cell_list_append(t, &t->shards[LOCAL_REGISTRY].idle, index);
    else if (state != CELL_RESERVED)
        cell_give_back(t, LOCAL_REGISTRY, index);
}

static void collect(struct table *t, uint32_t shard, uint32_t index)
{
    assert(index && shard < LOCAL_REGISTRY);
    switch (cell_state(&t->cells[index])) {
    case CELL_RESERVED:
    case CELL_RESOURCE:
        break;
    case CELL_NAME:
        if (!is_piece_of(t, index))
            cell_give_back(t, shard, index);
        break;
    case CELL_WAITING:
    case CELL_HELD:
    case CELL_PAST:
    case CELL_ENDED:
        collect_entry(t, shard, index);
        break;
    case CELL_CLIENT:
    case CELL_DEAD:
        break;
    default:
        cell_give_back(t, shard, index);
    }
}

/* The entry with the units is the truth about a hold. The dead process may have been about to store
 * its values in the other entries, so copy them. */
static void align_holder(struct table *t, const struct resource *r, struct entry *e)
{
    uint32_t index = e->named ? resource_carrier(t, r, &e->owner) : 0;
    const struct entry *carrier = index ? &cell_at(t, index)->entry : e;
    e->token = carrier->token;
    if (r->kind == HF_READ)
        e->kind = carrier->units == r->capacity ? HF_WRITE : HF_READ;
}

/* Rebuilds a resource. The dead process may have granted without a notification, so every entry is
 * notified; a needless notification does no harm. */
static void revive_resource(struct table *t, uint32_t index, nanos now)
{
    assert(index);
    struct resource *r = &t->cells[index].resource;
    cell_list_sort_by_ticket(t, &r->waiters);
    cell_list_sort_by_ticket(t, &r->past);
    FOR_EACH_CELL (t, i, &r->holders)
        align_holder(t, r, &cell_at(t, i)->entry);
    FOR_EACH_CELL (t, i, &r->holders)
        table_client_rescan(t, i);
    FOR_EACH_CELL (t, i, &r->waiters)
        table_client_rescan(t, i);
    FOR_EACH_CELL (t, i, &r->holders)
        if (cell_at(t, i)->entry.named)
            resource_gather(t, r, i, now);

    resource_admit(t, r, now);
    resource_settle(t, index);
}

/* Returns true if the cell is a resource. Cell 0 never is, because index 0 means "none". */
static bool is_resource(struct table *t, uint32_t index)
{
    return index && cell_state(&t->cells[index]) == CELL_RESOURCE;
}

static void repair_registry(struct table *t)
{
    EACH_CELL_OF_SHARD (t, i, LOCAL_REGISTRY)
        if (i)
            collect_client(t, i);
    table_clients_ring_changed(t);
}

static void repair_locks(struct table *t, uint32_t shard)
{
    nanos now = clock_boot();
    assert(shard < LOCAL_REGISTRY);

    EACH_CELL_OF_SHARD (t, i, shard)
        if (is_resource(t, i))
            collect_resource(t, i);
    EACH_CELL_OF_SHARD (t, i, shard)
        if (i)
            collect(t, shard, i);
    EACH_CELL_OF_SHARD (t, i, shard)
        if (is_resource(t, i))
            revive_resource(t, i, now);
}

void shard_repair(struct table *t, uint32_t shard)
{
    assert(shard <= LOCAL_REGISTRY);
    empty_lists(&t->shards[shard]);
    if (shard == LOCAL_REGISTRY)
        repair_registry(t);
    else
        repair_locks(t, shard);

    t->shards[shard].repairs++;
}
