/* wait_graph.h - who waits for whom: joins the holders and waiters that an engine lists into
 * chains, and finds the locks that can never be released because of a circle.
 *
 * A holder and a waiter are the same client if host and pid are equal, or if the waiter runs under
 * the holder on this machine (`holdfast run a -- holdfast run b`). A detached hold belongs to no
 * process: it has outlived its own, or a service holds it for one of its many clients. */
#pragma once
#include "row_list.h"
#include <sys/types.h>

enum { WAIT_ANCESTORS_MAX = 32 };

/* The processes of a waiter: itself, its parent, and so on up to init. Empty if it is on another
 * machine. */
struct ancestors {
    pid_t pid[WAIT_ANCESTORS_MAX];
    size_t count;
};

struct wait_graph {
    struct row_list rows;        /* all holders and waiters, grouped by name */
    struct ancestors *ancestors; /* one for each row; filled for waiters of this machine */
    bool *moves; /* one for each row: the holder can release, or the waiter can be granted */
};

/* Lists the engine and computes `moves`. Returns 0, or an exit code after a message. */
int wait_graph_read(struct wait_graph *graph, hf_client *client);
void wait_graph_free(struct wait_graph *graph);

/* Returns true if the holder and the waiter, given by their rows, are the same client. */
bool wait_graph_same_client(const struct wait_graph *graph, size_t holder, size_t waiter);

/* Returns true if the lock is free or can become free for a waiter. False means deadlock. */
bool wait_graph_lock_moves(const struct wait_graph *graph, const char *name);

/* Finds the circle that keeps a lock from moving, which must not move. Fills `names` with up to
 * `most` names in their order and returns their number. */
size_t wait_graph_circle(const struct wait_graph *graph, const char *name, const char **names,
                         size_t most);
