/* cells.h - lists of cells, and cells taken and given back. All under the mutex of the cells' shard. */
#pragma once
#include "table.h"

/* Each comes in two forms: for whoever has looked the cell up already, and for others. */

/* A cell that was looked up: returned in registers. */
struct hf_spot {
    uint32_t index; /* 0: none */
    union hf_cell *cell;
};

/* In front. */
static inline void hf_cells_push_cell(struct hf_table *t, struct hf_cells *list, uint32_t index, union hf_cell *cell)
{
    cell->head.prev = 0;
    cell->head.next = list->head;
    if (list->head)
        hf_cell_at(t, list->head)->head.prev = index;
    else
        list->tail = index;
    list->head = index;
    list->count++;
}

static inline void hf_cells_push(struct hf_table *t, struct hf_cells *list, uint32_t index)
{
    hf_cells_push_cell(t, list, index, hf_cell_at(t, index));
}

static inline void hf_cells_append_cell(struct hf_table *t, struct hf_cells *list, uint32_t index, union hf_cell *cell)
{
    cell->head.next = 0;
    cell->head.prev = list->tail;
    if (list->tail)
        hf_cell_at(t, list->tail)->head.next = index;
    else
        list->head = index;
    list->tail = index;
    list->count++;
}

static inline void hf_cells_append(struct hf_table *t, struct hf_cells *list, uint32_t index)
{
    hf_cells_append_cell(t, list, index, hf_cell_at(t, index));
}

static inline void hf_cells_remove_cell(struct hf_table *t, struct hf_cells *list, union hf_cell *cell)
{
    uint32_t next = cell->head.next, prev = cell->head.prev;
    if (prev)
        hf_cell_at(t, prev)->head.next = next;
    else
        list->head = next;
    if (next)
        hf_cell_at(t, next)->head.prev = prev;
    else
        list->tail = prev;
    list->count--;
    cell->head.next = cell->head.prev = 0;
}

static inline void hf_cells_remove(struct hf_table *t, struct hf_cells *list, uint32_t index)
{
    hf_cells_remove_cell(t, list, hf_cell_at(t, index));
}

/* The first one, off the list; there is one. */
static inline struct hf_spot hf_cells_pop(struct hf_table *t, struct hf_cells *list)
{
    struct hf_spot first = {.index = list->head, .cell = hf_cell_at(t, list->head)};
    hf_cells_remove_cell(t, list, first.cell);
    return first;
}

/* By arrival number, for a queue that was collected in any order. */
void hf_cells_sort_by_ticket(struct hf_table *t, struct hf_cells *list);

struct hf_spot hf_cell_take_last(struct hf_table *t, uint32_t shard, int64_t until); /* when none may be free */

/* An unused cell, its state still CELL_FREE: fill it, then commit. 0: full, hf_error_text() says why. May drop an idle
 * resource, so whoever needs one takes it off the idle list first. */
static inline struct hf_spot hf_cell_take(struct hf_table *t, uint32_t shard, int64_t until)
{
    struct hf_cells *free = &t->shards[shard].free;
    return free->head ? hf_cells_pop(t, free) : hf_cell_take_last(t, shard, until);
}

static inline void hf_cell_give_cell(struct hf_table *t, uint32_t shard, uint32_t index, union hf_cell *cell)
{
    hf_cell_commit(cell, CELL_FREE);
    hf_cells_push_cell(t, &hf_shard_at(t, shard)->free, index, cell);
}

static inline void hf_cell_give(struct hf_table *t, uint32_t shard, uint32_t index)
{
    hf_cell_give_cell(t, shard, index, hf_cell_at(t, index));
}

/* Each index of a list. Bounded, because a damaged file may hold a circle. */
#define HF_EACH_CELL(t, i, list)                                                                                       \
    for (uint32_t i = (list)->head, i##_left = hf_table_cells(t), i##_next;                                            \
         i && i##_left-- && (i##_next = hf_cell_at(t, i)->head.next, true); i = i##_next)
