/* ballot.c - one try to hold a lock on a majority of servers, from the first question to the last release.
 *
 * Rounds: ASK puts the ballot's id on every server. RAISE writes the highest token that any of them proposed back to
 * those that hold it: any two majorities share a server, so the next holder's proposals include a higher one. Only then
 * is it granted, and its validity counts from before the first question was sent. EXTEND and CHECK ask again; a
 * renewal that a majority has carried out gives the key back to servers that lack it. RELEASE goes to every server,
 * also to those that never answered, and again until each has said that it knows.
 *
 * A round ends as soon as a majority said yes, or as soon as that has become impossible, or when its time is over: a
 * server that hangs holds up nobody. */
#include "redlock.h"

#include "base/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RELEASE_PAUSE HF_MS(5)
#define SLOW_PAUSE HF_MS(5)

static struct hf_timing timing_of(const struct hf_redlock *l, int64_t ttl_ms)
{
    struct hf_timing t;
    hf_timing_fill(&t, ttl_ms, &l->limits, &l->wishes);
    return t;
}

/* ---- Telling ---- */

void hf_bid_set_lines(struct hf_redlock *l, struct bid *bid)
{
    uint32_t lines = hf_tally_lines(bid);
    for (unsigned i = 0; i < l->servers; i++) {
        uint32_t here = bid->ballot ? bid->ballot->seat[i].ask.lines : 0;
        here |= bid->listens ? bid->ear[i].lines : 0;
        lines |= here << i * HF_MEMBER_LINES;
    }
    bid->ask->lines = lines;
}

void hf_bid_tell(struct hf_redlock *l, struct bid *bid, const struct hf_news *news)
{
    hf_bid_set_lines(l, bid);
    l->host->tell(l->host->ctx, bid->ask, news);
}

static struct hf_news news_of(const struct ballot *b, enum hf_cue cue)
{
    return (struct hf_news){.cue = cue, .asked_at = b->asked_at, .retry_at = HF_NEVER};
}

/* Which servers failed, and how. */
static const char *explain(const struct hf_redlock *l, const struct ballot *b, const char *what)
{
    static _Thread_local char text[600];
    int len = snprintf(text, sizeof text, "%s", what);
    for (unsigned i = 0; i < l->servers && len < (int)sizeof text - 4; i++) {
        enum hf_vote vote = b->quorum.vote[i];
        if (vote == HF_VOTE_FAILED || vote == HF_VOTE_UNCOUNTED)
            len +=
                snprintf(text + len, sizeof text - (size_t)len, "; %.100s",
                         l->member[i].trouble[0] ? l->member[i].trouble : hf_quorum_member_where(l->member[i].redis));
    }
    return text;
}

static void fail(struct hf_redlock *l, struct ballot *b, hf_status status, const char *text)
{
    struct hf_news news = news_of(b, HF_N_FAILED);
    news.status = status;
    news.text = text;
    if (b->bid)
        hf_bid_tell(l, b->bid, &news);
}

/* ---- Questions ---- */

/* An earlier server of the list that is the same one under another name. */
static const struct member *twin(const struct hf_redlock *l, unsigned server)
{
    const char *run_id = hf_quorum_member_run_id(l->member[server].redis);
    for (unsigned i = 0; run_id[0] && i < server; i++)
        if (strcmp(hf_quorum_member_run_id(l->member[i].redis), run_id) == 0)
            return &l->member[i];
    return NULL;
}

/* A server that came back a moment ago may have forgotten holds: until the longest of them is over, its yes is worth
 * nothing. Its age is that at the asking: who was stopped before hearing the answer must not find it grown. What it
 * says of its uptime is in whole seconds, and by a clock that may run faster than ours. With one server there is nobody
 * who could remember better. */
static bool counts(struct hf_redlock *l, unsigned server, hf_nanos asked_at)
{
    struct member *m = &l->member[server];
    const char *where = hf_quorum_member_where(m->redis);
    const struct member *same = twin(l, server);
    hf_nanos since = hf_quorum_member_up_since(m->redis);
    hf_nanos age = asked_at > since ? asked_at - since : 0;
    hf_nanos needed = l->max_ttl + hf_timing_drift(&l->limits, l->max_ttl) + HF_MS(1000);
    if (!same && (l->servers == 1 || (since != HF_NEVER && age > needed)))
        return true;
    if (same)
        snprintf(m->trouble, sizeof m->trouble, "%.90s: is the same server as %.90s, and counts once", where,
                 hf_quorum_member_where(same->redis));
    else if (since == HF_NEVER)
        snprintf(m->trouble, sizeof m->trouble, "%.100s: does not say since when it runs, so it does not count", where);
    else
        snprintf(m->trouble, sizeof m->trouble, "%.100s: runs for %lld s only and counts again in %lld s", where,
                 (long long)(age / HF_MS(1000)), (long long)((needed - age) / HF_MS(1000) + 1));
    return false;
}

/* False: too many questions are open there, because it has not answered for long. */
static bool ask_server(struct hf_redlock *l, struct seat *seat, enum hf_verb verb, hf_nanos now)
{
    struct ballot *b = seat->ballot;
    bool instead = seat->open && hf_quorum_member_is_unsent(&seat->ask); /* of the last one, which never went out */
    if (!instead && seat->open == QUESTIONS) {
        b->quorum.vote[seat->server] = HF_VOTE_FAILED;
        return false;
    }
    seat->open += !instead;
    unsigned at = (seat->first + seat->open - 1) % QUESTIONS;
    seat->asked[at] = (uint8_t)verb;
    seat->rounds[at] = b->number;
    seat->ask.verb = verb;
    seat->ask.ttl_ms = b->ttl_ms;
    seat->ask.lost = b->lost;
    seat->ask.token = verb == HF_V_EXTEND || (verb == HF_V_ACQUIRE && b->held) ? b->token : 0;
    hf_wire_redis.submit(l->member[seat->server].redis, &seat->ask, now);
    return true;
}

/* All of it before a claim gives up on its own request, which it does after two op_timeouts; but one that stood still
 * meanwhile gets its second answer, too. */
static hf_nanos end_of_round(const struct hf_redlock *l, const struct ballot *b, enum round round, hf_nanos now)
{
    hf_nanos op_timeout = timing_of(l, b->ttl_ms).op_timeout;
    if (round != ROUND_RAISE)
        return now + op_timeout / 2 * 3;
    hf_nanos of_try = b->first_asked + op_timeout / 8 * 15, least = now + op_timeout / 2;
    return of_try > least ? of_try : least;
}

static void begin_round(struct hf_redlock *l, struct ballot *b, enum round round, hf_nanos now)
{
    b->round = round;
    b->number++;
    b->asked_at = now;
    b->over_at = end_of_round(l, b, round, now);
    b->repairs = false;
    hf_quorum_open(&b->quorum, l->servers);
}

static void ask_all(struct hf_redlock *l, struct ballot *b, enum round round, enum hf_verb verb, hf_nanos now)
{
    begin_round(l, b, round, now);
    for (unsigned i = 0; i < l->servers; i++)
        ask_server(l, &b->seat[i], verb, now);
}

/* ---- Ballots ---- */

static struct ballot *make_ballot(struct hf_redlock *l, struct bid *bid)
{
    const struct hf_ask *ask = bid->ask;
    struct ballot *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    memcpy(b->name, ask->name, ask->name_len);
    memcpy(b->label, ask->label, ask->label_len);
    b->ttl_ms = ask->ttl_ms;
    b->expected = ask->token;
    b->over_at = b->give_up_at = HF_NEVER;
    b->bid = bid;
    bid->ballot = b;
    b->next = l->ballots;
    if (l->ballots)
        l->ballots->prev = b;
    l->ballots = b;
    for (unsigned i = 0; i < l->servers; i++) {
        struct seat *seat = &b->seat[i];
        *seat = (struct seat){.ask = *ask, .ballot = b, .server = i, .again = HF_NEVER};
        seat->ask.name = b->name;
        seat->ask.label = b->label;
        seat->ask.queue = seat->ask.doubt = false;
        seat->ask.slot = SLOT_SEAT;
        seat->ask.lines = 0;
        seat->ask.engine_state = NULL;
    }
    return b;
}

void hf_ballot_free(struct hf_redlock *l, struct ballot *b)
{
    for (unsigned i = 0; i < l->servers; i++) {
        hf_wire_redis.forget(l->member[i].redis, &b->seat[i].ask);
        hf_redlock_unhear(l, &b->seat[i].ask);
    }
    *(b->prev ? &b->prev->next : &l->ballots) = b->next;
    if (b->next)
        b->next->prev = b->prev;
    if (b->bid)
        b->bid->ballot = NULL;
    free(b);
}

/* A connection that was cut is soon back, a server that is down is not: each try waits twice as long as the last. */
static void release_later(struct hf_redlock *l, struct seat *seat, hf_nanos now)
{
    hf_nanos longest = timing_of(l, seat->ballot->ttl_ms).op_timeout, pause = RELEASE_PAUSE;
    for (unsigned i = 0; i < seat->failures && pause < longest; i++)
        pause *= 2;
    seat->failures++;
    seat->again = now + (pause < longest ? pause : longest);
}

static void release_seat(struct hf_redlock *l, struct seat *seat, hf_nanos now)
{
    seat->again = HF_NEVER;
    if (!ask_server(l, seat, HF_V_RELEASE, now))
        release_later(l, seat, now);
}

/* Takes it back on every server, behind whatever it was asked before, on the same connection. */
static void release_all(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    begin_round(l, b, ROUND_RELEASE, now);
    b->held = false;
    b->valid_until = 0;
    if (b->give_up_at == HF_NEVER)
        b->give_up_at = now + timing_of(l, b->ttl_ms).release_for;
    for (unsigned i = 0; i < l->servers; i++) {
        b->quorum.vote[i] = b->seat[i].freed;
        if (b->seat[i].freed == HF_VOTE_OPEN)
            release_seat(l, &b->seat[i], now);
    }
}

/* From here on the ballot is its own, until every server has freed it. */
static void abandon(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    if (b->bid) {
        b->bid->ballot = NULL;
        b->bid = NULL;
    }
    if (b->round != ROUND_RELEASE)
        release_all(l, b, now);
}

/* ---- Verdicts ---- */

static void listen(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    if (bid->listens || !bid->ask->waits)
        return;
    bid->listens = true;
    for (unsigned i = 0; i < l->servers; i++) {
        bid->ear[i] = (struct hf_ask){
            .verb = HF_V_LISTEN, .name = bid->ask->name, .name_len = bid->ask->name_len, .slot = SLOT_EAR, .seen = i};
        hf_wire_redis.submit(l->member[i].redis, &bid->ear[i], now);
    }
}

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
    abandon(l, b, now);
    if (!bid)
        return;
    bid->tried = true;
    listen(l, bid, now);
    hf_bid_tell(l, bid, news);
}

/* The try is lost. */
static void lose_try(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    struct bid *bid = b->bid;
    char text[700];
    bool silent = hf_quorum_is_silent(&b->quorum);
    struct hf_news news = news_of(b, silent ? HF_N_FAILED : HF_N_BUSY);
    snprintf(text, sizeof text, "%s", explain(l, b, ""));
    const char *others = text[0] ? text : "";
    char words[900];
    if (silent)
        snprintf(words, sizeof words, "%u of %u servers can be counted on, and %u are needed%s",
                 l->servers - hf_quorum_count(&b->quorum, HF_VOTE_FAILED) -
                     hf_quorum_count(&b->quorum, HF_VOTE_UNCOUNTED),
                 l->servers, hf_majority(l->servers), others);
    else
        snprintf(words, sizeof words, "held by another on %u of %u servers%s", hf_quorum_count(&b->quorum, HF_VOTE_NO),
                 l->servers, others);
    news.status = HF_NO_QUORUM;
    news.text = words;
    news.retry_at = silent ? HF_NEVER : free_at(l, b);
    if (bid)
        bid->splits = hf_quorum_count(&b->quorum, HF_VOTE_YES) ? bid->splits + 1 : 0;
    end_try(l, b, &news, now);
}

/* A majority said yes, but its time was over before all of them had: somebody stood still meanwhile. */
static void lose_expired(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    struct hf_news news = news_of(b, HF_N_FAILED);
    char text[160];
    snprintf(text, sizeof text, "a majority granted it, but after %lld ms, when its ttl of %lld ms was over",
             (long long)((now - b->first_asked) / HF_MS(1)), (long long)b->ttl_ms);
    news.status = HF_TIMEOUT;
    news.text = text;
    end_try(l, b, &news, now);
}

static hf_nanos end_of_try(const struct hf_redlock *l, const struct ballot *b)
{
    return b->first_asked + HF_MS(b->ttl_ms) - hf_timing_drift(&l->limits, HF_MS(b->ttl_ms));
}

static void grant(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    struct hf_news news = news_of(b, HF_N_GRANTED);
    if (end_of_try(l, b) <= now) {
        lose_expired(l, b, now);
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
        lose_expired(l, b, now);
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
    begin_round(l, b, ROUND_RAISE, now);
    for (unsigned i = 0; i < l->servers; i++) {
        if (asked.vote[i] == HF_VOTE_YES || asked.vote[i] == HF_VOTE_UNCOUNTED)
            ask_server(l, &b->seat[i], HF_V_EXTEND, now);
        else if (asked.vote[i] != HF_VOTE_OPEN) /* an open one may still say yes, and is raised then */
            b->quorum.vote[i] = asked.vote[i];
    }
}

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
        ask_server(l, seat, HF_V_ACQUIRE, now);
}

/* A renewal or check has its verdict. */
static void settle_hold(struct hf_redlock *l, struct ballot *b, bool won, hf_nanos now)
{
    hf_nanos left[HF_SERVERS_MAX] = {0};
    struct hf_news news = news_of(b, HF_N_EXTENDED);
    enum round round = b->round;
    b->round = ROUND_NONE;
    b->over_at = HF_NEVER;
    b->repairs = won && round == ROUND_EXTEND;
    if (won) {
        for (unsigned i = 0; i < l->servers; i++)
            left[i] = b->quorum.vote[i] == HF_VOTE_YES ? b->seat[i].left : 0;
        if (!b->token)
            b->token = agreed_token(l, b);
        news.good = round == ROUND_EXTEND ? HF_MS(b->ttl_ms) : hf_quorum_left(left, l->servers);
        news.token = b->token;
        hf_nanos until = b->asked_at + news.good - hf_timing_drift(&l->limits, news.good);
        b->held = true;
        b->valid_until = until > b->valid_until ? until : b->valid_until;
        for (unsigned i = 0; i < l->servers; i++)
            if (b->quorum.vote[i] == HF_VOTE_NO)
                repair(l, &b->seat[i], now);
        if (b->bid)
            hf_bid_tell(l, b->bid, &news);
        return;
    }
    unsigned gone = hf_quorum_count(&b->quorum, HF_VOTE_NO);
    if (l->servers - gone >= hf_majority(l->servers)) {
        fail(l, b, HF_NO_QUORUM, explain(l, b, "too few servers answered"));
        return;
    }
    struct bid *bid = b->bid;
    news.cue = HF_N_GONE;
    b->lost = true;
    abandon(l, b, now);
    if (bid)
        hf_bid_tell(l, bid, &news);
}

/* Free where a majority knows of it, whether it held it or not; GONE: a majority did not. */
static void judge_release(struct hf_redlock *l, struct ballot *b)
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
        fail(l, b, HF_NO_QUORUM, explain(l, b, "too few servers answered"));
        return;
    }
    struct hf_news news = news_of(b, lacked < most ? HF_N_RELEASED : HF_N_GONE);
    b->bid = NULL; /* the rest is for the background */
    bid->ballot = NULL;
    hf_bid_tell(l, bid, &news);
}

/* An owner that enters again from elsewhere shall find the same token on whichever majority it meets: so the slow ones
 * get a moment to hear of it before the first hold is told. */
static bool awaits_slow(struct ballot *b, hf_nanos now)
{
    if (!b->seat[0].ask.named || !hf_quorum_count(&b->quorum, HF_VOTE_OPEN))
        return false;
    if (now + SLOW_PAUSE < b->over_at)
        b->over_at = now + SLOW_PAUSE;
    return true;
}

static void judge(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    enum hf_verdict verdict = hf_quorum_verdict(&b->quorum);
    if (b->over_at == HF_NEVER || (verdict == HF_VERDICT_OPEN && b->round != ROUND_RELEASE))
        return;
    bool won = verdict == HF_VERDICT_WON;
    switch (b->round) {
    case ROUND_ASK:
        (won ? raise_tokens : lose_try)(l, b, now);
        break;
    case ROUND_RAISE:
        if (!won || !awaits_slow(b, now))
            (won ? grant : lose_try)(l, b, now);
        break;
    case ROUND_EXTEND:
    case ROUND_CHECK:
        settle_hold(l, b, won, now);
        break;
    case ROUND_RELEASE:
        judge_release(l, b);
        break;
    case ROUND_NONE:
        break;
    }
}

/* ---- Answers ---- */

static void hear_asked(struct hf_redlock *l, struct seat *seat, bool this_round, const struct hf_news *news,
                       hf_nanos now)
{
    struct ballot *b = seat->ballot;
    enum hf_vote *vote = &b->quorum.vote[seat->server];
    if (news->cue == HF_N_GRANTED) {
        seat->token = news->token;
        /* A yes that comes when the token is agreed on: this server is told of it, too. */
        if (b->round == ROUND_RAISE || (b->held && seat->token != b->token))
            ask_server(l, seat, HF_V_EXTEND, now);
        else if (this_round && !b->held)
            *vote = counts(l, seat->server, b->asked_at) ? HF_VOTE_YES : HF_VOTE_UNCOUNTED;
        return;
    }
    bool busy =
        news->cue == HF_N_BUSY || news->cue == HF_N_GONE || (news->cue == HF_N_FAILED && news->status == HF_MISMATCH);
    seat->busy_until = news->retry_at;
    if ((this_round && !b->held) || (b->round == ROUND_RAISE && *vote == HF_VOTE_OPEN))
        *vote = busy ? HF_VOTE_NO : HF_VOTE_FAILED;
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
    b->quorum.vote[seat->server] = yes ? HF_VOTE_YES : gone ? HF_VOTE_NO : HF_VOTE_FAILED;
    if (yes && !counts(l, seat->server, b->asked_at))
        b->quorum.vote[seat->server] = HF_VOTE_UNCOUNTED;
    if (gone)
        repair(l, seat, now);
}

static void hear_released(struct hf_redlock *l, struct seat *seat, bool this_round, const struct hf_news *news,
                          hf_nanos now)
{
    bool freed = news->cue == HF_N_RELEASED, known = freed || news->cue == HF_N_GONE;
    if (known) {
        seat->freed = freed ? HF_VOTE_YES : HF_VOTE_NO;
    } else {
        seat->ask.doubt = true; /* what was asked before may still be under way */
        release_later(l, seat, now);
    }
    if (this_round)
        seat->ballot->quorum.vote[seat->server] = known ? seat->freed : HF_VOTE_FAILED;
}

void hf_ballot_hear(struct hf_redlock *l, struct seat *seat, const struct hf_news *news, hf_nanos now)
{
    struct ballot *b = seat->ballot;
    if (!seat->open || news->cue == HF_N_HINT)
        return;
    enum hf_verb verb = seat->asked[seat->first];
    bool this_round = seat->rounds[seat->first] == b->number;
    seat->first = (seat->first + 1) % QUESTIONS;
    seat->open--;
    seat->ask.doubt |= news->cue == HF_N_CUT;
    if (news->text && (news->cue == HF_N_CUT || news->cue == HF_N_FAILED))
        snprintf(l->member[seat->server].trouble, sizeof l->member[0].trouble, "%s", news->text);
    if (verb == HF_V_ACQUIRE)
        hear_asked(l, seat, this_round, news, now);
    else if (verb == HF_V_RELEASE)
        hear_released(l, seat, this_round, news, now);
    else
        hear_extended(l, seat, this_round, news, now);
    struct bid *bid = b->bid;
    judge(l, b, now);
    if (bid) /* also for what the next round has asked */
        hf_bid_set_lines(l, bid);
}

/* ---- The client's wishes ---- */

static void answer(struct hf_redlock *l, struct bid *bid, enum hf_cue cue, hf_nanos now)
{
    hf_bid_tell(l, bid, &(struct hf_news){.cue = cue, .asked_at = now, .retry_at = HF_NEVER});
}

static void draw_id(struct hf_redlock *l, struct hf_id *id)
{
    for (size_t i = 0; i < sizeof id->b; i += 4) {
        uint32_t random = l->host->random(l->host->ctx);
        memcpy(id->b + i, &random, 4);
    }
}

/* Each try has an id of its own: a late message of the last one must not become part of this one. */
static void begin_try(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    struct hf_ask *ask = bid->ask;
    if (bid->ballot) {
        abandon(l, bid->ballot, now);
        bid->tried = true;
    }
    if (bid->tried) {
        bool same = memcmp(&ask->owner, &ask->attempt, sizeof ask->owner) == 0;
        draw_id(l, &ask->attempt);
        if (same)
            ask->owner = ask->attempt;
    }
    struct ballot *b = make_ballot(l, bid);
    if (!b) {
        hf_bid_tell(
            l, bid,
            &(struct hf_news){.cue = HF_N_FAILED, .asked_at = now, .status = HF_NO_MEMORY, .text = "no memory to ask"});
        return;
    }
    b->first_asked = now;
    ask_all(l, b, ROUND_ASK, HF_V_ACQUIRE, now);
    judge(l, b, now);
}

/* A hold that was made elsewhere is looked at as if it were ours. */
static struct ballot *ballot_of(struct hf_redlock *l, struct bid *bid)
{
    return bid->ballot ? bid->ballot : make_ballot(l, bid);
}

void hf_ballot_submit(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    enum hf_verb verb = bid->ask->verb;
    struct ballot *b = bid->ballot;
    bid->hint_at = HF_NEVER;
    if (verb == HF_V_ACQUIRE) {
        begin_try(l, bid, now);
    } else if (verb == HF_V_LEAVE) {
        if (b)
            abandon(l, b, now);
        answer(l, bid, HF_N_RELEASED, now);
    } else if (verb == HF_V_RELEASE) {
        if (b) {
            b->lost = bid->ask->lost;
            release_all(l, b, now);
            judge(l, b, now);
        } else {
            answer(l, bid, HF_N_RELEASED, now);
        }
    } else if ((b = ballot_of(l, bid))) {
        if (verb == HF_V_EXTEND)
            b->ttl_ms = bid->ask->ttl_ms;
        ask_all(l, b, verb == HF_V_CHECK ? ROUND_CHECK : ROUND_EXTEND, verb, now);
        judge(l, b, now);
    } else {
        hf_bid_tell(
            l, bid,
            &(struct hf_news){.cue = HF_N_FAILED, .asked_at = now, .status = HF_NO_MEMORY, .text = "no memory to ask"});
    }
    if (bid->ballot)
        hf_bid_set_lines(l, bid);
}

/* A hold that nobody released belongs to its text; everything else is taken back. */
void hf_ballot_part(struct hf_redlock *l, struct bid *bid)
{
    struct ballot *b = bid->ballot;
    for (unsigned i = 0; bid->listens && i < l->servers; i++) {
        hf_wire_redis.forget(l->member[i].redis, &bid->ear[i]);
        hf_redlock_unhear(l, &bid->ear[i]);
    }
    if (!b)
        return;
    bool elsewhere = b->first_asked == 0; /* made elsewhere, and only looked at: it is not ours to end */
    if ((b->held || elsewhere) && b->round != ROUND_RELEASE)
        hf_ballot_free(l, b);
    else
        b->bid = NULL; /* tick() takes it from here */
}

/* ---- Time ---- */

static hf_nanos sooner(hf_nanos a, hf_nanos b)
{
    return a < b ? a : b;
}

static bool is_over(const struct hf_redlock *l, const struct ballot *b, hf_nanos now)
{
    if (b->bid || b->round != ROUND_RELEASE)
        return false;
    for (unsigned i = 0; i < l->servers; i++)
        if (b->seat[i].open || (b->seat[i].freed == HF_VOTE_OPEN && now < b->give_up_at))
            return false;
    return true;
}

static hf_nanos tick_ballot(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    hf_nanos next = HF_NEVER;
    if (!b->bid && b->round != ROUND_RELEASE)
        release_all(l, b, now);
    if (now >= b->over_at) {
        for (unsigned i = 0; i < l->servers; i++)
            if (b->quorum.vote[i] == HF_VOTE_OPEN) {
                b->quorum.vote[i] = HF_VOTE_FAILED;
                snprintf(l->member[i].trouble, sizeof l->member[i].trouble, "%s: no answer in time",
                         hf_quorum_member_where(l->member[i].redis));
            }
        judge(l, b, now);
    }
    for (unsigned i = 0; i < l->servers; i++) {
        struct seat *seat = &b->seat[i];
        if (now >= b->give_up_at || seat->freed != HF_VOTE_OPEN)
            seat->again = HF_NEVER;
        else if (now >= seat->again)
            release_seat(l, seat, now);
        next = sooner(next, seat->again);
    }
    return sooner(next, b->over_at);
}

hf_nanos hf_ballot_tick(struct hf_redlock *l, hf_nanos now)
{
    hf_nanos next = HF_NEVER;
    for (struct ballot *b = l->ballots, *after; b; b = after) {
        hf_nanos due = tick_ballot(l, b, now);
        after = b->next;
        if (is_over(l, b, now))
            hf_ballot_free(l, b);
        else
            next = sooner(next, sooner(due, b->bid || now >= b->give_up_at ? HF_NEVER : b->give_up_at));
    }
    for (struct bid *bid = l->bids; bid; bid = bid->next) {
        if (now >= bid->hint_at) {
            bid->hint_at = HF_NEVER;
            hf_bid_tell(l, bid, &(struct hf_news){.cue = HF_N_HINT, .retry_at = HF_NEVER});
        }
        next = sooner(next, bid->hint_at);
        next = sooner(next, hf_tally_tick(l, bid, now));
    }
    return next;
}
