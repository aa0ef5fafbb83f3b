/* run_under_lock.h - the routes that hold a lock while an operation runs here. */
#pragma once
#include "server.h"

/* Reads the operations of the settings. Returns 0, or an exit code after a message. */
int run_under_lock_open(struct server *server, struct run_under_lock **run_under_lock);
/* Ends the operations that run. */
void run_under_lock_stop(struct run_under_lock *run_under_lock);
bool run_under_lock_idle(const struct run_under_lock *run_under_lock);
void run_under_lock_free(struct run_under_lock *run_under_lock);
