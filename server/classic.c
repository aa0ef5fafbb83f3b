/* classic.c - POST /api/locks/simple/... and /api/locks/redlock/...: take the lock, run an operation, give the lock
 * back, answer. An operation is a sleep, or a command that the settings name; what a request says is only which. */
#include "classic.h"
#include "engine.h"
#include "leases.h"
#include "routes.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLEEP_MS 15000
#define SLEEP_MAX_MS 3600000
#define WORDS_MAX 32
#define EXIT_CONFIG 78

extern char **environ;

struct operation {
    char *name;
    char *words[WORDS_MAX + 1]; /* point into `line` */
    char *line;
};

struct run {
    struct job job;
    struct classic *classic;
    struct run *next, *prev;
    struct exchange *x; /* NULL: it left, or was answered */
    hf_client *client;
    hf_lease *lease;
    bool quorum;
    char name[HF_NAME_MAX + 1], correlation[HF_CORRELATION_MAX + 1], words[512];
    int64_t duration_ms, began_ms;
    const struct operation *operation; /* NULL: sleep */
    struct event *timer;
    pid_t pid;
    int exit_status;
    bool lost;
    hf_status outcome;
    struct standing standing;
};

struct classic {
    struct server *server;
    struct operation operations[SETTING_ITEMS_MAX];
    size_t operation_count;
    struct event *child;
    struct run *runs;
};

/* ---- The end of a run ---- */

static void free_run(struct run *run)
{
    *(run->prev ? &run->prev->next : &run->classic->runs) = run->next;
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
    if (run->classic->server->stopping)
        answer_problem(run->x, 503, "stopping", "the service stops", NULL);
    else if (held)
        answer_busy(run->x, &run->standing, "the resource is locked", json_pack("{s:s}", "error", "Resource locked"));
    else if (silent)
        answer_problem(run->x, 503, run->quorum ? "no_quorum" : "unavailable", hf_status_text(run->outcome),
                       json_pack("{s:s, s:s}", "error", run->quorum ? "Quorum not reached" : "Engine not reachable",
                                 "message", hf_status_text(run->outcome)));
    else
        answer_status(run->x, run->outcome, run->words, NULL);
}

static void answer_done(struct run *run)
{
    int status = run->exit_status;
    if (run->lost)
        answer_problem(run->x, 410, "lost", "the lock was lost while the operation ran",
                       json_pack("{s:s}", "error", "Lock lost"));
    else if (run->classic->server->stopping && !run->operation)
        answer_problem(run->x, 503, "stopping", "the service stops", NULL);
    else if (status != 0)
        answer_problem(run->x, 502, "operation_failed", "the operation ended with an error",
                       json_pack("{s:s, s:i}", "error", "Operation failed", "exitCode",
                                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
    else
        answer_json(run->x, 200,
                    json_pack("{s:b, s:s, s:I}", "success", 1, "resourceId", run->name, "durationMs",
                              (json_int_t)(run->operation ? clock_ms() - run->began_ms : run->duration_ms)));
}

static void do_release(struct job *job)
{
    struct run *run = (struct run *)(void *)job;
    (void)hf_release(run->lease);
}

static void after_release(struct job *job)
{
    struct run *run = (struct run *)(void *)job;
    if (run->x) {
        run->x->gone = NULL;
        answer_done(run);
    }
    free_run(run);
}

static void finish(struct run *run)
{
    struct workers *workers = run->classic->server->workers; /* NULL: at the very end */
    run->job = (struct job){do_release, after_release, NULL};
    if (workers)
        workers_post(workers, &run->job);
    else
        after_release(&run->job);
}

static void do_look(struct job *job)
{
    struct run *run = (struct run *)(void *)job;
    standing_read(run->client, run->name, &run->standing);
}

static void after_look(struct job *job)
{
    struct run *run = (struct run *)(void *)job;
    if (run->x) {
        run->x->gone = NULL;
        answer_refused(run);
    } else {
        json_decref(run->standing.holder);
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

/* Our own variables, and those of ours that were inherited are replaced. */
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
    set_variable(all, &count,
                 asprintf(&text, "HOLDFAST_TOKEN=%llu", (unsigned long long)hf_lease_token(run->lease)) > 0 ? text
                                                                                                            : NULL);
    own = count;
    for (char **each = environ; *each; each++)
        if (strncmp(*each, "HOLDFAST_NAME=", 14) != 0 && strncmp(*each, "HOLDFAST_TOKEN=", 15) != 0)
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
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, standard;
    char **variables = environment_of(run);
    if (!variables)
        return ENOMEM;
    sigemptyset(&none);
    sigfillset(&standard);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &standard);
    int error =
        posix_spawnp(&run->pid, run->operation->words[0], &files, &attributes, run->operation->words, variables);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    free_environment(variables);
    return error;
}

static void start_operation(struct run *run)
{
    struct timeval time = {.tv_sec = run->duration_ms / 1000, .tv_usec = (run->duration_ms % 1000) * 1000};
    run->began_ms = clock_ms();
    if (!run->operation) {
        run->timer = event_new(run->classic->server->base, -1, 0, on_slept, run);
        if (run->timer)
            event_add(run->timer, &time);
        else
            finish(run);
        return;
    }
    int error = spawn(run);
    if (error == 0)
        return;
    log_complain("operation %s: %s", run->operation->name, strerror(error));
    run->pid = 0;
    run->exit_status = 127 << 8;
    finish(run);
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    struct classic *classic = arg;
    (void)fd;
    (void)what;
    for (struct run *run = classic->runs, *next; run; run = next) {
        next = run->next;
        if (run->pid <= 0 || waitpid(run->pid, &run->exit_status, WNOHANG) != run->pid)
            continue;
        run->pid = 0;
        finish(run);
    }
}

/* ---- The lock ---- */

/* Ends a sleep early; a command is told, and goes on to its end under the lock. */
static void cut_short(struct run *run, int number)
{
    if (run->timer && event_pending(run->timer, EV_TIMEOUT, NULL)) {
        event_del(run->timer);
        finish(run);
    } else if (run->pid > 0) {
        kill(-run->pid, number);
    }
}

static void on_gone(struct exchange *x)
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

static void on_done(hf_lease *lease, hf_status outcome, void *arg)
{
    struct run *run = arg;
    run->lease = lease;
    run->outcome = outcome;
    if (outcome == HF_OK && run->x && !run->classic->server->stopping) {
        start_operation(run);
        return;
    }
    if (outcome == HF_OK) {
        finish(run);
        return;
    }
    snprintf(run->words, sizeof run->words, "%s", hf_error_text());
    run->job = (struct job){do_look, after_look, NULL};
    run->standing.left_ms = -1;
    if (outcome == HF_BUSY && run->classic->server->workers)
        workers_post(run->classic->server->workers, &run->job);
    else
        after_look(&run->job);
}

static const struct operation *find_operation(const struct classic *classic, const char *name)
{
    for (size_t i = 0; i < classic->operation_count; i++)
        if (strcmp(classic->operations[i].name, name) == 0)
            return &classic->operations[i];
    return NULL;
}

static bool read_order(struct exchange *x, struct run *run, json_t *body)
{
    static const char *const known[] = {"durationMs", "operation", NULL};
    const char *name;
    if (!check_members(x, body, known) || !read_text(x, body, "operation", &name) ||
        !read_whole(x, body, "durationMs", 0, SLEEP_MAX_MS, SLEEP_MS, &run->duration_ms))
        return false;
    run->operation = name && strcmp(name, "sleep") != 0 ? find_operation(run->classic, name) : NULL;
    if (run->operation || !name || strcmp(name, "sleep") == 0)
        return true;
    answer_problem(x, 422, "no_such_operation", "operation: the configuration has none of that name", NULL);
    return false;
}

/* It is renewed while the operation runs, so any ttl will do that the servers of a quorum admit. */
static int64_t ttl_of(const struct run *run)
{
    const char *source;
    int64_t ttl = 0, most = 0;
    if (!run->quorum || hf_client_setting(run->client, "ttl", &ttl, &source) != HF_OK ||
        hf_client_setting(run->client, "max_ttl", &most, &source) != HF_OK)
        return 0;
    return ttl < most ? ttl : most;
}

static void start(struct run *run)
{
    struct hf_request request = {.size = sizeof request,
                                 .name = run->name,
                                 .flags = HF_AUTO_RENEW,
                                 .ttl_ms = ttl_of(run),
                                 .correlation_id = run->correlation,
                                 .on_lost = on_lost,
                                 .lost_arg = run,
                                 .label = run->operation ? run->operation->name : "sleep"};
    run->outcome = hf_acquire_start(run->client, &request, on_done, run, &run->lease);
    if (run->outcome == HF_OK) {
        if (!run->quorum)
            engine_started(run->classic->server->engine);
        return;
    }
    snprintf(run->words, sizeof run->words, "%s", hf_error_text());
    after_look(&run->job);
}

static void begin(struct exchange *x, struct engine *engine, bool quorum)
{
    struct server *server = server_of(x);
    struct run *run = calloc(1, sizeof *run);
    json_t *body = run ? read_body(x) : NULL;
    if (!run)
        answer_status(x, HF_NO_MEMORY, NULL, NULL);
    if (body) {
        *run = (struct run){.classic = server->classic, .client = engine_client(engine), .quorum = quorum, .x = x};
        correlation_of(x, run->correlation);
        if (read_order(x, run, body) && read_name(x, 0, RIGHT_ACQUIRE, run->name)) {
            run->next = server->classic->runs;
            if (run->next)
                run->next->prev = run;
            server->classic->runs = run;
            x->work = run;
            x->gone = on_gone;
            start(run);
            run = NULL;
        }
    }
    json_decref(body);
    free(run);
}

void classic_simple(struct exchange *x)
{
    begin(x, server_of(x)->engine, false);
}

void classic_redlock(struct exchange *x)
{
    struct server *server = server_of(x);
    if (server->redlock)
        begin(x, server->redlock, true);
    else
        answer_problem(x, 501, "unsupported", "no servers for Redlock are configured; see --redlock-url",
                       json_pack("{s:s}", "error", "Not configured"));
}

/* ---- As a whole ---- */

static bool add_operation(struct classic *classic, const char *text)
{
    struct operation *operation = &classic->operations[classic->operation_count];
    const char *equals = strchr(text, '=');
    char *rest = NULL;
    size_t count = 0;
    if (!equals || equals == text || !(operation->name = strndup(text, (size_t)(equals - text))))
        return false;
    classic->operation_count++;
    operation->line = strdup(equals + 1);
    for (char *word = operation->line ? strtok_r(operation->line, " ", &rest) : NULL; word && count < WORDS_MAX;
         word = strtok_r(NULL, " ", &rest))
        operation->words[count++] = word;
    return count > 0;
}

int classic_open(struct server *server, struct classic **out)
{
    const struct setting_value *given = &server->settings.value[SET_OPERATION];
    struct classic *classic = calloc(1, sizeof *classic);
    if (!classic)
        return hf_status_exit_code(HF_NO_MEMORY);
    classic->server = server;
    *out = classic;
    for (size_t i = 0; i < given->count; i++)
        if (!add_operation(classic, given->items[i])) {
            log_complain("operation \"%s\" (%s) is not NAME=CMD", given->items[i], given->source);
            return EXIT_CONFIG;
        }
    classic->child = evsignal_new(server->base, SIGCHLD, on_child, classic);
    return classic->child && event_add(classic->child, NULL) == 0 ? 0 : hf_status_exit_code(HF_NO_MEMORY);
}

void classic_stop(struct classic *classic)
{
    for (struct run *run = classic->runs, *next; run; run = next) {
        next = run->next;
        cut_short(run, SIGTERM);
    }
}

bool classic_idle(const struct classic *classic)
{
    return !classic->runs;
}

void classic_free(struct classic *classic)
{
    if (!classic)
        return;
    for (size_t i = 0; i < classic->operation_count; i++) {
        free(classic->operations[i].name);
        free(classic->operations[i].line);
    }
    if (classic->child)
        event_free(classic->child);
    free(classic);
}
