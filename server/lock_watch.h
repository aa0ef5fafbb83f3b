/* lock_watch.h - the library's watch, on a thread of its own while a page is open. */
#pragma once
#include "snapshot_stream.h"

struct lock_watch;
struct lock_watch *lock_watch_new(hf_client *client); /* NULL if out of memory */
/* Starts or ends the watch; call it now and then, so that a watch that failed begins again. */
void lock_watch_run(struct lock_watch *watch, bool wanted);
/* Calls fn for each change that was seen. Changes of the last moments stay in the queue, so that
 * this instance's own, exact report of the same change comes first. */
void lock_watch_drain(struct lock_watch *watch,
                      void (*fn)(void *arg, const struct lease_change *change), void *arg);
/* Call it after hf_close, which ends a running watch. */
void lock_watch_free(struct lock_watch *watch);
