/* endpoints.h - the servers that an engine's URL names, and how to log in to them:
 *
 *   SCHEME://user:password@host:port,host:port/REST      SCHEME://user:password@/path/of/socket
 *
 * Each part may be percent-encoded. A password may also be in a file (password_file). TLS files and
 * the server's name in its certificate come from the settings ca, cert, key and tls_name. Host
 * names are resolved at every dial (net/conn.h). */
#pragma once
#include "base/endpoint.h"
#include "base/settings.h"
#include "base/url.h"

#define ENDPOINTS_MAX 16

/* What the URLs of one engine look like. */
struct endpoint_form {
    const char *example;      /* for messages, as in "user:password@host:6379/0" */
    const char *default_host; /* if the URL names no host; NULL: it must name one */
    const char *default_port;
    unsigned most;    /* number of servers, at most ENDPOINTS_MAX; 1: no list */
    bool tls;         /* the scheme asks for TLS */
    bool is_path;     /* the scheme asks for a unix socket */
    const char *alpn; /* TLS: protocol that a server must choose; NULL: any */
};

struct endpoints {
    char user[256], password[512]; /* "": none; the same for all servers */
    const char *rest;              /* text behind the hosts: points into the URL; "": none */
    unsigned count;
    struct endpoint *one; /* array of `count` */
    unsigned first;       /* the one to dial if nothing failed */
};

/* HF_CONFIG: error_text() says what is wrong, without showing a password; HF_NO_MEMORY. On failure
 * there is nothing to free. */
hf_status endpoints_read(struct endpoints *endpoints, const struct url *url,
                         const struct settings *settings, const struct endpoint_form *form);
/* Also wipes the password. */
void endpoints_free(struct endpoints *endpoints);

/* The server to dial after that many dials failed in a row: all servers in turn, and in each round
 * another address of a name. Valid until the next call. */
const struct endpoint *endpoints_turn(struct endpoints *endpoints, unsigned failures);
/* The server that endpoints_turn() named is up: it is the first one from now on. */
void endpoints_keep(struct endpoints *endpoints, const struct endpoint *endpoint);

/* Reads the first line of a file that only its owner may read. A path of "" is HF_OK and changes
 * nothing. */
hf_status endpoints_read_password(const char *path, char *password, size_t size);
