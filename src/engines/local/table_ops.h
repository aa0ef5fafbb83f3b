/* table_ops.h - the ops on a table, and the page to read before changing this folder.
 *
 * Entry points. local.c implements engines/engine.h and calls the functions below. An op runs in
 * this order:
 *   1. shard_op_enter() (shard_op.h) locks the shard of the name; shard_lock() (shard.c) repairs
 *      the shard (repair.c) if its last owner died inside.
 *   2. resource_need() (resource.c) finds or makes the resource of the name, in cells (cells.c) of
 *      the file (table_file.c, layout.h).
 *   3. The op grants, queues, extends or releases: local_acquire.c, table_ops.c, wait_queue.c.
 *      Holds that end leave a note (hold_history.c).
 *   4. entry_notify() wakes the waiters that were granted: a parked caller by its own word, any
 *      other op through its client's ready list (clients.c, async_waiters.c).
 *   5. shard_op_leave() unlocks the shard.
 * An uncontended acquire or release is one mutex, one read of the clock and no system call; a
 * handoff adds one futex wake.
 *
 * Policies, each with the reason:
 * - Truth. The cells are the truth, everything else is derived (layout.h). tests/fault/local/
 *   repair_steps.c kills an op after each of its instructions and checks the repair.
 * - Release time. A release takes the time of the clock's last tick, for a fourth of the cost. The
 *   time only decides whether the hold has expired; until some op notes that in the table, no other
 *   client can get the hold. The event log and the history record the exact time.
 * - Wakes are made inside the mutex. If the granter dies before the wake, the mutex is marked and
 *   the repair wakes; after the unlock, the wake would be lost. The woken waiter needs no mutex.
 * - Several attempts of one owner are one hold (wait_queue.h). When the attempt with the units
 *   goes, its units are stored in another attempt first: a death in between counts them twice,
 *   never zero times. Waiting ops of an owner are admitted together; otherwise they would block
 *   each other.
 * - A cell belongs to its client. An expired hold becomes ENDED and waits for its client to free
 *   it, because the client's handle and ready list still name the cell. A detached hold has no
 *   client and is freed by the op that notices its end.
 * - Death. Each client watches the life word of the next one (clients.h) with FUTEX_WAITV, together
 *   with its own wake word; without that system call it polls every 10 ms. An op that finds the
 *   lock taken checks the life words of the holders itself, because the watcher may be stopped. If
 *   nothing of this works, the ttl ends the hold.
 * - Growth. 4 GiB of address space are mapped once and the file grows under them, by
 *   posix_fallocate: a full file system is an error, not a SIGBUS. A shard grows by chunks of 16
 *   cells; before that it drops a resource that nobody uses.
 * - Tokens. A resource starts at the wall clock in microseconds, or above the shard's floor, and
 *   then counts. A dropped resource raises the floor. A reboot empties the table and keeps the
 *   floor.
 * - Watching. A watcher stores until when it watches; until then each change wakes one word. The
 *   watcher compares two listings (client/watch.c), so the table keeps nothing for it.
 * - Replacement. Each renewal, check and handoff after a wait compares the path's inode. A table
 *   that lost its name is marked as retired, for every process that has it open; the leases in it
 *   are lost. */
#pragma once
#include "engines/admin.h"
#include "table_file.h"

/* The client for which an op runs. */
struct table_caller {
    uint32_t client;
    uint32_t history;  /* number of past holds to keep for a name */
    nanos history_age; /* time for which they are kept */
    int64_t pid;
};

/* Returns the index of the cell in an op's slot. The other part is the cookie under which the
 * client keeps the op. */
static inline uint32_t slot_cell(uint64_t slot)
{
    return (uint32_t)slot;
}
static inline uint32_t slot_cookie(uint64_t slot)
{
    return (uint32_t)(slot >> 32);
}
static inline uint64_t slot_make(uint32_t cell, uint32_t cookie)
{
    return (uint64_t)cookie << 32 | cell;
}

/* Each op puts its reply into *reply and returns true. The caller has put the cookie into the
 * slot. After QUEUED, GRANTED and EXTENDED the slot names the op's cell. FAILED, and BUSY for a
 * conversion, leave the slot as it was. All other replies clear the cell. */
bool table_acquire(struct table *t, const struct table_caller *who, struct engine_op *op, nanos now,
                   struct engine_reply *reply);
void table_leave(struct table *t, struct engine_op *op, nanos now, struct engine_reply *reply);
void table_extend(struct table *t, struct engine_op *op, nanos now, bool check_only,
                  struct engine_reply *reply);
/* Upgrades or downgrades, as op->verb says. */
void table_convert(struct table *t, struct engine_op *op, nanos now, struct engine_reply *reply);
bool table_release(struct table *t, struct engine_op *op, nanos now, struct engine_reply *reply);

/* Fetches the reply of a queued op, if there is one. Needs no mutex: the cell belongs to the op
 * until the op frees it. */
bool table_take_reply(struct table *t, struct engine_op *op, nanos now, struct engine_reply *reply);

/* Frees an entry that ended while it was on its client's ready list. Returns false if the shard
 * could not be locked. */
bool table_discard(struct table *t, uint32_t index, uint32_t client);

/* Detaches a hold once its client has seen the grant. Returns false if the entry may still be on
 * the client's ready list; `drained` says that the list was emptied after the grant. */
bool table_detach(struct table *t, struct engine_op *op, bool drained);

/* ---- local_admin.c: list, break, resize ---- */

hf_status table_list(struct table *t, const struct admin_target *what, nanos now, hf_row_fn *fn,
                     void *arg);
hf_status table_break(struct table *t, const struct admin_target *what, uint64_t token, nanos now);
hf_status table_resize(struct table *t, const struct admin_target *what, uint32_t capacity,
                       nanos now);
