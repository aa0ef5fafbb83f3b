/* giving_back.c - what was asked is taken back on every server, also on those that never answered: behind whatever they
 * were asked before, on the same connection, or with a tombstone where that was cut; and again until each has said that
 * it knows. */
#include "redlock.h"

static void release_seat(struct hf_redlock *l, struct seat *seat, hf_nanos now)
{
    seat->again = HF_NEVER;
    if (!hf_ballot_ask(l, seat, HF_V_RELEASE, now))
        hf_ballot_ask_later(l, seat, now);
}

/* So many have refused it that nobody can have taken it for held. Those who wait for whoever does hold it would be
 * woken in vain, and wake each other with tries of their own. */
static bool is_lost_try(const struct ballot *b)
{
    return b->round == ROUND_ASK && hf_quorum_is_refused(&b->quorum);
}

void hf_give_back(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    bool first = b->round != ROUND_RELEASE;
    b->quiet = is_lost_try(b);
    hf_ballot_begin_round(l, b, ROUND_RELEASE, now);
    b->held = false;
    b->valid_until = 0;
    if (b->give_up_at == HF_NEVER)
        b->give_up_at = now + hf_ballot_timing(l, b).release_for;
    for (unsigned i = 0; i < l->servers; i++) {
        b->seat[i].failures = first ? 0 : b->seat[i].failures;
        b->quorum.vote[i] = b->seat[i].freed;
        if (b->seat[i].freed == HF_VOTE_OPEN)
            release_seat(l, &b->seat[i], now);
    }
}

void hf_give_back_alone(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    if (b->bid) {
        b->bid->ballot = NULL;
        b->bid = NULL;
    }
    if (b->round != ROUND_RELEASE)
        hf_give_back(l, b, now);
    hf_ballot_update(l, b, now);
}

void hf_give_back_hear(struct hf_redlock *l, struct seat *seat, bool this_round, const struct hf_news *news,
                       hf_nanos now)
{
    bool freed = news->cue == HF_N_RELEASED, known = freed || news->cue == HF_N_GONE;
    if (known) {
        seat->freed = freed ? HF_VOTE_YES : HF_VOTE_NO;
        if (!seat->open) /* a slow server keeps the ballot, and not what the others knew of it */
            hf_wire_redis.forget(l->member[seat->server].redis, &seat->ask);
    } else {
        seat->ask.doubt = true; /* what was asked before may still be under way */
        hf_ballot_ask_later(l, seat, now);
    }
    if (this_round)
        seat->ballot->quorum.vote[seat->server] = known ? seat->freed : HF_VOTE_FAILED;
}

/* Free where a majority knows of it, whether it held it or not; GONE: a majority did not. */
void hf_give_back_judge(struct hf_redlock *l, struct ballot *b)
{
    unsigned most = hf_majority(l->servers), freed = hf_quorum_count(&b->quorum, HF_VOTE_YES);
    unsigned lacked = hf_quorum_count(&b->quorum, HF_VOTE_NO);
    if (freed < most && lacked < most && hf_quorum_count(&b->quorum, HF_VOTE_OPEN))
        return;
    struct bid *bid = b->bid;
    b->over_at = HF_NEVER;
    if (!bid)
        return;
    if (freed + lacked < most) {
        hf_round_fail(l, b, HF_NO_QUORUM, "too few servers answered");
        return;
    }
    b->bid = NULL; /* the rest is for the background */
    bid->ballot = NULL;
    hf_bid_tell(l, bid,
                &(struct hf_news){
                    .cue = lacked < most ? HF_N_RELEASED : HF_N_GONE, .asked_at = b->asked_at, .retry_at = HF_NEVER});
}

void hf_give_back_tick(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    for (unsigned i = 0; i < l->servers; i++) {
        struct seat *seat = &b->seat[i];
        if (now >= b->give_up_at || seat->freed != HF_VOTE_OPEN)
            seat->again = HF_NEVER;
        else if (now >= seat->again)
            release_seat(l, seat, now);
    }
}

bool hf_give_back_is_over(const struct hf_redlock *l, const struct ballot *b, hf_nanos now)
{
    if (b->bid || b->round != ROUND_RELEASE)
        return false;
    for (unsigned i = 0; i < l->servers; i++)
        if (b->seat[i].open || (b->seat[i].freed == HF_VOTE_OPEN && now < b->give_up_at))
            return false;
    return true;
}
