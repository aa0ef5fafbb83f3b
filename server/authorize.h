/* authorize.h - decides whether a request may be served at all. */
#pragma once
#include "server.h"

/* Checks Host, Origin and the bearer token of a request. Returns false after it answered. */
bool authorize(struct server *server, struct exchange *x);
