/* consul_server.c - real Consul agents for tests. */
#include "consul_server.h"

#include "server_process.h"
#include "servers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 20000, STARTS_MAX = 5 };

struct consul_server {
    struct consul_server *next;
    struct server_process process;
    uint16_t port, lan_port, server_port;
    const char *settings;
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
    snprintf(path, sizeof path, "%s/agent.json", s->process.directory);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file,
            "{\"ports\": {\"http\": %u, \"serf_lan\": %u, \"server\": %u, \"dns\": -1, \"grpc\": "
            "-1, \"serf_wan\": -1}, \"session_ttl_min\": \"1s\", \"performance\": "
            "{\"raft_multiplier\": 1}%s}\n",
            s->port, s->lan_port, s->server_port, s->settings ? s->settings : "");
    assert_int_equal(fclose(file), 0);
}

const char *consul_ask(const struct consul_server *s, const char *request, const char *body)
{
    static char answer[1 << 20];
    char question[4096];
    int len = snprintf(question, sizeof question,
                       "%s HTTP/1.1\r\nHost: consul\r\nConnection: close\r\nContent-Length: "
                       "%zu\r\n\r\n%s",
                       request, strlen(body), body);
    assert_true(len < (int)sizeof question);
    ask_port(s->port, question, (size_t)len, answer, sizeof answer, 3);
    const char *end = strstr(answer, "\r\n\r\n");
    return end ? end + 4 : "";
}

/* Returns true if the agent takes sessions: it is its own leader, and has registered its own
 * node. */
static bool is_ready(const void *server)
{
    return strstr(consul_ask(server, "PUT /v1/session/create", "{\"TTL\": \"10s\"}"), "\"ID\"");
}

static bool launch(struct consul_server *s)
{
    const char *const argv[] = {program,   "agent",     "-dev",         "-bind",      "127.0.0.1",
                                "-client", "127.0.0.1", "-config-file", "agent.json", NULL};
    write_settings(s);
    server_process_start(&s->process, argv);
    return server_process_await(&s->process, is_ready, s, PATIENCE_MS);
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
        server_process_place(&s->process, "/tmp", "consul");
        s->port = free_port();
        s->lan_port = free_port();
        s->server_port = free_port();
        if (launch(s))
            return s;
        server_process_remove(&s->process);
    }
    fail_msg("consul ended %d times instead of answering", STARTS_MAX);
    return NULL;
}

/* ---- Ending ---- */

void consul_kill9(struct consul_server *s)
{
    server_process_end(&s->process, SIGKILL);
}

void consul_restart(struct consul_server *s)
{
    if (s->process.pid)
        consul_kill9(s);
    assert_true(launch(s));
}

void consul_servers_end(void)
{
    while (servers) {
        struct consul_server *s = servers;
        servers = s->next;
        server_process_remove(&s->process);
        free(s);
    }
}

void consul_pause(struct consul_server *s)
{
    server_process_pause(&s->process);
}

void consul_continue(struct consul_server *s)
{
    server_process_continue(&s->process);
}

/* ---- Where it is ---- */

uint16_t consul_port(const struct consul_server *s)
{
    return s->port;
}

pid_t consul_pid(const struct consul_server *s)
{
    return s->process.pid;
}

const char *consul_directory(const struct consul_server *s)
{
    return s->process.directory;
}

uint64_t consul_raft_index(const struct consul_server *s)
{
    const char *stats = strstr(consul_ask(s, "GET /v1/agent/self", ""), "\"last_log_index\": \"");
    assert_non_null(stats);
    return strtoull(stats + strlen("\"last_log_index\": \""), NULL, 10);
}
