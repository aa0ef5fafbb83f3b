/* repair.h - rebuilds a shard after a death inside its mutex. */
#pragma once
#include "table_file.h"

/* Rebuilds from the cells everything that is derived, grants free units to the first waiters, and
 * notifies every op that the dead process may have been about to notify. The caller holds the
 * mutex. */
void shard_repair(struct table *t, uint32_t shard);
