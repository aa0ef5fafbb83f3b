/* ballot.c - one try to hold a lock: an id of its own, a seat at every server, and the questions that are put to them.
 *
 * Rounds: ASK puts the ballot's id on every server. RAISE writes the highest token that any of them proposed back to
 * those that hold it: any two majorities share a server, so the next holder's proposals include a higher one. Only then
 * is it granted, and its validity counts from before the first question was sent. EXTEND and CHECK ask again; a
 * renewal that a majority has carried out gives the key back to servers that lack it (rounds.c). RELEASE goes to every
 * server, also to those that never answered, and again until each has said that it knows (giving_back.c). */
#include "redlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PAUSE HF_MS(5)
#define SLOW_PAUSE HF_MS(5)

struct hf_timing hf_ballot_timing(const struct hf_redlock *l, const struct ballot *b)
{
    struct hf_timing t;
    hf_timing_fill(&t, b->ttl_ms, &l->limits, &l->wishes);
    return t;
}

/* ---- Coming and going ---- */

static struct ballot *take_unused(struct hf_redlock *l)
{
    struct ballot *b = l->unused_ballots;
    if (b) {
        l->unused_ballots = b->next;
        return b;
    }
    if (hf_heap_reserve(&l->ballot_alarms, l->ballot_count + 1) != HF_OK || !(b = malloc(sizeof *b)))
        return NULL;
    l->ballot_count++;
    return b;
}

static void take_seat(struct ballot *b, unsigned server, const struct hf_ask *ask)
{
    struct seat *s = &b->seat[server];
    *s = (struct seat){.ask = *ask, .ballot = b, .server = server, .again = HF_NEVER};
    s->ask.name = b->name;
    s->ask.label = b->label;
    s->ask.queue = s->ask.doubt = false;
    s->ask.slot = SLOT_SEAT;
    s->ask.lines = 0;
    s->ask.engine_state = NULL;
}

struct ballot *hf_ballot_make(struct hf_redlock *l, struct bid *bid)
{
    const struct hf_ask *ask = bid->ask;
    struct ballot *b = take_unused(l);
    if (!b)
        return NULL;
    memset(b, 0, offsetof(struct ballot, seat));
    memcpy(b->name, ask->name, ask->name_len);
    memcpy(b->label, ask->label, ask->label_len);
    b->name[ask->name_len] = b->label[ask->label_len] = 0;
    b->ttl_ms = ask->ttl_ms;
    b->expected = ask->token;
    b->over_at = b->give_up_at = HF_NEVER;
    b->bid = bid;
    bid->ballot = b;
    b->next = l->ballots;
    if (l->ballots)
        l->ballots->prev = b;
    l->ballots = b;
    for (unsigned i = 0; i < l->servers; i++)
        take_seat(b, i, ask);
    return b;
}

/* Brings the count of lines with answers that nobody waits for up to date. */
static void count_lines(struct hf_redlock *l, struct ballot *b, uint32_t lines)
{
    for (uint32_t changed = lines ^ b->unattended; changed; changed &= changed - 1) {
        unsigned line = (unsigned)__builtin_ctz(changed);
        l->unattended[line] += lines >> line & 1 ? 1 : UINT32_MAX;
        if (l->unattended[line])
            l->unattended_lines |= UINT32_C(1) << line;
        else
            l->unattended_lines &= ~(UINT32_C(1) << line);
    }
    b->unattended = lines;
}

void hf_ballot_free(struct hf_redlock *l, struct ballot *b)
{
    count_lines(l, b, 0);
    hf_heap_remove(&l->ballot_alarms, &b->alarm);
    for (unsigned i = 0; i < l->servers; i++) {
        hf_wire_redis.forget(l->member[i].redis, &b->seat[i].ask);
        hf_members_unhear(l, &b->seat[i].ask);
        l->answers_due -= b->seat[i].open;
    }
    *(b->prev ? &b->prev->next : &l->ballots) = b->next;
    if (b->next)
        b->next->prev = b->prev;
    if (b->bid)
        b->bid->ballot = NULL;
    b->next = l->unused_ballots;
    l->unused_ballots = b;
}

/* ---- Questions ---- */

bool hf_ballot_ask(struct hf_redlock *l, struct seat *seat, enum hf_verb verb, hf_nanos now)
{
    struct ballot *b = seat->ballot;
    bool instead = seat->open && hf_quorum_member_is_unsent(&seat->ask); /* of the last one, which never went out */
    if (!instead && (seat->open == QUESTIONS || !hf_members_expect(l))) {
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
    seat->ask.quiet = b->quiet;
    seat->ask.token = verb == HF_V_EXTEND || (verb == HF_V_ACQUIRE && b->held) ? b->token : 0;
    hf_wire_redis.submit(l->member[seat->server].redis, &seat->ask, now);
    return true;
}

/* A connection that was cut is soon back, a server that is down is not, and who holds it there may go on: each pause is
 * twice as long as the last. */
void hf_ballot_ask_later(struct hf_redlock *l, struct seat *seat, hf_nanos now)
{
    hf_nanos longest = hf_ballot_timing(l, seat->ballot).op_timeout, pause = FIRST_PAUSE;
    for (unsigned i = 0; i < seat->failures && pause < longest; i++)
        pause *= 2;
    seat->failures++;
    seat->again = now + (pause < longest ? pause : longest);
}

/* All of it before a claim gives up on its own request, which it does after two op_timeouts; but one that stood still
 * meanwhile gets its second answer, too. */
static hf_nanos end_of_round(const struct hf_redlock *l, const struct ballot *b, enum round round, hf_nanos now)
{
    hf_nanos op_timeout = hf_ballot_timing(l, b).op_timeout, begin = b->bid ? b->bid->asked_at : now;
    if (round == ROUND_ASK)
        return begin + op_timeout / 2 * 3;
    if (round != ROUND_RAISE)
        return now + op_timeout / 2 * 3;
    hf_nanos of_tries = begin + op_timeout / 8 * 15, least = now + op_timeout / 2;
    return of_tries > least ? of_tries : least;
}

void hf_ballot_begin_round(struct hf_redlock *l, struct ballot *b, enum round round, hf_nanos now)
{
    b->round = round;
    b->number++;
    b->asked_at = now;
    b->over_at = end_of_round(l, b, round, now);
    b->repairs = false;
    hf_quorum_open(&b->quorum, l->servers);
}

void hf_ballot_hurry(struct ballot *b, hf_nanos now)
{
    hf_nanos took = now - b->first_asked, pause = took > SLOW_PAUSE ? took : SLOW_PAUSE;
    if (now + pause < b->over_at)
        b->over_at = now + pause;
}

void hf_ballot_ask_all(struct hf_redlock *l, struct ballot *b, enum round round, enum hf_verb verb, hf_nanos now)
{
    hf_ballot_begin_round(l, b, round, now);
    for (unsigned i = 0; i < l->servers; i++)
        hf_ballot_ask(l, &b->seat[i], verb, now);
}

/* ---- Answers ---- */

void hf_ballot_hear(struct hf_redlock *l, struct seat *seat, const struct hf_news *news, hf_nanos now)
{
    struct ballot *b = seat->ballot;
    enum hf_verb verb = seat->asked[seat->first];
    bool this_round = seat->rounds[seat->first] == b->number;
    seat->first = (seat->first + 1) % QUESTIONS;
    seat->open--;
    l->answers_due--;
    seat->ask.doubt |= news->cue == HF_N_CUT;
    if (news->text && (news->cue == HF_N_CUT || news->cue == HF_N_FAILED))
        snprintf(l->member[seat->server].trouble, sizeof l->member[0].trouble, "%s", news->text);
    if (verb == HF_V_RELEASE)
        hf_give_back_hear(l, seat, this_round, news, now);
    else
        hf_round_hear(l, seat, verb, this_round, news, now);
    hf_round_judge(l, b, now);
    hf_ballot_update(l, b, now);
}

/* ---- Time ---- */

static void end_round(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    for (unsigned i = 0; i < l->servers; i++)
        if (b->quorum.vote[i] == HF_VOTE_OPEN) {
            b->quorum.vote[i] = HF_VOTE_FAILED;
            snprintf(l->member[i].trouble, sizeof l->member[i].trouble, "%s: no answer in time",
                     hf_quorum_member_where(l->member[i].redis));
        }
    hf_round_judge(l, b, now);
}

static hf_nanos due_at(const struct hf_redlock *l, const struct ballot *b, hf_nanos now)
{
    hf_nanos due = b->over_at;
    bool is_left = !b->bid && b->round != ROUND_RELEASE; /* nobody waits for it, and it has not been given back */
    if (is_left || hf_give_back_is_over(l, b, now))
        return now;
    for (unsigned i = 0; i < l->servers; i++)
        due = b->seat[i].again < due ? b->seat[i].again : due;
    return !b->bid && now < b->give_up_at && b->give_up_at < due ? b->give_up_at : due;
}

void hf_ballot_update(struct hf_redlock *l, struct ballot *b, hf_nanos now)
{
    uint32_t lines = 0;
    bool awaited = b->bid && b->over_at != HF_NEVER;
    for (unsigned i = 0; i < l->servers && !awaited; i++)
        lines |= (b->seat[i].ask.lines | (b->seat[i].again != HF_NEVER)) << i * HF_MEMBER_LINES;
    count_lines(l, b, lines);
    hf_nanos due = due_at(l, b, now);
    if (due == HF_NEVER)
        hf_heap_remove(&l->ballot_alarms, &b->alarm);
    else
        hf_heap_put(&l->ballot_alarms, &b->alarm, due);
    if (b->bid)
        hf_bid_set_lines(l, b->bid);
}

void hf_ballots_tick(struct hf_redlock *l, hf_nanos now)
{
    for (struct hf_heap_node *node; (node = hf_heap_first(&l->ballot_alarms)) && now >= node->key;) {
        struct ballot *b = (struct ballot *)(void *)((char *)node - offsetof(struct ballot, alarm));
        if (!b->bid && b->round != ROUND_RELEASE)
            hf_give_back(l, b, now);
        if (now >= b->over_at)
            end_round(l, b, now);
        (b->round == ROUND_RELEASE ? hf_give_back_tick : hf_try_tick)(l, b, now);
        if (hf_give_back_is_over(l, b, now))
            hf_ballot_free(l, b);
        else
            hf_ballot_update(l, b, now);
    }
}
