/* json_log.h - the log of what happened to leases: a file to which a line of JSON is appended for
 * each event. */
#pragma once
#include "options.h"

#define LOG_HELD_UNKNOWN (-1)

/* The log of one command, with the facts that the library cannot know. */
struct log_outlet {
    int fd;                     /* -1: no log */
    const char *correlation_id; /* NULL: none */
    int64_t held_ms; /* how long an attached lease has been held; LOG_HELD_UNKNOWN: use the value of
                        the event */
};

/* Reads --log and --correlation-id, or their variables in the environment, and opens the file
 * for appending. A new file gets mode 0600. Returns 0, or an exit code after a message. */
int log_outlet_open(const struct cli_options *options, struct log_outlet *outlet);

/* Returns the options of a client that logs to the outlet. The outlet must live as long as the
 * client. */
struct hf_client_options log_outlet_client(struct log_outlet *outlet);

/* An hf_log_fn that appends one event; arg is a struct log_outlet. Does nothing without a log. */
void log_outlet_write(void *outlet, const struct hf_log_event *event);
