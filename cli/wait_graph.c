/* wait_graph.c - builds the graph of holders and waiters, and finds what can move.
 *
 * A holder that waits for nothing can release. A waiter can be granted once its lock can be freed:
 * a semaphore if one of its holders can release, any other lock if all of them can. A holder that
 * waits can release once one of its waits can be granted. Everything that these rules do not reach
 * is stuck: it waits, directly or not, for a circle. */
#include "wait_graph.h"
#include "output.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Clients ---- */

/* Returns the parent of a process by /proc/PID/stat, or 0. The parent is the fourth field, after a
 * name in parentheses. */
static pid_t parent_of(pid_t process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;

    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = 0;
    const char *name_end = strrchr(text, ')');
    int parent;
    return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 ? parent : 0;
}

static void find_ancestors(struct ancestors *ancestors, pid_t process)
{
    ancestors->count = 0;
    while (process > 1 && ancestors->count < WAIT_ANCESTORS_MAX) {
        ancestors->pid[ancestors->count++] = process;
        process = parent_of(process);
    }
}

bool wait_graph_same_client(const struct wait_graph *graph, size_t holder, size_t waiter)
{
    const struct hf_row *h = &graph->rows.all[holder], *w = &graph->rows.all[waiter];
    const struct ancestors *ancestors = &graph->ancestors[waiter];
    bool has_process = !h->foreign && !h->detached && !w->detached;
    if (!has_process || strcmp(h->host, w->host) != 0)
        return false;
    if (h->pid == w->pid)
        return true;

    for (size_t i = 0; i < ancestors->count; i++)
        if (ancestors->pid[i] == (pid_t)h->pid)
            return true;
    return false;
}

/* ---- What can move ---- */

bool wait_graph_lock_moves(const struct wait_graph *graph, const char *name)
{
    size_t holders = 0, moving = 0;
    bool semaphore = false;

    for (size_t i = 0; i < graph->rows.count; i++) {
        const struct hf_row *row = &graph->rows.all[i];
        if (row->role != HF_HOLDER || strcmp(row->name, name) != 0)
            continue;
        holders++;
        moving += graph->moves[i];
        semaphore = row->kind == HF_SEMAPHORE;
    }

    return semaphore ? moving > 0 : moving == holders;
}

/* Returns true if the holder waits for nothing, or one of its waits can be granted. */
static bool holder_moves(const struct wait_graph *graph, size_t holder)
{
    bool waits = false;
    for (size_t i = 0; i < graph->rows.count; i++) {
        bool is_wait =
            graph->rows.all[i].role == HF_WAITER && wait_graph_same_client(graph, holder, i);
        if (is_wait && graph->moves[i])
            return true;
        waits |= is_wait;
    }
    return !waits;
}

/* Applies the rules once. Returns true if anything was added that can move. */
static bool spread(struct wait_graph *graph)
{
    bool changed = false;
    for (size_t i = 0; i < graph->rows.count; i++) {
        const struct hf_row *row = &graph->rows.all[i];
        if (graph->moves[i])
            continue;
        graph->moves[i] = row->role == HF_HOLDER ? holder_moves(graph, i)
                                                 : wait_graph_lock_moves(graph, row->name);
        changed |= graph->moves[i];
    }
    return changed;
}

/* ---- Reading ---- */

static bool allocate(struct wait_graph *graph)
{
    char host[256] = "";
    graph->ancestors = calloc(graph->rows.count + 1, sizeof *graph->ancestors);
    graph->moves = calloc(graph->rows.count + 1, sizeof *graph->moves);
    if (!graph->ancestors || !graph->moves) {
        complain("out of memory for %zu rows", graph->rows.count);
        return false;
    }

    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < graph->rows.count; i++) {
        const struct hf_row *row = &graph->rows.all[i];
        if (row->role == HF_WAITER && strcmp(row->host, host) == 0)
            find_ancestors(&graph->ancestors[i], (pid_t)row->pid);
    }
    return true;
}

int wait_graph_read(struct wait_graph *graph, hf_client *client)
{
    *graph = (struct wait_graph){0};
    int code = row_list_check(&graph->rows, hf_list(client, NULL, row_list_add, &graph->rows));
    if (code != 0)
        return code;
    if (!allocate(graph))
        return EXIT_INTERNAL;

    while (spread(graph))
        continue;
    return 0;
}

void wait_graph_free(struct wait_graph *graph)
{
    row_list_free(&graph->rows);
    free(graph->ancestors);
    free(graph->moves);
}

/* ---- The circle ---- */

/* Returns the name that a stuck holder of this lock waits for. */
static const char *next_stuck(const struct wait_graph *graph, const char *name)
{
    const struct row_list *rows = &graph->rows;
    for (size_t h = 0; h < rows->count; h++) {
        bool is_stuck = rows->all[h].role == HF_HOLDER && !graph->moves[h];
        if (!is_stuck || strcmp(rows->all[h].name, name) != 0)
            continue;
        for (size_t w = 0; w < rows->count; w++)
            if (rows->all[w].role == HF_WAITER && wait_graph_same_client(graph, h, w))
                return rows->all[w].name;
    }
    return NULL;
}

static size_t find_name(const char *const *names, size_t count, const char *name)
{
    size_t at = 0;
    while (at < count && strcmp(names[at], name) != 0)
        at++;
    return at;
}

size_t wait_graph_circle(const struct wait_graph *graph, const char *name, const char **names,
                         size_t most)
{
    size_t count = 0;
    while (name && count < most) {
        size_t seen = find_name(names, count, name);
        if (seen < count) {
            memmove(names, names + seen, (count - seen) * sizeof *names);
            return count - seen;
        }
        names[count++] = name;
        name = next_stuck(graph, name);
    }
    return count;
}
