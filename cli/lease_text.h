/* lease_text.h - a detached lease as a line of JSON: written for a script, read back from a file or from stdin. The
 * line holds a secret: who has it can release. */
#pragma once
#include "holdfast.h"

/* Creates the file for a lease, 0600, which must not exist yet; -1 after a message. */
int lease_file_create(const char *path);

/* Writes the line of a granted lease to a descriptor. The secret may be NULL: then it is left out. 0, or -1 and errno.
 */
int lease_line_write(int fd, const hf_lease *lease, const struct hf_request *request, const char *secret);

/* Reads a line from the file, or from stdin if path is NULL, and takes the exported text out of it. A file that others
 * can read is refused. 0, or an exit code after a message. */
int lease_line_read(const char *path, char secret[HF_EXPORT_MAX]);
