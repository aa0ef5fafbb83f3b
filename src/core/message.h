/* message.h - what client and engine say to each other: an ask goes down through submit(), news come back through
 * tell(). */
#pragma once
#include "holdfast.h"

#include <string.h>

typedef int64_t hf_nanos; /* CLOCK_BOOTTIME of this machine in nanoseconds; HF_NEVER: no such time */
#define HF_NEVER INT64_MAX
#define HF_MS(ms) ((hf_nanos)(ms)*1000000)

struct hf_id {
    uint8_t b[16];
};

static inline bool hf_id_same(const struct hf_id *a, const struct hf_id *b)
{
    uint64_t x[2], y[2];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
}

enum hf_verb {
    HF_V_NONE,
    HF_V_ACQUIRE, /* ask, or ask again (same attempt): grant, queue or refuse; refresh a place in the queue */
    HF_V_LEAVE,   /* stop waiting: RELEASED, or GRANTED if the grant came first */
    HF_V_EXTEND,  /* at least ttl from now: EXTENDED, or GONE */
    HF_V_CHECK,   /* is it still ours? EXTENDED with the time that it has, or GONE */
    HF_V_RELEASE, /* RELEASED, or GONE if it was not ours any more */
    HF_V_UPGRADE, /* sole reader becomes writer: EXTENDED with a new token; else BUSY, and the read hold stays; or GONE
                   */
    HF_V_DOWNGRADE, /* writer becomes reader: EXTENDED with the same token, or GONE */
    /* Of engines on a wire (engines/wire.h), for people. Each is answered with RELEASED (done), GONE or FAILED. */
    HF_V_LIST,    /* rows of what ask->see says */
    HF_V_BREAK,   /* the hold of ask->name with ask->token; GONE: nobody holds with it */
    HF_V_RESIZE,  /* ask->name to ask->capacity; GONE: it is not in use */
    HF_V_EXAMINE, /* findings about the server */
    HF_V_LISTEN,  /* HINT whenever ask->name was released, until it is forgotten; never answered otherwise */
};

/* What an engine promises. Whatever is not in here api.c refuses with HF_UNSUPPORTED: never a quiet downgrade. */
struct hf_limits {
    int64_t ttl_min_ms, ttl_max_ms;
    int64_t drift_ppm, drift_ms; /* taken off every validity by core/timing */
    uint32_t kinds;              /* bit per hf_kind */
    const char *kinds_why;       /* why it has no others, for the message; NULL: there is nothing to say */
    uint32_t offers;             /* enum hf_offer */
};

enum hf_offer {
    HF_QUEUES = 1,     /* the engine owns a first-come queue; without it core retries with jitter */
    HF_LATER = 2,      /* submit answers later: the caller parks, or the news come by the bell (wires) */
    HF_CAN_DETACH = 4, /* a hold may outlive its process */
    HF_REENTRANT = 8,  /* counts asks of the same owner from several clients */
    HF_CAN_RESIZE = 16,
    HF_CAN_BREAK = 32,
    HF_CAN_CONVERT = 64, /* upgrade and downgrade */
};

enum hf_sight { HF_SEE_ONE, HF_SEE_PREFIX, HF_SEE_PAST, HF_SEE_SERVERS }; /* the last: a name on each server */

/* One request to an engine. It lives in the client's lease; the engine may keep the pointer until its last news. */
#define HF_NO_TOKEN 1 /* lower than any that is given out */

struct hf_ask {
    enum hf_verb verb : 8;
    hf_kind kind : 8;
    enum hf_sight see : 8; /* LIST: what */
    bool queue;            /* wait in the queue if it does not fit now */
    bool waits;            /* the caller waits; where there is no queue, by asking again */
    bool lost;             /* RELEASE: what is given back was lost before; the history calls it so */
    bool quiet;            /* RELEASE, members of a quorum: it was never held; nobody is told that it is free */
    bool barging, detached;
    bool tokenless; /* HF_NO_TOKEN will do */
    bool named;     /* owner or attempt were given by the caller: others may ask with the same */
    bool doubt;     /* an earlier ask of this attempt may still be under way: leave a tombstone */
    bool batched;   /* more may follow: whoever submits it flushes when all is submitted */
    bool bell;      /* news come to the background thread; without it somebody parks on this ask */
    uint32_t name_len, label_len;
    const char *name, *label;
    struct hf_id owner, attempt; /* who holds / which try: idempotency and release go by attempt, exclusion by owner */
    uint32_t units, capacity;
    int64_t ttl_ms;
    hf_nanos until; /* how long the engine may try to get through to its own state */
    uint64_t token; /* BREAK: that of the hold; members of a quorum: the one that it agreed on, for the hold to have;
                       CHECK on a quorum: the one that the hold should have; 0: none */
    /* The engine's own: */
    union {                 /* zero at first */
        uint64_t name_hash; /* kept as long as the name stays the same */
        void *engine_state; /* wires: until the ask is forgotten */
    };
    uint64_t slot;  /* where it keeps this attempt; 0 at first */
    uint32_t seen;  /* what a parked caller has already seen of that slot */
    uint32_t lines; /* wires: by which connections news of it may come now, a bit each */
};

/* What somebody wants to see, or to act on. */
struct hf_seen {
    enum hf_sight which;
    const char *name;
    size_t len;
    hf_nanos until; /* as in hf_ask */
};

enum hf_cue {
    HF_N_GRANTED,
    HF_N_QUEUED,
    HF_N_BUSY,
    HF_N_EXTENDED,
    HF_N_RELEASED,
    HF_N_GONE,   /* it is not ours (any more) */
    HF_N_CUT,    /* sent, no answer: in doubt */
    HF_N_FAILED, /* refused for a reason: nothing happened; status says which */
    HF_N_HINT,   /* ask again now */
    HF_N_CUES,
};

struct hf_news {
    enum hf_cue cue;
    hf_nanos asked_at; /* when the request that was executed, refused or cut was handed over, on our own clock */
    hf_nanos good;     /* how long the hold was good for, counted from asked_at; core takes the drift off */
    uint64_t token;    /* BUSY, members of a quorum: that of the hold ahead; 0: not known */
    hf_nanos retry_at; /* QUEUED, BUSY: when the hold ahead ends; FAILED: when the way may be open; HF_NEVER: unknown */
    uint32_t place;    /* QUEUED: 1 is next */
    bool brief;        /* GRANTED: for less than the ttl that was asked for; an extend gets the rest */
    hf_status status;  /* FAILED */
    const char *text;  /* FAILED, GONE: in words; BUSY, members of a quorum: who holds it; valid during the call */
};
