/* redlock.h - the engine for a quorum of independent servers: its own structs.
 *
 * The way through this folder: redlock.c is the door (engines/wire.h) and owns the members, each of which is the Redis
 * engine for one server; members.c reads the URL and hears what they say; bid.c is what a client asks for; ballot.c
 * puts questions to all servers; rounds.c folds what they answer; losing.c says why a try came to nothing;
 * giving_back.c takes back what was asked, everywhere; showing.c lists and breaks.
 *
 * A *bid* is what the engine knows of a client's ask. A *ballot* is one try of it: an id of its own that is put on
 * every server. A ballot that fails is taken back everywhere, on the same connections and in the background, and
 * outlives its bid until every server has said so; the next try has another id. */
#pragma once
#include "base/heap.h"
#include "base/settings.h"
#include "core/quorum.h"
#include "core/timing.h"
#include "engines/redis/member.h"
#include "engines/wire.h"

struct hf_redlock;
struct bid;

struct member {
    struct hf_redlock *lock;
    unsigned index;
    void *redis;
    struct hf_wire_host host;
    char trouble[240]; /* the last thing that went wrong there */
};

enum { SLOT_SEAT = 1, SLOT_EAR }; /* hf_ask.slot of what stands in a seat, or listens; an ear's hf_ask.seen: which */

/* What a server was asked in the name of a ballot. Answers come in the order of the questions. */
enum { QUESTIONS = 8, HOLDER_TEXT = 120 };

struct seat {
    struct hf_ask ask;
    struct ballot *ballot;
    unsigned server;
    uint8_t asked[QUESTIONS];   /* verbs that await their answer */
    uint32_t rounds[QUESTIONS]; /* of which round each is */
    unsigned first, open;
    uint64_t token;           /* that the server gave, or holds for us */
    hf_nanos left;            /* CHECK: what it has left */
    hf_nanos busy_until;      /* NO: when it may be free there, */
    uint64_t holds;           /* the token that somebody holds it with there; 0: not known, */
    char holder[HOLDER_TEXT]; /* and who that is, in words */
    enum hf_vote freed;       /* what it said to our release: YES, NO: it did not hold it; OPEN: nothing so far */
    hf_nanos again;           /* what came to nothing is asked again then: a release, or a try; HF_NEVER: it is not */
    unsigned failures;        /* of these, in a row */
};

enum round { ROUND_NONE, ROUND_ASK, ROUND_RAISE, ROUND_EXTEND, ROUND_CHECK, ROUND_RELEASE };

struct ballot {
    struct ballot *next, *prev; /* unused: next */
    struct hf_heap_node alarm;  /* when something is due for it */
    struct bid *bid;            /* NULL: nobody waits for it any more */
    enum round round;
    uint32_t number;            /* of the round */
    hf_nanos asked_at, over_at; /* of the round; HF_NEVER: it is decided */
    hf_nanos first_asked;       /* of the try: its validity counts from here */
    hf_nanos give_up_at;        /* releasing: the end of all tries */
    hf_nanos valid_until;       /* repairs are made until then; 0: none */
    uint64_t token;             /* that a majority was told of; 0: not yet agreed on, or made elsewhere */
    uint64_t expected;          /* made elsewhere: the one that its text names */
    int64_t ttl_ms;
    uint32_t unattended; /* lines with answers that nobody waits for, as counted in hf_redlock.unattended */
    bool held;
    bool lost;    /* what is given back was lost before */
    bool quiet;   /* what is given back was never held: nobody is told that it is free */
    bool repairs; /* the last renewal was won: servers that lack the key get it back */
    struct hf_quorum quorum;
    struct seat seat[HF_SERVERS_MAX];
    char name[HF_NAME_MAX + 1], label[HF_LABEL_MAX + 1];
};

struct bid {
    struct bid *next, *prev;   /* unused: next */
    struct bid *hinted;        /* among those that were told of a release and have not dealt with it */
    struct hf_heap_node alarm; /* when something is due for it */
    struct hf_ask *ask;
    struct ballot *ballot;
    bool tried;
    bool listens;
    bool is_hinted;
    struct hf_ask ear[HF_SERVERS_MAX];
    unsigned splits;     /* tries in a row that some servers granted, but too few */
    hf_nanos hint_at;    /* a hint is told then; HF_NEVER: none */
    hf_nanos asked_at;   /* when the client asked: the tries of one that does not wait are over soon after */
    hf_nanos try_at;     /* such a one tries again then; HF_NEVER: it does not */
    struct tally *tally; /* showing.c */
};

/* Something that a member told, kept until it may be dealt with. There is one for each answer that is due, so that none
 * is lost for want of memory. */
struct heard {
    struct heard *next;
    struct hf_ask *ask; /* NULL: it concerns nobody any more */
    struct hf_news news;
    char text[240];
};

/* Three holders of two permits may have a majority each: see docs/redlock.md. */
#define HF_REDLOCK_COUNTS "a quorum of counters is not a counter"

#define HF_REDLOCK_LIMITS                                                                                              \
    {                                                                                                                  \
        .ttl_min_ms = 100, .ttl_max_ms = 24 * 3600 * 1000, .drift_ppm = 10000, .drift_ms = 2,                          \
        .kinds = 1u << HF_EXCLUSIVE, .kinds_why = HF_REDLOCK_COUNTS,                                                   \
        .offers = HF_LATER | HF_CAN_DETACH | HF_REENTRANT | HF_CAN_BREAK                                               \
    }

extern const struct hf_wire_type hf_wire_redlock;

struct hf_redlock {
    const struct hf_wire_host *host;
    unsigned servers;
    struct member member[HF_SERVERS_MAX];
    struct hf_limits limits;
    struct hf_timing_wishes wishes;
    hf_nanos max_ttl;
    struct bid *bids, *unused_bids;
    struct ballot *ballots, *unused_ballots;
    uint32_t bid_count, ballot_count;
    struct hf_heap bid_alarms, ballot_alarms;
    struct bid *hinted;
    struct heard *heard, *heard_last, *unused;
    unsigned answers_due, room_for_answers;
    uint32_t unattended[HF_WIRE_LINES], unattended_lines; /* how many ballots count for each line, and which have any */
};

/* ---- members.c ---- */
hf_status hf_members_open(struct hf_redlock *l, const struct hf_url *url, const struct hf_settings *settings);
/* Whenever a member is asked something: there is room for its answer. False: no memory, and it must not be asked. */
bool hf_members_expect(struct hf_redlock *l);
void hf_members_settle(struct hf_redlock *l, hf_nanos now); /* deals with what was told, and is told meanwhile */
void hf_members_unhear(struct hf_redlock *l, const struct hf_ask *ask); /* what was told of it concerns nobody */
/* Does its yes count beside those that were cast (NULL: none is)? If not, its trouble says why. */
bool hf_member_counts(struct hf_redlock *l, unsigned server, const struct hf_quorum *votes, hf_nanos asked_at);

/* ---- bid.c ---- */
struct bid *hf_bid_meet(struct hf_redlock *l, struct hf_ask *ask); /* NULL: no memory */
void hf_bid_submit(struct hf_redlock *l, struct bid *bid, hf_nanos now);
void hf_bid_forget(struct hf_redlock *l, struct bid *bid);
void hf_bid_tell(struct hf_redlock *l, struct bid *bid, const struct hf_news *news);
void hf_bid_fail(struct hf_redlock *l, struct bid *bid, hf_nanos now, hf_status status, const char *text);
void hf_bid_set_lines(struct hf_redlock *l, struct bid *bid);
void hf_bid_set_alarm(struct hf_redlock *l, struct bid *bid);
void hf_bid_listen(struct hf_redlock *l, struct bid *bid, hf_nanos now); /* if it waits: to hear of releases */
void hf_bid_hint_soon(struct hf_redlock *l, struct bid *bid, hf_nanos now);
bool hf_bid_may_try(const struct hf_redlock *l, const struct bid *bid, hf_nanos at); /* again: if it does not wait */
void hf_bid_try_soon(struct hf_redlock *l, struct bid *bid, hf_nanos now);
void hf_bids_tick(struct hf_redlock *l, hf_nanos now);

/* ---- ballot.c ---- */
struct ballot *hf_ballot_make(struct hf_redlock *l, struct bid *bid); /* NULL: no memory */
void hf_ballot_free(struct hf_redlock *l, struct ballot *b);
/* After whatever happened to it: its lines, and when it wants to be looked at; the tick frees it when all is done. */
void hf_ballot_update(struct hf_redlock *l, struct ballot *b, hf_nanos now);
struct hf_timing hf_ballot_timing(const struct hf_redlock *l, const struct ballot *b);
void hf_ballot_begin_round(struct hf_redlock *l, struct ballot *b, enum round round, hf_nanos now);
void hf_ballot_hurry(struct ballot *b, hf_nanos now); /* the slow ones get as long again as the try took so far */
/* False: too many questions are open there, because it has not answered for long; or there is no memory. */
bool hf_ballot_ask(struct hf_redlock *l, struct seat *seat, enum hf_verb verb, hf_nanos now);
void hf_ballot_ask_all(struct hf_redlock *l, struct ballot *b, enum round round, enum hf_verb verb, hf_nanos now);
/* What came to nothing there is asked again soon, and ever less soon. */
void hf_ballot_ask_later(struct hf_redlock *l, struct seat *seat, hf_nanos now);
void hf_ballot_hear(struct hf_redlock *l, struct seat *seat, const struct hf_news *news, hf_nanos now);
void hf_ballots_tick(struct hf_redlock *l, hf_nanos now);

/* ---- rounds.c ---- */
void hf_round_judge(struct hf_redlock *l, struct ballot *b, hf_nanos now);
void hf_round_hear(struct hf_redlock *l, struct seat *seat, enum hf_verb verb, bool this_round,
                   const struct hf_news *news, hf_nanos now);

/* ---- losing.c ---- */
void hf_round_fail(struct hf_redlock *l, struct ballot *b, hf_status status, const char *what); /* and which servers */
/* A server refuses, but others have yet to answer: who does not wait looks again there. */
void hf_try_look_later(struct hf_redlock *l, struct seat *seat, hf_nanos now);
void hf_try_tick(struct hf_redlock *l, struct ballot *b, hf_nanos now);
void hf_try_lose(struct hf_redlock *l, struct ballot *b, hf_nanos now);
void hf_try_expire(struct hf_redlock *l, struct ballot *b, hf_nanos now); /* a majority agreed too late */

/* ---- giving_back.c ---- */
void hf_give_back(struct hf_redlock *l, struct ballot *b, hf_nanos now);       /* on every server */
void hf_give_back_alone(struct hf_redlock *l, struct ballot *b, hf_nanos now); /* and nobody waits for it any more */
void hf_give_back_hear(struct hf_redlock *l, struct seat *seat, bool this_round, const struct hf_news *news,
                       hf_nanos now);
void hf_give_back_judge(struct hf_redlock *l, struct ballot *b);
void hf_give_back_tick(struct hf_redlock *l, struct ballot *b, hf_nanos now);
bool hf_give_back_is_over(const struct hf_redlock *l, const struct ballot *b, hf_nanos now);

/* ---- showing.c ---- */
void hf_tally_submit(struct hf_redlock *l, struct bid *bid, hf_nanos now);
bool hf_tally_owns(const struct bid *bid, const struct hf_ask *ask);
void hf_tally_hear(struct hf_redlock *l, struct bid *bid, const struct hf_ask *ask, const struct hf_news *news);
hf_nanos hf_tally_due(const struct bid *bid);
void hf_tally_tick(struct hf_redlock *l, struct bid *bid, hf_nanos now);
void hf_tally_row(struct bid *bid, const struct hf_ask *ask, const struct hf_row *row);
void hf_tally_free(struct hf_redlock *l, struct bid *bid);
uint32_t hf_tally_lines(const struct bid *bid);
