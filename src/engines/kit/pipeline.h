/* pipeline.h - the requests in flight on one connection: a ring in the order in which they were
 * sent. A reply is matched to its request by that order, or by an id. Each request has a deadline.
 *
 * An engine's request begins with a struct flight. */
#pragma once
#include "core/engine_protocol.h"

struct flight {
    nanos sent_at;
    nanos patience; /* how long the server may be silent */
    uint64_t id;    /* for replies that name their request; else unused */
};

/* A zeroed pipeline with a size is empty. */
struct pipeline {
    size_t size; /* bytes of a request */
    char *ring;
    uint32_t first, count, room; /* room: a power of two, or 0 */
    nanos received_at;           /* when the last bytes came */
    nanos answered_at;           /* when the last whole reply came */
};

/* The i-th request; 0 is the one that was sent first. Valid until one is added or taken. */
static inline void *pipeline_at(const struct pipeline *p, uint32_t i)
{
    return p->ring + ((p->first + i) & (p->room - 1)) * p->size;
}

bool pipeline_grow(struct pipeline *pipeline);
/* Copies the request. Returns false if there is no memory. `size` is that of the pipeline: a size
 * that the compiler knows saves the call of memcpy(). */
static inline bool pipeline_add(struct pipeline *p, const void *request, size_t size)
{
    if (p->count == p->room && !pipeline_grow(p))
        return false;

    memcpy(pipeline_at(p, p->count), request, size);
    p->count++;
    return true;
}
/* Takes the first request out, into `request`. There must be one. */
static inline void pipeline_take(struct pipeline *p, void *request, size_t size)
{
    memcpy(request, pipeline_at(p, 0), size);
    p->first = (p->first + 1) & (p->room - 1);
    p->count--;
}
/* Takes the request with that id out. Returns false if there is none. */
bool pipeline_take_id(struct pipeline *pipeline, uint64_t id, void *request);
void pipeline_free(struct pipeline *pipeline);

/* When the i-th request has waited long enough. The patience counts from the last bytes of a server
 * that goes on sending; but they must become a reply within twice the patience, or within twice
 * `longest` if that is longer. */
static inline nanos pipeline_deadline(const struct pipeline *p, uint32_t i, nanos longest)
{
    const struct flight *flight = pipeline_at(p, i);
    nanos sent_at = flight->sent_at, patience = flight->patience;
    nanos whole = 2 * (patience > longest ? patience : longest);
    nanos silent_until = (p->received_at > sent_at ? p->received_at : sent_at) + patience;
    nanos whole_until = (p->answered_at > sent_at ? p->answered_at : sent_at) + whole;
    return silent_until < whole_until ? silent_until : whole_until;
}
