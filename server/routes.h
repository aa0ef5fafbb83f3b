/* routes.h - the one table of routes. Dispatch, access without a token, the OpenAPI document and
 * the tests come from it. */
#pragma once
#include "server.h"

struct route {
    const char *method;
    const char *path; /* {...} matches one segment */
    unsigned right;   /* enum right that the caller needs; 0: public, no token needed */
    void (*handle)(struct exchange *x);
    const char *operation; /* in snake case; its handler is route_OPERATION */
    const char *tag;
    const char *summary; /* one line */
    /* Names of the query parameters, separated by blanks; "!" marks a required one. */
    const char *query;
    const char *body;     /* schema of the body of the request; "" if it has none */
    const char *answer;   /* schema of the answer, or its media type if not JSON; "" if empty */
    const char *statuses; /* statuses of its answers, separated by blanks; that of success first */
};

extern const struct route ROUTES[];
extern const size_t ROUTE_COUNT;

/* Length of an operationId: the operation in camel case. */
enum { ROUTE_ID_BYTES = 32 };
void route_id(const struct route *route, char id[ROUTE_ID_BYTES]);

/* Returns true if the path of a request has a route and none of its routes needs a token. */
bool routes_is_public(const struct exchange *x);

/* Finds the route of a request and calls its handler, or answers 404 or 405. */
void routes_dispatch(struct exchange *x);

/* The handlers. */
#define ROUTE(method, path, right, operation, tag, summary, query, body, answer, statuses)         \
    void route_##operation(struct exchange *x);
#include "routes.def"
#undef ROUTE
