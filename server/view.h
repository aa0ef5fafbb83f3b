/* view.h - what the engine shows, looked at again and again for the page, the gauges and the patterns. */
#pragma once
#include "server.h"

/* The last look. */
struct sighting {
    bool up;
    size_t held, waiters;
    size_t servers_up; /* of a quorum */
    int64_t oldest_holder_ms, oldest_waiter_ms;
};

struct view *view_new(struct server *server);
void view_free(struct view *view);
void view_stop(struct view *view); /* ends the streams */
/* A hold was taken away here: when it is gone, that is why. */
void view_broken(struct view *view, uint64_t token, const char *reason);
const struct sighting *view_sighting(const struct view *view);
