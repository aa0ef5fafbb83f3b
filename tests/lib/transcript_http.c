/* transcript_http.c - requests over HTTP/1.1 with JSON, as Consul takes them.
 *
 *     EXPECT N METHOD PATH BODY          the engine sends a request
 *     SEND N STATUS INDEX BODY           the server's response, with that X-Consul-Index ("-":
 * none) */
#include "transcript_dialect.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    char in[TRANSCRIPT_BYTES]; /* incomplete requests */
    size_t len;
} requests[TRANSCRIPT_CONNECTIONS];

static void reset(unsigned connection)
{
    assert(connection < TRANSCRIPT_CONNECTIONS);
    requests[connection].len = 0;
}

/* Returns the length of the request at the beginning; 0: it is incomplete. */
static size_t print_request(unsigned connection, const char *bytes)
{
    const char *head_end = strstr(bytes, "\r\n\r\n");
    const char *length = strstr(bytes, "Content-Length: ");
    if (!head_end || !length || length > head_end)
        return 0;
    size_t body = strtoull(length + 16, NULL, 10);
    size_t whole = (size_t)(head_end + 4 - bytes) + body;
    if (strlen(bytes) < whole)
        return 0;

    const char *version = strstr(bytes, " HTTP/1.1\r\n");
    assert(version && version < head_end);
    note("EXPECT %u %.*s%s%.*s\n", connection, (int)(version - bytes), bytes, body ? " " : "",
         (int)body, head_end + 4);
    return whole;
}

static void sent(unsigned connection, const char *bytes, size_t len)
{
    char *in = requests[connection].in;
    size_t had = requests[connection].len;
    assert(had + len < TRANSCRIPT_BYTES && !memchr(bytes, 0, len));
    memcpy(in + had, bytes, len);
    in[had += len] = 0;
    for (size_t whole; (whole = print_request(connection, in)) > 0; had -= whole)
        memmove(in, in + whole, had - whole + 1);
    requests[connection].len = had;
}

static long make(const char *step, unsigned connection, const char *text,
                 char bytes[TRANSCRIPT_BYTES])
{
    int status, from = 0;
    char index[24], field[64] = "";
    (void)connection;
    if (strcmp(step, "SEND") != 0)
        return -1;
    if (sscanf(text, "%d %23s %n", &status, index, &from) != 2 || !from)
        return -2;
    if (strcmp(index, "-") != 0)
        snprintf(field, sizeof field, "X-Consul-Index: %s\r\n", index);
    return snprintf(bytes, TRANSCRIPT_BYTES,
                    "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%sContent-Length: "
                    "%zu\r\n\r\n%s",
                    status, status == 200 ? "OK" : "No", field, strlen(text + from), text + from);
}

const struct dialect http_dialect = {.reset = reset, .sent = sent, .make = make};
