/* log.h - the log of what happened to leases: a file to which a line of JSON is appended for each event. */
#pragma once
#include "holdfast.h"

/* Opens the file for appending, made 0600 when it is new; -1 after a message. */
int log_open(const char *path);

/* May this text stand in a log as a correlation id? */
bool log_may_correlate(const char *text);

/* Appends one event. */
void log_write(int fd, const struct hf_log_event *event);
