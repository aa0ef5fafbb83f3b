/* session.h - one client for as long as a verb lasts. */
#pragma once
#include "options.h"

/* Opens the engine that the options name. 0, or an exit code after a message. */
int session_open(const struct cli_options *options, const struct hf_client_options *how, hf_client **client);

/* How long closing may take after that exit code: no time where the server is silent and nothing was to be had. */
int64_t session_patience(int code);

/* Closes it. Answers with `code`, or when that is 0 and closing failed, with the code of that after a message. */
int session_close(hf_client *client, int code);
