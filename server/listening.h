/* listening.h - the sockets that the service listens on: opened here, or given by systemd. */
#pragma once
#include "server.h"

/* Opens them all and hands them to http. 0, or an exit code after a message. */
int listening_open(struct server *server);

/* Says where it listens: with the port that was found for :0, and the sockets that systemd gave. */
void listening_tell(const struct server *server);

/* Removes unix sockets that were made here. */
void listening_close(struct server *server);

/* Is every address one of this machine alone, so that who asks is already inside? 0, or 78 after a message. */
int listening_check(struct server *server);

/* The certificate and key of the settings; NULL in *tls when there are none. 0, or an exit code after a message. */
int listening_tls(struct server *server, SSL_CTX **tls);

/* Tells systemd, where it wants to know. */
void listening_notify(const char *state);
