/* cells.h - lists of cells, and cells taken and given back. All under the mutex of the cells' shard. */
#pragma once
#include "table.h"

void hf_cells_push(struct hf_table *t, struct hf_cells *list, uint32_t index); /* in front */
void hf_cells_append(struct hf_table *t, struct hf_cells *list, uint32_t index);
void hf_cells_remove(struct hf_table *t, struct hf_cells *list, uint32_t index);
/* By arrival number, for a queue that was collected in any order. */
void hf_cells_sort_by_ticket(struct hf_table *t, struct hf_cells *list);

/* An unused cell, its state still CELL_FREE: fill it, then commit. 0: full, hf_error_text() says why. May drop an idle
 * resource, so whoever needs one takes it off the idle list first. */
uint32_t hf_cell_take(struct hf_table *t, uint32_t shard, int64_t until);
void hf_cell_give(struct hf_table *t, uint32_t shard, uint32_t index);

/* Each index of a list. Bounded, because a damaged file may hold a circle. */
#define HF_EACH_CELL(t, i, list)                                                                                       \
    for (uint32_t i = (list)->head, i##_left = hf_table_cells(t), i##_next;                                            \
         i && i##_left-- && (i##_next = hf_cell_at(t, i)->head.next, true); i = i##_next)
