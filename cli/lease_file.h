/* lease_file.h - the file of a lease (--lease FILE): `acquire` creates it and `release` removes
 * it. If the lease in a file has ended, `acquire` takes the file over.
 *
 * A command holds the flock(2) of the file while it writes or removes it. So if two commands
 * find the same ended lease, one of them gets the file, and no command removes a lease that
 * another one has just written. */
#pragma once
#include "lease_text.h"

/* Creates the file with mode 0600, or takes it over if the engine says that its lease has ended.
 * *fd is open for writing, empty and locked. Returns 0, or an exit code after a message. */
int lease_file_claim(const char *path, hf_client *client, int *fd);

/* Removes the file if it still has this lease. Returns 0, or an exit code after a message. */
int lease_file_remove(const char *path, const struct lease_line *lease);
