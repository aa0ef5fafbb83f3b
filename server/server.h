/* server.h - what the parts of the service share.
 *
 * The way of a request: http.c reads it, gate.c decides whether it may ask, routes.c finds its handler in the one table
 * of routes. A handler that needs the engine starts an acquire (leases.c) or posts a job to the workers (everything
 * else), and answers when that is done. The loop itself never waits. engine.c feeds the library's events into the
 * loop; view.c looks at the engine for the page and the gauges; metrics.c counts; serve.c starts and stops it all. */
#pragma once
#include "access.h"
#include "http.h"
#include "log.h"
#include "metrics.h"
#include "settings.h"
#include "workers.h"
#include <jansson.h>

struct engine;
struct view;
struct leases;
struct classic;

struct server {
    struct event_base *base;
    struct settings settings;
    struct http *http;
    struct workers *workers;
    struct engine *engine;  /* of --url */
    struct engine *redlock; /* of the route redlock; may be the same; NULL: none */
    struct access *access;
    struct leases *leases;
    struct classic *classic;
    struct view *view;
    struct metrics metrics;
    enum log_form log_form;
    bool stopping;
    bool host_checked; /* anybody on this machine may ask, so a browser must not be lured into it */
};

/* ---- Answers ---- */

void answer_json(struct exchange *x, int status, json_t *json); /* takes the reference */

/* RFC 9457. `code` is a word for programs, `detail` a sentence for people; `extra` has further members, or is NULL, and
 * its reference is taken. */
void answer_problem(struct exchange *x, int status, const char *code, const char *detail, json_t *extra);

/* What the library had to say: its status decides. */
void answer_status(struct exchange *x, hf_status status, const char *words, json_t *extra);

/* The members of the body, which may be empty. NULL after a refusal was answered. */
json_t *read_body(struct exchange *x);

/* Refuses members that are not in the list, which ends with NULL. False after it answered. */
bool check_members(struct exchange *x, json_t *body, const char *const *known);

/* A whole number of the body between low and high; `standard` when it is not there. False after it answered. */
bool read_whole(struct exchange *x, json_t *body, const char *name, int64_t low, int64_t high, int64_t standard,
                int64_t *value);

/* A text of the body, NULL when it is not there. False after it answered. */
bool read_text(struct exchange *x, json_t *body, const char *name, const char **value);

/* A parameter of the query, decoded; NULL when it is not there or cannot be decoded; to be freed. */
char *query_text(const struct exchange *x, const char *name);

/* The name in the target, decoded once; checked against the caller's scope. False after it answered. */
bool read_name(struct exchange *x, size_t argument, unsigned right, char name[HF_NAME_MAX + 1]);

/* Who asks, for the log: what the request says of itself. */
void correlation_of(const struct exchange *x, char text[HF_CORRELATION_MAX + 1]);

struct server *server_of(const struct exchange *x);
