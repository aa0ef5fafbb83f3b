/* routes.h - the one table of routes: dispatch, the OpenAPI document and the tests come from it. */
#pragma once
#include "server.h"

struct route {
    const char *method;
    const char *path; /* {...} stands for one part */
    unsigned right;   /* enum right that the caller needs; 0: everybody may */
    void (*handle)(struct exchange *x);
    const char *id;       /* operationId */
    const char *summary;  /* one line */
    const char *query;    /* names of parameters, separated by blanks */
    const char *body;     /* members of the body as "name:type", separated by blanks; "!" marks what is needed */
    const char *statuses; /* that it answers with, separated by blanks */
};

extern const struct route ROUTES[];
extern const size_t ROUTE_COUNT;

/* Finds the route of a request and calls its handler, or answers 404 or 405. */
void routes_dispatch(struct exchange *x);

/* Handlers, by file. */
void leases_post(struct exchange *x);
void leases_post_named(struct exchange *x);
void leases_get(struct exchange *x);
void leases_patch(struct exchange *x);
void leases_delete(struct exchange *x);
void locks_list(struct exchange *x);
void locks_show(struct exchange *x);
void locks_history(struct exchange *x);
void locks_break(struct exchange *x);
void classic_simple(struct exchange *x);
void classic_redlock(struct exchange *x);
void health_get(struct exchange *x);
void health_live(struct exchange *x);
void health_ready(struct exchange *x);
void health_version(struct exchange *x);
void openapi_get(struct exchange *x);
void metrics_get(struct exchange *x);
void view_stream(struct exchange *x);
void view_patterns(struct exchange *x);
void page_get(struct exchange *x);
