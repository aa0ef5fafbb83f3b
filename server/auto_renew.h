/* auto_renew.h - leases that this instance renews for its clients, found by the lease id that
 * the client has. Used on the loop's thread only. */
#pragma once
#include "holdfast.h"
#include <stddef.h>

struct auto_renewed;

/* Takes the lease over. Returns false without memory. */
bool auto_renew_add(const char *id, hf_lease *lease);

/* Finds a lease and keeps it until auto_renew_leave. NULL if this instance does not renew it. */
struct auto_renewed *auto_renew_enter(const char *id, size_t len);
bool auto_renew_has(const char *id); /* Returns true if this instance renews it. */
hf_lease *auto_renew_lease(const struct auto_renewed *auto_renewed);
/* Ends the use of a lease that auto_renew_enter() returned. `ended`: the lease is not held any
 * more. */
void auto_renew_leave(struct auto_renewed *auto_renewed, bool ended);

/* Calls fn for every lease that was renewed since the last call. It also passes an upper bound of
 * the time that was left before the renewal. */
void auto_renew_renewed(void (*fn)(void *arg, int64_t slack_ms), void *arg);

/* Removes a lost lease from the list. */
void auto_renew_drop(const hf_lease *lease);

/* Empties the list. Leases that nobody uses are passed to fn, which owns them then. */
void auto_renew_take_all(void (*fn)(void *arg, hf_lease *lease), void *arg);
size_t auto_renew_count(void);
