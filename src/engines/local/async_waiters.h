/* async_waiters.h - the ops of this process whose replies arrive through the background thread,
 * each under a cookie. The table carries the cookie and never a pointer: no address comes out of a
 * shared file. */
#pragma once
#include "table_file.h"

struct async_waiters {
    pthread_mutex_t lock;
    struct engine_op **op; /* array indexed by cookie - 1 */
    uint32_t room, count;
    uint32_t spare; /* every place below this index is in use */
};

void async_waiters_init(struct async_waiters *p);
void async_waiters_free(struct async_waiters *p);
/* Returns the cookie of the op, or 0 if memory ran out. */
uint32_t async_waiters_add(struct async_waiters *p, struct engine_op *op);
void async_waiters_remove(struct async_waiters *p, uint32_t cookie);

/* Empties the ready list of a client and calls notify for each op in it. */
void async_waiters_drain(struct async_waiters *p, struct table *t, uint32_t client,
                         void (*notify)(void *, struct engine_op *), void *ctx);
/* Notifies every op: after a repair nobody can tell which ops had been notified. */
void async_waiters_notify_all(struct async_waiters *p, void (*notify)(void *, struct engine_op *),
                              void *ctx);
