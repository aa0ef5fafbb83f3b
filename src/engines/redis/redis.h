/* redis.h - the engine for one Redis or Valkey server: its own structs.
 *
 * The way through this folder: redis.c is the door (engines/wire.h) and reads the URL; line.c is one connection, from
 * dialling through the greeting to its end, with the requests that await their replies; asking.c turns an ask into a
 * command, which heads.c begins, answering.c a reply into news; waking.c hears of hand-overs, looking.c does without;
 * seeing.c lists, breaks and resizes for people; keys.c, resp.c, refusals.def and rights.c know how things are written;
 * scripts/ is what runs inside the server.
 *
 * No I/O and no clock here: bytes and time come in, bytes and news go out. */
#pragma once
#include "base/heap.h"
#include "base/settings.h"
#include "core/timing.h"
#include "engines/wire.h"
#include "keys.h"
#include "resp.h"
#include "scripts.h"

/* The strong one carries what replicas must acknowledge, and nothing else: WAIT vouches for its own connection only. */
enum { LINE_COMMANDS, LINE_WAKE, LINE_STRONG, LINES };

struct hf_redis;
struct attempt;

/* ---- line.c ---- */

enum request_kind {
    REQ_VERB,      /* an attempt's own */
    REQ_STEP,      /* of a job: see seeing.c */
    REQ_POP,       /* messages from the inbox */
    REQ_LISTEN,    /* SUBSCRIBE, or PING to see whether it still works */
    REQ_WAIT,      /* for replicas: see strong.c */
    REQ_TAKE_BACK, /* a grant that too few replicas acknowledged */
    REQ_UNDO,      /* gives back what nobody wants; nobody waits for the answer */
    REQ_AUTH,      /* the rest is the greeting */
    REQ_SELECT,
    REQ_SETNAME,
    REQ_INFO,
    REQ_KNOWN,    /* which scripts the server has */
    REQ_LOAD,     /* of those that it lacks */
    REQ_LOAD_ONE, /* of the one that follows */
};

/* Something that was sent and not yet answered. */
struct request {
    enum request_kind kind;
    uint8_t verb;
    struct attempt *attempt; /* NULL: nobody wants the answer any more */
    hf_nanos sent_at, patience;
    int64_t ttl_ms;    /* that was asked for */
    bool plain;        /* asked for without a script, or given back with two keys: nil says that it takes more */
    size_t look, from; /* REQ_STEP of a list: which name it looks at, and from which waiter on */
};

enum line_state { LINE_DOWN, LINE_DIALLING, LINE_GREETING, LINE_UP };

struct line {
    unsigned number;
    enum line_state state;
    hf_nanos since;       /* DIALLING, GREETING: since when */
    hf_nanos heard_at;    /* the last bytes */
    hf_nanos answered_at; /* the last whole answer */
    hf_nanos dial_at;     /* DOWN: not before */
    uint32_t failures;    /* in a row */
    uint32_t ups;         /* how often it came up */
    struct hf_replies *replies;
    struct request *queue; /* a ring: in the order of sending, which is that of the answers */
    uint32_t first, count, room;
    char run_id[41];  /* of the server; "": it would not say */
    uint32_t orphans; /* in the queue: requests of nobody whose answers are due */
    uint32_t loads;   /* in the queue: scripts on their way */
    hf_status trouble;
    char why[800]; /* DOWN: because of that */
};

/* ---- The engine ---- */

#define HF_REDIS_LIMITS                                                                                                \
    {                                                                                                                  \
        .ttl_min_ms = 100, .ttl_max_ms = 24 * 3600 * 1000, .drift_ppm = 10000, .drift_ms = 2,                          \
        .kinds = 1u << HF_EXCLUSIVE | 1u << HF_SEMAPHORE | 1u << HF_READ | 1u << HF_WRITE,                             \
        .offers = HF_QUEUES | HF_LATER | HF_CAN_DETACH | HF_REENTRANT | HF_CAN_RESIZE | HF_CAN_BREAK | HF_CAN_CONVERT  \
    }

/* The newest QUEUED answer: what a push is measured by. */
struct pair {
    bool set;
    hf_nanos asked_at, due;
    int64_t at;     /* the server's clock then, in microseconds */
    int64_t number; /* its counter */
};

struct push {
    bool set;
    int64_t token, till, at;
};

struct job;   /* seeing.c */
struct crowd; /* looking.c */

/* What the engine keeps of an ask between its first submit and forget(): little, as there is one for each hold. */
struct memo {
    struct memo *same_hash; /* unused: the next one */
    struct hf_ask *ask;     /* whose id is not changed meanwhile */
    struct attempt *awake;  /* NULL: nothing goes on with it */
    hf_nanos acknowledged;  /* these are the attempt's, while it rests */
    uint32_t first_ttl_ms;
    bool sent, cut;
};
_Static_assert(sizeof(struct memo) == 40, "a hold costs no more here");

/* An ask with which something goes on: it awaits an answer, or waits to be told. */
struct attempt {
    struct attempt *next, *prev; /* among all; unused: next */
    struct attempt *next_told;   /* in hf_redis.told */
    struct memo *memo;
    struct hf_ask *ask;        /* whom to tell; its lines are ours to write */
    bool told;                 /* since the last look for those with which nothing goes on any more */
    bool unsent;               /* ask->verb waits for the line to come up */
    bool sent;                 /* something went out for it */
    bool cut;                  /* an ask of it that went out was not answered, and may still arrive */
    bool queued;               /* the server told it to wait */
    bool listens;              /* it wants to hear when its lock is free */
    uint32_t in_flight[LINES]; /* requests without an answer */
    uint32_t asking;           /* those of them that are ACQUIREs */
    int64_t first_ttl_ms;      /* an extend for another ttl changes nothing in how long an answer may take */
    struct pair pair;
    struct push push;
    struct crowd *crowd; /* wake=poll: it waits in that one */
    struct hf_heap_node arrival;
    bool hinted; /* it was told to look, and has not asked since */
    struct job *job;
    unsigned examined;      /* EXAMINE: answers so far */
    bool awaits_replicas;   /* held_back awaits the answer of the WAIT that is under way */
    enum hf_verb held_verb; /* what was asked for */
    hf_status lack;         /* what it will be told when a grant that they did not acknowledge has been taken back, */
    char *lack_text;        /* and in words */
    hf_nanos acknowledged;  /* until then it is good by what they did acknowledge; 0: nothing was asked for here */

    /* From here on nothing is cleared for the next one. */
    char id[HF_ID_TEXT + 1];
    struct hf_ask said;       /* what was asked last: the client writes the other one while we are not looking */
    struct hf_news held_back; /* what it will be told when enough replicas have acknowledged it */
};

/* What the words of an ask behind its id follow from, besides the settings, */
struct terms {
    int64_t ttl_ms, first_ttl_ms;
    uint64_t round, token, flags;
    uint32_t units, capacity;
};
_Static_assert(sizeof(struct terms) == 48, "no gaps: compared as a whole");

/* and those words, as they were last written. */
struct form {
    struct terms terms;
    size_t len; /* 0: not yet */
    char bytes[1024];
};

/* The keys of one lock as they go to the wire: heads.c. */
struct head {
    struct hf_command words;  /* empty: not in use */
    size_t lock_len;          /* of the first of them, the lock itself, */
    size_t name_at, name_len; /* in which the name stands */
    size_t two_len;           /* of the first two, the lock and its counter */
};

enum { HEADS = 128, CROWDED_FOR = 64, CROWD_BUCKETS = 1024, HF_WAITERS_MOST = 100000 };

struct hf_redis {
    const struct hf_wire_host *host;
    struct hf_address address;
    char where[300]; /* host:port, for messages */
    char user[256], password[512];
    int64_t db;
    char client_name[128];
    char prefix[HF_PREFIX_MAX + 1];
    char box[HF_PREFIX_MAX + 64]; /* the inbox of this client, behind the letter that says what it is */
    struct hf_limits limits;
    struct hf_timing_wishes wishes;
    hf_nanos connect_timeout;
    int64_t history, history_age_ms;
    int64_t replicas, replica_timeout_ms; /* how many must acknowledge a grant, and within which time */
    bool synced;                          /* it must be in their files, and in the server's own */
    bool strong;                          /* either of both */
    bool waits;                           /* a WAIT is under way */
    uint64_t round;                       /* how many grants were taken back so far: see strong.c */
    char self[HF_ID_TEXT + 1];            /* this client, whatever its name is */
    char about[160];                      /* " pid host ": the middle of meta */
    size_t about_len;
    struct hf_timing timing; /* of the ttl that was last asked for: see hf_attempt_timing() */
    int64_t timing_ttl_ms;
    char pace[128];       /* of that timing, as ask.lua wants it: the last six words of its last argument */
    struct hf_words past; /* history and history_age_ms */
    struct form form;
    struct head head[HEADS];

    struct line line[LINES];
    struct hf_command command; /* the one that is being written */
    struct attempt *attempts, *unused;
    uint32_t unused_count;
    struct attempt *told;
    struct memo **bucket, *unused_memos;
    uint32_t buckets, memos; /* how many there are; buckets are a power of two, and 0 before the first memo */
    struct memo_slab *memo_slabs;
    struct crowd *crowd[CROWD_BUCKETS];
    uint32_t queued;      /* attempts that wait to be told */
    uint32_t crowded_for; /* so many releases are written as if somebody waited */
    bool hints;           /* a member of a quorum: nobody is handed anything, those who wait hear that it is free */
    uint32_t ears;        /* attempts that listen for that */
    hf_nanos up_since;    /* the server, as far as it told; HF_NEVER: it did not */
    bool subscribed;
    bool unheard; /* a member of a quorum: what was published before its first subscription is confirmed was missed */
    hf_nanos listened_at; /* subscribed: when it last proved to work */
    hf_nanos told_at;     /* the latest time that we were told: forget() is told none */
};

extern const struct hf_wire_type hf_wire_redis;

/* ---- line.c ---- */

/* Sees to it that the line comes up. False: not now, line->why says why not. */
bool hf_line_need(struct hf_redis *r, struct line *line, hf_nanos now);
/* Sends redis->command, and remembers that its answer is due. */
bool hf_line_send(struct hf_redis *r, struct line *line, struct request request, hf_nanos now);
/* Closes a line that is of no use any more. Whoever waits for it hears of it. */
__attribute__((format(printf, 5, 6))) void hf_line_drop(struct hf_redis *r, struct line *line, hf_status status,
                                                        hf_nanos now, const char *format, ...);
void hf_line_up(struct hf_redis *r, struct line *line, hf_nanos now);
void hf_line_down(struct hf_redis *r, struct line *line, hf_status status, const char *why, hf_nanos now);
void hf_line_load_scripts(struct hf_redis *r, struct line *line, hf_nanos now);
void hf_line_load_script(struct hf_redis *r, struct line *line, enum hf_script script, hf_nanos now);
void hf_line_bytes(struct hf_redis *r, struct line *line, const char *bytes, size_t len, hf_nanos now);
hf_nanos hf_line_tick(struct hf_redis *r, struct line *line, hf_nanos now);
void hf_line_hint_all(struct hf_redis *r);
const char *hf_line_info_field(const char *info, const char *field);   /* what follows it; NULL: it is not there */
void hf_line_forget(struct line *line, const struct attempt *attempt); /* its answers concern nobody any more */

enum { HF_RIGHT_MAX = 3 * HF_PREFIX_MAX + 24 };

/* What an error reply means. */
struct refusal {
    hf_status status;
    bool leave;
    char text[240 + HF_RIGHT_MAX];
};
struct refusal hf_refusal(const struct hf_redis *r, const struct hf_reply *error);

/* ---- rights.c ---- */

/* The right that an error of the status DENIED is about, as in "+get"; "": it is about something else. */
void hf_right_lacking(const struct hf_redis *r, const char *error, char text[HF_RIGHT_MAX]);

/* ---- attempts.c ---- */

struct attempt *hf_attempt_meet(struct hf_redis *r, struct hf_ask *ask); /* NULL: no memory */
void hf_attempt_forget(struct hf_redis *r, struct hf_ask *ask);
/* Those that were told something, and with which nothing goes on any more, become memos. The last thing that is done at
 * the door: no pointer to an attempt is good behind it. */
void hf_attempts_rest(struct hf_redis *r);
void hf_attempts_free(struct hf_redis *r);
/* The first one with that id; NULL: none. */
struct memo *hf_memo_of(struct hf_redis *r, const char id[HF_ID_TEXT]);
struct memo *hf_memo_next(const struct memo *one); /* another with the same */

/* ---- asking.c ---- */

void hf_attempt_submit(struct hf_redis *r, struct attempt *a, hf_nanos now);
void hf_attempt_send_unsent(struct hf_redis *r, const struct line *line, hf_nanos now); /* the line has come up */
void hf_attempt_send(struct hf_redis *r, struct attempt *a, hf_nanos now); /* what it said, on a line that is up */
/* Tells, after ask->lines was brought up to date. */
void hf_attempt_tell(struct hf_redis *r, struct attempt *a, const struct hf_news *news);
void hf_attempt_fail(struct hf_redis *r, struct attempt *a, hf_nanos asked_at, hf_status status, const char *text);
void hf_attempt_fail_with(struct hf_redis *r, struct attempt *a, const struct line *line,
                          hf_nanos now); /* that line is down */
void hf_attempt_set_queued(struct hf_redis *r, struct attempt *a, bool queued);
/* channel, terms: the arguments 2 and 3 of release.lua; NULL: absent. */
void hf_attempt_write_release(struct hf_redis *r, const char *id, const struct head *head, const char *channel,
                              const char *terms);
/* A release of an id that nobody here knows any more. */
void hf_attempt_undo(struct hf_redis *r, const char *id, const char *key, size_t key_len, hf_nanos now);

/* The line that a verb goes out on. */
struct line *hf_attempt_line(struct hf_redis *r, const struct attempt *a, enum hf_verb verb);
bool hf_attempt_flies(const struct attempt *a); /* something awaits its answer */
/* Good until that of another one is asked for. */
const struct hf_timing *hf_attempt_timing(struct hf_redis *r, const struct attempt *a);

/* ---- heads.c ---- */

/* Begins an EVALSHA of that script on that lock, with so many arguments to follow. False: no memory. */
bool hf_attempt_script(struct hf_redis *r, enum hf_script script, const struct hf_keys *keys, unsigned arguments);
/* The words for the keys of that lock, good until the next one is asked for. HF_INVALID: no such key can be, or no
 * memory; hf_why_text() says which. */
hf_status hf_head_of(struct hf_redis *r, const char *name, size_t len, const struct head **head);
void hf_head_script(struct hf_redis *r, enum hf_script script, const struct head *head, unsigned arguments);
void hf_head_script_of_two(struct hf_redis *r, enum hf_script script, const struct head *head, unsigned arguments);
void hf_heads_free(struct hf_redis *r);

/* ---- answering.c ---- */

void hf_attempt_answer(struct hf_redis *r, const struct request *request, const struct hf_reply *reply, hf_nanos now);

/* ---- strong.c ---- */

/* Holds the news back until replicas have acknowledged what they tell of. */
void hf_strong_wait(struct hf_redis *r, struct attempt *a, enum hf_verb verb, const struct hf_news *news, hf_nanos now);
/* What was read without them counts no further than what they acknowledged: a renewal may have failed to be. */
void hf_strong_limit(const struct attempt *a, struct hf_news *news);
void hf_strong_taken_back(struct hf_redis *r, const struct request *request, const struct hf_reply *reply,
                          hf_nanos now);
void hf_strong_answer(struct hf_redis *r, const struct hf_reply *reply, hf_nanos now);
void hf_strong_cut(struct hf_redis *r, const char *why); /* there will be no answer */

/* ---- waking.c ---- */

void hf_wake_listen(struct hf_redis *r, hf_nanos now); /* somebody waits: somebody must listen */
void hf_wake_popped(struct hf_redis *r, const struct hf_reply *reply, hf_nanos now);
void hf_wake_listens(struct hf_redis *r, const struct hf_reply *reply, hf_nanos now); /* the answer to REQ_LISTEN */
/* True: it is a message that was published, not the answer to anything. */
bool hf_wake_published(struct hf_redis *r, const struct hf_reply *reply, hf_nanos now);
hf_nanos hf_wake_tick(struct hf_redis *r, hf_nanos now);
void hf_wake_set_ear(struct hf_redis *r, struct attempt *a, bool listens, hf_nanos now);
void hf_wake_consider(struct hf_redis *r, struct attempt *a, hf_nanos now); /* its push, which came before the answer */

/* ---- looking.c ---- */

/* Nobody here is told of anything (wake=poll). */
static inline bool hf_look_is_all(const struct hf_redis *r)
{
    return r->box[0] == '-';
}
/* It was told that it is in the queue, as the one with that number: when does it look next? */
hf_nanos hf_look_next(struct hf_redis *r, struct attempt *a, int64_t arrival, const struct hf_news *queued,
                      hf_nanos now);
void hf_look_leave(struct hf_redis *r, struct attempt *a, hf_nanos now); /* it waits no more */
void hf_look_own(struct hf_redis *r, const struct attempt *released);    /* it gave its lock back */
void hf_look_close(struct hf_redis *r);

/* ---- examine.c ---- */

void hf_examine_begin(struct hf_redis *r, struct attempt *a, hf_nanos now);
void hf_examine_answer(struct hf_redis *r, const struct request *request, const struct hf_reply *reply);

/* ---- seeing.c ---- */

void hf_job_begin(struct hf_redis *r, struct attempt *a, hf_nanos now);
void hf_job_answer(struct hf_redis *r, const struct request *request, const struct hf_reply *reply, hf_nanos now);
void hf_job_free(struct attempt *a);
