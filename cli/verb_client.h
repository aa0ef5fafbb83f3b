/* verb_client.h - the client of a verb, from its start to its end. */
#pragma once
#include "options.h"

/* Opens the engine that the options name. Returns 0, or an exit code after a message. */
int verb_client_open(const struct cli_options *options, const struct hf_client_options *how,
                     hf_client **client);

/* Returns how long closing may take after that exit code: 0 if the verb failed and the server is
 * silent. */
int64_t verb_client_patience(int code);

/* Closes the client. Returns `code`; if that is 0 and closing failed, the exit code of that
 * failure after a message. */
int verb_client_close(hf_client *client, int code);
