/* rounds.c - what servers answer, folded into what the client is told.
 *
 * A round ends as soon as a majority said yes, or as soon as that has become impossible, or when its time is over: a
 * server that hangs holds up nobody. */
#include "redlock.h"

#include <stdio.h>

static struct hf_news news_of(const struct ballot *b, enum hf_cue cue)
{
    return (struct hf_news){.cue = cue, .asked_at = b->asked_at, .retry_at = HF_NEVER};
}

/* ---- A try that is won ---- */

static hf_nanos end_of_try(const struct hf_redlock *l, const struct ballot *b)
{
    return b->first_asked + HF_MS(b->ttl_ms) - hf_timing_drift(&l->limits, HF_MS(b->ttl_ms));
}

static void grant(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    struct hf_news news = news_of(b, HF_N_GRANTED);
    if (end_of_try(l, b) <= now) {
        hf_try_expire(l, b, now);
        return;
    }
    b->valid_until = end_of_try(l, b);
    b->round = ROUND_NONE;
    b->over_at = HF_NEVER;
    b->held = true;
    news.asked_at = b->first_asked;
    news.good = HF_MS(b->ttl_ms);
    news.token = b->token;
    if (b->bid)
        hf_bid_tell(l, b->bid, &news);
}

static void raise_tokens(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    struct hf_quorum asked = b->quorum;
    unsigned agreed = 0;
    if (end_of_try(l, b) <= now) {
        hf_try_expire(l, b, now);
        return;
    }
    b->token = 0;
    for (unsigned i = 0; i < l->servers; i++)
        if (asked.vote[i] == HF_VOTE_YES && b->seat[i].token > b->token)
            b->token = b->seat[i].token;
    for (unsigned i = 0; i < l->servers; i++)
        agreed += asked.vote[i] == HF_VOTE_YES && b->seat[i].token == b->token;
    if (agreed >= hf_majority(l->servers)) {
        grant(l, b, now);
        return;
    }
    hf_ballot_begin_round(l, b, ROUND_RAISE, now);
    for (unsigned i = 0; i < l->servers; i++) {
        if (asked.vote[i] == HF_VOTE_YES || asked.vote[i] == HF_VOTE_UNCOUNTED)
            hf_ballot_ask(l, &b->seat[i], HF_V_EXTEND, now);
        else if (asked.vote[i] != HF_VOTE_OPEN) /* an open one may still say yes, and is raised then */
            b->quorum.vote[i] = asked.vote[i];
    }
}

/* What others shall find, whichever majority they meet, is told when the slow ones have had time to hear of it, too: an
 * owner that enters again from elsewhere finds the same token, and a hold that outlives its process, which repairs
 * nothing any more, does not end with the first server that dies. */
static bool awaits_slow(struct ballot *b, hf_nanos now)
{
    const struct hf_ask *ask = &b->seat[0].ask;
    if (!(ask->named || ask->detached) || !hf_quorum_count(&b->quorum, HF_VOTE_OPEN))
        return false;
    hf_ballot_hurry(b, now);
    return true;
}

/* ---- A hold ---- */

/* The token of a hold that was made elsewhere. Every majority has a server that was told of it; others may have
 * proposed one that nobody ever saw. So it is the one that the asker expects if any server has it, or that of a
 * majority. */
static uint64_t agreed_token(const struct hf_redlock *l, const struct ballot *b)
{
    for (unsigned i = 0; i < l->servers; i++) {
        unsigned same = 0;
        for (unsigned j = 0; j < l->servers; j++)
            same += b->quorum.vote[j] == HF_VOTE_YES && b->seat[j].token == b->seat[i].token;
        if (same >= hf_majority(l->servers) || (same && b->seat[i].token == b->expected))
            return b->seat[i].token;
    }
    return 0;
}

/* A server that lost the key gets it back while the lease is valid, and never after. It did not help to renew. */
static void repair(struct hf_redlock *l, struct seat *seat, hf_nanos now)
{
    if (seat->ballot->repairs && now < seat->ballot->valid_until)
        hf_ballot_ask(l, seat, HF_V_ACQUIRE, now);
}

static void keep_hold(struct hf_redlock *l, struct ballot *b, enum round round, hf_nanos now)
{
    hf_nanos left[HF_SERVERS_MAX] = {0};
    struct hf_news news = news_of(b, HF_N_EXTENDED);
    for (unsigned i = 0; i < l->servers; i++)
        left[i] = b->quorum.vote[i] == HF_VOTE_YES ? b->seat[i].left : 0;
    if (!b->token)
        b->token = agreed_token(l, b);
    news.good = round == ROUND_EXTEND ? HF_MS(b->ttl_ms) : hf_quorum_left(left, l->servers);
    news.token = b->token;
    hf_nanos until = b->asked_at + news.good - hf_timing_drift(&l->limits, news.good);
    b->held = true;
    b->valid_until = until > b->valid_until ? until : b->valid_until;
    b->repairs = round == ROUND_EXTEND;
    for (unsigned i = 0; i < l->servers; i++)
        if (b->quorum.vote[i] == HF_VOTE_NO)
            repair(l, &b->seat[i], now);
    if (b->bid)
        hf_bid_tell(l, b->bid, &news);
}

/* A renewal or check has its verdict. If it is lost, then whether too few answered or too few hold it is worth hearing
 * the rest for. */
static void settle_hold(struct hf_redlock *l, struct ballot *b, bool won, hf_nanos now)
{
    enum round round = b->round;
    unsigned gone = hf_quorum_count(&b->quorum, HF_VOTE_NO), open = hf_quorum_count(&b->quorum, HF_VOTE_OPEN);
    bool is_gone = hf_quorum_is_refused(&b->quorum);
    if (!won && !is_gone && l->servers - gone - open < hf_majority(l->servers))
        return;
    b->round = ROUND_NONE;
    b->over_at = HF_NEVER;
    b->repairs = false;
    if (won) {
        keep_hold(l, b, round, now);
    } else if (!is_gone) {
        hf_round_fail(l, b, HF_NO_QUORUM, "too few servers answered");
    } else {
        struct bid *bid = b->bid;
        struct hf_news news = news_of(b, HF_N_GONE);
        b->lost = true;
        hf_give_back_alone(l, b, now);
        if (bid)
            hf_bid_tell(l, bid, &news);
    }
}

/* ---- Verdicts ---- */

void hf_round_judge(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    enum hf_verdict verdict = hf_quorum_verdict(&b->quorum);
    if (b->over_at == HF_NEVER || (verdict == HF_VERDICT_OPEN && b->round != ROUND_RELEASE))
        return;
    bool won = verdict == HF_VERDICT_WON;
    switch (b->round) {
    case ROUND_ASK:
        (won ? raise_tokens : hf_try_lose)(l, b, now);
        break;
    case ROUND_RAISE:
        if (!won || !awaits_slow(b, now))
            (won ? grant : hf_try_lose)(l, b, now);
        break;
    case ROUND_EXTEND:
    case ROUND_CHECK:
        settle_hold(l, b, won, now);
        break;
    case ROUND_RELEASE:
        hf_give_back_judge(l, b);
        break;
    case ROUND_NONE:
        break;
    }
}

/* ---- Answers ---- */

static void note_refusal(struct seat *seat, const struct hf_news *news)
{
    seat->busy_until = news->retry_at;
    seat->holds = news->token;
    snprintf(seat->holder, sizeof seat->holder, "%s", news->cue == HF_N_BUSY && news->text ? news->text : "");
}

static void hear_asked(struct hf_redlock *l, struct seat *seat, bool this_round, const struct hf_news *news,
                       hf_nanos now)
{
    struct ballot *b = seat->ballot;
    enum hf_vote *vote = &b->quorum.vote[seat->server];
    if (news->cue == HF_N_GRANTED) {
        seat->token = news->token;
        /* A yes that comes when the token is agreed on: this server is told of it, too. */
        if (b->round == ROUND_RAISE || (b->held && seat->token != b->token))
            hf_ballot_ask(l, seat, HF_V_EXTEND, now);
        else if (this_round && !b->held)
            *vote = hf_member_counts(l, seat->server, &b->quorum, b->asked_at) ? HF_VOTE_YES : HF_VOTE_UNCOUNTED;
        return;
    }
    bool busy =
        news->cue == HF_N_BUSY || news->cue == HF_N_GONE || (news->cue == HF_N_FAILED && news->status == HF_MISMATCH);
    note_refusal(seat, news);
    if ((this_round && !b->held) || (b->round == ROUND_RAISE && *vote == HF_VOTE_OPEN))
        *vote = busy ? HF_VOTE_NO : HF_VOTE_FAILED;
    if (*vote == HF_VOTE_NO && b->round == ROUND_ASK)
        hf_try_look_later(l, seat, now);
}

/* A server that agreed a moment ago and has the key no more: it restarted, was flushed, or the key was taken away. So
 * nobody holds it there, and nobody refused. */
static enum hf_vote lose_grant(struct hf_redlock *l, const struct seat *seat)
{
    struct member *m = &l->member[seat->server];
    snprintf(m->trouble, sizeof m->trouble, "%.100s: agreed, and had lost the key a moment later",
             hf_quorum_member_where(m->redis));
    return HF_VOTE_FAILED;
}

static void hear_extended(struct hf_redlock *l, struct seat *seat, bool this_round, const struct hf_news *news,
                          hf_nanos now)
{
    struct ballot *b = seat->ballot;
    bool yes = news->cue == HF_N_EXTENDED, gone = news->cue == HF_N_GONE;
    if (yes) {
        seat->token = news->token;
        seat->left = news->good;
    }
    if (!this_round)
        return;
    enum hf_vote vote = yes ? HF_VOTE_YES : gone ? HF_VOTE_NO : HF_VOTE_FAILED;
    if (yes && !hf_member_counts(l, seat->server, &b->quorum, b->asked_at))
        vote = HF_VOTE_UNCOUNTED;
    else if (gone && b->round == ROUND_RAISE)
        vote = lose_grant(l, seat);
    b->quorum.vote[seat->server] = vote;
    if (gone)
        repair(l, seat, now);
}

void hf_round_hear(struct hf_redlock *l, struct seat *seat, enum hf_verb verb, bool this_round,
                   const struct hf_news *news, hf_nanos now)
{
    (verb == HF_V_ACQUIRE ? hear_asked : hear_extended)(l, seat, this_round, news, now);
}
