/* duration.h - durations as people write them: 500ms, 5s, 1.5s, 2m, 1h. A number without a unit is
 * seconds. */
#pragma once
#include "holdfast.h"

#define DURATION_MAX 24 /* bytes of a printed duration, the final NUL included */

/* Reads a duration. "forever" is HF_FOREVER. Any other text must be a whole number of milliseconds,
 * at least 0, without sign or blanks; otherwise HF_INVALID names the text, and *ms is unchanged. */
hf_status duration_parse(const char *text, int64_t *ms);

/* As duration_parse(), but in microseconds, with the additional unit us. */
hf_status duration_parse_us(const char *text, int64_t *us);

/* Prints a text that duration_parse (or _us) reads as the same number, in the largest unit that
 * needs no fraction. */
void duration_print(int64_t ms, char out[static DURATION_MAX]);
void duration_print_us(int64_t us, char out[static DURATION_MAX]);
