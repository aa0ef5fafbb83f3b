/* held.h - the locks that outer `holdfast run` processes hold: HOLDFAST_HELD has a line for each of
 * them with its token, a blank and its name. A command that waits for one of these locks would wait
 * for ever, because the lock is held until the command itself has ended. */
#pragma once
#include "lock_set.h"
#include "row_list.h"

/* Returns "HOLDFAST_HELD=..." with the inherited lines and a line for each lock, to be freed by
 * the caller; NULL if memory is out. */
char *held_variable(const struct lock_set *locks);

/* Returns true if an outer run took a lock of that name. That lease may have ended, or belong to
 * another engine. */
bool held_mentions(const char *name);

/* Returns the token of an outer run that blocks the request, judged by the holders that the
 * engine lists; 0 if none does. A permit of a semaphore does not block if enough units remain. */
uint64_t held_in_the_way(const char *name, const struct row_list *rows, hf_kind kind,
                         uint32_t units);
