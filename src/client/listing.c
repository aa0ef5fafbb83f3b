/* listing.c - what the engine shows, put in order: by name, holders before waiters, waiters by their place. */
#include "client.h"

#include "base/why.h"
#include "sys/clock.h"

#include <stdlib.h>
#include <string.h>

struct shown {
    struct hf_row row;
    size_t order; /* as the engine told it */
};

struct rows {
    struct shown *shown;
    size_t count, room;
    bool out_of_memory;
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

/* Under the engine's locks: it only copies. */
static void collect(void *arg, const struct hf_row *row)
{
    struct rows *rows = arg;
    size_t name = strlen(row->name) + 1, host = strlen(row->host) + 1, label = strlen(row->label) + 1;
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

/* What to see or act on, with the time that the engine may take to get through to it. */
static struct hf_seen see(const struct hf_client *client, int which, const char *name, hf_nanos now)
{
    struct hf_timing timing;
    hf_timing_fill(&timing, client->settings.value[HF_SET_TTL], &client->limits, &client->wishes);
    return (struct hf_seen){.which = which, .name = name, .len = strlen(name), .until = now + timing.op_timeout};
}

hf_status hf_client_list(struct hf_client *client, int which, const char *name, hf_row_fn *fn, void *arg)
{
    struct rows rows = {0};
    hf_nanos now = hf_clock_boot();
    struct hf_seen what = see(client, which, name, now);
    hf_status status = client->type->list(client->engine, &what, now, collect, &rows);
    if (status == HF_OK && rows.out_of_memory)
        status = hf_why(HF_NO_MEMORY, "%s: no memory to list", client->url);
    if (rows.count)
        qsort(rows.shown, rows.count, sizeof *rows.shown, by_name);
    for (size_t i = 0; i < rows.count; i++) {
        if (status == HF_OK)
            fn(arg, &rows.shown[i].row);
        free((char *)(uintptr_t)rows.shown[i].row.name);
    }
    free(rows.shown);
    return status;
}

hf_status hf_client_break(struct hf_client *client, const char *name, uint64_t token, const char *reason)
{
    hf_nanos now = hf_clock_boot();
    struct hf_seen what = see(client, HF_SEE_ONE, name, now);
    hf_status status = client->type->break_hold(client->engine, &what, token, now);
    if (status == HF_OK)
        hf_journal_break(client, name, token, reason);
    return status;
}

hf_status hf_client_resize(struct hf_client *client, const char *name, uint32_t capacity)
{
    hf_nanos now = hf_clock_boot();
    struct hf_seen what = see(client, HF_SEE_ONE, name, now);
    return client->type->resize(client->engine, &what, capacity, now);
}
