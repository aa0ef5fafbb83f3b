/* table_path.h - where the table of the embedded engine lies, as its URL says. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* The file that `url` (NULL: $HOLDFAST_URL, else local:) names. False when it names another engine, or a path that does
 * not fit. */
bool table_path(const char *url, char *path, size_t size);
