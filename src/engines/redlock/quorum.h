/* quorum.h - counts the votes of N servers. Pure.
 *
 * A majority of all N servers is needed, even if some may not vote. A server that restarted a
 * moment ago is asked, but its yes does not count (VOTE_UNCOUNTED). */
#pragma once
#include "core/engine_protocol.h"

enum { QUORUM_SERVERS_MAX = 9 };

enum vote { VOTE_OPEN, VOTE_YES, VOTE_NO, VOTE_FAILED, VOTE_UNCOUNTED };

struct quorum {
    unsigned servers;
    enum vote vote[QUORUM_SERVERS_MAX];
};

enum quorum_verdict { QUORUM_OPEN, QUORUM_WON, QUORUM_LOST };

static inline unsigned quorum_majority(unsigned servers)
{
    return servers / 2 + 1;
}

void quorum_open(struct quorum *q, unsigned servers); /* Resets all votes to open. */
unsigned quorum_count(const struct quorum *q, enum vote vote);
/* Returns WON if a majority said yes, LOST if no majority can say yes any more. */
enum quorum_verdict quorum_verdict(const struct quorum *q);
/* Returns true if a round was lost because too few servers answered, whatever the answers were. */
bool quorum_is_silent(const struct quorum *q);
/* Returns true if the servers that did not say no are fewer than a majority. */
bool quorum_is_refused(const struct quorum *q);

/* Returns how long a majority still holds, given the time left on each server (0: none): the
 * M-th largest value, where M is the size of a majority. */
nanos quorum_left(const nanos *left, unsigned servers);
