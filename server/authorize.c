/* authorize.c - checks Host and Origin, which keeps other sites from luring browsers here, and
 * the bearer token, which identifies the caller. */
#include "authorize.h"
#include "routes.h"
#include <string.h>
#include <strings.h>

/* Strips the port from a host. */
static struct piece without_port(struct piece host)
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
    struct piece name = without_port(host);

    for (size_t i = 0; i < sizeof loopback / sizeof loopback[0]; i++)
        if (piece_is_caseless(name, loopback[i]))
            return true;
    for (size_t i = 0; i < more->count; i++)
        if (piece_is_caseless(name, more->items[i]))
            return true;

    return false;
}

/* Returns true if the request comes from a page that this service served: its Origin is the
 * Host. */
static bool is_our_origin(const struct exchange *x, const struct piece *origin)
{
    for (size_t scheme = 7; scheme <= 8; scheme++) {
        if (origin->len <= scheme ||
            strncasecmp(origin->at, scheme == 7 ? "http://" : "https://", scheme) != 0)
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
    const struct piece *given = request_head_field(&x->head, "authorization");

    if (!server->tokens)
        return true;
    bool has_no_token = !given || given->len < sizeof scheme ||
                        strncasecmp(given->at, scheme, sizeof scheme - 1) != 0;
    if (has_no_token)
        return false;

    x->caller =
        auth_find(server->tokens, given->at + sizeof scheme - 1, given->len - (sizeof scheme - 1));

    return x->caller != NULL;
}

/* Counts a wrong token, but not a missing one: a browser's first request has none. */
static void note_failure(struct server *server, const struct exchange *x)
{
    if (request_head_field(&x->head, "authorization"))
        failed_logins_note(&server->failed_logins, x->network);
}

static bool is_blocked(const struct server *server, const struct exchange *x)
{
    int64_t most = setting_number(&server->settings, SET_MAX_FAILED_LOGINS);
    return server->tokens && failed_logins_blocks(&server->failed_logins, x->network, most);
}

static void answer_blocked(struct exchange *x)
{
    exchange_field(x, "Retry-After", "60");
    answer_problem(x, 429, "too_many_failed_logins",
                   "too many failed logins from this address; try again in a minute", NULL);
}

static void answer_unauthorized(struct server *server, struct exchange *x)
{
    note_failure(server, x);
    answer_problem(x, 401, "unauthorized", "this request needs a bearer token", NULL);
}

bool authorize(struct server *server, struct exchange *x)
{
    const struct piece *origin = request_head_field(&x->head, "origin");
    bool names_host = x->head.host.len > 0;
    bool wrong_host = server->host_checked && names_host && !is_our_host(server, x->head.host);

    if (wrong_host)
        answer_problem(x, 421, "wrong_host", "Host is not a name of this service; see --allow-host",
                       NULL);
    else if (origin && !is_our_origin(x, origin))
        answer_problem(x, 403, "wrong_origin", "requests from pages of other sites are refused",
                       NULL);
    else if (is_blocked(server, x) && !routes_is_public(x))
        answer_blocked(x);
    else if (!find_caller(server, x) && !routes_is_public(x))
        answer_unauthorized(server, x);
    else
        return true;
    return false;
}
