/* classic.h - the routes that hold a lock while an operation runs here. */
#pragma once
#include "server.h"

/* 0, or an exit code after a message about an operation in the settings. */
int classic_open(struct server *server, struct classic **classic);
void classic_stop(struct classic *classic); /* ends what runs */
bool classic_idle(const struct classic *classic);
void classic_free(struct classic *classic);
