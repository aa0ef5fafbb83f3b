/* rows.h - holders and waiters as JSON. */
#pragma once
#include "holdfast.h"
#include <jansson.h>

json_t *row_json(const struct hf_row *row);

/* A text that came from the engine; what is not UTF-8 is left out. */
json_t *text_json(const char *text);

/* An hf_row_fn that appends to the JSON array `array`. */
void rows_append(void *array, const struct hf_row *row);
