/* name.h - what a name, a label, an owner may be made of. */
#pragma once
#include "holdfast.h"

/* HF_INVALID unless text is min..max bytes of valid UTF-8 without control characters (C0, DEL, C1); `field` is named in
 * the text, as is the offending byte's place (counted from 1). */
hf_status hf_name_check(const char *field, const char *text, size_t len, size_t min, size_t max);

/* What is wrong with the first sequence that is not valid UTF-8 or is a control character, and at which byte it begins
 * (counted from 0); NULL if nothing is. */
const char *hf_name_flaw(const char *text, size_t len, size_t *place);
