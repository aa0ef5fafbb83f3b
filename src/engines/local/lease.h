/* lease.h - the verbs on a table: each takes the shard's mutex, does its work and answers. */
#pragma once
#include "table.h"

/* Who asks. */
struct hf_asker {
    uint32_t member;
    uint32_t history;     /* how many past holds a name keeps for people to see, */
    hf_nanos history_age; /* and for how long */
    int64_t pid;
};

/* An ask's slot: which cell, and which cookie its client keeps it under. */
static inline uint32_t hf_slot_cell(uint64_t slot)
{
    return (uint32_t)slot;
}
static inline uint32_t hf_slot_cookie(uint64_t slot)
{
    return (uint32_t)(slot >> 32);
}
static inline uint64_t hf_slot(uint32_t cell, uint32_t cookie)
{
    return (uint64_t)cookie << 32 | cell;
}

/* For all: the answer is in *news (true, as engine.h has it). The caller has put the cookie into the slot. After
 * QUEUED, GRANTED and EXTENDED the slot names the ask's cell; a conversion that is BUSY and FAILED leave it as it was;
 * after all others it is 0. */
bool hf_lease_ask(struct hf_table *t, const struct hf_asker *who, struct hf_ask *ask, hf_nanos now,
                  struct hf_news *news);
void hf_lease_leave(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news);
void hf_lease_extend(struct hf_table *t, struct hf_ask *ask, hf_nanos now, bool check_only, struct hf_news *news);
/* Upgrade or downgrade, as the verb says. */
void hf_lease_convert(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news);
bool hf_lease_release(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news);

/* Has a queued entry been granted, or must it ask again? Without the mutex: the cell is ours until we free it. */
bool hf_lease_peek(struct hf_table *t, struct hf_ask *ask, hf_nanos now, struct hf_news *news);

/* Frees an entry that ended while it was on its client's ready list. */
void hf_lease_discard(struct hf_table *t, uint32_t index, uint32_t member);

/* Nobody answers for a detached hold any more once its grant is known. False: the entry may be on its client's ready
 * list; once that was `drained` after the grant it cannot be. */
bool hf_lease_detach(struct hf_table *t, struct hf_ask *ask, bool drained);

/* ---- oversee.c: what people do who see it all ---- */

hf_status hf_lease_list(struct hf_table *t, const struct hf_seen *what, hf_nanos now, hf_row_fn *fn, void *arg);
hf_status hf_lease_break(struct hf_table *t, const struct hf_seen *what, uint64_t token, hf_nanos now);
hf_status hf_lease_resize(struct hf_table *t, const struct hf_seen *what, uint32_t capacity, hf_nanos now);
