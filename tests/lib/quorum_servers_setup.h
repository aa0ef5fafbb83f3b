/* quorum_servers_setup.h - independent servers for tests of a majority. They look as if they had
 * run for long, because a server that started a moment ago does not count; and their clocks can be
 * stepped. */
#pragma once
#include "servers.h"

enum { QUORUM_MOST = 9, QUORUM_AGE_S = 7200 };

struct quorum {
    unsigned count;
    struct server *server[QUORUM_MOST];
    int64_t wrong_us[QUORUM_MOST]; /* by how much each clock is wrong */
};

void quorum_start(struct quorum *q, unsigned count, enum server_kind kind);
/* Steps a server's wall clock; when this returns the server has seen it. */
void quorum_step_clock(struct quorum *q, unsigned server, int64_t seconds);
/* Writes "redlock://127.0.0.1:P,127.0.0.1:P", with `query` ("max_ttl=1s"; NULL: none) behind it. */
void quorum_url(const struct quorum *q, const char *query, char *url, size_t size);
/* The same with other ports, for example those of proxies. */
void quorum_url_of_ports(const uint16_t *port, unsigned count, const char *query, char *url,
                         size_t size);
