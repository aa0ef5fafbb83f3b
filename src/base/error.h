/* error.h - the error text of a status: one per thread, returned by hf_error_text(). */
#pragma once
#include "holdfast.h"

#define ERROR_TEXT_MAX 1024

/* Sets this thread's text and returns `status`, so that a function can end with
 * `return error_set(HF_INVALID, "ttl: %ld ms", ttl)`. An empty text becomes the text of the status.
 * The result is one line of valid UTF-8, because it is shown on terminals, in logs and in JSON: all
 * other bytes become '?'. error_text() may be among the arguments. */
hf_status error_set(hf_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Returns the text; never NULL, and valid until this thread's next error_set. */
const char *error_text(void);
/* Returns the status of this thread's last error_set, for functions that return something else. */
hf_status error_status(void);

/* Adds the holder of the lock to this thread's last error. The next error_set() clears it. The
 * row's texts are copied. */
void error_set_holder(const struct hf_row *holder);
/* Fills in as much as holder->size has room for. Returns false if no holder was set. */
bool error_holder(struct hf_row *holder);

/* One thread's last error. It can be kept while other calls of the thread may fail. */
struct error_holder {
    bool is_set;
    struct hf_row row; /* its texts point to the fields below */
    char name[HF_NAME_MAX + 1], host[65], label[HF_LABEL_MAX + 1];
};
struct error_state {
    hf_status status;
    char text[ERROR_TEXT_MAX];
    struct error_holder holder;
};
void error_save(struct error_state *state);
void error_restore(const struct error_state *state);
