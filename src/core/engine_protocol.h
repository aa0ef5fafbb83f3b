/* engine_protocol.h - what client and engine say to each other: an op goes to the engine through
 * submit(), replies come back.
 *
 * No engine is named here. What only some engines need is a larger struct with the op as its first
 * field: engines/admin.h for requests of administrators, and headers of the engines themselves. */
#pragma once
#include "holdfast.h"

#include <string.h>

typedef int64_t nanos; /* CLOCK_BOOTTIME of this machine in nanoseconds; TIME_NEVER: no such time */
#define TIME_NEVER INT64_MAX
#define NANOS_OF_MS(ms) ((nanos)(ms)*1000000)

struct id {
    uint8_t b[16];
};

static inline bool id_same(const struct id *a, const struct id *b)
{
    uint64_t x[2], y[2];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
}

/* What a claim asks of an engine, and the replies to it. */
enum op_verb {
    OP_NONE,
    OP_ACQUIRE, /* GRANTED, QUEUED, BUSY or FAILED. The same attempt may ask again: that refreshes
                   its place in the queue */
    OP_LEAVE,   /* stop waiting: RELEASED, or GRANTED if the grant came first */
    OP_EXTEND,  /* hold for at least ttl from now on: EXTENDED or NOT_HELD */
    OP_CHECK,   /* EXTENDED with the time that the hold has left, or NOT_HELD */
    OP_RELEASE, /* RELEASED, or NOT_HELD if the hold had ended before */
    OP_UPGRADE, /* the only reader becomes the writer: EXTENDED with a new token; BUSY if there are
                   other readers, and the read hold stays; or NOT_HELD */
    OP_DOWNGRADE, /* the writer becomes a reader: EXTENDED with the same token, or NOT_HELD */
    OP_ADMIN,     /* of an administrator, not of a claim: the op is a struct admin_op */
};

/* What an engine offers. api.c refuses everything else with HF_UNSUPPORTED: no request is silently
 * weakened. */
struct engine_limits {
    int64_t ttl_min_ms, ttl_max_ms;
    int64_t drift_ppm, drift_ms; /* core/timing takes them off every validity */
    uint32_t kinds;              /* bit per hf_kind */
    const char *kinds_why; /* why the engine lacks the other kinds, for the message; or NULL */
    uint32_t offers;       /* bits of enum engine_offer */
};

enum engine_offer {
    ENGINE_QUEUES = 1,        /* has a first-come queue; without one, core retries with jitter */
    ENGINE_REPLIES_LATER = 2, /* submit() does not reply: the caller parks, or the background thread
                                 is notified */
    ENGINE_CAN_DETACH = 4,    /* a hold may outlive its process */
    ENGINE_REENTRANT = 8,     /* several clients may hold as the same owner */
    ENGINE_CAN_RESIZE = 16,
    ENGINE_CAN_BREAK = 32,
    ENGINE_CAN_CONVERT = 64, /* upgrade and downgrade */
    ENGINE_NO_BARGING = 128, /* the queue is strict: no request is granted ahead of waiters */
};

#define NO_TOKEN 1 /* for holds without a token; below every token that is given out */

/* One request to an engine. It lives in the client's lease; the engine may keep the pointer until
 * its last reply. */
struct engine_op {
    enum op_verb verb : 8;
    hf_kind kind : 8;
    bool queue;            /* join the queue if the lock is not free */
    bool waits;            /* the caller waits; without a queue, by asking again */
    bool lost;             /* RELEASE: the hold had been lost; the history says so */
    bool barging;          /* may be granted ahead of waiters */
    bool detached;         /* the hold outlives its process */
    bool tokenless;        /* NO_TOKEN will do */
    bool named;            /* the caller gave owner or attempt: others may ask with the same */
    bool may_be_in_flight; /* an earlier op of this attempt may still arrive: leave a tombstone */
    bool batched;          /* more may follow: the submitter calls flush() after the last */
    bool in_background;    /* replies go to the background thread; otherwise a caller parks on it */
    uint32_t name_len, label_len;
    const char *name, *label;
    struct id owner, attempt; /* who holds; which try. Exclusion goes by owner, idempotency and
                                 release by attempt */
    uint32_t units, capacity;
    int64_t ttl_ms;
    nanos until;    /* when the engine gives up waiting for its own state, as for a mutex */
    uint64_t token; /* the hold's token, if the sender knows it; 0: unknown */
    /* The engine's own: */
    union {                 /* zero at first */
        uint64_t name_hash; /* valid while the name stays the same */
        void *engine_state; /* valid until the op is forgotten */
    };
    uint64_t slot;        /* where the engine keeps this attempt; 0 at first */
    uint32_t seen;        /* what a parked caller has already seen of that slot */
    uint32_t connections; /* connections on which a reply may come now, a bit each */
};

enum reply_kind {
    REPLY_GRANTED,
    REPLY_QUEUED,
    REPLY_BUSY,
    REPLY_EXTENDED,
    REPLY_RELEASED,
    REPLY_NOT_HELD, /* the attempt does not hold, or no longer */
    REPLY_UNKNOWN,  /* sent and never answered: unknown outcome */
    REPLY_FAILED,   /* refused; status says why. Nothing happened, unless outcome_unknown */
    REPLY_NOTIFY,   /* ask again now */
    REPLY_KINDS,
};

/* A hold that is in the way of a request. */
struct reply_holder {
    uint64_t token;
    int64_t pid;
    uint32_t units;
    hf_kind kind : 8;
    bool detached;
    char host[65], label[HF_LABEL_MAX + 1];
};

struct engine_reply {
    enum reply_kind kind;
    nanos asked_at; /* when the request that is answered was handed to the engine, on our clock */
    nanos good;     /* length of the hold, counted from asked_at; core takes the drift off */
    uint64_t token;
    nanos retry_at;       /* QUEUED, BUSY: when the hold ahead ends; FAILED: when the engine may be
                             reachable; TIME_NEVER: unknown */
    uint32_t place;       /* QUEUED: in the queue; 1 is next */
    bool brief;           /* GRANTED: for less than the ttl; the next extend gets the rest */
    bool outcome_unknown; /* FAILED: all, some or none of the request was carried out */
    bool is_elsewhere; /* GRANTED, EXTENDED: by another server than the last such reply of this op,
                          with a clock of its own: `good` replaces what was believed */
    hf_status status;  /* FAILED */
    const char *text;  /* FAILED, NOT_HELD: in words; BUSY: the holder in words, or NULL; valid
                          during the call */
    /* BUSY, and the reply to a LEAVE: a hold that is in the way, if the engine knows one; NULL.
     * Valid during the call. */
    const struct reply_holder *holder;
};
