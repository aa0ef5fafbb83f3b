/* pipeline.h - the requests in flight on one connection: a ring in the order in which they were
 * sent. A reply is matched to its request by that order, or by an id. Each request has a deadline.
 *
 * An engine's request begins with a struct flight. */
#pragma once
#include "core/engine_protocol.h"

struct flight {
    nanos sent_at;
    nanos patience; /* time for which the server may be silent */
    uint64_t id;    /* id for replies that name their request; otherwise unused */
};

/* The ring. Set `size`, and the rest to zero. */
struct pipeline {
    size_t size; /* bytes of one request */
    char *ring;
    /* index of the first request, number of requests, and room for them (a power of two, or 0) */
    uint32_t first, count, room;
    nanos received_at; /* time when the last bytes arrived */
    nanos answered_at; /* time when the last complete reply arrived */
};

/* Returns the i-th request; 0 is the one that was sent first. Valid until a request is added or
 * taken. */
static inline void *pipeline_at(const struct pipeline *p, uint32_t i)
{
    return p->ring + ((p->first + i) & (p->room - 1)) * p->size;
}

bool pipeline_grow(struct pipeline *pipeline);
/* Copies the request into the ring. Returns false without memory. `size` is that of the ring: as
 * a constant it saves the call of memcpy(). */
static inline bool pipeline_add(struct pipeline *p, const void *request, size_t size)
{
    if (p->count == p->room && !pipeline_grow(p))
        return false;

    memcpy(pipeline_at(p, p->count), request, size);
    p->count++;
    return true;
}
/* Moves the first request into `request`. There must be one. */
static inline void pipeline_take(struct pipeline *p, void *request, size_t size)
{
    memcpy(request, pipeline_at(p, 0), size);
    p->first = (p->first + 1) & (p->room - 1);
    p->count--;
}
/* Moves the request with that id into `request`. Returns false if there is none. */
bool pipeline_take_id(struct pipeline *pipeline, uint64_t id, void *request);
void pipeline_free(struct pipeline *pipeline);

/* Returns when the i-th request has waited long enough. The time starts anew whenever bytes of the
 * server arrive, but a complete reply must arrive within twice the patience, or twice `longest` if
 * that is longer. */
static inline nanos pipeline_deadline(const struct pipeline *p, uint32_t i, nanos longest)
{
    const struct flight *flight = pipeline_at(p, i);
    nanos sent_at = flight->sent_at, patience = flight->patience;
    nanos whole = 2 * (patience > longest ? patience : longest);
    nanos silent_until = (p->received_at > sent_at ? p->received_at : sent_at) + patience;
    nanos whole_until = (p->answered_at > sent_at ? p->answered_at : sent_at) + whole;
    return silent_until < whole_until ? silent_until : whole_until;
}
