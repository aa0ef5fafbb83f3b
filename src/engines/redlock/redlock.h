/* redlock.h - the engine for a quorum of independent servers: its own structs.
 *
 * The way through this folder: redlock.c is the door (engines/wire.h), reads the URL and owns the members, each of
 * which is the Redis engine for one server; ballot.c asks them all and folds what they say; showing.c lists and breaks.
 *
 * A *bid* is what the engine knows of a client's ask. A *ballot* is one try of it: an id of its own that is put on
 * every server. A ballot that fails is taken back everywhere, on the same connections and in the background, and
 * outlives its bid until every server has said so; the next try has another id. */
#pragma once
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
enum { QUESTIONS = 8 };

struct seat {
    struct hf_ask ask;
    struct ballot *ballot;
    unsigned server;
    uint8_t asked[QUESTIONS];   /* verbs that await their answer */
    uint32_t rounds[QUESTIONS]; /* of which round each is */
    unsigned first, open;
    uint64_t token;      /* that the server gave, or holds for us */
    hf_nanos left;       /* CHECK: what it has left */
    hf_nanos busy_until; /* NO: when it may be free there */
    enum hf_vote freed;  /* what it said to our release: YES, NO: it did not hold it; OPEN: nothing so far */
    hf_nanos again;      /* a release that failed is sent again then; HF_NEVER: none */
    unsigned failures;   /* of releases */
};

enum round { ROUND_NONE, ROUND_ASK, ROUND_RAISE, ROUND_EXTEND, ROUND_CHECK, ROUND_RELEASE };

struct ballot {
    struct ballot *next, *prev;
    struct bid *bid; /* NULL: nobody waits for it any more */
    enum round round;
    uint32_t number;            /* of the round */
    hf_nanos asked_at, over_at; /* of the round */
    hf_nanos first_asked;       /* of the try: its validity counts from here */
    hf_nanos give_up_at;        /* releasing: the end of all tries */
    hf_nanos valid_until;       /* repairs are made until then; 0: none */
    uint64_t token;             /* that a majority was told of; 0: not yet agreed on, or made elsewhere */
    uint64_t expected;          /* made elsewhere: the one that its text names */
    int64_t ttl_ms;
    bool held;
    bool lost;    /* what is given back was lost before */
    bool repairs; /* the last renewal was won: servers that lack the key get it back */
    struct hf_quorum quorum;
    struct seat seat[HF_SERVERS_MAX];
    char name[HF_NAME_MAX + 1], label[HF_LABEL_MAX + 1];
};

struct bid {
    struct bid *next, *prev;
    struct hf_ask *ask;
    struct ballot *ballot;
    bool tried;
    bool listens;
    struct hf_ask ear[HF_SERVERS_MAX];
    unsigned splits;     /* tries in a row that some servers granted, but too few */
    hf_nanos hint_at;    /* a hint is told then; HF_NEVER: none */
    struct tally *tally; /* showing.c */
};

/* Something that a member told, kept until it may be dealt with. */
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
    struct bid *bids;
    struct ballot *ballots;
    struct heard *heard, *heard_last, *unused;
};

/* ---- ballot.c ---- */
void hf_ballot_submit(struct hf_redlock *l, struct bid *bid, hf_nanos now);
void hf_ballot_hear(struct hf_redlock *l, struct seat *seat, const struct hf_news *news, hf_nanos now);
void hf_ballot_part(struct hf_redlock *l, struct bid *bid); /* the bid is forgotten */
hf_nanos hf_ballot_tick(struct hf_redlock *l, hf_nanos now);
void hf_ballot_free(struct hf_redlock *l, struct ballot *b);
void hf_bid_tell(struct hf_redlock *l, struct bid *bid, const struct hf_news *news);
void hf_bid_set_lines(struct hf_redlock *l, struct bid *bid);

/* ---- redlock.c ---- */
void hf_redlock_unhear(struct hf_redlock *l, const struct hf_ask *ask); /* what was told of it concerns nobody */

/* ---- showing.c ---- */
void hf_tally_submit(struct hf_redlock *l, struct bid *bid, hf_nanos now);
bool hf_tally_owns(const struct bid *bid, const struct hf_ask *ask);
void hf_tally_hear(struct hf_redlock *l, struct bid *bid, const struct hf_ask *ask, const struct hf_news *news);
hf_nanos hf_tally_tick(struct hf_redlock *l, struct bid *bid, hf_nanos now);
void hf_tally_row(struct bid *bid, const struct hf_row *row);
void hf_tally_free(struct hf_redlock *l, struct bid *bid);
uint32_t hf_tally_lines(const struct bid *bid);
