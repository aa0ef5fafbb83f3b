/* server.h - what the parts of the service share.
 *
 * The path of a request: http.c reads it, authorize.c decides whether the caller may make it,
 * and routes.c finds its handler in the one table of routes. A handler that needs the engine
 * starts an acquire (leases.c) or posts a job to the workers (everything else), and answers when
 * that is done. The loop itself never blocks. lock_client.c feeds the library's events into the
 * loop. snapshot_stream.c polls the engine for the page and the gauges. metrics.c counts.
 * serve.c starts and stops all parts. */
#pragma once
#include "auth_tokens.h"
#include "failed_logins.h"
#include "flat_json.h"
#include "http.h"
#include "metrics.h"
#include "serve_settings.h"
#include "service_log.h"
#include "workers.h"
#include <jansson.h>

struct lock_client;
struct snapshot_stream;
struct leases;
struct run_under_lock;
struct lease_ledger;

struct server {
    struct event_base *base;
    struct settings settings;
    struct http *http;
    struct workers *workers;
    struct lock_client *engine; /* the client of --url */
    /* Client of /api/locks/redlock; may be the same as `engine`; NULL if there is none. */
    struct lock_client *redlock;
    struct auth_tokens *tokens;
    struct failed_logins failed_logins;
    struct leases *leases;
    struct run_under_lock *run_under_lock;
    struct lease_ledger *ledger;
    struct snapshot_stream *view;
    struct metrics metrics;
    enum log_form log_form;
    int64_t began_ms; /* start of the service, by clock_ms() */
    bool stopping;
    /* Callers need no credentials, so Host must be a known name: a browser could be lured here. */
    bool host_checked;
};

/* ---- Answers ---- */

void answer_json(struct exchange *x, int status, json_t *json); /* takes the reference of `json` */
void answer_flat_json(struct exchange *x, int status, struct flat_json *json); /* ends `json` */

/* Answers with a problem (RFC 9457). `code` is a word for programs, `detail` a sentence for
 * people. `extra` has further members or is NULL; its reference is taken. */
void answer_problem(struct exchange *x, int status, const char *code, const char *detail,
                    json_t *extra);

/* Answers with a status of the library, which decides the HTTP status. `message` may be NULL. */
void answer_status(struct exchange *x, hf_status status, const char *message, json_t *extra);

/* Parses the body as a JSON object; an empty body is an empty object. Returns NULL after it
 * answered with a refusal. */
json_t *read_body(struct exchange *x);

/* Refuses members that are not in `known`, which ends with NULL. Returns false after it
 * answered. */
bool check_members(struct exchange *x, json_t *body, const char *const *known);

/* Reads a whole number of the body between low and high, or `standard` if it is absent. Returns
 * false after it answered. */
bool read_whole(struct exchange *x, json_t *body, const char *name, int64_t low, int64_t high,
                int64_t standard, int64_t *value);

/* Reads a string of the body, or NULL if it is absent. Returns false after it answered. */
bool read_text(struct exchange *x, json_t *body, const char *name, const char **value);

/* Returns a decoded parameter of the query, or NULL if it is absent or cannot be decoded. The
 * caller frees it. */
char *query_text(const struct exchange *x, const char *name);

/* Decodes the name in the target and checks it against the caller's scope. Returns false after
 * it answered. */
bool read_name(struct exchange *x, size_t argument, unsigned right, char name[HF_NAME_MAX + 1]);

/* Copies the correlation id that the request carries. Returns false if it carries none. */
bool correlation_given(const struct exchange *x, char text[HF_CORRELATION_MAX + 1]);
/* Fills in the correlation id of the request; if it has none, the id of the request. */
void correlation_of(const struct exchange *x, char text[HF_CORRELATION_MAX + 1]);

struct server *server_of(const struct exchange *x);
