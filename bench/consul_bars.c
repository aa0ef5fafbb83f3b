/* consul_bars.c - locks in one Consul agent, side by side: Holdfast and the race of Consul's own
 * client, written after the lock of its Go library (`consul lock` is that lock). bench/consul runs
 * it.
 *
 *     consul_bars PORT WAY WORKERS SECONDS HOLD_US     one line: figures as NAME=VALUE
 *
 * WAY: holdfast, native, raw. Workers are processes that take turns. `raw` passes a key that is
 * locked back and forth between two sessions: a transaction here, a blocking query there, and
 * nothing else. Writes are counted by the server's Raft index. */
#include "turns.h"

#include <holdfast.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SESSION_TEXT = 36 };

/* Flags by which Consul's clients know their lock. */
#define LOCK_FLAGS "3304740253564472344"

static int port, number;
static hf_client *client;
static hf_lease *lease;
static int command, query; /* connections */
static char session[SESSION_TEXT + 1];

/* the sessions of the way `raw` */
static struct pair {
    char session[2][SESSION_TEXT + 1];
    int key;
} * pair;

/* ---- HTTP ---- */

struct answer {
    int status;
    uint64_t index;
    const char *body;
};

static void send_request(int fd, const char *line, const char *body)
{
    char text[2048];
    int len =
        snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: consul\r\nContent-Length: %zu\r\n\r\n%s",
                 line, strlen(body), body);
    if (len >= (int)sizeof text || write(fd, text, (size_t)len) != len)
        turns_fail(line, "the request was not sent");
}

static const char *field_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? at + strlen(name) : "";
}

/* Returns the value of a field of JSON; "" if it is missing. Skips blanks, because an agent that
 * was started with -dev lays its JSON out with them. */
static const char *value_of(const char *body, const char *quoted_name)
{
    const char *at = field_of(body, quoted_name);
    return at + strspn(at, ": \"");
}

/* Reads one response. Bodies here are small, so the agent sends their length. */
static struct answer read_answer(int fd)
{
    static char text[1 << 18];
    size_t len = 0, whole = sizeof text;
    struct answer answer = {0};
    while (len < whole) {
        ssize_t got = read(fd, text + len, sizeof text - 1 - len);
        if (got <= 0)
            turns_fail("read", "the agent closed the connection");
        len += (size_t)got;
        text[len] = '\0';
        char *body = strstr(text, "\r\n\r\n");
        if (!body || whole < sizeof text)
            continue;
        answer.body = body + 4;
        answer.status = atoi(text + strlen("HTTP/1.1 "));
        answer.index = strtoull(field_of(text, "X-Consul-Index: "), NULL, 10);
        whole =
            (size_t)(answer.body - text) + strtoull(field_of(text, "Content-Length: "), NULL, 10);
    }
    return answer;
}

static struct answer ask(const char *line, const char *body)
{
    send_request(command, line, body);
    return read_answer(command);
}

static void make_session(char *id)
{
    struct answer made = ask("PUT /v1/session/create",
                             "{\"TTL\":\"60s\",\"Behavior\":\"release\",\"LockDelay\":\"0s\"}");
    const char *at = value_of(made.body, "\"ID\"");
    if (made.status != 200 || strlen(at) < SESSION_TEXT)
        turns_fail("session", made.body);
    snprintf(id, SESSION_TEXT + 1, "%s", at);
}

static uint64_t raft_index(void)
{
    const char *text = turns_http_get(port, "/v1/agent/self");
    uint64_t index = strtoull(value_of(text, "\"last_log_index\""), NULL, 10);
    if (!index)
        turns_fail("agent", "it does not say its Raft index");
    return index;
}

/* ---- The race of Consul's own client ---- */

static void open_native(int worker)
{
    (void)worker;
    command = turns_connect(port);
    make_session(session);
}

/* Does what Lock() of its Go library does: blocks until no session has the key, then tries to
 * acquire it. */
static bool take_native(void)
{
    char line[256];
    uint64_t index = 0;
    for (;;) {
        snprintf(line, sizeof line, "GET /v1/kv/bars/race/.lock?wait=15000ms&index=%" PRIu64,
                 index);
        struct answer seen = ask(line, "");
        if (seen.status == 200 && value_of(seen.body, "\"Session\"")[0]) {
            index = seen.index;
            continue;
        }
        snprintf(line, sizeof line, "PUT /v1/kv/bars/race/.lock?acquire=%s&flags=" LOCK_FLAGS,
                 session);
        if (strncmp(ask(line, "").body, "true", 4) == 0)
            return true;
        index = 0;
    }
}

static void give_native(void)
{
    char line[256];
    snprintf(line, sizeof line, "PUT /v1/kv/bars/race/.lock?release=%s&flags=" LOCK_FLAGS, session);
    if (strncmp(ask(line, "").body, "true", 4) != 0)
        turns_fail("release", "refused");
}

/* ---- Holdfast ---- */

static void open_holdfast(int worker)
{
    (void)worker;
    char url[100];
    snprintf(url, sizeof url, "consul://127.0.0.1:%d/bars", port);
    if (hf_open(url, NULL, &client) != HF_OK)
        turns_fail("hf_open", hf_error_text());
}

static bool take_holdfast(void)
{
    struct hf_request want = {.size = sizeof want, .name = "ours", .wait_ms = 120000};
    if (hf_acquire(client, &want, &lease) != HF_OK)
        turns_fail("hf_acquire", hf_error_text());
    return true;
}

static void give_holdfast(void)
{
    if (hf_release(lease) != HF_OK)
        turns_fail("hf_release", hf_error_text());
    hf_lease_free(lease);
}

/* ---- The ceiling ---- */

static void open_raw(int worker)
{
    number = worker;
    command = turns_connect(port);
    query = turns_connect(port);
}

/* Blocks until the key belongs to the worker's session. */
static bool take_raw(void)
{
    static uint64_t index;
    char line[128];
    while (!turns_are_over()) {
        snprintf(line, sizeof line, "GET /v1/kv/bars/%d?wait=5s&index=%" PRIu64, pair->key, index);
        send_request(query, line, "");
        struct answer seen = read_answer(query);
        index = seen.index;
        if (strstr(seen.body, pair->session[number]))
            return true;
    }
    return false;
}

static void give_raw(void)
{
    char body[512];
    snprintf(body, sizeof body,
             "[{\"KV\":{\"Verb\":\"unlock\",\"Key\":\"bars/%d\",\"Session\":\"%s\"}},"
             "{\"KV\":{\"Verb\":\"lock\",\"Key\":\"bars/%d\",\"Session\":\"%s\"}}]",
             pair->key, pair->session[number], pair->key, pair->session[1 - number]);
    if (ask("PUT /v1/txn", body).status != 200)
        turns_fail("pass", "refused");
}

static void prepare_raw(void)
{
    char line[128];
    pair = turns_shared(sizeof *pair);
    pair->key = (int)getpid();
    command = turns_connect(port);
    make_session(pair->session[0]);
    make_session(pair->session[1]);
    snprintf(line, sizeof line, "PUT /v1/kv/bars/%d?acquire=%s", pair->key, pair->session[0]);
    if (strncmp(ask(line, "").body, "true", 4) != 0)
        turns_fail("acquire", "refused");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        struct turns turns;
    } ways[] = {{"holdfast", {open_holdfast, take_holdfast, give_holdfast, raft_index}},
                {"native", {open_native, take_native, give_native, raft_index}},
                {"raw", {open_raw, take_raw, give_raw, raft_index}}};
    if (argc != 6)
        turns_fail("arguments", "PORT WAY WORKERS SECONDS HOLD_US");
    port = atoi(argv[1]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(argv[2], ways[i].name) != 0)
            continue;
        if (ways[i].turns.open == open_raw)
            prepare_raw();
        turns_run(argv[2], &ways[i].turns, atoi(argv[3]), atof(argv[4]), atoll(argv[5]));
        return 0;
    }
    turns_fail(argv[2], "there is no such way");
}
