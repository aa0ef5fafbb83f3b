/* endpoint.h - the address of a server as plain data. An engine reads it from a URL, and net
 * connects to it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define ENDPOINT_TEXT_MAX 300

struct endpoint {
    char host[256]; /* a name, or an IPv4 or IPv6 address without brackets; "" with a path */
    char port[8];   /* decimal */
    char path[108]; /* of a unix socket; "" with a host */
    unsigned skip;  /* addresses of the host to try last: earlier dials got no answer from them */
    bool tls;       /* from the first byte on; false: never, or from conn_start_tls() on */
    char server_name[256];    /* TLS: name for SNI and for the check of the certificate; "": host */
    char alpn[16];            /* TLS: protocol that the server must choose, as in "h2"; "": any */
    char ca[256];             /* TLS: file of authorities; "": those of the system */
    char cert[256], key[256]; /* TLS: files of our own certificate and key; "": none */
};

/* host:port, [IPv6 address]:port, or the path; for messages. */
void endpoint_print(const struct endpoint *endpoint, char text[ENDPOINT_TEXT_MAX]);
