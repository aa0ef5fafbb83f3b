/* sort_by_urgency.c - sorts names by how urgently they may need help. */
#include "sort_by_urgency.h"
#include "output.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A hold that is renewed after each third of its ttl has at least two thirds left; 600 leaves room
 * for a late renewal. All holds above it count as equal, so that rows do not change places all the
 * time. */
#define WELL_PER_MILLE 600
#define NO_HOLDER_PER_MILLE 1000

/* The rows of one name. */
struct group {
    size_t first, count, waiters;
    int64_t left_per_mille;
    int64_t since_ms; /* age of the oldest hold */
    int64_t left_ms;  /* time left of the hold that ends first; INT64_MAX if there is none */
    const char *name;
};

static void add_to_group(struct group *group, const struct hf_row *row)
{
    group->count++;
    if (row->role == HF_WAITER) {
        group->waiters++;
        return;
    }

    if (row->since_ms > group->since_ms)
        group->since_ms = row->since_ms;
    if (row->left_ms >= 0 && row->left_ms < group->left_ms)
        group->left_ms = row->left_ms;

    int64_t left = row->ttl_ms > 0 ? row->left_ms * 1000 / row->ttl_ms : 0;
    if (left < WELL_PER_MILLE && left < group->left_per_mille)
        group->left_per_mille = left;
}

static int by_urgency(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    if (a->left_per_mille != b->left_per_mille)
        return a->left_per_mille < b->left_per_mille ? -1 : 1;
    if (a->waiters != b->waiters)
        return a->waiters > b->waiters ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_name(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    return strcmp(a->name, b->name);
}

static int by_waiters(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    if (a->waiters != b->waiters)
        return a->waiters > b->waiters ? -1 : 1;
    return by_name(left, right);
}

static int by_since(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    if (a->since_ms != b->since_ms)
        return a->since_ms > b->since_ms ? -1 : 1;
    return by_name(left, right);
}

static int by_left(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    if (a->left_ms != b->left_ms)
        return a->left_ms < b->left_ms ? -1 : 1;
    return by_name(left, right);
}

static int (*const COMPARE[])(const void *, const void *) = {[ORDER_URGENCY] = by_urgency,
                                                             [ORDER_NAME] = by_name,
                                                             [ORDER_WAITERS] = by_waiters,
                                                             [ORDER_SINCE] = by_since,
                                                             [ORDER_LEFT] = by_left};

static size_t find_groups(const struct row_list *rows, struct group *groups)
{
    size_t count = 0;

    for (size_t i = 0; i < rows->count; i++) {
        const struct hf_row *row = &rows->all[i];
        if (count == 0 || strcmp(groups[count - 1].name, row->name) != 0)
            groups[count++] = (struct group){.first = i,
                                             .name = row->name,
                                             .left_per_mille = NO_HOLDER_PER_MILLE,
                                             .left_ms = INT64_MAX};
        add_to_group(&groups[count - 1], row);
    }

    return count;
}

bool sort_rows(struct row_list *rows, enum row_order order)
{
    struct group *groups = calloc(rows->count + 1, sizeof *groups);
    struct hf_row *sorted = calloc(rows->count + 1, sizeof *sorted);

    if (!groups || !sorted) {
        complain("out of memory to sort %zu rows", rows->count);
        free(groups);
        free(sorted);
        return false;
    }

    size_t count = find_groups(rows, groups), filled = 0;
    qsort(groups, count, sizeof *groups, COMPARE[order]);

    for (size_t i = 0; i < count; i++) {
        memcpy(&sorted[filled], &rows->all[groups[i].first], groups[i].count * sizeof *sorted);
        filled += groups[i].count;
    }

    free(groups);
    free(rows->all);
    rows->all = sorted;
    rows->room = rows->count + 1;

    return true;
}

bool sort_by_urgency(struct row_list *rows)
{
    return sort_rows(rows, ORDER_URGENCY);
}
