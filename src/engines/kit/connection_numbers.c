/* connection_numbers.c - which connection numbers are free, and the owners of all others. */
#include "connection_numbers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool connection_numbers_reserve(struct connection_numbers *numbers, unsigned count,
                                const struct wire_engine_host *host)
{
    if (count <= numbers->room)
        return true;
    if (count > CONNECTION_GROUPS && host->reserve && !host->reserve(host->ctx, count))
        return false;

    void **owner = realloc(numbers->owner, count * sizeof *owner);
    if (!owner)
        return false;
    memset(owner + numbers->room, 0, (count - numbers->room) * sizeof *owner);
    numbers->owner = owner;
    numbers->room = count;
    return true;
}

static unsigned free_from(const struct connection_numbers *numbers, unsigned first)
{
    unsigned end = first;
    while (end < numbers->room && !numbers->owner[end])
        end++;
    return end - first;
}

int connection_numbers_take(struct connection_numbers *numbers, unsigned count, void *owner)
{
    assert(count > 0 && owner);
    unsigned first = 0, is_free = 0;
    while (first < numbers->room && (is_free = free_from(numbers, first)) < count)
        first += is_free + 1;
    if (first >= numbers->room)
        return -1;

    for (unsigned i = 0; i < count; i++)
        numbers->owner[first + i] = owner;
    return (int)first;
}

void connection_numbers_give_back(struct connection_numbers *numbers, unsigned first,
                                  unsigned count)
{
    assert(first + count <= numbers->room);
    for (unsigned i = first; i < first + count; i++) {
        assert(numbers->owner[i]);
        numbers->owner[i] = NULL;
    }
}

void connection_numbers_free(struct connection_numbers *numbers)
{
    free(numbers->owner);
    *numbers = (struct connection_numbers){0};
}
