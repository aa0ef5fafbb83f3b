/* calendar.h - what will happen, the soonest first, and of those at the same time the one that was
 * planned first. Included by a world, behind its struct occurrence, which has `at` and `order`. */
#pragma once

/* In one comparison: nobody can foretell how it ends, and the processor would guess wrong at every
 * second one. */
static bool is_before(const struct occurrence *a, const struct occurrence *b)
{
    unsigned __int128 one = (unsigned __int128)(uint64_t)a->at << 64 | a->order;
    unsigned __int128 other = (unsigned __int128)(uint64_t)b->at << 64 | b->order;
    return one < other;
}

/* It stands there, or above. */
static void calendar_rise(struct occurrence *heap, unsigned i, struct occurrence o)
{
    for (; i && is_before(&o, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = o;
}

/* There is room for one more. */
static void calendar_add(struct occurrence *heap, unsigned *count, struct occurrence o)
{
    calendar_rise(heap, (*count)++, o);
}

/* There is at least one. The gap that the first one leaves goes down to the end, where the last one
 * fits best. */
static struct occurrence calendar_take(struct occurrence *heap, unsigned *count)
{
    struct occurrence first = heap[0], last = heap[--*count];
    unsigned i = 0;
    for (unsigned child; (child = 2 * i + 2) < *count; i = child) {
        child -= is_before(&heap[child - 1], &heap[child]);
        heap[i] = heap[child];
    }
    unsigned only = 2 * i + 1;
    if (only < *count) {
        heap[i] = heap[only];
        i = only;
    }
    calendar_rise(heap, i, last);
    return first;
}
