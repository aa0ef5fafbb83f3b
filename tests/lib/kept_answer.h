/* kept_answer.h - handlers of the service without a connection: what they answer is kept. A program
 * that uses this is linked with --wrap of exchange_answer, exchange_field and http_arg. */
#pragma once
#include "server.h"

/* Answers so far to the exchange that kept_request() made, and the last of them. */
struct kept_answer {
    int count, status;
    char type[64], fields[256];
    json_t *body; /* borrowed; NULL: not JSON */
};

extern struct kept_answer kept_answer;

/* An exchange with this head and body; forgets the answers to the one before. `server` is what
 * server_of() says. */
struct exchange *kept_request(const char *head, const char *body, struct server *server);
/* A member of the answer, or "". */
const char *kept_member(const char *name);
