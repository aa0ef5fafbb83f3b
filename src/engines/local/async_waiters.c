/* async_waiters.c - the ops of this process whose replies arrive through the background thread. */
#include "async_waiters.h"

#include "cells.h"
#include "table_ops.h"

#include <stdlib.h>
#include <string.h>

void async_waiters_init(struct async_waiters *p)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
}

void async_waiters_free(struct async_waiters *p)
{
    pthread_mutex_destroy(&p->lock);
    free(p->op);
}

static bool make_room(struct async_waiters *p)
{
    assert(p->count <= p->room);
    if (p->count < p->room)
        return true;

    uint32_t room = p->room ? p->room * 2 : 16;
    struct engine_op **more = realloc(p->op, room * sizeof *more);
    if (!more)
        return false;

    memset(more + p->room, 0, (room - p->room) * sizeof *more);
    p->op = more;
    p->spare = p->room;
    p->room = room;

    return true;
}

uint32_t async_waiters_add(struct async_waiters *p, struct engine_op *op)
{
    assert(op);
    uint32_t cookie = 0;
    pthread_mutex_lock(&p->lock);

    if (make_room(p)) {
        while (p->op[p->spare])
            p->spare++;
        p->op[p->spare++] = op;
        p->count++;
        cookie = p->spare;
    }

    pthread_mutex_unlock(&p->lock);
    return cookie;
}

void async_waiters_remove(struct async_waiters *p, uint32_t cookie)
{
    pthread_mutex_lock(&p->lock);
    bool is_known = cookie && cookie <= p->room && p->op[cookie - 1];
    if (is_known) {
        p->op[cookie - 1] = NULL;
        p->count--;
        if (cookie - 1 < p->spare)
            p->spare = cookie - 1;
    }

    pthread_mutex_unlock(&p->lock);
}

/* Hold the lock for the whole walk: otherwise another thread could free a cell that this walk is
 * about to follow. */
void async_waiters_drain(struct async_waiters *p, struct table *t, uint32_t client,
                         void (*notify)(void *, struct engine_op *), void *ctx)
{
    assert(client && notify);
    pthread_mutex_lock(&p->lock);
    /* trying to lock a stuck shard takes long, so this walk tries only until the first failure */
    bool may_discard = true;
    cell_walk_restart();
    uint32_t left = cell_walk_most(t), next;

    for (uint32_t i = atomic_exchange(&cell_at(t, client)->client.ready, 0);
         i && cell_walk_goes_on(t, &left); i = next) {
        struct entry *e = &cell_at(t, i)->entry;
        next = atomic_load(&e->ready_next);
        atomic_store(&e->ready_link, 0);
        /* Read the cookie after clearing ready_link. A thread that drops the entry stores the
         * cookie first and reads ready_link after that, so one of the two threads sees the
         * other. */
        uint32_t cookie = e->cookie;
        struct engine_op *op = cookie && cookie <= p->room ? p->op[cookie - 1] : NULL;
        if (op)
            notify(ctx, op);
        else if (may_discard)
            may_discard = table_discard(t, i, client);
    }

    pthread_mutex_unlock(&p->lock);
}

void async_waiters_notify_all(struct async_waiters *p, void (*notify)(void *, struct engine_op *),
                              void *ctx)
{
    assert(notify);
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->room; i++)
        if (p->op[i])
            notify(ctx, p->op[i]);

    pthread_mutex_unlock(&p->lock);
}
