/* endpoint.h - the address of a server as plain data. An engine reads it from a URL, and net
 * connects to it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define ENDPOINT_TEXT_MAX 300

struct endpoint {
    char host[256]; /* a name, or an IPv4 or IPv6 address without brackets; "" with a path */
    char port[8];   /* decimal number */
    char path[108]; /* path of a unix socket; "" with a host */
    /* number of the host's addresses to try last, because earlier dials got no answer there */
    unsigned skip;
    bool tls; /* TLS from the first byte on; false: never, or from conn_start_tls() on */
    char server_name[256]; /* TLS: name for SNI and for the check of the certificate; "": host */
    char alpn[16];         /* TLS: protocol that the server must choose, as in "h2"; "": any */
    char ca[256];          /* TLS: file with certificate authorities; "": those of the system */
    /* TLS: files with the client's certificate and key; "": none */
    char cert[256], key[256];
};

/* Prints host:port, [IPv6 address]:port, or the path, for messages. */
void endpoint_print(const struct endpoint *endpoint, char text[ENDPOINT_TEXT_MAX]);
