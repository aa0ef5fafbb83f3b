/* sentinel_setup.c - a primary with replicas, and sentinels that watch it. */
#include "sentinel_setup.h"

#include "actors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { PATIENCE_MS = 60000, QUORUM_OF_THREE = 2 };

/* ---- Starting ---- */

static size_t add_line(char *text, size_t size, size_t len, const char *words, const char *value)
{
    if (value)
        len += (size_t)snprintf(text + len, size - len, "%s%s\n", words, value);
    assert_true(len < size);
    return len;
}

/* Returns the user of a sentinel at the servers, or that of the replicas. */
static const char *user_name(unsigned sentinel)
{
    static char name[24];
    if (sentinel == WATCHED_MOST)
        return "follower";
    snprintf(name, sizeof name, "watcher%u", sentinel);
    return name;
}

/* The configuration of that sentinel, for as long as it runs. */
static const char *configuration(const struct watched *w, unsigned sentinel)
{
    static char texts[WATCHED_MOST][1200];
    char *text = texts[sentinel];
    size_t size = sizeof *texts;
    const struct watched_options *o = &w->options;
    size_t len =
        (size_t)snprintf(text, size,
                         "sentinel monitor mymaster 127.0.0.1 %u %u\n"
                         "sentinel down-after-milliseconds mymaster 1000\n"
                         "sentinel failover-timeout mymaster 5000\n",
                         server_port(w->server[0]), o->sentinels == 1 ? 1 : QUORUM_OF_THREE);
    len = add_line(text, size, len, "sentinel auth-pass mymaster ", o->password);
    len = add_line(text, size, len, "sentinel auth-user mymaster ",
                   o->has_users ? user_name(sentinel) : NULL);
    len = add_line(text, size, len, "requirepass ", o->sentinel_password);
    len = add_line(text, size, len, "tls-replication ", o->tls ? "yes" : NULL);
    add_line(text, size, len, "", o->lines);
    return text;
}

/* Of servers and sentinels: the certificates of the first server. */
static const char *const *tls_args(const struct watched *w, bool is_first)
{
    static char files[3][256];
    static const char *own[] = {"--tls-cert-file",
                                "named.crt",
                                "--tls-key-file",
                                "named.key",
                                "--tls-replication",
                                "yes",
                                NULL};
    static const char *args[] = {"--tls-cert-file",
                                 files[0],
                                 "--tls-key-file",
                                 files[1],
                                 "--tls-ca-cert-file",
                                 files[2],
                                 "--tls-replication",
                                 "yes",
                                 NULL};
    static const char *const names[] = {"named.crt", "named.key", "ca.crt"};
    for (int i = 0; i < 3 && !is_first; i++)
        snprintf(files[i], sizeof files[i], "%s", server_file(w->server[0], names[i]));
    return is_first ? own : args;
}

static const char *const *server_args(const struct watched *w, bool is_first)
{
    static const char *args[] = {"--masterauth", NULL, "--masteruser", "follower", NULL};
    args[1] = w->options.password;
    args[2] = w->options.has_users ? "--masteruser" : NULL;
    if (w->options.tls)
        return tls_args(w, is_first);
    return w->options.password ? args : NULL;
}

static void start_servers(struct watched *w)
{
    for (unsigned i = 0; i <= w->options.replicas; i++) {
        w->server[i] = server_start(&(struct server_options){.password = w->options.password,
                                                             .preload = w->options.preload,
                                                             .tls = w->options.tls,
                                                             .args = server_args(w, i == 0)});
        for (unsigned k = 0; w->options.has_users && k <= WATCHED_MOST; k++)
            watched_let_in(w->server[i], k);
    }
    for (unsigned i = 1; i <= w->options.replicas; i++)
        server_replica_of(w->server[i], w->server[0]);
}

const char *watched_tls(const struct watched *w)
{
    assert_true(w->options.tls);
    return server_directory(w->server[0]);
}

/* Deleting a user closes its connections. */
void watched_shut_out(const struct server *server, unsigned sentinel)
{
    assert_int_equal(server_count(server, "ACL DELUSER %s", user_name(sentinel)), 1);
}

void watched_let_in(const struct server *server, unsigned sentinel)
{
    server_does(server, "ACL SETUSER %s on >%s allkeys allchannels +@all", user_name(sentinel),
                server_password(server));
}

/* Returns a number of SENTINEL MASTER; -1: it is not there. */
static int64_t number_of(const struct server *sentinel, const char *field)
{
    redisReply *reply = server_cli(sentinel, "SENTINEL MASTER mymaster");
    int64_t number = -1;
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2)
        if (strcmp(reply->element[i]->str, field) == 0)
            number = atoll(reply->element[i + 1]->str);
    freeReplyObject(reply);
    return number;
}

static bool knows_all(const struct watched *w, const struct server *sentinel)
{
    return number_of(sentinel, "num-slaves") == w->options.replicas &&
           number_of(sentinel, "num-other-sentinels") == w->options.sentinels - 1;
}

void watched_start(struct watched *w, const struct watched_options *options)
{
    *w = (struct watched){.options = *options};
    assert_true(options->replicas < WATCHED_MOST && options->sentinels <= WATCHED_MOST);
    assert_true(options->password || !options->has_users);
    start_servers(w);
    for (unsigned i = 0; i < options->sentinels; i++)
        w->sentinel[i] = server_start(
            &(struct server_options){.sentinel = configuration(w, i),
                                     .password = options->sentinel_password,
                                     .tls = options->tls,
                                     .args = options->tls ? tls_args(w, false) : NULL});

    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    for (unsigned i = 0; i < options->sentinels; i++)
        while (!knows_all(w, w->sentinel[i])) {
            assert_true(now_ns() < end);
            nap_us(20000);
        }
}

void watched_url(const struct watched *w, const char *query, char *url, size_t size)
{
    const char *password = w->options.password;
    size_t len =
        (size_t)snprintf(url, size, "redis%s+sentinel://%s%s%s", w->options.tls ? "s" : "",
                         password ? ":" : "", password ? password : "", password ? "@" : "");
    for (unsigned i = 0; i < w->options.sentinels; i++)
        len += (size_t)snprintf(url + len, size - len, "%s127.0.0.1:%u", i ? "," : "",
                                server_port(w->sentinel[i]));
    len += (size_t)snprintf(url + len, size - len, "/mymaster%s", query);
    assert_true(len < size);
}

bool watched_is_named(const struct server *sentinel, const struct server *server)
{
    return number_of(sentinel, "port") == server_port(server);
}

static struct server *named_by(const struct watched *w, const struct server *sentinel)
{
    int64_t port = number_of(sentinel, "port");
    for (unsigned i = 0; i <= w->options.replicas; i++)
        if (server_port(w->server[i]) == port)
            return w->server[i];
    return NULL;
}

struct server *watched_primary(const struct watched *w)
{
    unsigned votes[WATCHED_MOST] = {0}, best = 0;
    for (unsigned i = 0; i < w->options.sentinels; i++)
        for (unsigned k = 0; k <= w->options.replicas; k++)
            votes[k] += named_by(w, w->sentinel[i]) == w->server[k];
    for (unsigned k = 1; k <= w->options.replicas; k++)
        best = votes[k] > votes[best] ? k : best;
    return w->server[best];
}

struct server *watched_await_switch(const struct watched *w, const struct server *old)
{
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    for (unsigned i = 0; i < w->options.sentinels; i++)
        while (named_by(w, w->sentinel[i]) == old) {
            assert_true(now_ns() < end);
            nap_us(5000);
        }
    return watched_primary(w);
}

/* Returns true if the sentinel names that server, sees it up, and is not replacing it. */
static bool is_at_rest(const struct server *sentinel, const struct server *primary)
{
    redisReply *reply = server_cli(sentinel, "SENTINEL MASTER mymaster");
    bool is_calm = false;
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2)
        if (strcmp(reply->element[i]->str, "flags") == 0)
            is_calm = strcmp(reply->element[i + 1]->str, "master") == 0;
    freeReplyObject(reply);
    return is_calm && watched_is_named(sentinel, primary);
}

void watched_await_rest(const struct watched *w)
{
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    for (unsigned i = 0; i < w->options.sentinels; i++)
        while (!is_at_rest(w->sentinel[i], watched_primary(w))) {
            assert_true(now_ns() < end);
            nap_us(20000);
        }
}

void watched_cut_replicas(const struct watched *w)
{
    assert_non_null(w->options.password);
    for (unsigned i = 1; i <= w->options.replicas; i++)
        server_does(w->server[i], "CONFIG SET masterauth wrong");
    server_does(w->server[0], "CLIENT KILL TYPE replica");
    while (server_info_number(w->server[0], "replication", "connected_slaves"))
        nap_us(1000);
}

/* ---- When a sentinel announces a new primary ---- */

static struct listener {
    pthread_t thread;
    redisContext *connection;
} listener[WATCHED_MOST];
static unsigned listeners;
static _Atomic int64_t announced_at_ns; /* 0: not yet */

static void *listen_to(void *arg)
{
    const struct listener *l = arg;
    redisReply *reply;
    while (redisGetReply(l->connection, (void **)&reply) == REDIS_OK) {
        bool is_message = reply->elements == 3 && strcmp(reply->element[0]->str, "message") == 0;
        int64_t none = 0;
        if (is_message)
            atomic_compare_exchange_strong(&announced_at_ns, &none, now_ns());
        freeReplyObject(reply);
    }
    return NULL;
}

void watched_listen(const struct watched *w)
{
    announced_at_ns = 0;
    for (listeners = 0; listeners < w->options.sentinels; listeners++) {
        struct listener *l = &listener[listeners];
        l->connection = server_connect(w->sentinel[listeners]);
        redisAppendCommand(l->connection, "SUBSCRIBE +switch-master");
        assert_int_equal(pthread_create(&l->thread, NULL, listen_to, l), 0);
    }
}

int64_t watched_await_announcement(void)
{
    int64_t end = now_ns() + PATIENCE_MS * INT64_C(1000000);
    while (!announced_at_ns && now_ns() < end)
        nap_us(1000);
    while (listeners) {
        struct listener *l = &listener[--listeners];
        shutdown(l->connection->fd, SHUT_RDWR);
        pthread_join(l->thread, NULL);
        redisFree(l->connection);
    }
    assert_true(announced_at_ns);
    return announced_at_ns;
}
