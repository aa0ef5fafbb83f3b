/* heap.h - timers in a binary min-heap: the first is found at once, put and remove cost O(log n) and never allocate. */
#pragma once
#include "holdfast.h"

#include <stdatomic.h>

/* Lives inside the thing that has the timer. Zero is a node that is in no heap. */
struct hf_heap_node {
    _Atomic int64_t key; /* INT64_MAX after it was removed. May be read by threads that do not own the heap */
    uint32_t index;      /* 0: in no heap, else its position + 1 */
};

/* Zero is an empty heap. It points to its nodes and owns none of them; hf_heap_free frees the array only. */
struct hf_heap {
    struct hf_heap_node **node;
    uint32_t count, room;
};

/* Makes room for at least n nodes in all. The only function that can fail (HF_NO_MEMORY, and nothing changed), so that
 * whoever reserves when a timer's owner is made can set that timer at any later time. */
hf_status hf_heap_reserve(struct hf_heap *heap, uint32_t n);

/* Inserts, or moves if it is in this heap already. Room must have been reserved. */
void hf_heap_put(struct hf_heap *heap, struct hf_heap_node *node, int64_t key);

/* Nothing happens if the node is in no heap. */
void hf_heap_remove(struct hf_heap *heap, struct hf_heap_node *node);

/* The node with the smallest key, NULL if the heap is empty. Nodes with equal keys come in any order. */
struct hf_heap_node *hf_heap_first(const struct hf_heap *heap);

/* Takes all nodes out and frees the array; the heap is as good as new. */
void hf_heap_free(struct hf_heap *heap);
