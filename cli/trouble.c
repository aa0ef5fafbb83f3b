/* trouble.c - sorts names by how soon and how much somebody may be in trouble. */
#include "trouble.h"
#include "text.h"
#include <stdlib.h>
#include <string.h>

/* A hold that is renewed after a third of its ttl never has less than two thirds left: those are all equally well, and
 * must not change places all the time. */
#define WELL_PER_MILLE 600
#define NO_HOLDER_PER_MILLE 1000

/* The rows of one name. */
struct group {
    size_t first, count, waiters;
    int64_t left_per_mille;
    const char *name;
};

static void add_to_group(struct group *group, const struct hf_row *row)
{
    group->count++;
    if (row->role == HF_WAITER) {
        group->waiters++;
        return;
    }
    int64_t left = row->ttl_ms > 0 ? row->left_ms * 1000 / row->ttl_ms : 0;
    if (left < WELL_PER_MILLE && left < group->left_per_mille)
        group->left_per_mille = left;
}

static int by_trouble(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    if (a->left_per_mille != b->left_per_mille)
        return a->left_per_mille < b->left_per_mille ? -1 : 1;
    if (a->waiters != b->waiters)
        return a->waiters > b->waiters ? -1 : 1;
    return strcmp(a->name, b->name);
}

static size_t find_groups(const struct rows *rows, struct group *groups)
{
    size_t count = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const struct hf_row *row = &rows->all[i];
        if (count == 0 || strcmp(groups[count - 1].name, row->name) != 0)
            groups[count++] = (struct group){.first = i, .name = row->name, .left_per_mille = NO_HOLDER_PER_MILLE};
        add_to_group(&groups[count - 1], row);
    }
    return count;
}

bool trouble_first(struct rows *rows)
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
    qsort(groups, count, sizeof *groups, by_trouble);
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
