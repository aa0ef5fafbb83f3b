/* losing.c - a try that came to nothing: who holds it, who is away, and what the caller is told of it.
 *
 * Busy is said only where servers that refuse make a majority impossible by themselves. If it takes those that are
 * away to make it so, then nobody can know whether it is held: what the few refuse for may be the rest of a hold whose
 * release has not reached them yet. And if nobody is seen to hold it on a majority, then others may just try as we do,
 * and all of them would be refused. Who waits asks again anyway. Who does not tries again for as long as an answer may
 * take, looks again at those that refuse while others are yet to answer, and only then hears how it stands. */
#include "redlock.h"

#include <stdio.h>

enum { WORDS = 900 };

/* ---- In words ---- */

/* Which servers failed, and how. */
static void add_failures(const struct hf_redlock *l, const struct ballot *b, char words[WORDS], int len)
{
    for (unsigned i = 0; i < l->servers && len < WORDS - 4; i++) {
        const struct member *m = &l->member[i];
        enum hf_vote vote = b->quorum.vote[i];
        if (vote == HF_VOTE_FAILED || vote == HF_VOTE_UNCOUNTED)
            len += snprintf(words + len, WORDS - (size_t)len, "; %.150s",
                            m->trouble[0] ? m->trouble : hf_quorum_member_where(m->redis));
    }
}

void hf_round_fail(struct hf_redlock *l, struct ballot *b, hf_status status, const char *what)
{
    char words[WORDS];
    add_failures(l, b, words, snprintf(words, WORDS, "%s", what));
    if (b->bid)
        hf_bid_fail(l, b->bid, b->asked_at, status, words);
}

/* Of those who hold it somewhere, the one that holds it on most servers: one of its seats; *servers: how many. */
static const struct seat *find_holder(const struct hf_redlock *l, const struct ballot *b, unsigned *servers)
{
    const struct seat *holder = NULL;
    *servers = 0;
    for (unsigned i = 0; i < l->servers; i++) {
        unsigned same = 0;
        for (unsigned j = 0; j < l->servers; j++)
            same += b->quorum.vote[j] == HF_VOTE_NO && b->seat[j].holds == b->seat[i].holds;
        if (b->quorum.vote[i] == HF_VOTE_NO && same > *servers) {
            holder = &b->seat[i];
            *servers = same;
        }
    }
    return holder;
}

static int add_holder(const struct hf_redlock *l, const struct ballot *b, char words[WORDS], int len)
{
    unsigned servers, refused = hf_quorum_count(&b->quorum, HF_VOTE_NO);
    const struct seat *holder = find_holder(l, b, &servers);
    if (!holder)
        return len;
    len += snprintf(words + len, WORDS - (size_t)len, "%sheld by %s on %u of %u servers", len ? "; " : "",
                    holder->holder[0] ? holder->holder : "another program", servers, l->servers);
    if (refused > servers)
        len += snprintf(words + len, WORDS - (size_t)len, ", by others on %u", refused - servers);
    return len;
}

static void say_who_holds(const struct hf_redlock *l, const struct ballot *b, char words[WORDS])
{
    add_failures(l, b, words, add_holder(l, b, words, 0));
}

static void say_who_is_away(const struct hf_redlock *l, const struct ballot *b, char words[WORDS])
{
    unsigned away = hf_quorum_count(&b->quorum, HF_VOTE_FAILED) + hf_quorum_count(&b->quorum, HF_VOTE_UNCOUNTED);
    bool open = hf_quorum_count(&b->quorum, HF_VOTE_OPEN) > 0; /* it was decided without them */
    int len = snprintf(words, WORDS, "%s%u of %u servers can be counted on, and %u are needed", open ? "at most " : "",
                       l->servers - away, l->servers, hf_majority(l->servers));
    add_failures(l, b, words, len);
}

static void say_who_agreed(const struct hf_redlock *l, const struct ballot *b, char words[WORDS])
{
    int len = snprintf(words, WORDS, "%u of %u servers agreed, and %u are needed",
                       hf_quorum_count(&b->quorum, HF_VOTE_YES), l->servers, hf_majority(l->servers));
    add_failures(l, b, words, add_holder(l, b, words, len));
}

/* ---- Looking again ---- */

static bool waits(const struct ballot *b)
{
    return !b->bid || b->bid->ask->waits;
}

void hf_try_look_later(struct hf_redlock *l, struct seat *seat, hf_nanos now)
{
    if (!waits(seat->ballot))
        hf_ballot_ask_later(l, seat, now);
}

/* With the same id: the try goes on, and its validity counts from where it began. */
void hf_try_tick(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    for (unsigned i = 0; i < l->servers; i++) {
        struct seat *seat = &b->seat[i];
        if (now < seat->again)
            continue;
        seat->again = HF_NEVER;
        if (b->round == ROUND_ASK)
            hf_ballot_ask(l, seat, HF_V_ACQUIRE, now);
    }
}

/* ---- The end ---- */

/* When so many servers may be free that a majority is possible. */
static hf_nanos free_at(const struct hf_redlock *l, const struct ballot *b)
{
    hf_nanos until[HF_SERVERS_MAX];
    for (unsigned i = 0; i < l->servers; i++)
        until[i] = b->quorum.vote[i] == HF_VOTE_YES  ? 0
                   : b->quorum.vote[i] == HF_VOTE_NO ? b->seat[i].busy_until
                                                     : HF_NEVER;
    for (unsigned i = 0; i < l->servers; i++) {
        unsigned earlier = 0, as_early = 0;
        for (unsigned j = 0; j < l->servers; j++) {
            earlier += until[j] < until[i];
            as_early += until[j] <= until[i];
        }
        if (earlier < hf_majority(l->servers) && as_early >= hf_majority(l->servers))
            return until[i];
    }
    return HF_NEVER;
}

/* Taken back everywhere before the caller hears of it. */
static void end_try(struct hf_redlock *l, struct ballot *b, const struct hf_news *news, hf_nanos now)
{
    struct bid *bid = b->bid;
    hf_give_back_alone(l, b, now);
    if (!bid)
        return;
    bid->tried = true;
    hf_bid_listen(l, bid, now);
    hf_bid_tell(l, bid, news);
}

static struct hf_news failure_of(const struct ballot *b, hf_status status, const char *words)
{
    return (struct hf_news){
        .cue = HF_N_FAILED, .asked_at = b->asked_at, .retry_at = HF_NEVER, .status = status, .text = words};
}

/* Busy is said to one that does not wait where those that refuse are enough. */
static void tell_loss(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    char words[WORDS] = "";
    bool silent = hf_quorum_is_silent(&b->quorum), busy = !silent && (waits(b) || hf_quorum_is_refused(&b->quorum));
    struct hf_news news = failure_of(b, HF_NO_QUORUM, words);
    (busy ? say_who_holds : silent ? say_who_is_away : say_who_agreed)(l, b, words);
    if (busy) {
        news.cue = HF_N_BUSY;
        news.retry_at = free_at(l, b);
    }
    end_try(l, b, &news, now);
}

/* Those that have yet to answer may still say that it is held, or be away: one that does not wait hears them, and not
 * for long where it can try again. */
static bool awaits_rest(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    bool clear = hf_quorum_is_refused(&b->quorum) || hf_quorum_is_silent(&b->quorum);
    if (waits(b) || clear || now >= b->over_at || !hf_quorum_count(&b->quorum, HF_VOTE_OPEN))
        return false;
    if (hf_bid_may_try(l, b->bid, 2 * now - b->first_asked))
        hf_ballot_hurry(b, now);
    return true;
}

static void try_again(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    struct bid *bid = b->bid;
    hf_give_back_alone(l, b, now);
    bid->tried = true;
    hf_bid_try_soon(l, bid, now);
}

/* If nobody else has a majority either, nobody will tell of a release. */
void hf_try_lose(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    struct bid *bid = b->bid;
    unsigned most;
    if (awaits_rest(l, b, now))
        return;
    find_holder(l, b, &most);
    bool nobody = most<hf_majority(l->servers), split = hf_quorum_count(&b->quorum, HF_VOTE_YES)> 0;
    if (bid)
        bid->splits = split ? bid->splits + 1 : 0;
    if (bid && nobody && !hf_quorum_is_silent(&b->quorum) && hf_bid_may_try(l, bid, now)) {
        try_again(l, b, now);
        return;
    }
    tell_loss(l, b, now);
    if (bid && split && nobody)
        hf_bid_hint_soon(l, bid, now);
}

/* A majority said yes, but its time was over before all of them had: somebody stood still meanwhile. */
void hf_try_expire(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    char text[160];
    snprintf(text, sizeof text, "a majority granted it, but after %lld ms, when its ttl of %lld ms was over",
             (long long)((now - b->first_asked) / HF_MS(1)), (long long)b->ttl_ms);
    struct hf_news news = failure_of(b, HF_TIMEOUT, text);
    end_try(l, b, &news, now);
}
