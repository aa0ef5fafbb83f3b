/* name.h - what a name, a label, an owner may be made of. */
#pragma once
#include "holdfast.h"

#include <string.h>

/* Are the eight bytes at `s` all printable ASCII? Looks at all of them at once: a borrow can only come from a byte that
 * is a flaw itself. */
static inline bool hf_name_plain_eight(const char *s)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x80 * ones;
    uint64_t bytes;
    memcpy(&bytes, s, sizeof bytes);
    return ((bytes | (bytes - 0x20 * ones) | ((bytes ^ 0x7f * ones) - ones)) & tops) == 0;
}

/* Most texts are. One of eight bytes and more is looked at in eights, the last of which may overlap. False: it has to
 * be looked at more closely. */
static inline bool hf_name_plain(const char *text, size_t len)
{
    if (len < 8)
        return false;
    for (size_t at = 0; at + 8 < len; at += 8)
        if (!hf_name_plain_eight(text + at))
            return false;
    return hf_name_plain_eight(text + len - 8);
}

/* HF_INVALID unless text is min..max bytes of valid UTF-8 without control characters (C0, DEL, C1); `field` is named in
 * the text, as is the offending byte's place (counted from 1). */
hf_status hf_name_check(const char *field, const char *text, size_t len, size_t min, size_t max);

/* What is wrong with the first sequence that is not valid UTF-8 or is a control character, and at which byte it begins
 * (counted from 0); NULL if nothing is. */
const char *hf_name_flaw(const char *text, size_t len, size_t *place);
