/* consul_server.c - real Consul agents for tests. */
#include "consul_server.h"

#include "actors.h"
#include "servers.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000, STARTS_MAX = 5 };

struct consul_server {
    struct consul_server *next;
    char directory[64];
    uint16_t port, lan_port, server_port;
    const char *settings;
    pid_t pid; /* 0: it is down */
};

static struct consul_server *servers;
static char program[512], reason[512];

/* ---- The program ---- */

/* Reads the last line of a command. Returns true if the command succeeded. */
static bool last_line(const char *command, char *line, size_t size)
{
    char part[512];
    FILE *out = popen(command, "re");
    assert_non_null(out);
    while (fgets(part, sizeof part, out))
        snprintf(line, size, "%.*s", (int)strcspn(part, "\n"), part);
    return pclose(out) == 0;
}

const char *consul_missing(void)
{
    if (program[0])
        return NULL;
    if (reason[0])
        return reason;
    if (last_line(HF_TESTS_FOLDER "/lib/fetch-consul 2>/dev/null", program, sizeof program))
        return NULL;
    program[0] = '\0';
    last_line(HF_TESTS_FOLDER "/lib/fetch-consul 2>&1 >/dev/null", reason, sizeof reason);
    return reason;
}

void consul_needed(void)
{
    if (!consul_missing())
        return;
    print_message("# skipped: %s\n", consul_missing());
    skip();
}

const char *consul_program(void)
{
    assert_null(consul_missing());
    return program;
}

/* ---- Starting ---- */

static void write_settings(const struct consul_server *s)
{
    char path[96];
    snprintf(path, sizeof path, "%s/agent.json", s->directory);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file,
            "{\"ports\": {\"http\": %u, \"serf_lan\": %u, \"server\": %u, \"dns\": -1, \"grpc\": "
            "-1, \"serf_wan\": -1}, \"session_ttl_min\": \"1s\", \"performance\": "
            "{\"raft_multiplier\": 1}%s}\n",
            s->port, s->lan_port, s->server_port, s->settings ? s->settings : "");
    assert_int_equal(fclose(file), 0);
}

_Noreturn static void become(const struct consul_server *s, pid_t parent)
{
    char mark[256], *environment[2] = {NULL, NULL};
    const char *const argv[] = {program,   "agent",     "-dev",         "-bind",      "127.0.0.1",
                                "-client", "127.0.0.1", "-config-file", "agent.json", NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || chdir(s->directory) != 0)
        _exit(70);
    int quiet = open("/dev/null", O_RDONLY), log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (dup2(quiet, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(70);
    close_range(3, ~0U, 0);
    if (getenv("HF_SUITE") && snprintf(mark, sizeof mark, "HF_SUITE=%s", getenv("HF_SUITE")) > 0)
        environment[0] = mark;
    execve(argv[0], (char *const *)(uintptr_t)argv, environment);
    _exit(71);
}

const char *consul_ask(const struct consul_server *s, const char *request, const char *body)
{
    static char answer[1 << 20];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(s->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 3};
    char question[4096];
    int len = snprintf(question, sizeof question,
                       "%s HTTP/1.1\r\nHost: consul\r\nConnection: close\r\nContent-Length: "
                       "%zu\r\n\r\n%s",
                       request, strlen(body), body);
    assert_true(len < (int)sizeof question);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    bool asked = connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
                 write(fd, question, (size_t)len) == len;
    size_t got = 0;
    for (ssize_t part = 1; asked && part > 0 && got < sizeof answer - 1; got += (size_t)part) {
        part = read(fd, answer + got, sizeof answer - 1 - got);
        part = part > 0 ? part : 0;
    }
    close(fd);
    answer[got] = '\0';
    const char *end = strstr(answer, "\r\n\r\n");
    return end ? end + 4 : "";
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* It takes sessions: it is its own leader, and has registered its own node. */
static bool is_ready(const struct consul_server *s)
{
    return strstr(consul_ask(s, "PUT /v1/session/create", "{\"TTL\": \"10s\"}"), "\"ID\"");
}

/* Starts it, and waits until it is ready. Returns false if it ended instead: another process may
 * have taken one of its ports. */
static bool launch(struct consul_server *s)
{
    pid_t parent = getpid();
    write_settings(s);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        become(s, parent);
    for (int waited = 0; !is_ready(s); waited += 20) {
        if (waited > PATIENCE_MS)
            fail_msg("consul on port %u does not answer: see %s/log", s->port, s->directory);
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid)
            return false;
        nap_ms(20);
    }
    return true;
}

struct consul_server *consul_start(const char *settings)
{
    struct consul_server *s = calloc(1, sizeof *s);
    assert_non_null(s);
    assert_null(consul_missing());
    s->settings = settings;
    s->next = servers;
    servers = s;
    for (int i = 0; i < STARTS_MAX; i++) {
        snprintf(s->directory, sizeof s->directory, "/tmp/holdfast-consul.XXXXXX");
        assert_non_null(mkdtemp(s->directory));
        s->port = free_port();
        s->lan_port = free_port();
        s->server_port = free_port();
        if (launch(s))
            return s;
        s->pid = 0;
        remove_tree(s->directory);
    }
    fail_msg("consul ended %d times instead of answering", STARTS_MAX);
    return NULL;
}

/* ---- Ending ---- */

void consul_kill9(struct consul_server *s)
{
    assert_true(s->pid > 0);
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

void consul_restart(struct consul_server *s)
{
    if (s->pid)
        consul_kill9(s);
    assert_true(launch(s));
}

void consul_servers_end(void)
{
    while (servers) {
        struct consul_server *s = servers;
        servers = s->next;
        if (s->pid)
            consul_kill9(s);
        remove_tree(s->directory);
        free(s);
    }
}

void consul_pause(struct consul_server *s)
{
    assert_int_equal(kill(s->pid, SIGSTOP), 0);
}

void consul_continue(struct consul_server *s)
{
    assert_int_equal(kill(s->pid, SIGCONT), 0);
}

/* ---- Where it is ---- */

uint16_t consul_port(const struct consul_server *s)
{
    return s->port;
}

pid_t consul_pid(const struct consul_server *s)
{
    return s->pid;
}

const char *consul_directory(const struct consul_server *s)
{
    return s->directory;
}

uint64_t consul_raft_index(const struct consul_server *s)
{
    const char *stats = strstr(consul_ask(s, "GET /v1/agent/self", ""), "\"last_log_index\": \"");
    assert_non_null(stats);
    return strtoull(stats + strlen("\"last_log_index\": \""), NULL, 10);
}
