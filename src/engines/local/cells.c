/* cells.c - lists of cells, and cells taken and given back. */
#include "cells.h"

#include "resource.h"

/* Two chains in order become one. */
static uint32_t merge(struct hf_table *t, uint32_t a, uint32_t b)
{
    uint32_t head = 0, *end = &head;
    while (a && b) {
        union hf_cell *x = hf_cell_at(t, a), *y = hf_cell_at(t, b);
        bool first = x->entry.ticket <= y->entry.ticket;
        *end = first ? a : b;
        end = first ? &x->head.next : &y->head.next;
        *(first ? &a : &b) = *end;
    }
    *end = a ? a : b;
    return head;
}

/* Merge sort from below: level[i] is a chain of 2^i cells in order, so 32 levels hold any list. */
void hf_cells_sort_by_ticket(struct hf_table *t, struct hf_cells *list)
{
    uint32_t level[32] = {0}, all = 0;
    HF_EACH_CELL(t, i, list)
    {
        hf_cell_at(t, i)->head.next = 0;
        uint32_t chain = i;
        unsigned at = 0;
        for (; at < 31 && level[at]; at++) {
            chain = merge(t, level[at], chain);
            level[at] = 0;
        }
        level[at] = level[at] ? merge(t, level[at], chain) : chain;
    }
    for (unsigned at = 0; at < 32; at++)
        all = merge(t, level[at], all);
    struct hf_cells sorted = {.head = all};
    list->head = list->tail = list->count = 0;
    HF_EACH_CELL(t, i, &sorted) hf_cells_append(t, list, i);
}

static bool add_chunk(struct hf_table *t, uint32_t shard, int64_t until)
{
    uint32_t first = hf_table_grow(t, shard, until);
    for (uint32_t i = 0; first && i < LOCAL_PER_CHUNK; i++)
        hf_cells_push(t, &t->shards[shard].free, first + LOCAL_PER_CHUNK - 1 - i);
    return first != 0;
}

struct hf_spot hf_cell_take_last(struct hf_table *t, uint32_t shard, int64_t until)
{
    struct hf_shard *s = &t->shards[shard];
    if (!s->free.head && !hf_resource_drop_idle(t, shard) && !add_chunk(t, shard, until))
        return (struct hf_spot){.index = 0};
    return hf_cells_pop(t, &s->free);
}
