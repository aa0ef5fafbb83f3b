/* entry_order.h - who holds, as a pure function of a list of entries.
 *
 * If an engine cannot run a program of ours in its server, it keeps one entry for each request, in
 * the order of creation, and no record of who holds. Each client reads the list and judges it by
 * this rule.
 *
 * The rule is stable: an entry that holds goes on holding until it is deleted. Deleting, appending
 * and confirming other entries, a downgrade and a larger capacity never end a hold. An upgrade and
 * a smaller capacity could, so engines guard these two with comparisons. So "I hold", read at any
 * revision, stays true until the own entry is gone, and an old list can only delay a grant.
 * tests/sim/entry_order_sim.c tries this on random schedules. */
#pragma once
#include "holdfast.h"

#include <stddef.h>

/* One entry of the list. */
struct queue_entry {
    uint64_t arrival; /* order of creation; no two entries share one */
    hf_kind kind;
    /* HF_SEMAPHORE: wanted units, and the capacity that the request declared */
    uint32_t units, capacity;
    bool confirmed; /* the client has written that it holds, so it holds at any capacity */
    bool foreign;   /* made by another program: exclusive, and holds alone */
    bool holds;     /* result: it holds */
    uint32_t place; /* result: position in the queue, 1 is next; 0: it holds */
};

/* The capacity of a semaphore after a resize. All zero: there was none, and requests declare it. */
struct queue_resize {
    uint32_t declared; /* capacity that requests for this semaphore declare */
    uint32_t capacity; /* capacity that is in force instead */
};

struct queue_summary {
    uint32_t holders, waiters;
    uint64_t used; /* sum of the holders' units; readers count 1, writers QUEUE_ALL */
};

/* Units of a read-write lock: a reader takes 1, a writer all. */
#define QUEUE_ALL (UINT32_C(1) << 20)

/* Fills in the results of all entries, which are sorted by arrival. */
struct queue_summary entry_order_judge(struct queue_entry *entries, size_t count,
                                       struct queue_resize resize);

/* Returns true if these two may share a queue. If not, their callers disagree about the kind or
 * capacity of the name. The request that came later is refused, and until its client deletes it no
 * entry passes it. */
bool entry_order_agree(const struct queue_entry *a, const struct queue_entry *b);

/* Returns the units that an entry takes, and how many there are for entries of its kind. */
uint32_t entry_order_need(const struct queue_entry *entry);
uint32_t entry_order_capacity(const struct queue_entry *entry, struct queue_resize resize);
