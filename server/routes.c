/* routes.c - the table of routes and the way into it. */
#include "routes.h"
#include <string.h>

#define ASKING "ttlMs:integer waitMs:integer kind:string units:integer capacity:integer autoRenew:boolean label:string"
#define ALWAYS " 400 401 403 421 503"

const struct route ROUTES[] = {
    {"POST", "/v1/locks/{name}/leases", RIGHT_ACQUIRE, leases_post_named, "acquire",
     "Takes a lease on a name; waits for it up to waitMs.", "", ASKING, "201 409 410 415 422 429 501 504 507" ALWAYS},
    {"POST", "/v1/leases", RIGHT_ACQUIRE, leases_post, "acquireNamed", "The same with the name in the body.", "",
     "name!:string " ASKING, "201 409 410 415 422 429 501 504 507" ALWAYS},
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

/* Is it one of the words, which may have a "!" behind them? */
static bool is_word(const char *words, struct piece name)
{
    for (size_t len; *words; words += len + strspn(words + len, "! ")) {
        len = strcspn(words, "! ");
        if (name.len == len && memcmp(name.at, words, len) == 0)
            return true;
    }
    return false;
}

static struct piece next_parameter(struct piece *rest)
{
    const char *end = memchr(rest->at, '&', rest->len);
    size_t len = end ? (size_t)(end - rest->at) : rest->len;
    struct piece name = {rest->at, 0};
    while (name.len < len && name.at[name.len] != '=')
        name.len++;
    size_t used = len + (end != NULL);
    *rest = (struct piece){rest->at + used, rest->len - used};
    return name;
}

static bool refuse_parameter(struct exchange *x, struct piece name, const char *why)
{
    char words[160];
    snprintf(words, sizeof words, "%.*s: %s", (int)(name.len < 64 ? name.len : 64), name.at, why);
    answer_problem(x, 400, "invalid", words, NULL);
    return false;
}

/* Each parameter of the query is one of the route's, and there once. False after it answered. */
static bool check_query(struct exchange *x, const struct route *route)
{
    for (struct piece rest = x->head.query; rest.len > 0;) {
        struct piece name = next_parameter(&rest);
        if (!is_word(route->query, name))
            return refuse_parameter(x, name, "no such parameter");
        for (struct piece later = rest; later.len > 0;) {
            struct piece other = next_parameter(&later);
            if (other.len == name.len && memcmp(other.at, name.at, name.len) == 0)
                return refuse_parameter(x, name, "stands there twice");
        }
    }
    return true;
}

static void call(struct exchange *x, const struct route *route)
{
    x->route = route;
    if (x->caller && !access_allows(x->caller, route->right, NULL))
        answer_problem(x, 403, "forbidden", "this token does not have the right that this needs", NULL);
    else if (check_query(x, route))
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
