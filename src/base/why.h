/* why.h - the words behind a status: one text per thread, returned by hf_error_text(). */
#pragma once
#include "holdfast.h"

#define HF_WHY_MAX 1024

/* Sets this thread's text and returns `status`, so that `return hf_why(HF_INVALID, "ttl: %ld ms ...", ttl)` reads well.
 * An empty text becomes the status' own ("%s", "": gcc refuses an empty format). Whatever was pasted in, the result is
 * one line of valid UTF-8: other bytes become '?', because it ends up on terminals, in logs and in JSON. hf_why_text()
 * may be among the arguments. */
hf_status hf_why(hf_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Never NULL; valid until this thread's next hf_why. */
const char *hf_why_text(void);
/* The status of this thread's last hf_why, for functions that return something else. */
hf_status hf_why_status(void);
