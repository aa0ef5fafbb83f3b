/* client_admin.c - list, show, break and resize. Rows are sorted by name; for one name holders come
 * first, then waiters by their place. */
#include "client.h"

#include "base/error.h"
#include "sys/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shown {
    struct hf_row row;
    size_t order; /* order in which the engine reported it */
};

struct rows {
    struct shown *shown;
    size_t count, room;
    bool out_of_memory;
    const struct name_range *page; /* NULL: all names */
    /* last name of an incomplete page; "": everything was reported */
    char end[HF_NAME_MAX + 1];
};

static bool make_room(struct rows *rows)
{
    if (rows->count < rows->room)
        return true;

    size_t room = rows->room ? rows->room * 2 : 64;
    struct shown *more = realloc(rows->shown, room * sizeof *more);
    if (!more)
        return false;

    rows->shown = more;
    rows->room = room;
    return true;
}

/* Copies a row. It runs under the engine's locks, so it does nothing else. */
static void collect(void *arg, const struct hf_row *row)
{
    assert(row->name && row->host && row->label);

    struct rows *rows = arg;
    if (rows->page && is_end_of_page(row)) {
        snprintf(rows->end, sizeof rows->end, "%s", row->name);
        return;
    }
    if (rows->page && !name_range_has(rows->page, row->name))
        return;

    size_t name = strlen(row->name) + 1, host = strlen(row->host) + 1,
           label = strlen(row->label) + 1;
    char *texts = make_room(rows) ? malloc(name + host + label) : NULL;
    if (!texts) {
        rows->out_of_memory = true;
        return;
    }

    struct shown *s = &rows->shown[rows->count];
    s->row = *row;
    s->row.name = memcpy(texts, row->name, name);
    s->row.host = memcpy(texts + name, row->host, host);
    s->row.label = memcpy(texts + name + host, row->label, label);
    s->order = rows->count++;
}

static int by_name(const void *a, const void *b)
{
    const struct shown *x = a, *y = b;
    int names = strcmp(x->row.name, y->row.name);
    if (names)
        return names;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Returns the names to list or act on, and the time limit for the engine's reply. */
static struct admin_target target_of(const struct hf_client *client, int which, const char *name,
                                     nanos now)
{
    struct timing timing;
    struct timing_overrides overrides = client_overrides(client);
    timing_fill(&timing, client->settings.value[SETTING_TTL], &client->limits, &overrides);
    nanos until = now + (client_replies_later(client) ? timing.answer : timing.op_timeout);
    return (struct admin_target){.which = which, .name = name, .len = strlen(name), .until = until};
}

/* Collects the rows and sorts them. */
static hf_status list(struct hf_client *client, int which, const char *name, struct rows *rows)
{
    nanos now = clock_boot();
    struct admin_target what = target_of(client, which, name, now);
    what.page = rows->page;
    hf_status status = client->type->list(client->engine, &what, now, collect, rows);
    if (status == HF_OK && rows->out_of_memory)
        status = error_set(HF_NO_MEMORY, "%s: no memory to list", client->url);

    if (rows->count)
        qsort(rows->shown, rows->count, sizeof *rows->shown, by_name);
    return status;
}

static void free_rows(struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        free((char *)(uintptr_t)rows->shown[i].row.name);
    free(rows->shown);
}

hf_status client_list(struct hf_client *client, int which, const char *name, hf_row_fn *fn,
                      void *arg)
{
    assert(name && fn);

    struct rows rows = {0};
    hf_status status = list(client, which, name, &rows);
    for (size_t i = 0; i < rows.count && status == HF_OK; i++)
        fn(arg, &rows.shown[i].row);

    free_rows(&rows);
    return status;
}

/* Returns the number of rows of the page. Sets `next` to the last name of the page if further
 * names exist. */
static size_t cut_page(const struct rows *rows, char *next)
{
    uint32_t names = 0;
    size_t count = 0;
    strcpy(next, rows->end);

    for (; count < rows->count; count++) {
        const char *name = rows->shown[count].row.name;
        bool is_new = count == 0 || strcmp(name, rows->shown[count - 1].row.name) != 0;
        if (rows->end[0] && strcmp(name, rows->end) > 0)
            break;
        if (is_new && rows->page->most && names == rows->page->most) {
            strcpy(next, rows->shown[count - 1].row.name);
            break;
        }
        names += is_new;
    }
    return count;
}

hf_status client_list_page(struct hf_client *client, const char *prefix,
                           const struct name_range *page, hf_row_fn *fn, void *arg, char *next)
{
    assert(prefix && page && fn);

    struct rows rows = {.page = page};
    hf_status status = list(client, LIST_PREFIX, prefix, &rows);
    size_t count = status == HF_OK ? cut_page(&rows, next) : 0;
    for (size_t i = 0; i < count; i++)
        fn(arg, &rows.shown[i].row);

    free_rows(&rows);
    return status;
}

hf_status client_break(struct hf_client *client, const char *name, uint64_t token,
                       const char *reason)
{
    assert(token != 0);

    nanos now = clock_boot();
    struct admin_target what = target_of(client, LIST_ONE, name, now);
    hf_status status = client->type->break_hold(client->engine, &what, token, now);
    if (status == HF_OK)
        event_log_break(client, name, token, reason);
    return status;
}

hf_status client_resize(struct hf_client *client, const char *name, uint32_t capacity)
{
    assert(capacity >= 1 && capacity <= HF_CAPACITY_MAX);

    nanos now = clock_boot();
    struct admin_target what = target_of(client, LIST_ONE, name, now);
    return client->type->resize(client->engine, &what, capacity, now);
}
