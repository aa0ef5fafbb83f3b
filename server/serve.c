/* serve.c - starts the parts of the service, runs the loop, and stops them in order. */
#include "serve.h"
#include "authorize.h"
#include "caller_label.h"
#include "lease_ledger.h"
#include "lease_ops.h"
#include "leases.h"
#include "listen_sockets.h"
#include "lock_client.h"
#include "routes.h"
#include "run_under_lock.h"
#include "snapshot_stream.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Number of file descriptors that are kept free for engine, files and refusals. */
#define DESCRIPTORS_KEPT 320
#define STOP_POLL_MS 20
#define STOP_PATIENCE_MS 8000

struct service {
    struct server server;
    SSL_CTX *tls;
    struct event *stop_signals[3], *stop_timer;
    int64_t stop_began_ms;
};

/* ---- The library's log ---- */

/* The library logs a release through an attached handle, and a break, without a correlation id.
 * The request that caused them writes their line (lease_ops.c, locks.c). */
static bool is_written_elsewhere(const struct hf_log_event *event)
{
    return !event->correlation_id ||
           (strcmp(event->event, "released") == 0 && lease_ops_has_line(event->token));
}

/* Changes of leases that have a handle here. Others are reported by lease_ops.c, locks.c and
 * lease_ledger.c; waiters are seen by the watch. */
static void report_change(struct server *server, const struct hf_log_event *event)
{
    bool granted = strcmp(event->event, "granted") == 0, lost = strcmp(event->event, "lost") == 0;
    bool released = strcmp(event->event, "released") == 0;
    struct lease_change change = {.event = lost ? "expired" : event->event,
                                  .name = event->name,
                                  .label = event->label,
                                  .text = event->text,
                                  .token = event->token,
                                  .at_ms = event->wall_ms,
                                  .held_ms = granted ? -1 : event->held_ms,
                                  .waited_ms = granted ? event->waited_ms : -1};

    if (granted || lost || released)
        snapshot_change(server->view, &change);
}

static void on_log(void *arg, const struct hf_log_event *event)
{
    struct server *server = arg;
    bool is_own = !event->name || is_own_name(event->name);

    if (is_own)
        return;
    metrics_note(&server->metrics, event, setting_number(&server->settings, SET_METRICS_DEPTH));
    if (strcmp(event->event, "lost") == 0)
        lease_ledger_lost(server->ledger, event->name, event->token,
                          metrics_loss(&server->metrics, event));
    /* at this level each renewal is logged */
    if (event->level == HF_LOG_DEBUG || is_written_elsewhere(event))
        return;

    struct caller_label labels = caller_label_read(event->label);
    const struct log_field fields[] = {
        {"name", event->name, 0},
        {"token", NULL, (int64_t)event->token},
        {"ttlMs", NULL, event->ttl_ms},
        {"waitedMs", NULL, event->waited_ms},
        {"heldMs", NULL, event->held_ms},
        {"outcome", hf_status_name(event->status), 0},
        {"label", labels.label, 0},
        {"caller", labels.caller, 0},
        {"correlationId", event->correlation_id, 0},
        {"text", event->text ? event->text : "", 0},
    };
    log_event(server->log_form, event->level,
              strcmp(event->event, "denied") == 0 ? "rejected" : event->event, fields,
              sizeof fields / sizeof fields[0]);
    report_change(server, event);
}

/* ---- Requests ---- */

static void on_request(void *arg, struct exchange *x)
{
    struct server *server = arg;
    if (authorize(server, x))
        routes_dispatch(x);
}

static void on_refused(void *arg, struct exchange *x, int status, const char *why)
{
    (void)arg;

    if (status == 503 || status == 429)
        exchange_field(x, "Retry-After", "1");
    answer_problem(x, status,
                   status == 503 || status == 429 ? "too_many_connections" : "bad_request", why,
                   NULL);
}

/* Logs a request that was refused because of its caller. */
static void log_refusal(const struct server *server, const struct exchange *x)
{
    char id[ROUTE_ID_BYTES] = "";
    if (x->route)
        route_id(x->route, id);
    const struct log_field fields[] = {
        {"route", id, 0},           {"status", NULL, x->status}, {"caller", caller_name(x), 0},
        {"address", x->address, 0}, {"requestId", x->id, 0},
    };
    log_event(server->log_form, HF_LOG_WARN, "refused", fields, sizeof fields / sizeof fields[0]);
}

/* Logs a request only if it failed: leases have lines of their own. */
static void on_ended(void *arg, const struct exchange *x, bool delivered)
{
    struct server *server = arg;
    int hundreds = x->status / 100;

    if (hundreds >= 1 && hundreds <= 5)
        server->metrics.answers[hundreds]++;
    bool is_refusal = x->status == 401 || x->status == 403 || x->status == 421;
    if (is_refusal)
        log_refusal(server, x);
    if (is_refusal || (x->status < 500 && delivered))
        return;

    char id[ROUTE_ID_BYTES] = "";
    if (x->route)
        route_id(x->route, id);
    const struct log_field fields[] = {
        {"route", id, 0},
        {"status", NULL, x->status},
        {"delivered", delivered ? "yes" : "no", 0},
        {"tookMs", NULL, clock_ms() - x->began_ms},
        {"requestId", x->id, 0},
    };
    log_event(server->log_form, HF_LOG_WARN, "request", fields, sizeof fields / sizeof fields[0]);
}

static void on_accept_failed(void *arg, const char *why)
{
    const struct server *server = arg;
    const struct log_field fields[] = {{"text", why, 0}};
    log_event(server->log_form, HF_LOG_ERROR, "accept_failed", fields, 1);
}

/* ---- Stopping ---- */

static void on_stop_timer(evutil_socket_t fd, short what, void *arg)
{
    struct service *service = arg;
    struct server *server = &service->server;
    bool idle = leases_idle(server->leases) && run_under_lock_idle(server->run_under_lock) &&
                workers_pending(server->workers) == 0;
    (void)fd;
    (void)what;

    if (idle)
        http_drain(server->http);
    bool no_connection = idle && http_connections(server->http) == 0;
    bool over = clock_ms() - service->stop_began_ms > STOP_PATIENCE_MS;
    if (over || no_connection)
        event_base_loopbreak(server->base);
}

static void on_stop(evutil_socket_t number, short what, void *arg)
{
    struct service *service = arg;
    struct server *server = &service->server;
    struct timeval time = {.tv_usec = STOP_POLL_MS * 1000};
    (void)what;
    (void)number;

    if (server->stopping) {
        event_base_loopbreak(server->base);
        return;
    }

    listen_sockets_notify("STOPPING=1");
    server->stopping = true;
    service->stop_began_ms = clock_ms();
    http_stop_listening(server->http);
    snapshot_stop(server->view);
    leases_stop(server->leases);
    run_under_lock_stop(server->run_under_lock);
    event_add(service->stop_timer, &time);
}

/* Loads certificate, key and client CAs again. Connections keep what they began with. If a file is
 * wrong, the old ones stay. */
static void on_reload(evutil_socket_t number, short what, void *arg)
{
    struct service *service = arg;
    SSL_CTX *tls = NULL;
    (void)number;
    (void)what;

    if (listen_sockets_tls(&service->server, &tls) != 0 || !tls) {
        log_complain("the certificates were not reloaded; the old ones stay in use");
        return;
    }
    http_set_tls(service->server.http, tls);
    SSL_CTX_free(service->tls);
    service->tls = tls;
    log_complain("the certificates were reloaded");
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
    int code = lock_client_open(server->base, url, on_log, server, &server->engine);

    if (code != 0)
        return code;

    if (strcmp(hf_client_engine(lock_client_client(server->engine)), "redlock") == 0)
        server->redlock = server->engine;
    else if (quorum)
        code = lock_client_open(server->base, quorum, on_log, server, &server->redlock);
    return code;
}

/* Raises the limit of open files: each waiting client needs a descriptor. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Lowers max-connections so that descriptors remain for the engine and for answering clients
 * above the limit. */
static void cap_connections(struct http_limits *limits)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;

    size_t most =
        (size_t)(limit.rlim_cur < 2 * DESCRIPTORS_KEPT ? limit.rlim_cur / 2
                                                       : limit.rlim_cur - DESCRIPTORS_KEPT);
    if (limits->connections <= most)
        return;

    log_complain("max-connections is lowered to %zu: the limit of open files is %zu", most,
                 (size_t)limit.rlim_cur);
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
        .accept_failed = on_accept_failed,
        .arg = server,
    };
    const char *tokens = setting_text(settings, SET_TOKEN_FILE);

    cap_connections(&options.limits);
    int code = listen_sockets_check(server);
    if (code == 0 && tokens && !auth_open(tokens, &server->tokens))
        code = hf_status_exit_code(HF_CONFIG);
    if (code == 0)
        code = listen_sockets_tls(server, &service->tls);
    options.tls = service->tls;
    if (code == 0 && !(server->http = http_new(&options)))
        code = no_memory();

    return code;
}

/* Returns true if a signal is ignored, as nohup leaves SIGHUP: the service should outlive its
 * terminal. */
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
        bool reloads = signals[i] == SIGHUP && service->tls;
        service->stop_signals[i] =
            evsignal_new(base, signals[i], reloads ? on_reload : on_stop, service);
        if (!service->stop_signals[i] || event_add(service->stop_signals[i], NULL) != 0)
            return no_memory();
    }

    return service->stop_timer ? 0 : no_memory();
}

static int open_parts(struct service *service)
{
    struct server *server = &service->server;

    server->workers =
        workers_start(server->base, (size_t)setting_number(&server->settings, SET_WORKERS));
    server->ledger = server->workers ? lease_ledger_new(server) : NULL;
    server->leases = server->ledger ? leases_new(server) : NULL;
    server->view = server->leases ? snapshot_new(server) : NULL;
    if (!server->view)
        return no_memory();

    int code = run_under_lock_open(server, &server->run_under_lock);

    return code == 0 ? add_signals(service) : code;
}

static void close_service(struct service *service)
{
    struct server *server = &service->server;

    server->stopping = true;
    if (server->view)
        snapshot_stop(server->view);
    if (server->workers) /* stop workers first: jobs that they have done still answer */
        workers_stop(server->workers);
    server->workers = NULL;
    lease_ops_close();
    if (server->http)
        http_free(server->http);
    if (server->redlock != server->engine)
        lock_client_close(server->redlock);
    lock_client_close(server->engine);
    snapshot_free(server->view);
    run_under_lock_free(server->run_under_lock);
    leases_free(server->leases);
    lease_ledger_free(server->ledger);
    lease_ops_forget_lines();
    auth_free(server->tokens);
    metrics_free(&server->metrics);
    struct event *events[] = {service->stop_signals[0], service->stop_signals[1],
                              service->stop_signals[2], service->stop_timer};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (events[i])
            event_free(events[i]);
    if (server->base)
        event_base_free(server->base);
    SSL_CTX_free(service->tls);
}

/* Requests that one turn of the loop makes to an engine are sent together at its end. */
static void run_loop(const struct server *server)
{
    do {
        lock_client_batch(server->engine);
        if (event_base_loop(server->base, EVLOOP_ONCE) != 0)
            return;
        lock_client_flush(server->engine);
    } while (!event_base_got_break(server->base));
}

static int run(struct service *service, const struct serve_order *order)
{
    struct server *server = &service->server;

    server->log_form =
        order->json ? LOG_JSON : (enum log_form)setting_number(&server->settings, SET_LOG);
    server->began_ms = clock_ms();
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
        code = listen_sockets_open(server);
    if (code == 0) {
        listen_sockets_announce(server);
        listen_sockets_notify("READY=1");
        run_loop(server);
        listen_sockets_close(server);
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
