/* health.c - /livez, /readyz, /health and /version: whether the service runs, and whether its
 * engines answer. */
#include "auto_renew.h"
#include "leases.h"
#include "lock_client.h"
#include "routes.h"
#include <stdlib.h>
#include <string.h>

#define PROBE_NAME "holdfast.health" /* a lock that nobody acquires */
#define SERVICE "distributed-lock"

struct check;

/* One engine that is asked whether it answers. */
struct probe {
    struct job job;
    struct check *check;
    const struct lock_client *engine;
    hf_status found;     /* result of the worker */
    hf_status status;    /* result that is reported, once settled */
    bool settled;        /* the engine answered, or was silent for op_timeout */
    struct event *timer; /* ends the wait after op_timeout */
};

enum { PROBE_ENGINE, PROBE_REDLOCK, PROBES };

struct check {
    struct exchange *x;
    struct server *server;
    bool ready; /* the probe is for /readyz; otherwise for /health */
    int64_t began_ms, took_ms;
    struct probe probes[PROBES];
    /* `jobs`: number of workers that still wait for their engine */
    size_t count, settled, jobs;
};

static void no_row(void *arg, const struct hf_row *row)
{
    (void)arg;
    (void)row;
}

static void work(struct job *job)
{
    struct probe *probe = (struct probe *)(void *)job;
    probe->found = hf_show(lock_client_client(probe->engine), PROBE_NAME, no_row, NULL);
}

static const char *state_text(const struct probe *probe)
{
    return probe->status == HF_OK ? "answers" : hf_status_text(probe->status);
}

static json_t *details(const struct check *check)
{
    const struct server *server = check->server;
    json_t *all = json_pack(
        "{s:f, s:s, s:i, s:i, s:i, s:I}", "uptime", (double)(clock_ms() - server->began_ms) / 1000,
        "engine", state_text(&check->probes[PROBE_ENGINE]), "waiting",
        (int)leases_waiting(server->leases), "renewed", (int)auto_renew_count(), "connections",
        (int)http_connections(server->http), "roundTripMs", (json_int_t)check->took_ms);

    if (check->count > PROBE_REDLOCK)
        json_object_set_new(all, "redlock", json_string(state_text(&check->probes[PROBE_REDLOCK])));

    return all;
}

static void answer_healthy(struct check *check, json_t *more)
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

static void answer_unhealthy(struct check *check, json_t *more)
{
    char message[160];
    bool main_fails = check->probes[PROBE_ENGINE].status != HF_OK;

    if (main_fails)
        snprintf(message, sizeof message, "%s", state_text(&check->probes[PROBE_ENGINE]));
    else
        snprintf(message, sizeof message, "the servers of --redlock-url: %s",
                 state_text(&check->probes[PROBE_REDLOCK]));

    json_object_set_new(more, "service", json_string(SERVICE));
    answer_problem(check->x, 503, main_fails ? "engine_silent" : "redlock_silent", message, more);
}

static void answer(struct check *check)
{
    bool well = true;

    for (size_t i = 0; i < check->count; i++)
        well &= check->probes[i].status == HF_OK;
    if (well)
        answer_healthy(check, details(check));
    else
        answer_unhealthy(check, details(check));
}

static void settle(struct probe *probe, hf_status status)
{
    struct check *check = probe->check;

    if (probe->settled)
        return;

    probe->settled = true;
    probe->status = status;
    event_del(probe->timer);
    if (probe == &check->probes[PROBE_ENGINE]) {
        check->took_ms = clock_ms() - check->began_ms;
        histogram_note(&check->server->metrics.round_trip, (double)check->took_ms / 1000);
    }
    if (++check->settled == check->count)
        answer(check);
}

static void done(struct job *job)
{
    struct probe *probe = (struct probe *)(void *)job;
    struct check *check = probe->check;

    settle(probe, probe->found);
    event_free(probe->timer);
    if (--check->jobs == 0)
        free(check);
}

/* The engine was silent for op_timeout: reports that. The worker may still be waiting for the
 * engine, but the request does not wait for the worker. */
static void on_silence(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    settle(arg, HF_UNAVAILABLE);
}

static bool add_probe(struct check *check, const struct lock_client *engine)
{
    struct probe *probe = &check->probes[check->count];

    *probe = (struct probe){.job = {work, done, NULL}, .check = check, .engine = engine};
    probe->timer = event_new(check->server->base, -1, 0, on_silence, probe);
    if (!probe->timer)
        return false;

    check->count++;
    return true;
}

static void start_probe(struct probe *probe)
{
    const struct server *server = probe->check->server;
    const char *source;
    int64_t patience = 0;

    (void)hf_client_setting(lock_client_client(probe->engine), "op_timeout", &patience, &source);
    struct timeval time = {.tv_sec = patience / 1000, .tv_usec = (patience % 1000) * 1000};
    if (patience > 0)
        event_add(probe->timer, &time);
    lock_client_do(probe->engine, server->workers, &probe->job);
}

/* Queries the engines. /readyz asks only the engine of --url: --redlock-url serves one route,
 * and other requests may still be sent here. */
static void query_engines(struct exchange *x, bool ready)
{
    struct server *server = server_of(x);
    struct check *check = calloc(1, sizeof *check);
    bool both = !ready && server->redlock && server->redlock != server->engine;

    if (check)
        *check = (struct check){.x = x, .server = server, .ready = ready, .began_ms = clock_ms()};
    bool failed =
        !check || !add_probe(check, server->engine) || (both && !add_probe(check, server->redlock));
    if (failed) {
        if (check && check->count > 0)
            event_free(check->probes[0].timer);
        free(check);
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
        return;
    }

    check->jobs = check->count;
    for (size_t i = 0, count = check->count; i < count; i++)
        start_probe(&check->probes[i]);
}

void route_health(struct exchange *x)
{
    query_engines(x, false);
}

void route_ready(struct exchange *x)
{
    if (server_of(x)->stopping)
        answer_problem(x, 503, "stopping", "the service is stopping", NULL);
    else
        query_engines(x, true);
}

void route_live(struct exchange *x)
{
    answer_json(x, 200, json_pack("{s:s}", "status", "ok"));
}

void route_version(struct exchange *x)
{
    json_t *engines = json_array();

    for (const char *name = hf_engines(); *name;) {
        size_t len = strcspn(name, " ");
        json_array_append_new(engines, json_stringn(name, len));
        name += len + strspn(name + len, " ");
    }

    answer_json(x, 200, json_pack("{s:s, s:o}", "version", hf_version(), "engines", engines));
}
