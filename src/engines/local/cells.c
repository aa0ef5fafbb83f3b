/* cells.c - lists of cells; allocating and freeing cells. */
#include "cells.h"

#include "base/error.h"
#include "resource.h"
#include "sys/clock.h"

/* The walks of one op end after this time. If the process was stopped or got no CPU meanwhile, they
 * go on for WALK_CPU_MORE of CPU time. */
#define WALK_MAX NANOS_OF_MS(1000)
#define WALK_CPU_MORE NANOS_OF_MS(50)
/* Time allowed for a visit of one cell, on a slow and busy machine. Usually it takes a
 * microsecond. */
#define WALK_PER_CELL NANOS_OF_MS(1) / 50

_Thread_local struct cell_walk cell_walk = {.steps = WALK_CHECK};
static _Thread_local nanos walk_cpu_end; /* processor time at which the walks end; 0: not set */

void cell_walk_restart_long(struct table *t)
{
    cell_walk.began = clock_boot() + table_cells(t) * WALK_PER_CELL;
    walk_cpu_end = 0;
}

static bool is_late(void)
{
    nanos now = clock_boot();
    if (cell_walk.began == 0) {
        cell_walk.began = now;
        walk_cpu_end = 0;
    }
    if (now - cell_walk.began < WALK_MAX)
        return false;

    nanos cpu = clock_thread_cpu();
    if (!walk_cpu_end)
        walk_cpu_end = cpu + WALK_CPU_MORE;
    return cpu >= walk_cpu_end;
}

bool cell_walk_check(struct table *t, uint32_t left)
{
    cell_walk.steps = WALK_CHECK;
    bool may_go_on = left != 0 && cell_walk.began != WALK_OVER && !is_late();
    if (may_go_on)
        return true;

    cell_walk.began = WALK_OVER;
    table_found_damage(t);
    return false;
}

/* Merges two chains that are in order. */
static uint32_t merge(struct table *t, uint32_t a, uint32_t b)
{
    uint32_t head = 0, *end = &head, left = cell_walk_most(t);
    while (a && b && cell_walk_goes_on(t, &left)) {
        union cell *x = cell_at(t, a), *y = cell_at(t, b);
        bool first = x->entry.ticket <= y->entry.ticket;
        *end = first ? a : b;
        end = first ? &x->head.next : &y->head.next;
        *(first ? &a : &b) = *end;
    }

    *end = a ? a : b;
    return head;
}

/* Bottom-up merge sort. level[i] is a sorted chain of 2^i cells, so 32 levels hold any list. */
void cell_list_sort_by_ticket(struct table *t, struct cell_list *list)
{
    assert(list);
    uint32_t level[32] = {0}, all = 0;
    FOR_EACH_CELL (t, i, list) {
        cell_at(t, i)->head.next = 0;
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
    struct cell_list sorted = {.head = all};

    list->head = list->tail = list->count = 0;
    FOR_EACH_CELL (t, i, &sorted)
        cell_list_append(t, list, i);
}

void cell_list_damaged(struct table *t)
{
    table_found_damage(t);
    error_set(HF_DAMAGED, "%s: damaged: it contains impossible values", t->path);
}

static bool add_chunk(struct table *t, uint32_t shard, int64_t until)
{
    assert(shard <= LOCAL_REGISTRY);
    uint32_t first = table_grow(t, shard, until);
    for (uint32_t i = 0; first && i < LOCAL_PER_CHUNK; i++)
        cell_list_push(t, &t->shards[shard].free, first + LOCAL_PER_CHUNK - 1 - i);
    return first != 0;
}

struct cell_ref cell_take_last(struct table *t, uint32_t shard, int64_t until)
{
    assert(shard <= LOCAL_REGISTRY);
    struct shard *s = &t->shards[shard];
    bool has_free = s->free.head || resource_drop_idle(t, shard) || add_chunk(t, shard, until);
    if (!has_free)
        return (struct cell_ref){.index = 0};

    struct cell_ref taken = cell_list_pop(t, &s->free);
    if (!taken.index)
        cell_list_damaged(t);
    return taken;
}
