/* quorum_servers_setup.c - independent servers for tests of a majority. */
#include "quorum_servers_setup.h"

#include "actors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void quorum_step_clock(struct quorum *q, unsigned server, int64_t seconds)
{
    const struct server *s = q->server[server];
    int fd = open(server_file(s, "clock"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    int64_t before_us = server_clock_us(s);
    q->wrong_us[server] += seconds * 1000000;
    assert_int_equal(pwrite(fd, &q->wrong_us[server], 8, 8), 8);
    close(fd);
    int64_t stepped = (server_clock_us(s) - before_us) / 1000000;
    assert_in_range(stepped + 100000, seconds + 100000, seconds + 100001 + 5);
}

static void await_age(const struct server *s)
{
    int64_t end = now_ns() + (int64_t)ACTOR_PATIENCE_MS * 1000000;
    while (server_info_number(s, "server", "uptime_in_seconds") < QUORUM_AGE_S) {
        if (now_ns() > end)
            fail_msg("a server does not grow old");
        nap_us(5000);
    }
}

void quorum_start(struct quorum *q, unsigned count, enum server_kind kind)
{
    *q = (struct quorum){.count = count};
    for (unsigned i = 0; i < count; i++)
        q->server[i] =
            server_start(&(struct server_options){.kind = kind, .preload = HF_WRONG_CLOCK});
    for (unsigned i = 0; i < count; i++)
        quorum_step_clock(q, i, QUORUM_AGE_S);
    for (unsigned i = 0; i < count; i++)
        await_age(q->server[i]);
}

void quorum_url_of_ports(const uint16_t *port, unsigned count, const char *query, char *url,
                         size_t size)
{
    int len = snprintf(url, size, "redlock://");
    for (unsigned i = 0; i < count && len < (int)size; i++)
        len += snprintf(url + len, size - (size_t)len, "%s127.0.0.1:%u", i ? "," : "", port[i]);
    if (query && len < (int)size)
        len += snprintf(url + len, size - (size_t)len, "?%s", query);
    assert_true(len < (int)size);
}

void quorum_url(const struct quorum *q, const char *query, char *url, size_t size)
{
    uint16_t port[QUORUM_MOST];
    for (unsigned i = 0; i < q->count; i++)
        port[i] = server_port(q->server[i]);
    quorum_url_of_ports(port, q->count, query, url, size);
}
