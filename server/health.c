/* health.c - whether the service runs, whether its engine answers, and what it is. */
#include "engine.h"
#include "kept.h"
#include "leases.h"
#include "routes.h"
#include <stdlib.h>
#include <string.h>

#define PROBE_NAME "holdfast.health" /* never taken */
#define SERVICE "distributed-lock"

struct check {
    struct job job;
    struct exchange *x; /* NULL: answered */
    struct server *server;
    bool ready;       /* for /readyz, else /health */
    hf_status status; /* what the worker found */
    int64_t began_ms;
    struct event *timer; /* after op_timeout silence is the answer */
};

static void no_row(void *arg, const struct hf_row *row)
{
    (void)arg;
    (void)row;
}

static void work(struct job *job)
{
    struct check *check = (struct check *)(void *)job;
    check->status = hf_show(engine_client(check->server->engine), PROBE_NAME, no_row, NULL);
}

static json_t *details(const struct check *check, hf_status status, int64_t took_ms)
{
    const struct server *server = check->server;
    return json_pack("{s:s, s:i, s:i, s:i, s:I}", "engine", status == HF_OK ? "answers" : hf_status_text(status),
                     "waiting", (int)leases_waiting(server->leases), "renewed", (int)kept_count(), "connections",
                     (int)http_connections(server->http), "roundTripMs", (json_int_t)took_ms);
}

static void answer_well(struct check *check, json_t *more)
{
    char *verbose = check->ready ? query_text(check->x, "verbose") : NULL;
    json_t *said = json_pack("{s:s}", "status", "ok");
    if (!check->ready)
        json_object_set_new(said, "service", json_string(SERVICE));
    if (!check->ready || verbose)
        json_object_update(said, more);
    json_decref(more);
    free(verbose);
    answer_json(check->x, 200, said);
}

static void answer(struct check *check, hf_status status)
{
    int64_t took_ms = clock_ms() - check->began_ms;
    json_t *more = details(check, status, took_ms);
    histogram_note(&check->server->metrics.round_trip, (double)took_ms / 1000);
    if (status == HF_OK) {
        answer_well(check, more);
    } else {
        json_object_set_new(more, "service", json_string(SERVICE));
        answer_problem(check->x, 503, "engine_silent", hf_status_text(status), more);
    }
    check->x = NULL;
}

static void done(struct job *job)
{
    struct check *check = (struct check *)(void *)job;
    if (check->x)
        answer(check, check->status);
    event_free(check->timer);
    free(check);
}

/* The worker is still asking, and may do so for longer: it is not waited for. */
static void on_silence(evutil_socket_t fd, short what, void *arg)
{
    struct check *check = arg;
    (void)fd;
    (void)what;
    answer(check, HF_UNAVAILABLE);
}

static void ask_engine(struct exchange *x, bool ready)
{
    struct server *server = server_of(x);
    const char *source;
    int64_t patience = 0;
    struct check *check = calloc(1, sizeof *check);
    struct event *timer = check ? event_new(server->base, -1, 0, on_silence, check) : NULL;
    if (!timer) {
        free(check);
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return;
    }
    *check = (struct check){
        .job = {work, done, NULL}, .x = x, .server = server, .ready = ready, .began_ms = clock_ms(), .timer = timer};
    (void)hf_client_setting(engine_client(server->engine), "op_timeout", &patience, &source);
    struct timeval time = {.tv_sec = patience / 1000, .tv_usec = (patience % 1000) * 1000};
    if (patience > 0)
        event_add(timer, &time);
    engine_ask(server->engine, server->workers, &check->job);
}

void health_get(struct exchange *x)
{
    ask_engine(x, false);
}

void health_ready(struct exchange *x)
{
    if (server_of(x)->stopping)
        answer_problem(x, 503, "stopping", "the service stops", NULL);
    else
        ask_engine(x, true);
}

void health_live(struct exchange *x)
{
    answer_json(x, 200, json_pack("{s:s}", "status", "ok"));
}

void health_version(struct exchange *x)
{
    answer_json(x, 200, json_pack("{s:s, s:s}", "version", hf_version(), "engines", hf_engines()));
}
