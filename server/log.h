/* log.h - lines on stderr: messages for who started the service, and one line for each event. Whatever came from
 * outside is escaped. */
#pragma once
#include "holdfast.h"
#include <stddef.h>
#include <stdint.h>

enum log_form { LOG_TEXT, LOG_JSON, LOG_NONE };

struct log_field {
    const char *key;
    const char *text; /* NULL: a number */
    int64_t number;
};

__attribute__((format(printf, 1, 2))) void log_complain(const char *format, ...);

/* One event a line, as key=value or JSON. Fields with an empty text are left out. */
void log_event(enum log_form form, const char *event, const struct log_field *fields, size_t count);
