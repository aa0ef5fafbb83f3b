/* fuzz.h - what a fuzzer of ours consists of. libFuzzer drives it in the nightly run, replay.c in
 * every test run. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Looks at one input and aborts when a property does not hold. Always returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inputs to begin with; ends with NULL. */
extern const char *const fuzz_seeds[];

/* How many inputs were taken and how many were refused: a fuzzer that only ever sees one of the two
 * tests little. */
extern unsigned long fuzz_accepted, fuzz_refused;

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "# %s:%d: not true: %s\n", __FILE__, __LINE__, #condition);            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The input as a string of its own, exactly as large as it must be, so that reading past its end is
 * noticed. It ends at the first NUL of the input. Freed with free. */
static inline char *fuzz_string(const uint8_t *data, size_t size)
{
    char *text = strndup(size ? (const char *)data : "", size);
    MUST(text);
    return text;
}
