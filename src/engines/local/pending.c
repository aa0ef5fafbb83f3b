/* pending.c - the asks of this process whose news come by the bell. */
#include "pending.h"

#include "lease.h"

#include <stdlib.h>
#include <string.h>

void hf_pending_init(struct hf_pending *p)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
}

void hf_pending_free(struct hf_pending *p)
{
    pthread_mutex_destroy(&p->lock);
    free(p->ask);
}

static bool make_room(struct hf_pending *p)
{
    if (p->count < p->room)
        return true;
    uint32_t room = p->room ? p->room * 2 : 16;
    struct hf_ask **more = realloc(p->ask, room * sizeof *more);
    if (!more)
        return false;
    memset(more + p->room, 0, (room - p->room) * sizeof *more);
    p->ask = more;
    p->spare = p->room;
    p->room = room;
    return true;
}

uint32_t hf_pending_add(struct hf_pending *p, struct hf_ask *ask)
{
    uint32_t cookie = 0;
    pthread_mutex_lock(&p->lock);
    if (make_room(p)) {
        while (p->ask[p->spare])
            p->spare++;
        p->ask[p->spare++] = ask;
        p->count++;
        cookie = p->spare;
    }
    pthread_mutex_unlock(&p->lock);
    return cookie;
}

void hf_pending_remove(struct hf_pending *p, uint32_t cookie)
{
    pthread_mutex_lock(&p->lock);
    if (cookie && cookie <= p->room && p->ask[cookie - 1]) {
        p->ask[cookie - 1] = NULL;
        p->count--;
        if (cookie - 1 < p->spare)
            p->spare = cookie - 1;
    }
    pthread_mutex_unlock(&p->lock);
}

/* The whole walk is under the lock: a cell that one thread frees must not be walked over by another. */
void hf_pending_drain(struct hf_pending *p, struct hf_table *t, uint32_t member, void (*nudge)(void *, struct hf_ask *),
                      void *ctx)
{
    pthread_mutex_lock(&p->lock);
    uint32_t left = hf_table_cells(t), next;
    for (uint32_t i = atomic_exchange(&hf_cell_at(t, member)->member.ready, 0); i && left--; i = next) {
        struct hf_entry *e = &hf_cell_at(t, i)->entry;
        next = atomic_load(&e->ready_next);
        atomic_store(&e->linked, 0);
        uint32_t cookie = e->cookie; /* behind it: who drops it stores the cookie and then looks at `linked` */
        struct hf_ask *ask = cookie && cookie <= p->room ? p->ask[cookie - 1] : NULL;
        if (ask)
            nudge(ctx, ask);
        else
            hf_lease_discard(t, i, member);
    }
    pthread_mutex_unlock(&p->lock);
}

void hf_pending_nudge_all(struct hf_pending *p, void (*nudge)(void *, struct hf_ask *), void *ctx)
{
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->room; i++)
        if (p->ask[i])
            nudge(ctx, p->ask[i]);
    pthread_mutex_unlock(&p->lock);
}
