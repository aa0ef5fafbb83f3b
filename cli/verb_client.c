/* verb_client.c - opens and closes the client of a verb. */
#include "verb_client.h"
#include "holder_lookup.h"
#include "verbs.h"

#define CLOSE_MS 1000

int64_t verb_client_patience(int code)
{
    return code != 0 && holder_lookup_pending() ? 0 : CLOSE_MS;
}

int verb_client_open(const struct cli_options *options, const struct hf_client_options *how,
                     hf_client **client)
{
    hf_status status = hf_open(options->url, how, client);
    return status == HF_OK ? 0 : fail_with(status);
}

int verb_client_close(hf_client *client, int code)
{
    hf_status status = hf_close(client, verb_client_patience(code));
    return status == HF_OK || code != 0 ? code : fail_with(status);
}
