/* lease_ops.h - releases whose log line lease_ops.c writes. Used on the loop's thread only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Returns true if lease_ops.c has logged the release with that token itself, so that the library's
 * report of it must not be logged. Removes the release from the list. */
bool lease_ops_has_line(uint64_t token);
void lease_ops_forget_lines(void);
/* Answers requests whose outcome has not come; call it before http_free. */
void lease_ops_close(void);
