/* serve.c - starts the parts of the service, runs the loop, and stops them in order. */
#include "serve.h"
#include "classic.h"
#include "engine.h"
#include "gate.h"
#include "leases.h"
#include "listening.h"
#include "routes.h"
#include "view.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define DESCRIPTORS_KEPT 320 /* of those that the process may have, not for connections */
#define STOP_LOOK_MS 20
#define STOP_PATIENCE_MS 8000
#define REDLOCK "redlock"

struct service {
    struct server server;
    SSL_CTX *tls;
    struct event *stops[3], *stop_timer; /* stops: signals */
    int64_t stop_began_ms;
};

/* ---- What the library tells ---- */

static bool is_record(const char *name)
{
    return name && strncmp(name, RECORD_PREFIX, strlen(RECORD_PREFIX)) == 0;
}

static void on_log(void *arg, const struct hf_log_event *event)
{
    struct server *server = arg;
    if (!event->name || is_record(event->name))
        return;
    metrics_note(&server->metrics, event, setting_number(&server->settings, SET_METRICS_DEPTH));
    if (event->level == HF_LOG_DEBUG) /* every renewal */
        return;
    const struct log_field fields[] = {
        {"name", event->name, 0},
        {"token", NULL, (int64_t)event->token},
        {"ttl_ms", NULL, event->ttl_ms},
        {"waited_ms", NULL, event->waited_ms},
        {"held_ms", NULL, event->held_ms},
        {"outcome", hf_status_name(event->status), 0},
        {"correlation_id", event->correlation_id ? event->correlation_id : "", 0},
        {"text", event->text ? event->text : "", 0},
    };
    log_event(server->log_form, strcmp(event->event, "denied") == 0 ? "rejected" : event->event, fields,
              sizeof fields / sizeof fields[0]);
}

/* ---- Requests ---- */

static void on_request(void *arg, struct exchange *x)
{
    struct server *server = arg;
    if (gate_admits(server, x))
        routes_dispatch(x);
}

static void on_refused(void *arg, struct exchange *x, int status, const char *why)
{
    (void)arg;
    if (status == 503 || status == 429)
        exchange_field(x, "Retry-After", "1");
    answer_problem(x, status, status == 503 || status == 429 ? "too_many_connections" : "bad_request", why, NULL);
}

/* Only what went wrong is worth a line: leases have lines of their own. */
static void on_ended(void *arg, const struct exchange *x, bool delivered)
{
    struct server *server = arg;
    int hundreds = x->status / 100;
    if (hundreds >= 1 && hundreds <= 5)
        server->metrics.answers[hundreds]++;
    if (x->status < 500 && delivered)
        return;
    const struct log_field fields[] = {
        {"route", x->route ? x->route->id : "", 0},
        {"status", NULL, x->status},
        {"delivered", delivered ? "yes" : "no", 0},
        {"took_ms", NULL, clock_ms() - x->began_ms},
        {"request_id", x->id, 0},
    };
    log_event(server->log_form, "request", fields, sizeof fields / sizeof fields[0]);
}

static void on_stuck(void *arg, const char *why)
{
    (void)arg;
    log_complain("cannot accept connections: %s", why);
}

/* ---- Stopping ---- */

static void on_stop_timer(evutil_socket_t fd, short what, void *arg)
{
    struct service *service = arg;
    struct server *server = &service->server;
    bool idle = leases_idle(server->leases) && classic_idle(server->classic) && workers_pending(server->workers) == 0;
    (void)fd;
    (void)what;
    if (idle)
        http_drain(server->http);
    bool over = clock_ms() - service->stop_began_ms > STOP_PATIENCE_MS;
    if (over || (idle && http_connections(server->http) == 0))
        event_base_loopbreak(server->base);
}

static void on_stop(evutil_socket_t number, short what, void *arg)
{
    struct service *service = arg;
    struct server *server = &service->server;
    struct timeval time = {.tv_usec = STOP_LOOK_MS * 1000};
    (void)what;
    (void)number;
    if (server->stopping) {
        event_base_loopbreak(server->base);
        return;
    }
    listening_notify("STOPPING=1");
    server->stopping = true;
    service->stop_began_ms = clock_ms();
    http_stop_listening(server->http);
    view_stop(server->view);
    leases_stop(server->leases);
    classic_stop(server->classic);
    event_add(service->stop_timer, &time);
}

/* ---- Starting ---- */

static int no_memory(void)
{
    log_complain("out of memory");
    return hf_status_exit_code(HF_NO_MEMORY);
}

static int open_engines(struct server *server, const char *url)
{
    const char *quorum = setting_text(&server->settings, SET_REDLOCK_URL);
    const char *main_url = url ? url : getenv("HOLDFAST_URL");
    int code = engine_open(server->base, url, on_log, server, &server->engine);
    if (code != 0)
        return code;
    if (main_url && strncmp(main_url, REDLOCK, strlen(REDLOCK)) == 0)
        server->redlock = server->engine;
    else if (quorum)
        code = engine_open(server->base, quorum, on_log, server, &server->redlock);
    return code;
}

/* Each waiting client is a descriptor. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Connections must leave descriptors for the engine and for those who are told that there are too many. */
static void cap_connections(struct http_limits *limits)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    size_t most =
        (size_t)(limit.rlim_cur < 2 * DESCRIPTORS_KEPT ? limit.rlim_cur / 2 : limit.rlim_cur - DESCRIPTORS_KEPT);
    if (limits->connections <= most)
        return;
    log_complain("max-connections is %zu: only %zu files may be open", most, (size_t)limit.rlim_cur);
    limits->connections = most;
}

static int open_http(struct service *service)
{
    struct server *server = &service->server;
    const struct settings *settings = &server->settings;
    struct http_options options = {
        .base = server->base,
        .limits = {.head_bytes = (size_t)setting_number(settings, SET_MAX_HEAD),
                   .body_bytes = (size_t)setting_number(settings, SET_MAX_BODY),
                   .connections = (size_t)setting_number(settings, SET_MAX_CONNECTIONS),
                   .connections_per_address = (size_t)setting_number(settings, SET_MAX_PER_ADDRESS),
                   .request_ms = setting_number(settings, SET_REQUEST_TIMEOUT),
                   .idle_ms = setting_number(settings, SET_IDLE_TIMEOUT),
                   .half_close_leaves = setting_number(settings, SET_HALF_CLOSE) == 1},
        .handle = on_request,
        .refuse = on_refused,
        .ended = on_ended,
        .stuck = on_stuck,
        .arg = server,
    };
    const char *tokens = setting_text(settings, SET_TOKEN_FILE);
    cap_connections(&options.limits);
    int code = listening_check(server);
    if (code == 0 && tokens && !access_open(tokens, &server->access))
        code = hf_status_exit_code(HF_CONFIG);
    if (code == 0)
        code = listening_tls(server, &service->tls);
    options.tls = service->tls;
    if (code == 0 && !(server->http = http_new(&options)))
        code = no_memory();
    return code;
}

/* As nohup leaves it: who started it wants it to outlive the terminal. */
static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static int add_signals(struct service *service)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    struct event_base *base = service->server.base;
    service->stop_timer = event_new(base, -1, EV_PERSIST, on_stop_timer, service);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        if (signals[i] == SIGHUP && is_ignored(SIGHUP))
            continue;
        service->stops[i] = evsignal_new(base, signals[i], on_stop, service);
        if (!service->stops[i] || event_add(service->stops[i], NULL) != 0)
            return no_memory();
    }
    return service->stop_timer ? 0 : no_memory();
}

static int open_parts(struct service *service)
{
    struct server *server = &service->server;
    server->workers = workers_start(server->base, (size_t)setting_number(&server->settings, SET_WORKERS));
    server->leases = server->workers ? leases_new(server) : NULL;
    server->view = server->leases ? view_new(server) : NULL;
    if (!server->view)
        return no_memory();
    int code = classic_open(server, &server->classic);
    return code == 0 ? add_signals(service) : code;
}

static void close_service(struct service *service)
{
    struct server *server = &service->server;
    server->stopping = true;
    if (server->view)
        view_stop(server->view);
    if (server->workers) /* first: what is done there still answers */
        workers_stop(server->workers);
    server->workers = NULL;
    if (server->http)
        http_free(server->http);
    if (server->redlock != server->engine)
        engine_close(server->redlock);
    engine_close(server->engine);
    view_free(server->view);
    classic_free(server->classic);
    leases_free(server->leases);
    access_free(server->access);
    metrics_free(&server->metrics);
    struct event *events[] = {service->stops[0], service->stops[1], service->stops[2], service->stop_timer};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (events[i])
            event_free(events[i]);
    if (server->base)
        event_base_free(server->base);
    SSL_CTX_free(service->tls);
}

static int run(struct service *service, const struct serve_order *order)
{
    struct server *server = &service->server;
    server->log_form = order->json ? LOG_JSON : (enum log_form)setting_number(&server->settings, SET_LOG);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptors();
    server->base = event_base_new();
    server->metrics.max_hold_ms = setting_number(&server->settings, SET_MAX_HOLD);
    int code = server->base ? open_http(service) : no_memory();
    if (code == 0)
        code = open_engines(server, order->url);
    if (code == 0)
        code = open_parts(service);
    if (code == 0)
        code = listening_open(server);
    if (code == 0) {
        listening_tell(server);
        listening_notify("READY=1");
        event_base_dispatch(server->base);
        listening_close(server);
    }
    close_service(service);
    return code;
}

int serve_run(const struct serve_order *order)
{
    struct service service = {0};
    int code = settings_load(&service.server.settings, order);
    if (code == 0 && order->print_config)
        settings_print(&service.server.settings, order->json);
    else if (code == 0)
        code = run(&service, order);
    settings_free(&service.server.settings);
    return code;
}
