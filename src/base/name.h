/* name.h - checks names, labels and owners. */
#pragma once
#include "holdfast.h"

#include <string.h>

/* Returns true if the eight bytes at `s` are all printable ASCII. Checks them in one word: a borrow
 * can only come from a byte that is not printable itself. */
static inline bool name_plain_eight(const char *s)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x80 * ones;
    uint64_t bytes;
    memcpy(&bytes, s, sizeof bytes);
    return ((bytes | (bytes - 0x20 * ones) | ((bytes ^ 0x7f * ones) - ones)) & tops) == 0;
}

/* Returns true if all bytes are printable ASCII. A quick check that most names pass: it takes eight
 * bytes at a time, and the last eight may overlap those before. Returns false for a text below
 * eight bytes, without checking it. */
static inline bool name_plain(const char *text, size_t len)
{
    if (len < 8)
        return false;
    for (size_t at = 0; at + 8 < len; at += 8)
        if (!name_plain_eight(text + at))
            return false;
    return name_plain_eight(text + len - 8);
}

/* Returns HF_INVALID unless text has min to max bytes of valid UTF-8 without control characters
 * (C0, DEL, C1). The error text names `field` and the position of the bad byte, counted from 1. */
hf_status name_check(const char *field, const char *text, size_t len, size_t min, size_t max);

/* Finds the first sequence that is not valid UTF-8 or is a control character. Returns what is wrong
 * with it and sets *place to its first byte, counted from 0. Returns NULL if the text is fine. */
const char *name_flaw(const char *text, size_t len, size_t *place);
