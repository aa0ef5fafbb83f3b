/* servers.c - real Redis and Valkey servers for tests: their processes, from the start to the end.
 */
#include "servers.h"

#include "actors.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 60000, /* longest wait, for a slow machine beside other work */
    LOOK_US = 5000,
    PORTS_FROM =
        12000,        /* a cluster's bus is 10000 above, and all is below the kernel's own range, */
    PORTS_TO = 22000, /* so that no client gets the port of a server that is down for a moment */
    PORT_TRIES = 20,
    ARGS_MAX = 64,
    PATH_SIZE = 160,
    LOG_SHOWN = 3000,
};

struct server {
    struct server *next;
    struct server_options options;
    pid_t pid; /* 0: down */
    uint16_t port;
    char directory[PATH_SIZE], socket[PATH_SIZE];
};

static struct server *servers;

/* ---- Programs ---- */

/* HF_TEST_SERVER=valkey plays what is written for Redis on Valkey. */
static const char *program_of(enum server_kind kind)
{
    const char *instead = getenv("HF_TEST_SERVER");
    return kind == SERVER_VALKEY || (instead && strcmp(instead, "valkey") == 0) ? "valkey-server"
                                                                                : "redis-server";
}

static bool find_program(const char *name, char *path, size_t size)
{
    char folders[4096], *rest = folders;
    const char *set = getenv("PATH");
    snprintf(folders, sizeof folders, "%s", set ? set : "/usr/local/bin:/usr/bin");
    for (char *folder; (folder = strsep(&rest, ":"));)
        if (snprintf(path, size, "%s/%s", folder, name) < (int)size && access(path, X_OK) == 0)
            return true;
    return false;
}

const char *server_missing(enum server_kind kind)
{
    static char why[64];
    char path[PATH_SIZE];
    if (find_program(program_of(kind), path, sizeof path))
        return NULL;
    snprintf(why, sizeof why, "%s is not installed", program_of(kind));
    return why;
}

void server_needed(enum server_kind kind)
{
    const char *why = server_missing(kind);
    if (!why)
        return;
    print_message("# skipped: %s\n", why);
    skip();
}

/* ---- Where it is ---- */

uint16_t server_port(const struct server *s)
{
    return s->port;
}

const char *server_directory(const struct server *s)
{
    return s->directory;
}

const char *server_password(const struct server *s)
{
    return s->options.password;
}

const char *server_socket(const struct server *s)
{
    return s->socket;
}

pid_t server_pid(const struct server *s)
{
    return s->pid;
}

const char *server_file(const struct server *s, const char *name)
{
    static _Thread_local char paths[4][PATH_SIZE + 64];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof *paths, "%s/%s", s->directory, name);
    return path;
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static bool port_is_free(uint16_t port)
{
    struct sockaddr_in at = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    bool is_free = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return is_free;
}

uint16_t free_port(void)
{
    for (int i = 0; i < 1000; i++) {
        uint16_t port = (uint16_t)(PORTS_FROM + arc4random_uniform(PORTS_TO - PORTS_FROM));
        if (port_is_free(port))
            return port;
    }
    fail_msg("no port from %d to %d is free", PORTS_FROM, PORTS_TO);
    return 0;
}

/* ---- Starting ---- */

/* A command line. */
struct line {
    const char *word[ARGS_MAX];
    size_t count;
};

static void add(struct line *line, const char *word)
{
    assert_true(line->count + 1 < ARGS_MAX);
    line->word[line->count++] = word;
}

static void add_option(struct line *line, const char *name, const char *value)
{
    add(line, name);
    add(line, value);
}

static void add_port(struct line *line, const struct server *s, const char *port)
{
    if (!s->options.tls) {
        add_option(line, "--port", port);
        return;
    }
    add_option(line, "--port", "0");
    add_option(line, "--tls-port", port);
    add_option(line, "--tls-cert-file", "server.crt");
    add_option(line, "--tls-key-file", "server.key");
    add_option(line, "--tls-ca-cert-file", "ca.crt");
}

static void write_line(struct line *line, const struct server *s, const char *program,
                       const char *port)
{
    add(line, program);
    if (s->options.sentinel) {
        add(line, "sentinel.conf");
        add(line, "--sentinel");
    }
    add_port(line, s, port);
    add_option(line, "--bind", "127.0.0.1");
    add_option(line, "--unixsocket", s->socket);
    add_option(line, "--save", "");
    add_option(line, "--set-proc-title",
               "no"); /* the title would overwrite the mark of the runner */
    /* A replica is in step when it has answered the first ping of its primary: the default would be
     * 10 s. */
    add_option(line, "--repl-ping-replica-period", "1");
    add_option(line, "--repl-diskless-sync-delay", "0");
    if (s->options.appendonly) {
        add_option(line, "--appendonly", "yes");
        add_option(line, "--appendfsync", "always");
    }
    if (s->options.password)
        add_option(line, "--requirepass", s->options.password);
    for (const char *const *arg = s->options.args; arg && *arg; arg++)
        add(line, *arg);
}

/* In the new process. It keeps nothing of the test but the runner's mark, by which a stray would be
 * found. */
_Noreturn static void become(const struct server *s, const struct line *line, pid_t parent)
{
    char mark[256], preload[PATH_SIZE], locales[PATH_SIZE], locale[] = "LC_ALL=en_US.UTF-8",
                                                            *environment[5] = {NULL};
    int words = 0;
    sigset_t none;
    sigemptyset(&none);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(s->directory) != 0)
        _exit(70);
    int quiet = open("/dev/null", O_RDONLY), log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (dup2(quiet, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(70);
    close_range(3, ~0U, 0);
    if (getenv("HF_SUITE") && snprintf(mark, sizeof mark, "HF_SUITE=%s", getenv("HF_SUITE")) > 0)
        environment[words++] = mark;
    if (s->options.preload &&
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", s->options.preload) > 0)
        environment[words++] = preload;
    if (s->options.locales &&
        snprintf(locales, sizeof locales, "LOCPATH=%s", s->options.locales) > 0) {
        environment[words++] = locales;
        environment[words++] = locale;
    }
    execve(line->word[0], (char *const *)(uintptr_t)line->word, environment);
    _exit(71);
}

static void launch(struct server *s)
{
    struct line line = {0};
    char program[PATH_SIZE], port[8];
    if (!find_program(program_of(s->options.kind), program, sizeof program))
        fail_msg("%s", server_missing(s->options.kind));
    snprintf(port, sizeof port, "%u", s->port);
    write_line(&line, s, program, port);
    pid_t parent = getpid();
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        become(s, &line, parent);
}

static size_t end_of_log(const struct server *s, char *text, size_t size)
{
    FILE *log = fopen(server_file(s, "log"), "r");
    size_t length = 0;
    if (log) {
        if (fseek(log, -(long)(size - 1), SEEK_END) != 0)
            rewind(log);
        length = fread(text, 1, size - 1, log);
        fclose(log);
    }
    text[length] = '\0';
    return length;
}

static void show_log(const struct server *s)
{
    char text[LOG_SHOWN], *rest = text;
    end_of_log(s, text, sizeof text);
    print_error("# the end of the log of %s on port %u:\n", program_of(s->options.kind), s->port);
    for (char *row; (row = strsep(&rest, "\n"));)
        print_error("#   %s\n", row);
}

/* Returns true if the server's process has ended. */
static bool has_ended(struct server *s)
{
    if (waitpid(s->pid, NULL, WNOHANG) != s->pid)
        return false;
    s->pid = 0;
    return true;
}

/* Waits until the server answers. Returns false if it ended instead. */
static bool await_answer(struct server *s)
{
    int64_t end = now_ns() + (int64_t)PATIENCE_MS * 1000000;
    while (!server_answers(s)) {
        if (has_ended(s))
            return false;
        if (now_ns() > end) {
            show_log(s);
            fail_msg("%s does not answer after %d ms", program_of(s->options.kind), PATIENCE_MS);
        }
        nap_us(LOOK_US);
    }
    return true;
}

static bool port_was_taken(const struct server *s)
{
    char text[LOG_SHOWN];
    end_of_log(s, text, sizeof text);
    return strstr(text, "Address already in use") != NULL;
}

static void make_certificates(const struct server *s)
{
    char command[PATH_SIZE * 2 + 64];
    snprintf(command, sizeof command, "'%s/lib/certificates' '%s'", HF_TESTS_FOLDER, s->directory);
    if (system(command) != 0)
        fail_msg("no certificates: %s", command);
}

static void make_home(struct server *s)
{
    const char *set = getenv("TMPDIR");
    snprintf(s->directory, sizeof s->directory, "%s/holdfast-server.XXXXXX", set ? set : "/tmp");
    if (!mkdtemp(s->directory))
        fail_msg("%s: %s", s->directory, strerror(errno));
    assert_true(snprintf(s->socket, sizeof s->socket, "%s/socket", s->directory) < 108);
    if (s->options.tls)
        make_certificates(s);
}

/* A sentinel keeps what it learns in its configuration file. */
static void write_sentinel(const struct server *s)
{
    FILE *file = fopen(server_file(s, "sentinel.conf"), "w");
    assert_non_null(file);
    fputs(s->options.sentinel, file);
    assert_int_equal(fclose(file), 0);
}

struct server *server_start(const struct server_options *options)
{
    struct server *s = calloc(1, sizeof *s);
    assert_non_null(s);
    if (options)
        s->options = *options;
    s->next = servers;
    servers = s;
    make_home(s);
    if (s->options.sentinel)
        write_sentinel(s);
    for (int i = 0; i < PORT_TRIES; i++) {
        s->port = free_port();
        launch(s);
        if (await_answer(s))
            return s;
        if (!port_was_taken(s))
            break;
        remove(server_file(s, "log"));
    }
    show_log(s);
    fail_msg("%s does not start", program_of(s->options.kind));
    return NULL;
}

/* ---- Ending ---- */

static void await_end(struct server *s)
{
    int64_t end = now_ns() + (int64_t)PATIENCE_MS * 1000000;
    while (!has_ended(s)) {
        if (now_ns() > end) {
            show_log(s);
            fail_msg("%s does not end", program_of(s->options.kind));
        }
        nap_us(1000);
    }
}

static void end_by(struct server *s, int signal)
{
    assert_true(s->pid > 0);
    if (has_ended(s)) {
        show_log(s);
        fail_msg("%s ended by itself", program_of(s->options.kind));
    }
    assert_int_equal(kill(s->pid, signal), 0);
    assert_int_equal(kill(s->pid, SIGCONT), 0); /* a paused process would not see the signal */
    await_end(s);
}

void server_stop(struct server *s)
{
    end_by(s, SIGTERM);
}

void server_kill9(struct server *s)
{
    end_by(s, SIGKILL);
}

void server_end(struct server *s)
{
    struct server **at = &servers;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    bool ended_early = s->pid && has_ended(s);
    if (ended_early)
        show_log(s);
    if (s->pid) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    }
    remove_tree(s->directory);
    const char *program = program_of(s->options.kind);
    free(s);
    if (ended_early)
        fail_msg("%s ended by itself", program);
}

void servers_end(void)
{
    while (servers)
        server_end(servers);
}

/* ---- What happens to it ---- */

void server_restart(struct server *s, bool keep_data)
{
    assert_true(s->options.appendonly || !keep_data);
    if (s->pid)
        server_stop(s);
    if (!keep_data)
        remove_tree(server_file(s, "appendonlydir"));
    launch(s);
    if (!await_answer(s)) {
        show_log(s);
        fail_msg("%s does not start again", program_of(s->options.kind));
    }
}

void server_pause(struct server *s)
{
    int status;
    assert_int_equal(kill(s->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(s->pid, &status, WUNTRACED), s->pid);
    assert_true(WIFSTOPPED(status));
}

void server_continue(struct server *s)
{
    assert_int_equal(kill(s->pid, SIGCONT), 0);
}

/* The primary calls a replica online before it sends it anything; the offset tells. */
static bool streams_to(const struct server *primary, const struct server *replica)
{
    char words[64];
    int length = snprintf(words, sizeof words, ",port=%u,state=online,offset=", replica->port);
    redisReply *info = server_cli(primary, "INFO replication");
    const char *found = info->type == REDIS_REPLY_STRING ? strstr(info->str, words) : NULL;
    bool streams = found && found[length] > '0' && found[length] <= '9';
    freeReplyObject(info);
    return streams;
}

void server_replica_of(struct server *s, struct server *primary)
{
    if (!primary) {
        server_does(s, "REPLICAOF NO ONE");
        return;
    }
    if (primary->options.password)
        server_does(s, "CONFIG SET masterauth %s", primary->options.password);
    server_does(s, "REPLICAOF 127.0.0.1 %d", (int)primary->port);
    int64_t end = now_ns() + (int64_t)PATIENCE_MS * 1000000;
    while (!streams_to(primary, s)) {
        if (now_ns() > end) {
            show_log(s);
            fail_msg("port %u does not follow port %u", s->port, primary->port);
        }
        nap_us(LOOK_US);
    }
}
