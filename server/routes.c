/* routes.c - the table of routes and the way into it. */
#include "routes.h"
#include <string.h>

#define ASKING "ttlMs:integer waitMs:integer kind:string units:integer capacity:integer autoRenew:boolean label:string"
#define ALWAYS " 400 401 403 421 503"

const struct route ROUTES[] = {
    {"POST", "/v1/locks/{name}/leases", RIGHT_ACQUIRE, leases_post_named, "acquire",
     "Takes a lease on a name; waits for it up to waitMs.", "", ASKING, "201 409 422 429 501 504 507" ALWAYS},
    {"POST", "/v1/leases", RIGHT_ACQUIRE, leases_post, "acquireNamed", "The same with the name in the body.", "",
     "name!:string " ASKING, "201 409 422 429 501 504 507" ALWAYS},
    {"GET", "/v1/leases/{id}", RIGHT_READ, leases_get, "askLease", "How long a lease is still good.", "", "",
     "200 404 410 504" ALWAYS},
    {"PATCH", "/v1/leases/{id}", RIGHT_ACQUIRE, leases_patch, "extend", "Makes a lease last longer; never shortens it.",
     "", "ttlMs:integer", "200 404 410 504" ALWAYS},
    {"DELETE", "/v1/leases/{id}", RIGHT_ACQUIRE, leases_delete, "release", "Gives a lease back.", "", "",
     "204 404 410 504" ALWAYS},
    {"GET", "/v1/locks", RIGHT_READ, locks_list, "listLocks", "Who holds and who waits, in byte order of the names.",
     "prefix state limit cursor", "", "200 504" ALWAYS},
    {"GET", "/v1/locks/{name}", RIGHT_READ, locks_show, "showLock", "Holders and waiters of one name.", "", "",
     "200 504" ALWAYS},
    {"GET", "/v1/locks/{name}/history", RIGHT_READ, locks_history, "lockHistory", "Past holds, newest first.", "", "",
     "200 501 504" ALWAYS},
    {"DELETE", "/v1/locks/{name}/holder", RIGHT_BREAK, locks_break, "breakLock",
     "Takes a lock away from the holder with that token.", "token! reason!", "", "204 412 501 504" ALWAYS},
    {"POST", "/api/locks/simple/{resourceId}", RIGHT_ACQUIRE, classic_simple, "simpleLock",
     "Runs an operation while holding a lock.", "", "durationMs:integer operation:string", "200 409 422 502" ALWAYS},
    {"POST", "/api/locks/redlock/{resourceId}", RIGHT_ACQUIRE, classic_redlock, "redlockLock",
     "The same under a lock on a majority of servers.", "", "durationMs:integer operation:string",
     "200 409 422 501 502" ALWAYS},
    {"GET", "/v1/events", RIGHT_READ, view_stream, "events", "A stream of what the engine shows (text/event-stream).",
     "", "", "200" ALWAYS},
    {"GET", "/v1/patterns", RIGHT_READ, view_patterns, "patterns", "Waiting over time, as this instance saw it.", "",
     "", "200" ALWAYS},
    {"GET", "/health", 0, health_get, "health", "Does the engine answer?", "", "", "200 503"},
    {"GET", "/livez", 0, health_live, "live", "Does the service run?", "", "", "200"},
    {"GET", "/readyz", 0, health_ready, "ready", "May requests be sent here?", "verbose", "", "200 503"},
    {"GET", "/version", 0, health_version, "version", "Which Holdfast this is.", "", "", "200"},
    {"GET", "/openapi.json", 0, openapi_get, "openapi", "This document.", "", "", "200"},
    {"GET", "/metrics", RIGHT_READ, metrics_get, "metrics", "Measurements for Prometheus.", "", "", "200" ALWAYS},
    {"GET", "/", 0, page_get, "page", "The page.", "", "", "200"},
    {"GET", "/assets/{file}", 0, page_get, "asset", "A part of the page.", "", "", "200 404"},
};
const size_t ROUTE_COUNT = sizeof ROUTES / sizeof ROUTES[0];

/* Compares part by part; parts are taken as they stand, and decoded afterwards, once. */
static bool matches(const char *pattern, struct piece path, struct piece arguments[2])
{
    size_t at = 0, found = 0;
    while (*pattern) {
        if (*pattern != '{') {
            if (at >= path.len || path.at[at++] != *pattern++)
                return false;
            continue;
        }
        struct piece part = {path.at + at, 0};
        while (at < path.len && path.at[at] != '/')
            part.len++, at++;
        if (part.len == 0 || found == 2)
            return false;
        arguments[found++] = part;
        pattern = strchr(pattern, '}') + 1;
    }
    return at == path.len;
}

static bool is_method(const struct exchange *x, const char *method)
{
    return piece_is(x->head.method, method) || (piece_is(x->head.method, "HEAD") && strcmp(method, "GET") == 0);
}

static void call(struct exchange *x, const struct route *route)
{
    x->route = route;
    if (x->caller && !access_allows(x->caller, route->right, NULL))
        answer_problem(x, 403, "forbidden", "this token does not have the right that this needs", NULL);
    else
        route->handle(x);
}

void routes_dispatch(struct exchange *x)
{
    char allowed[64] = "";
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (!matches(ROUTES[i].path, x->head.path, x->arguments))
            continue;
        if (is_method(x, ROUTES[i].method)) {
            call(x, &ROUTES[i]);
            return;
        }
        snprintf(allowed + strlen(allowed), sizeof allowed - strlen(allowed), "%s%s", *allowed ? ", " : "",
                 ROUTES[i].method);
    }
    if (*allowed) {
        exchange_field(x, "Allow", "%s", allowed);
        answer_problem(x, 405, "method_not_allowed", "this is not offered with that method", NULL);
    } else {
        answer_problem(x, 404, "not_found", "there is nothing here", NULL);
    }
}
