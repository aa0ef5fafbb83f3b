/* row_json.h - holders, waiters and past holds as JSON, with the keys of docs/json.md. */
#pragma once
#include "holdfast.h"
#include <jansson.h>

json_t *row_json(const struct hf_row *row);

/* Returns a text from the engine as JSON; empty if it is not UTF-8. */
json_t *text_json(const char *text);

/* Returns one past hold, as a new reference. */
json_t *hold_json(const struct hf_row *row);

/* Both are hf_row_fn that append to the JSON array `array`. */
void row_json_append(void *array, const struct hf_row *row);
void hold_json_append(void *array, const struct hf_row *row);
