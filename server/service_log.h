/* service_log.h - lines on stderr: messages for the user who started the service, and one line
 * for each event. Text from outside is escaped. */
#pragma once
#include "holdfast.h"
#include <stddef.h>
#include <stdint.h>

enum log_form { LOG_TEXT, LOG_JSON, LOG_NONE };

struct log_field {
    const char *key;
    const char *text; /* NULL: the value is `number` */
    int64_t number;   /* unknown if negative */
};

__attribute__((format(printf, 1, 2))) void log_complain(const char *format, ...);

/* Writes one event as key=value or JSON. Fields with an empty text or a negative number are left
 * out. */
void log_event(enum log_form form, enum hf_log_level level, const char *event,
               const struct log_field *fields, size_t count);
