/* routes.c - the table of routes, and finding the route of a request. */
#include "routes.h"
#include <ctype.h>
#include <string.h>

#define ALWAYS " 400 401 403 421 503"

const struct route ROUTES[] = {
#define ROUTE(method, path, right, operation, tag, summary, query, body, answer, statuses)         \
    {method, path, right,  route_##operation, #operation, tag, summary,                            \
     query,  body, answer, statuses},
#include "routes.def"
#undef ROUTE
};
const size_t ROUTE_COUNT = sizeof ROUTES / sizeof ROUTES[0];

/* Compares segment by segment. Segments are compared as they arrived; handlers decode them once. */
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
    return piece_is(x->head.method, method) ||
           (piece_is(x->head.method, "HEAD") && strcmp(method, "GET") == 0);
}

/* Returns true if `name` is one of the words, which may end with "!". */
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
    char message[160];
    snprintf(message, sizeof message, "%.*s: %s", (int)(name.len < 64 ? name.len : 64), name.at,
             why);
    answer_problem(x, 400, "invalid", message, NULL);
    return false;
}

/* Checks that each parameter of the query is one of the route's and occurs once. Returns false
 * after it answered. */
static bool check_query(struct exchange *x, const struct route *route)
{
    for (struct piece rest = x->head.query; rest.len > 0;) {
        struct piece name = next_parameter(&rest);
        if (!is_word(route->query, name))
            return refuse_parameter(x, name, "no such parameter");
        for (struct piece later = rest; later.len > 0;) {
            struct piece other = next_parameter(&later);
            if (other.len == name.len && memcmp(other.at, name.at, name.len) == 0)
                return refuse_parameter(x, name, "is given twice");
        }
    }
    return true;
}

static void call(struct exchange *x, const struct route *route)
{
    x->route = route;
    if (x->caller && !auth_allows(x->caller, route->right, NULL))
        answer_problem(x, 403, "forbidden", "the token lacks the right that this route needs",
                       NULL);
    else if (check_query(x, route))
        route->handle(x);
}

void route_id(const struct route *route, char id[ROUTE_ID_BYTES])
{
    size_t len = 0;

    for (const char *c = route->operation; *c && len + 1 < ROUTE_ID_BYTES; c++) {
        bool begins_word = c > route->operation && c[-1] == '_';
        if (*c != '_')
            id[len++] = begins_word ? (char)toupper((unsigned char)*c) : *c;
    }
    id[len] = 0;
}

bool routes_is_public(const struct exchange *x)
{
    struct piece arguments[2];
    bool found = false;

    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (!matches(ROUTES[i].path, x->head.path, arguments))
            continue;
        if (ROUTES[i].right != 0)
            return false;
        found = true;
    }

    return found;
}

/* Prints the methods of the path; "" if no route has it. */
static void print_allowed(struct exchange *x, char *allowed, size_t size)
{
    size_t len = 0;

    *allowed = 0;
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        if (matches(ROUTES[i].path, x->head.path, x->arguments))
            len += (size_t)snprintf(allowed + len, size - len, "%s%s", len ? ", " : "",
                                    ROUTES[i].method);
}

void routes_dispatch(struct exchange *x)
{
    char allowed[64];

    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        bool is_it =
            is_method(x, ROUTES[i].method) && matches(ROUTES[i].path, x->head.path, x->arguments);
        if (is_it) {
            call(x, &ROUTES[i]);
            return;
        }
    }

    print_allowed(x, allowed, sizeof allowed);
    if (*allowed) {
        exchange_field(x, "Allow", allowed);
        answer_problem(x, 405, "method_not_allowed",
                       "the route does not offer this method; see Allow", NULL);
    } else {
        answer_problem(x, 404, "not_found", "no such route", NULL);
    }
}
