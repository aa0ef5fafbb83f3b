/* row_list.c - keeps copies of the rows that the library passes to a callback. */
#include "row_list.h"
#include "output.h"
#include "verbs.h"
#include <stdlib.h>
#include <string.h>

static bool grow(struct row_list *rows)
{
    size_t room = rows->room ? rows->room * 2 : 16;
    struct hf_row *all = reallocarray(rows->all, room, sizeof *all);

    if (!all)
        return false;
    rows->all = all;
    rows->room = room;
    return true;
}

void row_list_add(void *arg, const struct hf_row *row)
{
    struct row_list *rows = arg;
    char *name = strdup(row->name);
    char *host = strdup(row->host ? row->host : "");
    char *label = strdup(row->label ? row->label : "");
    bool copied = name && host && label;
    bool has_room = rows->count < rows->room || grow(rows);

    if (!copied || !has_room) {
        rows->out_of_memory = true;
        free(name);
        free(host);
        free(label);
        return;
    }

    struct hf_row *copy = &rows->all[rows->count++];
    *copy = *row;
    copy->name = name;
    copy->host = host;
    copy->label = label;
}

int row_list_check(const struct row_list *rows, hf_status status)
{
    if (status != HF_OK)
        return fail_with(status);
    if (!rows->out_of_memory)
        return 0;
    complain("out of memory after %zu rows", rows->count);
    return EXIT_INTERNAL;
}

static void free_texts(struct hf_row *row)
{
    free((char *)row->name);
    free((char *)row->host);
    free((char *)row->label);
}

void row_list_filter(struct row_list *rows, const bool *keep)
{
    size_t kept = 0;
    for (size_t i = 0; i < rows->count; i++) {
        if (keep[i])
            rows->all[kept++] = rows->all[i];
        else
            free_texts(&rows->all[i]);
    }
    rows->count = kept;
}

void row_list_free(struct row_list *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        free_texts(&rows->all[i]);
    free(rows->all);
    *rows = (struct row_list){0};
}
