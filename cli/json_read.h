/* json_read.h - finds a text in a JSON object from outside. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Copies the value of `key` of the one object in `json`, with escapes resolved. Returns false if
 * `json` is not an object, has no such key, or the value is not a text, has a NUL, or does not
 * fit. If the key occurs twice, the last one counts. */
bool json_find_text(const char *json, const char *key, char *value, size_t size);
