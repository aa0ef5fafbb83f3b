/* clients.c - the clients of a table: which clients are alive, which client watches which, and
 * cleaning up after dead ones. */
#include "clients.h"

#include "base/error.h"
#include "shard.h"
#include "sys/clock.h"
#include "wait_queue.h"

#include <string.h>

static struct table_client *member_at(struct table *t, uint32_t index)
{
    return &cell_at(t, index)->client;
}

/* The mutexes that the kernel marks when this process dies: our own life word, and that of a dead
 * client that we clean up after. */
enum { SLOT_OWN, SLOT_REAPED };

static int64_t life_offset(uint32_t client)
{
    return LOCAL_CELLS_AT + (int64_t)client * LOCAL_CELL +
           (int64_t)offsetof(struct table_client, life);
}

static struct cell_list *ring_of(struct table *t)
{
    return &t->shards[LOCAL_REGISTRY].idle;
}

/* How long to wait for a mutex: its owner may be stopped, and the background thread has leases to
 * renew. */
#define SOON NANOS_OF_MS(5)

static nanos soon(void)
{
    return clock_boot() + SOON;
}

/* ---- Notifying a client ---- */

void table_client_wake(struct table_client *m)
{
    atomic_fetch_add(&m->wake_word, 1);
    futex_wake_all(&m->wake_word);
}

void table_client_ready(struct table *t, uint32_t client, uint32_t entry)
{
    struct table_client *m = member_at(t, client);
    struct entry *e = &cell_at(t, entry)->entry;
    uint8_t ready_link = READY_UNLINKED;

    if (atomic_compare_exchange_strong(&e->ready_link, &ready_link, READY_LINKED)) {
        uint32_t head = atomic_load(&m->ready);
        do
            atomic_store(&e->ready_next, head);
        while (!atomic_compare_exchange_weak(&m->ready, &head, entry));
    } else if (ready_link == READY_UNKNOWN) {
        atomic_store(&m->rescan, 1);
    }

    table_client_wake(m);
}

void table_client_rescan(struct table *t, uint32_t entry)
{
    struct entry *e = &cell_at(t, entry)->entry;
    atomic_fetch_add(&e->head.word, 1);
    futex_wake_all(&e->head.word);
    if (!e->client)
        return;

    uint8_t ready_link = READY_LINKED;
    atomic_compare_exchange_strong(&e->ready_link, &ready_link, READY_UNKNOWN);
    struct table_client *m = member_at(t, e->client);

    atomic_store(&m->rescan, 1);
    table_client_wake(m);
}

void table_client_recheck(struct table *t, uint32_t client)
{
    struct table_client *m = member_at(t, client);
    atomic_store(&m->recheck, 1);
    table_client_wake(m);
}

/* ---- Joining and leaving ---- */

void table_clients_ring_changed(struct table *t)
{
    atomic_fetch_add(&t->state->ring, 1);
    FOR_EACH_CELL (t, i, ring_of(t))
        table_client_wake(member_at(t, i));
}

/* Tells the client in front of `index` that its neighbour has changed. */
static void notify_predecessor(struct table *t, uint32_t index)
{
    uint32_t before = member_at(t, index)->head.prev;
    if (!before)
        before = ring_of(t)->tail;
    atomic_fetch_add(&t->state->ring, 1);
    if (before && before != index)
        table_client_wake(member_at(t, before));
}

hf_status table_client_join(struct table *t, int64_t pid, int64_t until, uint32_t *client)
{
    assert(pid > 0 && client);
    hf_status status = shard_lock(t, LOCAL_REGISTRY, until);
    if (status != HF_OK)
        return status;

    uint32_t index = cell_take(t, LOCAL_REGISTRY, until).index;
    if (!index) {
        shard_unlock(t, LOCAL_REGISTRY);
        return error_status();
    }

    struct table_client *m = member_at(t, index);
    int error = robust_owner_cover_slot(&t->owner, t->fd, SLOT_OWN, life_offset(index));
    atomic_store(&m->life.word, 0);
    bool alive = !error && robust_mutex_try(&t->owner, &m->life) == ROBUST_MUTEX_LOCKED;
    atomic_store(&m->ready, 0);
    atomic_store(&m->rescan, 0);
    atomic_store(&m->recheck, 0);
    m->pid = pid;
    if (!alive) {
        cell_give_back(t, LOCAL_REGISTRY, index);
        shard_unlock(t, LOCAL_REGISTRY);
        return error_set(HF_NO_MEMORY, "%s: cannot map the page of the new client: %s", t->path,
                         strerror(error));
    }

    cell_commit(cell_at(t, index), CELL_CLIENT);
    cell_list_append(t, ring_of(t), index);
    notify_predecessor(t, index);
    shard_unlock(t, LOCAL_REGISTRY);
    *client = index;

    return HF_OK;
}

hf_status table_client_next(struct table *t, uint32_t client, uint32_t *next, uint32_t *ring)
{
    assert(client && next && ring);
    hf_status status = shard_lock(t, LOCAL_REGISTRY, soon());
    if (status != HF_OK)
        return status;

    *ring = atomic_load(&t->state->ring);
    *next = read_once(member_at(t, client)->head.next);
    if (!*next)
        *next = read_once(ring_of(t)->head);
    if (*next == client)
        *next = 0;
    shard_unlock(t, LOCAL_REGISTRY);

    return HF_OK;
}

/* ---- Cleaning up after a dead client ---- */

static bool belongs_to(union cell *cell, uint32_t client)
{
    uint32_t state = cell_state(cell);
    return (state == CELL_WAITING || state == CELL_HELD || state == CELL_ENDED) &&
           cell->entry.client == client;
}

static bool free_entries_in_chunk(struct table *t, uint32_t first, uint32_t client)
{
    assert(first % LOCAL_PER_CHUNK == 0);
    uint32_t shard = read_once(t->cells[first].head.shard);
    if (shard >= LOCAL_SHARDS)
        return true;
    nanos wait = SOON;
    if (shard_lock_next(t, shard, &wait) != HF_OK)
        return false;

    nanos now = clock_boot();
    for (uint32_t i = first; i < first + LOCAL_PER_CHUNK; i++)
        if (belongs_to(&t->cells[i], client))
            entry_drop(t, i, now);

    shard_unlock(t, shard);
    return true;
}

/* Frees the holds and places in queues of one client in every shard. The client gets no new
 * entries, because its cell is CELL_DEAD. Returns false if some shard could not be locked. */
static bool free_entries(struct table *t, uint32_t client)
{
    assert(client);
    /* number of stuck shards to try in one call: each try costs time, and the caller has other
     * work */
    enum { STUCK_MAX = 3 };
    unsigned stuck = 0;
    cell_walk_restart_long(t);

    for (uint32_t first = 0; first < table_cells(t) && stuck < STUCK_MAX; first += LOCAL_PER_CHUNK)
        for (uint32_t i = first; i < first + LOCAL_PER_CHUNK; i++)
            if (belongs_to(&t->cells[i], client)) {
                stuck += !free_entries_in_chunk(t, first, client);
                break;
            }

    return stuck == 0;
}

/* Removes the client's cell from the registry. The caller owns the life word. */
static bool take_out(struct table *t, uint32_t client)
{
    assert(client);
    if (shard_lock(t, LOCAL_REGISTRY, soon()) != HF_OK)
        return false;

    if (client == t->reaping)
        atomic_store(&t->state->reaped_at, clock_boot());
    notify_predecessor(t, client);
    cell_list_remove(t, ring_of(t), client);
    robust_mutex_unlock(&t->owner, &member_at(t, client)->life);
    robust_owner_cover_slot(&t->owner, t->fd, client == t->reaping ? SLOT_REAPED : SLOT_OWN, 0);
    if (client == t->reaping)
        t->reaping = 0;
    cell_give_back(t, LOCAL_REGISTRY, client);
    shard_unlock(t, LOCAL_REGISTRY);

    return true;
}

bool table_client_lives(struct table *t, uint32_t client)
{
    union cell *cell = cell_at(t, client);
    return cell_state(cell) == CELL_CLIENT &&
           robust_mutex_held(atomic_load(&cell->client.life.word));
}

/* Returns true if this process owns the life word of the dead client: now, or since an earlier call
 * that returned REAP_LATER. */
static bool take_over(struct table *t, uint32_t client, struct table_client *m)
{
    if (robust_mutex_is_mine(&t->owner, &m->life))
        return true;
    if (robust_mutex_held(atomic_load(&m->life.word)))
        return false;
    if (robust_owner_cover_slot(&t->owner, t->fd, SLOT_REAPED, life_offset(client)) != 0)
        return false;

    t->reaping = client;
    enum robust_mutex_result locked = robust_mutex_try(&t->owner, &m->life);
    if (locked == ROBUST_MUTEX_OWNER_DIED)
        robust_mutex_make_consistent(&m->life);
    return locked != ROBUST_MUTEX_TIMEOUT;
}

/* Takes over the life word of a dead client: the thread that owns it does the clean-up. The
 * registry's mutex is held, so that the cell cannot become another client between the check and the
 * take-over. */
static enum reap_result grip(struct table *t, uint32_t client)
{
    if (shard_lock(t, LOCAL_REGISTRY, soon()) != HF_OK)
        return REAP_LATER;

    union cell *cell = cell_at(t, client);
    uint32_t state = cell_state(cell);
    bool is_client = cell != &t->outside && (state == CELL_CLIENT || state == CELL_DEAD);
    bool ours = is_client && take_over(t, client, &cell->client);

    if (ours)
        cell_commit(cell, CELL_DEAD);
    else if (t->reaping == client)
        t->reaping = 0;

    shard_unlock(t, LOCAL_REGISTRY);

    return ours ? REAP_DONE : REAP_NONE;
}

enum reap_result table_client_reap(struct table *t, uint32_t client)
{
    assert(client);
    bool begun_another = t->reaping && t->reaping != client;
    if (begun_another && table_client_reap(t, t->reaping) == REAP_LATER)
        return REAP_LATER;

    enum reap_result gripped = grip(t, client);
    if (gripped != REAP_DONE)
        return gripped;
    return free_entries(t, client) && take_out(t, client) ? REAP_DONE : REAP_LATER;
}

bool table_client_leave(struct table *t, uint32_t client)
{
    assert(client);
    cell_commit(cell_at(t, client), CELL_DEAD);
    return free_entries(t, client) && take_out(t, client);
}
