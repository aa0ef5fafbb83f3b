/* clients.h - the clients of a table: which clients are alive, which client watches which, and
 * cleaning up after dead ones.
 *
 * Each client has a life word, a robust mutex that is held as long as the client lives. The clients
 * form a ring, and each watches the life word of the next one. A client that sees its neighbour die
 * takes over that life word, frees the neighbour's holds and places in queues, removes it from the
 * ring and watches the next one. If the cleaning client dies too, the kernel marks both life words
 * and its own watcher continues. If all watchers are stopped, the ttl ends the holds. */
#pragma once
#include "table_file.h"

/* Joins the table. Called on the background thread. */
hf_status table_client_join(struct table *t, int64_t pid, int64_t until, uint32_t *client);
/* Leaves the table and frees the client's cells. Called on the background thread. Returns false if
 * a shard could not be locked; the other clients clean up when the life word is released. */
bool table_client_leave(struct table *t, uint32_t client);

/* Sets *next to the next client in the ring (0 if this client is alone) and *ring to the version
 * of the ring. */
hf_status table_client_next(struct table *t, uint32_t client, uint32_t *next, uint32_t *ring);

/* REAP_LATER: a shard could not be locked; call again on the same thread. REAP_NONE: the client is
 * alive, or already removed. */
enum reap_result { REAP_DONE, REAP_LATER, REAP_NONE };
enum reap_result table_client_reap(struct table *t, uint32_t client);
bool table_client_lives(struct table *t, uint32_t client);

/* Puts a granted entry on its client's ready list and wakes its background thread. */
void table_client_ready(struct table *t, uint32_t client, uint32_t entry);
/* Makes the client of an entry check all of its ops. */
void table_client_rescan(struct table *t, uint32_t entry);
/* Makes a client check that it still has each of its holds. */
void table_client_recheck(struct table *t, uint32_t client);
void table_client_wake(struct table_client *m);
void table_clients_ring_changed(struct table *t);
