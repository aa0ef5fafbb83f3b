/* duration.h - durations as people write them: 500ms, 5s, 1.5s, 2m, 1h; a bare number is seconds. */
#pragma once
#include "holdfast.h"

#define HF_DURATION_MAX 24 /* bytes of a printed duration, the final NUL included */

/* "forever" is HF_FOREVER. HF_INVALID, with the text named, for everything else that is not exactly a number of
 * milliseconds of at least 0 (and *ms is left alone): no sign, no blanks, nothing lost by rounding. */
hf_status hf_duration_parse(const char *text, int64_t *ms);

/* The same in microseconds, with the additional unit us. */
hf_status hf_duration_parse_us(const char *text, int64_t *us);

/* Prints what hf_duration_parse (or _us) reads back as the same number, in the largest unit that needs no fraction. */
void hf_duration_print(int64_t ms, char out[static HF_DURATION_MAX]);
void hf_duration_print_us(int64_t us, char out[static HF_DURATION_MAX]);
