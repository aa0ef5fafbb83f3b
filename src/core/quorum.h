/* quorum.h - votes of N servers folded into one answer. Pure.
 *
 * A majority of all N is needed, whoever of them may vote: a server that restarted a moment ago is asked, but its yes
 * does not count. */
#pragma once
#include "message.h"

enum { HF_SERVERS_MAX = 9 };

enum hf_vote { HF_VOTE_OPEN, HF_VOTE_YES, HF_VOTE_NO, HF_VOTE_FAILED, HF_VOTE_UNCOUNTED };

struct hf_quorum {
    unsigned servers;
    enum hf_vote vote[HF_SERVERS_MAX];
};

enum hf_verdict { HF_VERDICT_OPEN, HF_VERDICT_WON, HF_VERDICT_LOST };

static inline unsigned hf_majority(unsigned servers)
{
    return servers / 2 + 1;
}

void hf_quorum_open(struct hf_quorum *q, unsigned servers); /* all votes are open */
unsigned hf_quorum_count(const struct hf_quorum *q, enum hf_vote vote);
/* Won: a majority said yes. Lost: it cannot any more. */
enum hf_verdict hf_quorum_verdict(const struct hf_quorum *q);
/* Of a round that is lost: were there too few servers, whatever the others said? */
bool hf_quorum_is_silent(const struct hf_quorum *q);
/* Have so many said no that the others are no majority, whatever they say? */
bool hf_quorum_is_refused(const struct hf_quorum *q);

/* The time that a majority has left, given what each server has (0: nothing): the M-th largest. */
hf_nanos hf_quorum_left(const hf_nanos *left, unsigned servers);
