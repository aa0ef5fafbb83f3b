/* calendar.h - what will happen, the soonest first, and of those at the same time the one that was planned first.
 * Included by a world, behind its struct occurrence, which has `at` and `order`. */
#pragma once

static bool is_before(const struct occurrence *a, const struct occurrence *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

/* There is room for one more. */
static void calendar_add(struct occurrence *heap, unsigned *count, struct occurrence o)
{
    unsigned i = (*count)++;
    for (; i && is_before(&o, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = o;
}

/* There is at least one. */
static struct occurrence calendar_take(struct occurrence *heap, unsigned *count)
{
    struct occurrence first = heap[0], last = heap[--*count];
    unsigned i = 0;
    for (unsigned child; (child = 2 * i + 1) < *count; i = child) {
        if (child + 1 < *count && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (!is_before(&heap[child], &last))
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}
