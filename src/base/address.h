/* address.h - where a server is, as plain data: read from a URL by an engine, used by net to connect. */
#pragma once
#include <stdbool.h>

struct hf_address {
    char host[256]; /* a name, or an IPv4 or IPv6 address without brackets; "" with a path */
    char port[8];   /* decimal */
    char path[108]; /* of a unix socket; "" with a host */
    bool tls;
    char ca[256], cert[256], key[256]; /* TLS: files; "" = the system's certificates, no certificate of our own */
};
