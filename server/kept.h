/* kept.h - handles of leases that this instance renews for its clients, by the id that the client has. On the loop. */
#pragma once
#include "holdfast.h"
#include <stddef.h>

struct kept;

bool kept_add(const char *id, hf_lease *lease); /* takes the lease over; false: no memory */

/* The handle, kept until kept_leave; NULL: there is none. */
struct kept *kept_enter(const char *id, size_t len);
bool kept_has(const char *id); /* is it renewed here? */
hf_lease *kept_lease(const struct kept *kept);
void kept_leave(struct kept *kept, bool ended); /* ended: it is not held any more */

/* Tells of every lease that was renewed since the last call, and what was left of it then at most. */
void kept_renewed(void (*fn)(void *arg, int64_t slack_ms), void *arg);

/* A lease that is lost is not kept any longer. */
void kept_drop(const hf_lease *lease);

/* Empties the list; what nobody uses at the moment is handed to fn, whose it is then. */
void kept_take_all(void (*fn)(void *arg, hf_lease *lease), void *arg);
size_t kept_count(void);
