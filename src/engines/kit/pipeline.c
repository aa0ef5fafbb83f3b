/* pipeline.c - the requests in flight on one connection. */
#include "pipeline.h"

#include <assert.h>
#include <stdlib.h>

enum { FIRST_ROOM = 16 };

bool pipeline_grow(struct pipeline *p)
{
    assert(p->size >= sizeof(struct flight));
    uint32_t room = p->room ? p->room * 2 : FIRST_ROOM;
    char *ring = malloc(room * p->size);
    if (!ring)
        return false;

    for (uint32_t i = 0; i < p->count; i++)
        memcpy(ring + i * p->size, pipeline_at(p, i), p->size);
    free(p->ring);
    p->ring = ring;
    p->room = room;
    p->first = 0;
    return true;
}

bool pipeline_take_id(struct pipeline *p, uint64_t id, void *request)
{
    uint32_t i = 0;
    while (i < p->count && ((const struct flight *)pipeline_at(p, i))->id != id)
        i++;
    if (i == p->count)
        return false;

    memcpy(request, pipeline_at(p, i), p->size);
    for (; i; i--) /* usually no request is in front of it */
        memcpy(pipeline_at(p, i), pipeline_at(p, i - 1), p->size);
    p->first = (p->first + 1) & (p->room - 1);
    p->count--;
    return true;
}

void pipeline_free(struct pipeline *p)
{
    free(p->ring);
    *p = (struct pipeline){.size = p->size};
}
