/* health.c - whether the service runs, whether its engine answers, and what it is. */
#include "engine.h"
#include "kept.h"
#include "leases.h"
#include "routes.h"
#include <stdlib.h>
#include <string.h>

#define PROBE_NAME "holdfast.health" /* never taken */

struct check {
    struct job job;
    struct exchange *x;
    struct server *server;
    bool ready; /* for /readyz, else /health */
    hf_status status;
    int64_t took_ms;
};

static void no_row(void *arg, const struct hf_row *row)
{
    (void)arg;
    (void)row;
}

static void work(struct job *job)
{
    struct check *check = (struct check *)(void *)job;
    int64_t began = clock_ms();
    check->status = hf_show(engine_client(check->server->engine), PROBE_NAME, no_row, NULL);
    check->took_ms = clock_ms() - began;
}

static json_t *details(const struct check *check)
{
    const struct server *server = check->server;
    return json_pack("{s:s, s:i, s:i, s:i, s:I}", "engine",
                     check->status == HF_OK ? "answers" : hf_status_text(check->status), "waiting",
                     (int)leases_waiting(server->leases), "renewed", (int)kept_count(), "connections",
                     (int)http_connections(server->http), "roundTripMs", (json_int_t)check->took_ms);
}

static void done(struct job *job)
{
    struct check *check = (struct check *)(void *)job;
    json_t *more = details(check);
    histogram_note(&check->server->metrics.round_trip, (double)check->took_ms / 1000);
    if (check->status != HF_OK) {
        json_object_set_new(more, "service", json_string("distributed-lock"));
        answer_problem(check->x, 503, "engine_silent", hf_status_text(check->status), more);
    } else if (check->ready) {
        char *verbose = query_text(check->x, "verbose");
        json_t *answer = json_pack("{s:s}", "status", "ok");
        if (verbose)
            json_object_update(answer, more);
        json_decref(more);
        free(verbose);
        answer_json(check->x, 200, answer);
    } else {
        json_t *answer = json_pack("{s:s, s:s}", "status", "ok", "service", "distributed-lock");
        json_object_update(answer, more);
        json_decref(more);
        answer_json(check->x, 200, answer);
    }
    free(check);
}

static void ask_engine(struct exchange *x, bool ready)
{
    struct check *check = calloc(1, sizeof *check);
    if (!check) {
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return;
    }
    *check = (struct check){.job = {work, done, NULL}, .x = x, .server = server_of(x), .ready = ready};
    workers_post(check->server->workers, &check->job);
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
