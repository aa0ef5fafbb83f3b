/* connection_numbers.h - hands out the numbers of connections (engines/wire_engine.h) in an engine
 * with any number of servers, and says which server a number belongs to. The lowest free numbers
 * come first, because sets of connections are exact for numbers below CONNECTION_GROUPS. */
#pragma once
#include "engines/wire_engine.h"

/* The numbers in use. A zeroed struct has none. */
struct connection_numbers {
    void **owner; /* owners, indexed by number; NULL: free */
    unsigned room;
};

/* Makes room for the numbers below `count`. Returns false if there is no memory. */
bool connection_numbers_reserve(struct connection_numbers *numbers, unsigned count,
                                const struct wire_engine_host *host);
/* Hands out `count` free numbers in a row, and returns the first. Returns -1 if there is no room
 * for them. */
int connection_numbers_take(struct connection_numbers *numbers, unsigned count, void *owner);
void connection_numbers_give_back(struct connection_numbers *numbers, unsigned first,
                                  unsigned count);
void connection_numbers_free(struct connection_numbers *numbers);

/* Returns the owner of the number; NULL: none. */
static inline void *connection_numbers_owner(const struct connection_numbers *numbers,
                                             unsigned number)
{
    return number < numbers->room ? numbers->owner[number] : NULL;
}
