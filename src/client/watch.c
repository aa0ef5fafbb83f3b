/* watch.c - tells of changes: the engine says that something changed, and what changed is the difference between two
 * looks. So nothing is kept for watchers, and a watcher that is slow sees fewer steps, not older ones. */
#include "client.h"

#include "base/why.h"
#include "sys/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_AT_MOST_EVERY HF_MS(20)
#define TICK HF_MS(1000)

/* What identifies a holder is its token, a waiter its ticket. */
struct sight {
    char *name;
    hf_role role;
    uint64_t token, ticket;
    uint32_t capacity;
    int64_t pid, held_ms;
    char label[HF_LABEL_MAX + 1];
};

struct sights {
    struct sight *sight;
    size_t count, room;
    bool out_of_memory;
};

static void free_sights(struct sights *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->sight[i].name);
    free(s->sight);
    *s = (struct sights){0};
}

static void add_sight(void *arg, const struct hf_row *row)
{
    struct sights *s = arg;
    if (s->count == s->room) {
        size_t room = s->room ? s->room * 2 : 64;
        struct sight *more = realloc(s->sight, room * sizeof *more);
        s->out_of_memory |= !more;
        if (!more)
            return;
        s->sight = more;
        s->room = room;
    }
    struct sight *new = &s->sight[s->count];
    *new = (struct sight){.name = strdup(row->name),
                          .role = row->role,
                          .token = row->token,
                          .ticket = row->ticket,
                          .capacity = row->capacity,
                          .pid = row->pid,
                          .held_ms = row->since_ms};
    snprintf(new->label, sizeof new->label, "%s", row->label);
    s->out_of_memory |= !new->name;
    s->count += new->name != NULL;
}

static int by_identity(const void *a, const void *b)
{
    const struct sight *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (!order)
        order = (x->role > y->role) - (x->role < y->role);
    if (!order)
        order = (x->token > y->token) - (x->token < y->token);
    return order ? order : (x->ticket > y->ticket) - (x->ticket < y->ticket);
}

static bool tell(hf_watch_fn *fn, void *arg, const char *event, const struct sight *s)
{
    char text[HF_LABEL_MAX + 32];
    snprintf(text, sizeof text, "pid %lld%s%s", (long long)s->pid, s->label[0] ? " " : "", s->label);
    struct hf_log_event e = {
        .size = sizeof e,
        .level = HF_LOG_INFO,
        .event = event,
        .name = s->name,
        .text = text,
        .wall_ms = hf_clock_wall_us() / 1000,
        .held_ms = s->role == HF_HOLDER ? s->held_ms : 0,
        .waited_ms = s->role == HF_WAITER ? s->held_ms : 0,
        .token = s->token,
    };
    return fn(arg, &e);
}

/* A waiter that is gone was granted if somebody holds with its ticket. */
static bool became_holder(const struct sights *now, const struct sight *waiter)
{
    for (size_t i = 0; i < now->count; i++)
        if (now->sight[i].role == HF_HOLDER && now->sight[i].ticket == waiter->ticket &&
            strcmp(now->sight[i].name, waiter->name) == 0)
            return true;
    return false;
}

/* Ends before beginnings: who lets go is told before who gets it. */
static bool tell_difference(const struct sights *before, const struct sights *now, hf_watch_fn *fn, void *arg)
{
    for (size_t i = 0, j = 0; i < before->count; i++) {
        const struct sight *s = &before->sight[i];
        while (j < now->count && by_identity(&now->sight[j], s) < 0)
            j++;
        bool stays = j < now->count && by_identity(&now->sight[j], s) == 0;
        if (stays && now->sight[j].capacity != s->capacity && !tell(fn, arg, "resized", &now->sight[j]))
            return false;
        if (stays || (s->role == HF_WAITER && became_holder(now, s)))
            continue;
        if (!tell(fn, arg, s->role == HF_HOLDER ? "released" : "left", s))
            return false;
    }
    for (size_t i = 0, j = 0; i < now->count; i++) {
        const struct sight *s = &now->sight[i];
        while (j < before->count && by_identity(&before->sight[j], s) < 0)
            j++;
        bool was = j < before->count && by_identity(&before->sight[j], s) == 0;
        if (!was && !tell(fn, arg, s->role == HF_HOLDER ? "granted" : "queued", s))
            return false;
    }
    return true;
}

static hf_status look(struct hf_client *client, const char *prefix, struct sights *sights)
{
    hf_status status = hf_client_list(client, HF_SEE_PREFIX, prefix, add_sight, sights);
    if (status == HF_OK && sights->out_of_memory)
        status = hf_why(HF_NO_MEMORY, "%s: no memory to watch", client->url);
    if (status == HF_OK && sights->count)
        qsort(sights->sight, sights->count, sizeof *sights->sight, by_identity);
    return status;
}

hf_status hf_client_watch(struct hf_client *client, const char *prefix, hf_watch_fn *fn, void *arg)
{
    struct sights before = {0}, now = {0};
    uint32_t seen = 0;
    client->type->watch(client->engine, &seen, 0);
    hf_status status = look(client, prefix, &before);
    hf_nanos tick_at = hf_clock_boot() + TICK;
    for (bool going = status == HF_OK && tell_difference(&now, &before, fn, arg); going && status == HF_OK;) {
        uint32_t old = seen;
        client->type->watch(client->engine, &seen, tick_at);
        if (atomic_load(&client->inside) & HF_CLOSING) {
            status = hf_why(HF_CLOSED, "%s: the client is being closed", client->url);
        } else if (seen != old) {
            status = look(client, prefix, &now);
            going = status != HF_OK || tell_difference(&before, &now, fn, arg);
            free_sights(&before);
            before = now;
            now = (struct sights){0};
            hf_sleep_until(hf_clock_boot() + LOOK_AT_MOST_EVERY);
        }
        if (hf_clock_boot() >= tick_at) {
            going = going && fn(arg, NULL);
            tick_at = hf_clock_boot() + TICK;
        }
    }
    free_sights(&before);
    free_sights(&now);
    return status;
}
