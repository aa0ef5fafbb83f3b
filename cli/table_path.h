/* table_path.h - finds the file of the engine local: from its URL. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Finds the file that `url` names (NULL: $HOLDFAST_URL, else local:). Returns false if it names
 * another engine, or if the path does not fit. */
bool table_path(const char *url, char *path, size_t size);
