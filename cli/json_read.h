/* json_read.h - finds a text in a JSON object that somebody gave us. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* The value of `key` in the one object that `json` consists of; escapes are resolved. False when `json` is not an
 * object, has no such key, or its value is no text, holds a NUL, or does not fit. Of a key that is there twice the last
 * counts. */
bool json_find_text(const char *json, const char *key, char *value, size_t size);
