/* cells.h - lists of cells; allocating and freeing cells. The caller holds the mutex of the cells'
 * shard. */
#pragma once
#include "table_file.h"

/* Most functions come in two forms: `..._cell` for a caller that already has the cell's address,
 * and without that ending for a caller that has the index only. */

/* A cell with its address, small enough to be returned in registers. */
struct cell_ref {
    uint32_t index; /* index of the cell; 0: none */
    union cell *cell;
};

/* Puts the cell at the head of the list. */
static inline void cell_list_push_cell(struct table *t, struct cell_list *list, uint32_t index,
                                       union cell *cell)
{
    cell->head.prev = 0;
    cell->head.next = list->head;
    if (list->head)
        cell_at(t, list->head)->head.prev = index;
    else
        list->tail = index;

    list->head = index;
    list->count++;
}

static inline void cell_list_push(struct table *t, struct cell_list *list, uint32_t index)
{
    cell_list_push_cell(t, list, index, cell_at(t, index));
}

static inline void cell_list_append_cell(struct table *t, struct cell_list *list, uint32_t index,
                                         union cell *cell)
{
    cell->head.next = 0;
    cell->head.prev = list->tail;
    if (list->tail)
        cell_at(t, list->tail)->head.next = index;
    else
        list->head = index;

    list->tail = index;
    list->count++;
}

static inline void cell_list_append(struct table *t, struct cell_list *list, uint32_t index)
{
    cell_list_append_cell(t, list, index, cell_at(t, index));
}

/* Puts the cell behind `before`, which is in the list. */
static inline void cell_list_insert(struct table *t, struct cell_list *list, uint32_t before,
                                    uint32_t index)
{
    union cell *cell = cell_at(t, index), *first = cell_at(t, before);
    cell->head.prev = before;
    cell->head.next = first->head.next;
    if (first->head.next)
        cell_at(t, first->head.next)->head.prev = index;
    else
        list->tail = index;

    first->head.next = index;
    list->count++;
}

static inline void cell_list_remove_cell(struct table *t, struct cell_list *list, union cell *cell)
{
    uint32_t next = cell->head.next, prev = cell->head.prev;
    if (prev)
        cell_at(t, prev)->head.next = next;
    else
        list->head = next;

    if (next)
        cell_at(t, next)->head.prev = prev;
    else
        list->tail = prev;

    list->count--;
    cell->head.next = cell->head.prev = 0;
}

static inline void cell_list_remove(struct table *t, struct cell_list *list, uint32_t index)
{
    cell_list_remove_cell(t, list, cell_at(t, index));
}

/* Removes the first cell. Index 0: there is none, or the list is damaged. */
static inline struct cell_ref cell_list_pop(struct table *t, struct cell_list *list)
{
    uint32_t index = read_once(list->head);
    struct cell_ref first = {.index = index, .cell = cell_at(t, index)};
    if (__builtin_expect(first.cell == &t->outside, false))
        first.index = 0;
    cell_list_remove_cell(t, list, first.cell);
    return first;
}

/* Sorts a queue by arrival number. */
void cell_list_sort_by_ticket(struct table *t, struct cell_list *list);

/* Sets the error: a list leads to a cell that does not exist. */
void cell_list_damaged(struct table *t);

/* The rare half of cell_take(), for when the shard's free list is empty. */
struct cell_ref cell_take_last(struct table *t, uint32_t shard, int64_t until);

/* Takes a cell whose state is still CELL_FREE: fill it in, then commit it. Returns index 0 if the
 * table is full (hf_error_text() says why). May drop idle resources, so take a resource off the
 * idle list before this call. */
static inline struct cell_ref cell_take(struct table *t, uint32_t shard, int64_t until)
{
    struct cell_list *free = &t->shards[shard].free;
    if (__builtin_expect(!free->head, false))
        return cell_take_last(t, shard, until);

    struct cell_ref taken = cell_list_pop(t, free);
    if (__builtin_expect(!taken.index, false))
        cell_list_damaged(t);
    return taken;
}

static inline void cell_give_back_cell(struct table *t, uint32_t shard, uint32_t index,
                                       union cell *cell)
{
    cell_commit(cell, CELL_FREE);
    cell_list_push_cell(t, &shard_at(t, shard)->free, index, cell);
}

static inline void cell_give_back(struct table *t, uint32_t shard, uint32_t index)
{
    cell_give_back_cell(t, shard, index, cell_at(t, index));
}

/* Bounds the walks of an op together. A damaged list may be a circle, so each walk has at most as
 * many steps as there are cells. Walks inside walks could still take for ever, so every WALK_CHECK
 * steps the time is checked. */
struct cell_walk {
    /* begin of the walks; 0: the next check sets it; WALK_OVER: walks of this op end at once */
    nanos began;
    uint32_t steps; /* number of steps until the time is checked */
};
extern _Thread_local struct cell_walk cell_walk;
#define WALK_CHECK 1024
#define WALK_OVER (-1)

/* Called when an op begins that locks a single shard. */
static inline void cell_walk_restart(void)
{
    cell_walk.began = 0;
}
/* Called when a call begins that visits every cell. */
void cell_walk_restart_long(struct table *t);
/* Excludes time for which the op waited from the time of its walks. */
static inline void cell_walk_waited(nanos time)
{
    cell_walk.began += cell_walk.began > 0 ? time : 0;
}

/* Returns true if a walk of this op was ended early. */
static inline bool cell_walks_ended(void)
{
    return cell_walk.began == WALK_OVER;
}

/* Returns the most steps of a walk that begins now. */
static inline uint32_t cell_walk_most(struct table *t)
{
    return __builtin_expect(cell_walks_ended(), false) ? 0 : table_cells(t);
}

/* The rare half of cell_walk_goes_on(). Returns false if the walk is over; then the table counts as
 * damaged. */
bool cell_walk_check(struct table *t, uint32_t left);

static inline bool cell_walk_goes_on(struct table *t, uint32_t *left)
{
    bool is_due = --cell_walk.steps == 0 || *left == 0;
    if (__builtin_expect(is_due, false) && !cell_walk_check(t, *left))
        return false;
    --*left;
    return true;
}

/* Visits each index of a list. */
#define FOR_EACH_CELL(t, i, list)                                                                  \
    for (uint32_t i = read_once((list)->head), i##_left = cell_walk_most(t), i##_next;             \
         i && cell_walk_goes_on(t, &i##_left) &&                                                   \
         (i##_next = read_once(cell_at(t, i)->head.next), true);                                   \
         i = i##_next)
