/* heap.c - the intrusive binary min-heap of timers. */
#include "heap.h"

#include <assert.h>
#include <stdlib.h>

#include "error.h"

#define ROOM_MIN 16

static void set_key(struct heap_node *node, int64_t key)
{
    atomic_store_explicit(&node->key, key, memory_order_relaxed);
}

static void place(struct heap *heap, uint32_t position, struct heap_node *node)
{
    heap->node[position] = node;
    node->index = position + 1;
}

/* rise() and sink() move a hole to the place of the node, and write the node once. */
static void rise(struct heap *heap, uint32_t position, struct heap_node *node)
{
    while (position > 0) {
        uint32_t parent = (position - 1) / 2;
        if (heap->node[parent]->key <= node->key)
            break;
        place(heap, position, heap->node[parent]);
        position = parent;
    }
    place(heap, position, node);
}

static void sink(struct heap *heap, uint32_t position, struct heap_node *node)
{
    while (position < heap->count / 2) {
        uint32_t child = 2 * position + 1;
        if (child + 1 < heap->count && heap->node[child + 1]->key < heap->node[child]->key)
            child++;
        if (node->key <= heap->node[child]->key)
            break;
        place(heap, position, heap->node[child]);
        position = child;
    }
    place(heap, position, node);
}

static void settle(struct heap *heap, uint32_t position, struct heap_node *node)
{
    if (position > 0 && node->key < heap->node[(position - 1) / 2]->key)
        rise(heap, position, node);
    else
        sink(heap, position, node);
}

hf_status heap_reserve(struct heap *heap, uint32_t n)
{
    if (n <= heap->room)
        return HF_OK;

    /* An eighth more, so that reserving one by one costs O(1) on average. */
    uint32_t room = n > UINT32_MAX - n / 8 ? UINT32_MAX : n + n / 8;
    if (room < ROOM_MIN)
        room = ROOM_MIN;

    struct heap_node **node = reallocarray(heap->node, room, sizeof *node);
    if (!node)
        return error_set(HF_NO_MEMORY, "no memory for %u timers", n);

    heap->node = node;
    heap->room = room;
    return HF_OK;
}

void heap_put(struct heap *heap, struct heap_node *node, int64_t key)
{
    set_key(node, key);
    if (node->index == 0) {
        assert(heap->count < heap->room);
        rise(heap, heap->count++, node);
        return;
    }

    assert(node->index <= heap->count && heap->node[node->index - 1] == node);
    settle(heap, node->index - 1, node);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    if (node->index == 0)
        return;

    assert(node->index <= heap->count && heap->node[node->index - 1] == node);
    uint32_t position = node->index - 1;
    struct heap_node *last = heap->node[--heap->count];

    node->index = 0;
    set_key(node, INT64_MAX);
    if (last != node)
        settle(heap, position, last);
}

struct heap_node *heap_first(const struct heap *heap)
{
    return heap->count > 0 ? heap->node[0] : NULL;
}

void heap_free(struct heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++)
        heap->node[i]->index = 0;
    free(heap->node);
    *heap = (struct heap){0};
}
