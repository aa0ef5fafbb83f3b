/* rows.c - keeps copies of the rows that the library shows. */
#include "rows.h"
#include "text.h"
#include "verbs.h"
#include <stdlib.h>
#include <string.h>

static bool grow(struct rows *rows)
{
    size_t room = rows->room ? rows->room * 2 : 16;
    struct hf_row *all = reallocarray(rows->all, room, sizeof *all);
    if (!all)
        return false;
    rows->all = all;
    rows->room = room;
    return true;
}

void rows_add(void *arg, const struct hf_row *row)
{
    struct rows *rows = arg;
    char *name = strdup(row->name);
    char *host = strdup(row->host ? row->host : "");
    char *label = strdup(row->label ? row->label : "");
    if (!name || !host || !label || (rows->count == rows->room && !grow(rows))) {
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

int rows_check(const struct rows *rows, hf_status status)
{
    if (status != HF_OK)
        return fail_with(status);
    if (!rows->out_of_memory)
        return 0;
    complain("out of memory after %zu rows", rows->count);
    return EXIT_INTERNAL;
}

void rows_free(struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        free((char *)rows->all[i].name);
        free((char *)rows->all[i].host);
        free((char *)rows->all[i].label);
    }
    free(rows->all);
    *rows = (struct rows){0};
}
