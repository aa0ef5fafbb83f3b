/* watch.c - hf_watch: when the engine says that something changed, two lists are compared to
 * find out what. So the engine keeps no state for watchers; a slow watcher sees fewer steps, but
 * never old ones. */
#include "client.h"

#include "base/error.h"
#include "sys/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_PAUSE NANOS_OF_MS(20) /* shortest time between two lists */
#define TICK NANOS_OF_MS(1000)     /* interval at which fn is called with NULL */

/* One holder or waiter. A holder is identified by its token, a waiter by its ticket. */
struct snapshot_row {
    char *name;
    hf_role role;
    uint64_t token, ticket;
    uint32_t capacity;
    int64_t pid, since_ms, left_ms; /* left_ms: below 0 if the hold has no end */
    char label[HF_LABEL_MAX + 1];
};

struct snapshot {
    struct snapshot_row *rows;
    size_t count, room;
    nanos taken_at;
    bool out_of_memory;
};

static void free_snapshot(struct snapshot *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->rows[i].name);
    free(s->rows);
    *s = (struct snapshot){0};
}

static void add_row(void *arg, const struct hf_row *row)
{
    assert(row->name && row->label);

    struct snapshot *s = arg;
    if (s->count == s->room) {
        size_t room = s->room ? s->room * 2 : 64;
        struct snapshot_row *more = realloc(s->rows, room * sizeof *more);
        s->out_of_memory |= !more;
        if (!more)
            return;
        s->rows = more;
        s->room = room;
    }

    struct snapshot_row *new = &s->rows[s->count];
    *new = (struct snapshot_row){.name = strdup(row->name),
                                 .role = row->role,
                                 .token = row->token,
                                 .ticket = row->ticket,
                                 .capacity = row->capacity,
                                 .pid = row->pid,
                                 .since_ms = row->since_ms,
                                 .left_ms = row->left_ms};
    snprintf(new->label, sizeof new->label, "%s", row->label);
    s->out_of_memory |= !new->name;
    s->count += new->name != NULL;
}

static int by_identity(const void *a, const void *b)
{
    const struct snapshot_row *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (!order)
        order = (x->role > y->role) - (x->role < y->role);
    if (!order)
        order = (x->token > y->token) - (x->token < y->token);
    return order ? order : (x->ticket > y->ticket) - (x->ticket < y->ticket);
}

struct change {
    const char *event;
    int64_t waited_ms;
    hf_status status;
};

static bool report(hf_watch_fn *fn, void *arg, const struct change *change,
                   const struct snapshot_row *s)
{
    char text[HF_LABEL_MAX + 32];
    snprintf(text, sizeof text, "pid %lld%s%s", (long long)s->pid, s->label[0] ? " " : "",
             s->label);
    struct hf_log_event e = {
        .size = sizeof e,
        .level = HF_LOG_INFO,
        .event = change->event,
        .name = s->name,
        .text = text,
        .wall_ms = clock_wall_us() / 1000,
        .held_ms = s->role == HF_HOLDER ? s->since_ms : 0,
        .waited_ms = s->role == HF_WAITER ? s->since_ms : change->waited_ms,
        .token = s->token,
        .status = change->status,
        .label = s->label,
    };
    return fn(arg, &e);
}

/* Returns the row of the other role with the same ticket, or NULL: a waiter that was granted
 * keeps its ticket as a holder. */
static const struct snapshot_row *find_ticket(const struct snapshot *among,
                                              const struct snapshot_row *s)
{
    for (size_t i = 0; s->ticket && i < among->count; i++) {
        const struct snapshot_row *other = &among->rows[i];
        bool same = other->ticket == s->ticket && other->role != s->role;
        if (same && strcmp(other->name, s->name) == 0)
            return other;
    }
    return NULL;
}

/* Reports a hold or a wait that has disappeared. A hold that disappeared after its end was lost. */
static bool report_end(const struct snapshot *before, const struct snapshot *now,
                       const struct snapshot_row *s, hf_watch_fn *fn, void *arg)
{
    nanos passed = now->taken_at - before->taken_at;
    bool is_over = s->left_ms >= 0 && NANOS_OF_MS(s->left_ms) <= passed;
    struct change change = {.event = "left"};

    if (s->role == HF_HOLDER)
        change = (struct change){.event = "released", .status = is_over ? HF_LOST : HF_OK};
    else if (find_ticket(now, s))
        return true;
    return report(fn, arg, &change, s);
}

static bool report_start(const struct snapshot *before, const struct snapshot_row *s,
                         hf_watch_fn *fn, void *arg)
{
    const struct snapshot_row *waiter = s->role == HF_HOLDER ? find_ticket(before, s) : NULL;
    struct change change = {.event = s->role == HF_HOLDER ? "granted" : "queued",
                            .waited_ms = waiter ? waiter->since_ms : 0};
    return report(fn, arg, &change, s);
}

/* Ends come before beginnings: a release is reported before the grant that follows it. */
static bool report_difference(const struct snapshot *before, const struct snapshot *now,
                              hf_watch_fn *fn, void *arg)
{
    static const struct change resized = {.event = "resized"};

    for (size_t i = 0, j = 0; i < before->count; i++) {
        const struct snapshot_row *s = &before->rows[i];
        while (j < now->count && by_identity(&now->rows[j], s) < 0)
            j++;
        bool stays = j < now->count && by_identity(&now->rows[j], s) == 0;
        bool is_resized = stays && now->rows[j].capacity != s->capacity;
        if (is_resized && !report(fn, arg, &resized, &now->rows[j]))
            return false;
        if (!stays && !report_end(before, now, s, fn, arg))
            return false;
    }

    for (size_t i = 0, j = 0; i < now->count; i++) {
        const struct snapshot_row *s = &now->rows[i];
        while (j < before->count && by_identity(&before->rows[j], s) < 0)
            j++;
        bool was = j < before->count && by_identity(&before->rows[j], s) == 0;
        if (!was && !report_start(before, s, fn, arg))
            return false;
    }

    return true;
}

static hf_status take_snapshot(struct hf_client *client, const char *prefix, struct snapshot *list)
{
    assert(!list->rows && !list->count);

    hf_status status = client_list(client, LIST_PREFIX, prefix, add_row, list);
    list->taken_at = clock_boot();
    if (status == HF_OK && list->out_of_memory)
        status = error_set(HF_NO_MEMORY, "%s: no memory to watch", client->url);
    if (status == HF_OK && list->count)
        qsort(list->rows, list->count, sizeof *list->rows, by_identity);
    return status;
}

/* Returns when the first of the holds ends unless it is renewed. No engine reports that a hold
 * has expired while no client asks for its lock. */
static nanos first_end(const struct snapshot *s)
{
    nanos first = INT64_MAX;

    for (size_t i = 0; i < s->count; i++) {
        const struct snapshot_row *each = &s->rows[i];
        nanos end = s->taken_at + NANOS_OF_MS(each->left_ms + 1);
        bool ends = each->role == HF_HOLDER && each->left_ms >= 0;
        if (ends && end < first)
            first = end;
    }

    return first;
}

hf_status client_watch(struct hf_client *client, const char *prefix, hf_watch_fn *fn, void *arg)
{
    assert(prefix && fn);

    struct snapshot before = {0}, now = {0};
    uint32_t seen = 0;
    client->type->watch(client->engine, &seen, 0);
    hf_status status = take_snapshot(client, prefix, &before);
    nanos tick_at = clock_boot() + TICK;

    for (bool going = status == HF_OK && report_difference(&now, &before, fn, arg);
         going && status == HF_OK;) {
        uint32_t old = seen;
        nanos end = first_end(&before);
        client->type->watch(client->engine, &seen, end < tick_at ? end : tick_at);
        if (atomic_load(&client->active_calls) & CLIENT_CLOSING) {
            status = error_set(HF_CLOSED, "%s: the client is being closed", client->url);
        } else if (seen != old || clock_boot() >= end) {
            status = take_snapshot(client, prefix, &now);
            going = status != HF_OK || report_difference(&before, &now, fn, arg);
            free_snapshot(&before);
            before = now;
            now = (struct snapshot){0};
            clock_sleep_until(clock_boot() + LIST_PAUSE);
        }
        if (clock_boot() >= tick_at) {
            going = going && fn(arg, NULL);
            tick_at = clock_boot() + TICK;
        }
    }

    free_snapshot(&before);
    free_snapshot(&now);
    return status;
}
