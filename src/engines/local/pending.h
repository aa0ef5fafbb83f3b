/* pending.h - the asks of this process whose news come by the bell, each under a cookie that the table carries. The
 * table holds the cookie and not the pointer: what comes out of a shared file is never followed. */
#pragma once
#include "table.h"

struct hf_pending {
    pthread_mutex_t lock;
    struct hf_ask **ask; /* [cookie - 1] */
    uint32_t room, count;
    uint32_t spare; /* no free place below this index */
};

void hf_pending_init(struct hf_pending *p);
void hf_pending_free(struct hf_pending *p);
uint32_t hf_pending_add(struct hf_pending *p, struct hf_ask *ask); /* its cookie; 0: out of memory */
void hf_pending_remove(struct hf_pending *p, uint32_t cookie);

/* Empties the ready list of a member: calls nudge for each ask in it. */
void hf_pending_drain(struct hf_pending *p, struct hf_table *t, uint32_t member, void (*nudge)(void *, struct hf_ask *),
                      void *ctx);
/* Nudges everybody: who was told cannot be said after a repair. */
void hf_pending_nudge_all(struct hf_pending *p, void (*nudge)(void *, struct hf_ask *), void *ctx);
