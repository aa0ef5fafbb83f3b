/* sentinel_setup.c - a primary with replicas, and sentinels that watch it. */
#include "sentinel_setup.h"

#include "actors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 20000, QUORUM_OF_THREE = 2 };

static const char *configuration(const struct watched *w)
{
    static char text[700];
    const char *password = w->options.password, *own = w->options.sentinel_password;
    snprintf(text, sizeof text,
             "sentinel monitor mymaster 127.0.0.1 %u %u\n"
             "sentinel down-after-milliseconds mymaster 1000\n"
             "sentinel failover-timeout mymaster 5000\n%s%s%s%s%s%s",
             server_port(w->server[0]), w->options.sentinels == 1 ? 1 : QUORUM_OF_THREE,
             password ? "sentinel auth-pass mymaster " : "", password ? password : "",
             password ? "\n" : "", own ? "requirepass " : "", own ? own : "", own ? "\n" : "");
    return text;
}

static void start_servers(struct watched *w)
{
    static const char *args[] = {"--masterauth", NULL, NULL};
    args[1] = w->options.password;
    struct server_options options = {.password = w->options.password,
                                     .preload = w->options.preload,
                                     .args = w->options.password ? args : NULL};
    for (unsigned i = 0; i <= w->options.replicas; i++)
        w->server[i] = server_start(&options);
    for (unsigned i = 1; i <= w->options.replicas; i++)
        server_replica_of(w->server[i], w->server[0]);
}

/* A number of SENTINEL MASTER; -1: it is not there. */
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
    start_servers(w);
    for (unsigned i = 0; i < options->sentinels; i++)
        w->sentinel[i] = server_start(&(struct server_options){
            .sentinel = configuration(w), .password = options->sentinel_password});

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
    size_t len = (size_t)snprintf(url, size, "redis+sentinel://%s%s%s", password ? ":" : "",
                                  password ? password : "", password ? "@" : "");
    for (unsigned i = 0; i < w->options.sentinels; i++)
        len += (size_t)snprintf(url + len, size - len, "%s127.0.0.1:%u", i ? "," : "",
                                server_port(w->sentinel[i]));
    len += (size_t)snprintf(url + len, size - len, "/mymaster%s", query);
    assert_true(len < size);
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
