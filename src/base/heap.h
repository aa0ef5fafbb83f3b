/* heap.h - timers in a binary min-heap: the first is found in O(1), put and remove cost O(log n)
 * and never allocate. */
#pragma once
#include "holdfast.h"

#include <stdatomic.h>

/* Member of the struct that has the timer. A zeroed node is in no heap. */
struct heap_node {
    _Atomic int64_t key; /* INT64_MAX after removal; any thread may read it */
    uint32_t index;      /* position + 1; 0: in no heap */
};

/* A zeroed heap is empty. It points to its nodes and owns none of them. */
struct heap {
    struct heap_node **node;
    uint32_t count, room;
};

/* Makes room for n nodes in total. This is the only function that can fail (HF_NO_MEMORY, nothing
 * changed). If room is reserved when a timer's owner is made, the timer can be set at any time. */
hf_status heap_reserve(struct heap *heap, uint32_t n);

/* Inserts the node, or moves it if it is already in this heap. Room must have been reserved. */
void heap_put(struct heap *heap, struct heap_node *node, int64_t key);

/* Removes the node, if it is in the heap. */
void heap_remove(struct heap *heap, struct heap_node *node);

/* Returns the node with the smallest key; NULL if the heap is empty. Equal keys have no order. */
struct heap_node *heap_first(const struct heap *heap);

/* Removes all nodes and frees the array. The heap is empty and can be used again. */
void heap_free(struct heap *heap);
