/* deadlock.c - joins waits to the holds of the same client. Then it removes everything that can
 * move, until only circles are left, and entries that wait for them. The cost is n log n for n
 * entries, plus one pass over the waiting holds for each link of the longest chain. */
#include "deadlock.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE SIZE_MAX
/* a client with more waits at a time stands for many users, so its links say nothing */
#define WAITS_MAX 8

struct graph {
    const struct wait_entry *entries;
    size_t count, lock_count;
    size_t *lock_of;   /* for each entry: index of its lock */
    size_t *first;     /* for each lock: its first entry */
    size_t *waits_for; /* for each entry: lock that it waits for; NONE if it can move */
    size_t *walk;      /* for each lock: number of the walk that passed it; 0: none */
    const struct wait_entry **by_client; /* all entries, sorted by client */
    const struct wait_entry **path;      /* holders of the present walk */
};

static void free_graph(const struct graph *g)
{
    free(g->lock_of);
    free(g->first);
    free(g->waits_for);
    free(g->walk);
    free(g->by_client);
    free(g->path);
}

static bool allocate(struct graph *g)
{
    size_t n = g->count + 1;

    g->lock_of = calloc(n, sizeof *g->lock_of);
    g->first = calloc(n, sizeof *g->first);
    g->waits_for = calloc(n, sizeof *g->waits_for);
    g->walk = calloc(n, sizeof *g->walk);
    g->by_client = calloc(n, sizeof *g->by_client);
    g->path = calloc(n, sizeof *g->path);
    return g->lock_of && g->first && g->waits_for && g->walk && g->by_client && g->path;
}

/* ---- Locks ---- */

static void index_locks(struct graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        bool begins = i == 0 || strcmp(g->entries[i].name, g->entries[i - 1].name) != 0;
        if (begins)
            g->first[g->lock_count++] = i;
        g->lock_of[i] = g->lock_count - 1;
    }

    g->first[g->lock_count] = g->count;
}

static bool lock_moves(const struct graph *g, size_t lock)
{
    size_t holders = 0, moving = 0;
    bool semaphore = false;

    for (size_t i = g->first[lock]; i < g->first[lock + 1]; i++) {
        if (!g->entries[i].holds)
            continue;
        holders++;
        moving += g->waits_for[i] == NONE;
        semaphore = g->entries[i].semaphore;
    }

    return semaphore ? moving > 0 : moving == holders;
}

/* ---- Clients ---- */

/* Entries without a client come last. */
static int by_client(const void *left, const void *right)
{
    const struct wait_entry *a = *(const struct wait_entry *const *)left;
    const struct wait_entry *b = *(const struct wait_entry *const *)right;

    if (!a->client || !b->client)
        return !a->client - !b->client;
    return strcmp(a->client, b->client);
}

static bool same_client(const struct wait_entry *a, const struct wait_entry *b)
{
    return a->client && b->client && strcmp(a->client, b->client) == 0;
}

/* Joins the holds of one client, by_client[from] to by_client[end - 1], to its waits. */
static void join_client(struct graph *g, size_t from, size_t end,
                        const struct deadlock_report *report)
{
    size_t waits = 0;

    for (size_t w = from; w < end; w++)
        waits += !g->by_client[w]->holds;

    for (size_t w = from; w < end && waits <= WAITS_MAX; w++) {
        const struct wait_entry *waiter = g->by_client[w];
        for (size_t h = from; h < end && !waiter->holds; h++) {
            size_t holder = (size_t)(g->by_client[h] - g->entries);
            size_t lock = g->lock_of[waiter - g->entries];
            if (!g->by_client[h]->holds || g->lock_of[holder] == lock)
                continue;
            if (report->edge)
                report->edge(report->arg, holder, waiter->name);
            if (waits == 1)
                g->waits_for[holder] = lock;
        }
    }
}

static void join_clients(struct graph *g, const struct deadlock_report *report)
{
    for (size_t i = 0; i < g->count; i++) {
        g->by_client[i] = &g->entries[i];
        g->waits_for[i] = NONE;
    }

    qsort(g->by_client, g->count, sizeof *g->by_client, by_client);
    for (size_t from = 0, end; from < g->count && g->by_client[from]->client; from = end) {
        end = from + 1;
        while (end < g->count && same_client(g->by_client[from], g->by_client[end]))
            end++;
        join_client(g, from, end, report);
    }
}

/* ---- What can move ---- */

/* Applies the rules once. Returns true if anything was added that can move. */
static bool spread(struct graph *g)
{
    bool changed = false;

    for (size_t i = 0; i < g->count; i++) {
        bool is_freed = g->waits_for[i] != NONE && lock_moves(g, g->waits_for[i]);
        if (is_freed)
            g->waits_for[i] = NONE;
        changed |= is_freed;
    }

    return changed;
}

/* ---- Circles ---- */

/* Returns the first holder of a lock that cannot move, or NONE. */
static size_t stuck_holder(const struct graph *g, size_t lock)
{
    for (size_t i = g->first[lock]; i < g->first[lock + 1]; i++)
        if (g->waits_for[i] != NONE)
            return i;
    return NONE;
}

/* Reports the circle at the end of the path, from its smallest name on. */
static void report_circle(const struct graph *g, size_t from, size_t end,
                          const struct deadlock_report *report)
{
    size_t count = end - from, smallest = from;
    const struct wait_entry **circle = calloc(count, sizeof *circle);

    for (size_t i = from; i < end; i++)
        if (strcmp(g->path[i]->name, g->path[smallest]->name) < 0)
            smallest = i;
    for (size_t i = 0; circle && i < count; i++)
        circle[i] = g->path[from + (smallest - from + i) % count];
    if (circle)
        report->circle(report->arg, circle, count);
    free(circle);
}

/* Follows waits from one lock that cannot move, until the walk meets itself or an earlier one. */
static void walk(struct graph *g, size_t lock, size_t number, const struct deadlock_report *report)
{
    size_t count = 0, holder = stuck_holder(g, lock);

    while (g->walk[lock] == 0 && holder != NONE) {
        g->walk[lock] = number;
        g->path[count++] = &g->entries[holder];
        lock = g->waits_for[holder];
        holder = stuck_holder(g, lock);
    }
    if (g->walk[lock] != number)
        return;

    size_t from = 0;
    while (g->lock_of[g->path[from] - g->entries] != lock)
        from++;
    report_circle(g, from, count, report);
}

bool deadlock_find(const struct wait_entry *entries, size_t count,
                   const struct deadlock_report *report)
{
    assert(report && report->circle);

    struct graph g = {.entries = entries, .count = count};
    bool fine = allocate(&g);
    if (fine) {
        index_locks(&g);
        join_clients(&g, report);
        while (spread(&g))
            continue;
        for (size_t lock = 0; lock < g.lock_count; lock++)
            walk(&g, lock, lock + 1, report);
    }

    free_graph(&g);
    return fine;
}
