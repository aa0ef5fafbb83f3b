/* wait_view.h - who waits for whom, from the polls of the engine: for each holder the locks that it
 * waits for, and the deadlocks. */
#pragma once
#include "server.h"

struct wait_view {
    json_t *suspected; /* object whose keys are the circles of the last poll, as texts with their
                          tokens */
    json_t *deadlocks; /* array of arrays of names: circles that two polls have seen */
};

bool wait_view_open(struct wait_view *view); /* false if out of memory */
void wait_view_free(struct wait_view *view);

/* On a worker: returns the client of each row, as texts; null where it is not known. A new
 * reference.
 *
 * A client is a process, by host and pid. A waiter that runs under a holder on this machine belongs
 * to that holder (`holdfast run a -- holdfast run b`). Detached holds have outlived their process
 * or belong to the clients of a service, so they have no client here. */
json_t *wait_view_clients(const json_t *rows);

/* On the loop: adds `waitsFor`, the names that a holder waits for, to the rows of such holders, and
 * finds the deadlocks. Leases through this instance belong to the same client if they have the same
 * `owner`. An engine's list shows each name as of another moment, so a circle counts only when two
 * polls have seen it with the same tokens. A new circle is logged as a warning. */
void wait_view_update(struct wait_view *view, struct server *server, json_t *rows,
                      const json_t *clients);
