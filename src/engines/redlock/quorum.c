/* quorum.c - counts the votes of N servers. */
#include "quorum.h"

#include <assert.h>

void quorum_open(struct quorum *q, unsigned servers)
{
    assert(servers > 0 && servers <= QUORUM_SERVERS_MAX);
    *q = (struct quorum){.servers = servers};
}

unsigned quorum_count(const struct quorum *q, enum vote vote)
{
    unsigned count = 0;

    for (unsigned i = 0; i < q->servers; i++)
        count += q->vote[i] == vote;
    return count;
}

enum quorum_verdict quorum_verdict(const struct quorum *q)
{
    unsigned yes = quorum_count(q, VOTE_YES), open = quorum_count(q, VOTE_OPEN);

    if (yes >= quorum_majority(q->servers))
        return QUORUM_WON;
    return yes + open >= quorum_majority(q->servers) ? QUORUM_OPEN : QUORUM_LOST;
}

bool quorum_is_silent(const struct quorum *q)
{
    unsigned away = quorum_count(q, VOTE_FAILED) + quorum_count(q, VOTE_UNCOUNTED);

    return q->servers - away < quorum_majority(q->servers);
}

bool quorum_is_refused(const struct quorum *q)
{
    return q->servers - quorum_count(q, VOTE_NO) < quorum_majority(q->servers);
}

nanos quorum_left(const nanos *left, unsigned servers)
{
    assert(servers > 0 && servers <= QUORUM_SERVERS_MAX);

    /* The largest value that at least a majority reaches. There are at most nine values, so
     * counting is as fast as sorting. */
    nanos best = 0;
    for (unsigned i = 0; i < servers; i++) {
        unsigned reach = 0;
        for (unsigned j = 0; j < servers; j++)
            reach += left[j] >= left[i];

        if (reach >= quorum_majority(servers) && left[i] > best)
            best = left[i];
    }
    return best;
}
