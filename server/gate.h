/* gate.h - who may come in at all. */
#pragma once
#include "server.h"

/* Checks Host, Origin and the bearer token of a request; false after it answered. */
bool gate_admits(struct server *server, struct exchange *x);
