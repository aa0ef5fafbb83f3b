/* quorum.c - votes of N servers folded into one answer. */
#include "quorum.h"

void hf_quorum_open(struct hf_quorum *q, unsigned servers)
{
    *q = (struct hf_quorum){.servers = servers};
}

unsigned hf_quorum_count(const struct hf_quorum *q, enum hf_vote vote)
{
    unsigned count = 0;
    for (unsigned i = 0; i < q->servers; i++)
        count += q->vote[i] == vote;
    return count;
}

enum hf_verdict hf_quorum_verdict(const struct hf_quorum *q)
{
    unsigned yes = hf_quorum_count(q, HF_VOTE_YES), open = hf_quorum_count(q, HF_VOTE_OPEN);
    if (yes >= hf_majority(q->servers))
        return HF_VERDICT_WON;
    return yes + open >= hf_majority(q->servers) ? HF_VERDICT_OPEN : HF_VERDICT_LOST;
}

bool hf_quorum_is_silent(const struct hf_quorum *q)
{
    unsigned away = hf_quorum_count(q, HF_VOTE_FAILED) + hf_quorum_count(q, HF_VOTE_UNCOUNTED);
    return q->servers - away < hf_majority(q->servers);
}

bool hf_quorum_is_refused(const struct hf_quorum *q)
{
    return q->servers - hf_quorum_count(q, HF_VOTE_NO) < hf_majority(q->servers);
}

hf_nanos hf_quorum_left(const hf_nanos *left, unsigned servers)
{
    /* The largest value that at least a majority reaches; nine at most, so counting is as good as sorting. */
    hf_nanos best = 0;
    for (unsigned i = 0; i < servers; i++) {
        unsigned reach = 0;
        for (unsigned j = 0; j < servers; j++)
            reach += left[j] >= left[i];
        if (reach >= hf_majority(servers) && left[i] > best)
            best = left[i];
    }
    return best;
}
