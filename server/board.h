/* board.h - what the page says of the service itself: title, engine, instance, and the last hour.
 */
#pragma once
#include "hour_stats.h"
#include "server.h"

enum { BOARD_SERVER_BYTES = 128 };

struct board {
    struct hour_stats hour;
    char server[BOARD_SERVER_BYTES]; /* name and version of the engine's server; "" if not known */
};

/* On a worker: asks the engine for the name and version of its server. */
void board_ask_server(const struct server *server, char text[BOARD_SERVER_BYTES]);

/* Returns the message `about` of the event stream, as a new reference. */
json_t *board_json(const struct board *board, const struct server *server);
