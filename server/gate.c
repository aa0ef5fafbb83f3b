/* gate.c - Host and Origin keep browsers from being lured here by other sites; the token says who asks. */
#include "gate.h"
#include "routes.h"
#include <string.h>
#include <strings.h>

/* A host without its port. */
static struct piece bare(struct piece host)
{
    size_t len = host.len;
    if (len > 0 && host.at[0] == '[') {
        const char *end = memchr(host.at, ']', len);
        return end ? (struct piece){host.at, (size_t)(end - host.at) + 1} : host;
    }
    const char *colon = memchr(host.at, ':', len);
    return colon ? (struct piece){host.at, (size_t)(colon - host.at)} : host;
}

static bool is_our_host(const struct server *server, struct piece host)
{
    static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};
    const struct setting_value *more = &server->settings.value[SET_ALLOW_HOST];
    struct piece name = bare(host);
    for (size_t i = 0; i < sizeof loopback / sizeof loopback[0]; i++)
        if (piece_is_caseless(name, loopback[i]))
            return true;
    for (size_t i = 0; i < more->count; i++)
        if (piece_is_caseless(name, more->items[i]))
            return true;
    return false;
}

/* A page of ours asks from where it was loaded. */
static bool is_our_origin(const struct exchange *x, const struct piece *origin)
{
    for (size_t scheme = 7; scheme <= 8; scheme++) {
        if (origin->len <= scheme || strncasecmp(origin->at, scheme == 7 ? "http://" : "https://", scheme) != 0)
            continue;
        if (origin->len - scheme == x->head.host.len &&
            strncasecmp(origin->at + scheme, x->head.host.at, x->head.host.len) == 0)
            return true;
    }
    return false;
}

static bool find_caller(struct server *server, struct exchange *x)
{
    static const char scheme[] = "Bearer ";
    const struct piece *given = head_field(&x->head, "authorization");
    if (!server->access)
        return true;
    if (!given || given->len < sizeof scheme || strncasecmp(given->at, scheme, sizeof scheme - 1) != 0)
        return false;
    x->caller = access_find(server->access, given->at + sizeof scheme - 1, given->len - (sizeof scheme - 1));
    return x->caller != NULL;
}

/* Probes of an orchestrator and the page itself, which has no data in it, come without a token. */
static bool is_public(const struct exchange *x)
{
    static const char *const open[] = {"/", "/health", "/livez", "/readyz", "/version", "/openapi.json"};
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        if (piece_is(x->head.path, open[i]))
            return true;
    return x->head.path.len > 8 && memcmp(x->head.path.at, "/assets/", 8) == 0;
}

bool gate_admits(struct server *server, struct exchange *x)
{
    const struct piece *origin = head_field(&x->head, "origin");
    if (server->host_checked && x->head.host.len > 0 && !is_our_host(server, x->head.host))
        answer_problem(x, 421, "wrong_host", "this service is not called that; see --allow-host", NULL);
    else if (origin && !is_our_origin(x, origin))
        answer_problem(x, 403, "wrong_origin", "pages of other sites may not ask here", NULL);
    else if (!find_caller(server, x) && !is_public(x))
        answer_problem(x, 401, "unauthorized", "a bearer token is needed", NULL);
    else
        return true;
    return false;
}
