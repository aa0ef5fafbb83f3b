/* lease_text.h - a detached lease as a line of JSON: written for a script, read back from a file
 * or from stdin. The line has a secret: anybody who has it can release the lease. */
#pragma once
#include "holdfast.h"

/* Writes the line of a granted lease to a descriptor. If the secret is NULL, it is left out.
 * Returns 0, or -1 and errno. */
int lease_line_write(int fd, const hf_lease *lease, const struct hf_request *request,
                     const char *secret);

/* The parts of a line that was read back. */
struct lease_line {
    char secret[HF_EXPORT_MAX];
    char name[HF_NAME_MAX + 1]; /* name of the lock, for messages; "" if the line has none */
};

/* Reads a line from the file, or from stdin if path is NULL. Refuses a file that others can
 * read. Returns 0, or an exit code after a message. */
int lease_line_read(const char *path, struct lease_line *parts);

/* Checks that the open file is a regular one that only this user can read and write. Returns 0,
 * or an exit code after a message. */
int lease_file_check(int fd, const char *path);

/* Reads the line of an open file without printing a message. Returns false if it is not the line
 * of a lease. */
bool lease_line_parse(int fd, struct lease_line *parts);
