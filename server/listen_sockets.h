/* listen_sockets.h - the sockets that the service listens on: opened here, or passed by systemd. */
#pragma once
#include "server.h"

/* Opens all sockets and passes them to http. Returns 0, or an exit code after a message. */
int listen_sockets_open(struct server *server);

/* Prints every address, with the port that was chosen for :0, and the sockets that systemd
 * passed. */
void listen_sockets_announce(const struct server *server);

/* Removes the unix sockets that were made here. */
void listen_sockets_close(struct server *server);

/* Refuses addresses that others can reach unless callers need credentials. Returns 0, or 78
 * after a message. */
int listen_sockets_check(struct server *server);

/* Loads certificate and key; *tls is NULL if TLS is not configured. Returns 0, or an exit code
 * after a message. */
int listen_sockets_tls(struct server *server, SSL_CTX **tls);

/* Notifies systemd, if it asked for that. */
void listen_sockets_notify(const char *state);
