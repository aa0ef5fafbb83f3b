/* run_under_lock.c - POST /api/locks/simple/... and /api/locks/redlock/...: acquires the lock,
 * runs an operation, releases the lock, and answers. An operation is a sleep, or a command of
 * the configuration; a request only chooses one. */
#include "run_under_lock.h"
#include "lease_ledger.h"
#include "leases.h"
#include "lock_client.h"
#include "operation_guard.h"
#include "routes.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLEEP_MS 15000
#define SLEEP_MAX_MS 3600000
#define ARGUMENTS_MAX 32
#define EXIT_CONFIG 78

extern char **environ;

struct operation {
    char *name;
    char *argv[ARGUMENTS_MAX + 1]; /* point into `line` */
    char *line;
};

struct run {
    struct job job;
    struct run_under_lock *run_under_lock;
    struct run *next, *prev;
    struct exchange *x; /* request to answer; NULL: the client left, or was answered */
    hf_client *client;
    hf_lease *lease;
    uint64_t ledger_key; /* key of the lease in the ledger */
    hf_status released;  /* outcome of its release */
    bool quorum;
    char name[HF_NAME_MAX + 1], correlation[HF_CORRELATION_MAX + 1], message[512];
    int64_t duration_ms, began_ms;
    const struct operation *operation; /* command to run; NULL: a sleep */
    struct event *timer;
    struct operation_process process; /* valid while is_running */
    bool is_running;
    int exit_status;
    bool lost;
    hf_status outcome;
    struct lock_state lock_state;
};

struct run_under_lock {
    struct server *server;
    struct operation operations[SETTING_ITEMS_MAX];
    size_t operation_count;
    struct event *child;
    struct run *runs;
};

/* ---- The end of a run ---- */

static void free_run(struct run *run)
{
    *(run->prev ? &run->prev->next : &run->run_under_lock->runs) = run->next;
    if (run->next)
        run->next->prev = run->prev;
    if (run->timer)
        event_free(run->timer);
    hf_lease_free(run->lease);
    free(run);
}

static void answer_refused(struct run *run)
{
    bool held = run->outcome == HF_BUSY || run->outcome == HF_TIMEOUT;
    bool silent = hf_status_http(run->outcome) >= 503 && hf_status_http(run->outcome) <= 504;

    if (run->run_under_lock->server->stopping)
        answer_problem(run->x, 503, "stopping", "the service is stopping", NULL);
    else if (held)
        answer_busy(run->x, &run->lock_state, "the resource is locked",
                    json_pack("{s:s}", "error", "Resource locked"));
    else if (silent)
        answer_problem(run->x, 503, run->quorum ? "no_quorum" : "unavailable",
                       hf_status_text(run->outcome),
                       json_pack("{s:s, s:s}", "error",
                                 run->quorum ? "Quorum not reached" : "Engine not reachable",
                                 "message", hf_status_text(run->outcome)));
    else
        answer_status(run->x, run->outcome, run->message, NULL);
}

static void answer_done(struct run *run)
{
    int status = run->exit_status;
    if (run->lost)
        answer_problem(run->x, 410, "lost", "the lock was lost while the operation ran",
                       json_pack("{s:s}", "error", "Lock lost"));
    else if (run->run_under_lock->server->stopping && !run->operation)
        answer_problem(run->x, 503, "stopping", "the service is stopping", NULL);
    else if (status != 0)
        answer_problem(run->x, 502, "operation_failed", "the operation ended with an error",
                       json_pack("{s:s, s:i}", "error", "Operation failed", "exitCode",
                                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
    else
        answer_json(run->x, 200,
                    json_pack("{s:b, s:s, s:I}", "success", 1, "resourceId", run->name,
                              "durationMs",
                              (json_int_t)(run->operation ? clock_ms() - run->began_ms
                                                          : run->duration_ms)));
}

static void do_release(struct job *job)
{
    struct run *run = (struct run *)(void *)job;
    run->released = hf_release(run->lease);
}

static void after_release(struct job *job)
{
    struct run *run = (struct run *)(void *)job;
    struct lease_ledger *ledger = run->run_under_lock->server->ledger;

    lease_ledger_release(lease_ledger_find_key(ledger, run->ledger_key), run->released);
    if (run->x) {
        run->x->disconnected = NULL;
        answer_done(run);
    }
    free_run(run);
}

static void finish(struct run *run)
{
    /* NULL while the service closes. */
    struct workers *workers = run->run_under_lock->server->workers;
    run->job = (struct job){do_release, after_release, NULL};
    if (workers)
        workers_post(workers, &run->job);
    else
        after_release(&run->job);
}

static void do_poll(struct job *job)
{
    struct run *run = (struct run *)(void *)job;
    lock_state_read(run->client, run->name, 1, &run->lock_state);
}

static void after_poll(struct job *job)
{
    struct run *run = (struct run *)(void *)job;

    if (run->x) {
        run->x->disconnected = NULL;
        answer_refused(run);
    } else {
        json_decref(run->lock_state.holder);
    }

    free_run(run);
}

/* ---- The operation ---- */

static void on_slept(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    finish(arg);
}

static void set_variable(char *variables[], size_t *count, char *text)
{
    if (text)
        variables[(*count)++] = text;
}

/* Returns true if a variable of the service is kept from the command: HOLDFAST_NAME and
 * HOLDFAST_TOKEN are replaced, and HOLDFAST_URL may contain a password. */
static bool is_withheld(const char *variable)
{
    static const char *const withheld[] = {"HOLDFAST_NAME=", "HOLDFAST_TOKEN=", "HOLDFAST_URL="};

    for (size_t i = 0; i < sizeof withheld / sizeof withheld[0]; i++)
        if (strncmp(variable, withheld[i], strlen(withheld[i])) == 0)
            return true;
    return false;
}

/* Makes the environment of the command. */
static char **environment_of(const struct run *run)
{
    size_t count = 0, own;

    while (environ[count])
        count++;
    char **all = calloc(count + 4, sizeof *all), *text;
    if (!all)
        return NULL;

    count = 0;
    set_variable(all, &count, asprintf(&text, "HOLDFAST_NAME=%s", run->name) > 0 ? text : NULL);
    set_variable(
        all, &count,
        asprintf(&text, "HOLDFAST_TOKEN=%llu", (unsigned long long)hf_lease_token(run->lease)) > 0
            ? text
            : NULL);
    own = count;
    for (char **each = environ; *each; each++)
        if (!is_withheld(*each))
            all[count++] = *each;
    if (own == 2)
        return all;

    while (own > 0)
        free(all[--own]);
    free(all);

    return NULL;
}

static void free_environment(char **all)
{
    free(all[0]);
    free(all[1]);
    free(all);
}

static int spawn(struct run *run)
{
    char **variables = environment_of(run);
    if (!variables)
        return ENOMEM;

    int error = operation_start(run->operation->argv, variables, &run->process);
    free_environment(variables);
    run->is_running = error == 0;
    return error;
}

static void start_operation(struct run *run)
{
    struct timeval time = {.tv_sec = run->duration_ms / 1000,
                           .tv_usec = (run->duration_ms % 1000) * 1000};

    run->began_ms = clock_ms();
    if (!run->operation) {
        run->timer = event_new(run->run_under_lock->server->base, -1, 0, on_slept, run);
        if (run->timer)
            event_add(run->timer, &time);
        else
            finish(run);
        return;
    }

    int error = spawn(run);
    if (error == 0)
        return;

    const struct log_field fields[] = {
        {"name", run->name, 0},
        {"operation", run->operation->name, 0},
        {"correlationId", run->correlation, 0},
        {"text", strerror(error), 0},
    };
    log_event(run->run_under_lock->server->log_form, HF_LOG_ERROR, "operation_failed", fields,
              sizeof fields / sizeof fields[0]);
    run->exit_status = 127 << 8;
    finish(run);
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    struct run_under_lock *run_under_lock = arg;
    (void)fd;
    (void)what;

    for (struct run *run = run_under_lock->runs, *next; run; run = next) {
        next = run->next;
        pid_t guard = run->process.guard;
        if (!run->is_running || waitpid(guard, &run->exit_status, WNOHANG) != guard)
            continue;
        run->is_running = false;
        close(run->process.life);
        finish(run);
    }
}

/* ---- The lock ---- */

/* Ends a sleep early. A command gets the signal and runs to its end under the lock. */
static void cut_short(struct run *run, int number)
{
    if (run->timer && event_pending(run->timer, EV_TIMEOUT, NULL)) {
        event_del(run->timer);
        finish(run);
    } else if (run->is_running) {
        kill(-run->process.command, number);
    }
}

static void on_disconnect(struct exchange *x)
{
    struct run *run = x->work;
    run->x = NULL;
    exchange_answer(x, 499, NULL, NULL, 0);
    if (!run->operation)
        cut_short(run, SIGTERM);
}

static void on_lost(hf_lease *lease, hf_status why, void *arg)
{
    struct run *run = arg;
    (void)lease;
    (void)why;
    run->lost = true;
    cut_short(run, SIGKILL);
}

static void note_grant(struct run *run)
{
    const struct hf_request request = {.flags = HF_AUTO_RENEW, .correlation_id = run->correlation};
    run->ledger_key =
        lease_ledger_add(run->run_under_lock->server->ledger, NULL, run->lease, &request);
}

static void on_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct run *run = arg;

    run->lease = lease;
    run->outcome = outcome;
    if (outcome == HF_OK)
        note_grant(run);
    bool may_run = outcome == HF_OK && run->x && !run->run_under_lock->server->stopping;
    if (may_run) {
        start_operation(run);
        return;
    }
    if (outcome == HF_OK) {
        finish(run);
        return;
    }

    snprintf(run->message, sizeof run->message, "%s", hf_error_text());
    run->job = (struct job){do_poll, after_poll, NULL};
    run->lock_state.left_ms = -1;
    if (outcome == HF_BUSY && run->run_under_lock->server->workers)
        workers_post(run->run_under_lock->server->workers, &run->job);
    else
        after_poll(&run->job);
}

static const struct operation *find_operation(const struct run_under_lock *run_under_lock,
                                              const char *name)
{
    for (size_t i = 0; i < run_under_lock->operation_count; i++)
        if (strcmp(run_under_lock->operations[i].name, name) == 0)
            return &run_under_lock->operations[i];
    return NULL;
}

static bool read_order(struct exchange *x, struct run *run, json_t *body)
{
    static const char *const known[] = {"durationMs", "operation", NULL};
    const char *name;

    bool is_invalid =
        !check_members(x, body, known) || !read_text(x, body, "operation", &name) ||
        !read_whole(x, body, "durationMs", 0, SLEEP_MAX_MS, SLEEP_MS, &run->duration_ms);
    if (is_invalid)
        return false;

    run->operation =
        name && strcmp(name, "sleep") != 0 ? find_operation(run->run_under_lock, name) : NULL;
    bool is_known = run->operation || !name || strcmp(name, "sleep") == 0;
    if (is_known)
        return true;

    answer_problem(x, 422, "no_such_operation", "operation: is not configured; see --operation",
                   NULL);

    return false;
}

/* Returns the ttl for a run. The lease is renewed while the operation runs, so any ttl that the
 * servers of a quorum accept will do. */
static int64_t ttl_of(const struct run *run)
{
    const char *source;
    int64_t ttl = 0, most = 0;

    bool is_default = !run->quorum ||
                      hf_client_setting(run->client, "ttl", &ttl, &source) != HF_OK ||
                      hf_client_setting(run->client, "max_ttl", &most, &source) != HF_OK;
    if (is_default)
        return 0;
    return ttl < most ? ttl : most;
}

/* If the service dies, its guard still has to end the command. So the lock of a command is
 * detached: it outlives the service. A sleep needs no such lock, because it ends with the service.
 */
static void start(struct run *run)
{
    struct hf_request request = {.size = sizeof request,
                                 .name = run->name,
                                 .flags = HF_AUTO_RENEW | (run->operation ? HF_DETACHED : 0),
                                 .ttl_ms = ttl_of(run),
                                 .correlation_id = run->correlation,
                                 .on_lost = on_lost,
                                 .lost_arg = run,
                                 .label = run->operation ? run->operation->name : "sleep"};

    run->outcome = hf_acquire_start(run->client, &request, on_done, run, &run->lease);
    if (run->outcome == HF_OK) {
        if (!run->quorum)
            lock_client_started(run->run_under_lock->server->engine);
        return;
    }

    snprintf(run->message, sizeof run->message, "%s", hf_error_text());
    after_poll(&run->job);
}

static void begin(struct exchange *x, struct lock_client *engine, bool quorum)
{
    struct server *server = server_of(x);
    struct run *run = calloc(1, sizeof *run);
    json_t *body = run ? read_body(x) : NULL;

    if (!run)
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
    if (body) {
        *run = (struct run){.run_under_lock = server->run_under_lock,
                            .client = lock_client_client(engine),
                            .quorum = quorum,
                            .x = x};
        correlation_of(x, run->correlation);
        bool is_valid = read_order(x, run, body) && read_name(x, 0, RIGHT_ACQUIRE, run->name);
        if (is_valid && is_own_name(run->name)) {
            answer_own_name(x);
        } else if (is_valid) {
            run->next = server->run_under_lock->runs;
            if (run->next)
                run->next->prev = run;
            server->run_under_lock->runs = run;
            x->work = run;
            x->disconnected = on_disconnect;
            start(run);
            run = NULL;
        }
    }

    json_decref(body);
    free(run);
}

void route_simple_lock(struct exchange *x)
{
    begin(x, server_of(x)->engine, false);
}

void route_redlock_lock(struct exchange *x)
{
    struct server *server = server_of(x);
    if (server->redlock)
        begin(x, server->redlock, true);
    else
        answer_problem(x, 501, "unsupported",
                       "no servers for Redlock are configured; see --redlock-url",
                       json_pack("{s:s}", "error", "Not configured"));
}

/* ---- As a whole ---- */

static bool add_operation(struct run_under_lock *run_under_lock, const char *text)
{
    struct operation *operation = &run_under_lock->operations[run_under_lock->operation_count];
    const char *equals = strchr(text, '=');
    char *rest = NULL;
    size_t count = 0;

    bool is_malformed =
        !equals || equals == text || !(operation->name = strndup(text, (size_t)(equals - text)));
    if (is_malformed)
        return false;

    run_under_lock->operation_count++;
    operation->line = strdup(equals + 1);
    for (char *word = operation->line ? strtok_r(operation->line, " ", &rest) : NULL;
         word && count < ARGUMENTS_MAX; word = strtok_r(NULL, " ", &rest))
        operation->argv[count++] = word;

    return count > 0;
}

int run_under_lock_open(struct server *server, struct run_under_lock **out)
{
    const struct setting_value *given = &server->settings.value[SET_OPERATION];
    struct run_under_lock *run_under_lock = calloc(1, sizeof *run_under_lock);

    if (!run_under_lock)
        return hf_status_exit_code(HF_NO_MEMORY);

    run_under_lock->server = server;
    *out = run_under_lock;
    for (size_t i = 0; i < given->count; i++)
        if (!add_operation(run_under_lock, given->items[i])) {
            log_complain("operation \"%s\" (%s) is not NAME=CMD", given->items[i], given->source);
            return EXIT_CONFIG;
        }

    run_under_lock->child = evsignal_new(server->base, SIGCHLD, on_child, run_under_lock);

    return run_under_lock->child && event_add(run_under_lock->child, NULL) == 0
               ? 0
               : hf_status_exit_code(HF_NO_MEMORY);
}

void run_under_lock_stop(struct run_under_lock *run_under_lock)
{
    for (struct run *run = run_under_lock->runs, *next; run; run = next) {
        next = run->next;
        cut_short(run, SIGTERM);
    }
}

bool run_under_lock_idle(const struct run_under_lock *run_under_lock)
{
    return !run_under_lock->runs;
}

void run_under_lock_free(struct run_under_lock *run_under_lock)
{
    if (!run_under_lock)
        return;

    for (size_t i = 0; i < run_under_lock->operation_count; i++) {
        free(run_under_lock->operations[i].name);
        free(run_under_lock->operations[i].line);
    }

    if (run_under_lock->child)
        event_free(run_under_lock->child);
    free(run_under_lock);
}
