/* op_table.h - the ops that an engine knows, from the first submit until forget(): small while an
 * op is idle, because each hold has one.
 *
 * An engine embeds struct known_op as the first field of what it keeps of an idle op. `active`
 * points to what the engine needs only while something is in flight for the op. */
#pragma once
#include "core/engine_protocol.h"

struct known_op {
    /* next op in the bucket, or next unused struct */
    struct known_op *same_hash;
    struct engine_op *op; /* the op's attempt id must not change while the op is in the table */
    void *active;         /* the engine's struct for an active op; NULL: the op is idle */
};

struct op_slab;

/* A table. Set `size`, and the rest to zero. */
struct op_table {
    size_t size; /* bytes of the engine's struct that begins with a known_op */
    struct known_op **bucket, *unused;
    /* number of buckets (a power of two, 0 before the first op), and of ops */
    uint32_t buckets, count;
    struct op_slab *slabs;
};

struct known_op *op_table_note(struct op_table *table, struct engine_op *op);
/* Adds the op and sets op->engine_state. The bytes behind the known_op are zero. NULL: no memory.
 * `size` is the table's size, passed as a constant to save the call of memset(). */
static inline void *op_table_add(struct op_table *table, struct engine_op *op, size_t size)
{
    struct known_op *known = op_table_note(table, op);
    if (known)
        memset(known + 1, 0, size - sizeof *known);
    return known;
}
/* Clears op->engine_state. */
void op_table_drop(struct op_table *table, struct known_op *known);
void op_table_free(struct op_table *table); /* Frees the table, but not the ops. */

/* Returns the first op with that attempt id, and the next one; NULL: none. */
struct known_op *op_table_find(const struct op_table *table, const struct id *attempt);
struct known_op *op_table_next(const struct known_op *known);
