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

/* The form of one engine's URLs. */
struct endpoint_form {
    const char *example;      /* for messages, as in "user:password@host:6379/0" */
    const char *default_host; /* host if the URL names none; NULL: the URL must name one */
    const char *default_port;
    unsigned most;    /* most servers that a URL may name, at most ENDPOINTS_MAX */
    bool tls;         /* the scheme asks for TLS */
    bool is_path;     /* the scheme means a unix socket */
    const char *alpn; /* TLS: ALPN protocol that the server must choose; NULL: any */
};

struct endpoints {
    char user[256], password[512]; /* login for all servers; "": none */
    const char *rest;              /* text behind the hosts, within the URL; "": none */
    unsigned count;
    struct endpoint *one; /* array of `count` servers */
    unsigned first;       /* index of the server to dial after no failure */
};

/* HF_CONFIG: error_text() says what is wrong, without showing a password; HF_NO_MEMORY. On failure
 * there is nothing to free. */
hf_status endpoints_read(struct endpoints *endpoints, const struct url *url,
                         const struct settings *settings, const struct endpoint_form *form);
/* Also wipes the password. */
void endpoints_free(struct endpoints *endpoints);

/* Returns the server to dial after that many failures in a row: the servers take turns, and in each
 * round another address of the name is used. Valid until the next call. */
const struct endpoint *endpoints_turn(struct endpoints *endpoints, unsigned failures);
/* Call it when the server that endpoints_turn() returned is up: makes that server the first to
 * dial. */
void endpoints_keep(struct endpoints *endpoints, const struct endpoint *endpoint);

/* Reads a password from the first line of a file that only its owner may read. An empty path
 * changes nothing and is HF_OK. */
hf_status endpoints_read_password(const char *path, char *password, size_t size);
