/* engine_protocol.h - the messages between client and engine: an op goes to the engine through
 * submit(), replies come back.
 *
 * No engine is named here. An op that only some engines need is a larger struct with the op as its
 * first field: engines/admin.h has those of administrators, headers of the engines their own. */
#pragma once
#include "holdfast.h"

#include <string.h>

typedef int64_t nanos; /* CLOCK_BOOTTIME of this machine in nanoseconds; TIME_NEVER: no such time */
#define TIME_NEVER INT64_MAX
#define NANOS_OF_MS(ms) ((nanos)(ms)*1000000)

/* A set of connections, in one word. Bit i is the *group* of the connections i, i + 64, i + 128 and
 * so on: so there is no highest number, and no set needs memory. With up to 64 connections a group
 * is one connection. With more, a set means these connections and perhaps others of their groups:
 * a reader then polls more sockets than it needs, and misses none. */
typedef uint64_t connection_set;

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

/* The requests of a claim to an engine, and the replies to each. */
enum op_verb {
    OP_NONE,
    /* Replies: GRANTED, QUEUED, BUSY or FAILED. An ACQUIRE that is sent again for the same attempt
     * refreshes the attempt's place in the queue. */
    OP_ACQUIRE,
    OP_LEAVE,   /* stop waiting: RELEASED, or GRANTED if the grant came first */
    OP_EXTEND,  /* hold for at least ttl from now on: EXTENDED or NOT_HELD */
    OP_CHECK,   /* EXTENDED with the time that the hold has left, or NOT_HELD */
    OP_RELEASE, /* RELEASED, or NOT_HELD if the hold had ended before */
    OP_UPGRADE, /* the only reader becomes the writer: EXTENDED with a new token; BUSY if there are
                   other readers, and the read hold stays; or NOT_HELD */
    OP_DOWNGRADE, /* the writer becomes a reader: EXTENDED with the same token, or NOT_HELD */
    OP_ADMIN,     /* from an administrator, not from a claim: the op is a struct admin_op */
};

/* What an engine can do. api.c refuses everything else with HF_UNSUPPORTED: no request is
 * silently weakened. */
struct engine_limits {
    int64_t ttl_min_ms, ttl_max_ms;
    /* difference between clocks that core/timing subtracts from every validity */
    int64_t drift_ppm, drift_ms;
    uint32_t kinds; /* one bit for each hf_kind */
    /* reason why the engine lacks the other kinds, for messages; NULL: none */
    const char *kinds_why;
    uint32_t offers; /* bits of enum engine_offer */
};

enum engine_offer {
    ENGINE_QUEUES = 1, /* has a first-come queue; without one, core retries with jitter */
    /* submit() does not reply: the caller parks, or the background thread is notified */
    ENGINE_REPLIES_LATER = 2,
    ENGINE_CAN_DETACH = 4, /* a hold may outlive its process */
    ENGINE_REENTRANT = 8,  /* several clients may hold as the same owner */
    ENGINE_CAN_RESIZE = 16,
    ENGINE_CAN_BREAK = 32,
    ENGINE_CAN_CONVERT = 64,  /* upgrade and downgrade */
    ENGINE_NO_BARGING = 128,  /* the queue is strict: no request is granted ahead of waiters */
    ENGINE_FINDS_HOLDS = 256, /* EXTEND and RELEASE find a hold that this client has not seen yet */
    ENGINE_JOINS = 512,       /* may ask for several locks at once: engine_op.next */
};

#define NO_TOKEN 1 /* stands for the token of a tokenless hold; below every granted token */

/* One request to an engine. It lives in the client's lease; the engine may keep the pointer until
 * its last reply. */
struct engine_op {
    enum op_verb verb : 8;
    hf_kind kind : 8;
    bool queue;     /* join the queue if the lock is not free */
    bool waits;     /* the caller waits; if there is no queue, it asks again after pauses */
    bool lost;      /* RELEASE: the hold was lost before; the history shows that */
    bool barging;   /* may be granted ahead of waiters */
    bool detached;  /* the hold outlives its process */
    bool tokenless; /* the caller needs no token, so NO_TOKEN may stand for it */
    bool named;     /* the caller gave owner or attempt, so other requests may have the same */
    bool may_be_in_flight; /* an earlier op of this attempt may still arrive: leave a tombstone */
    bool is_renewal : 1;   /* EXTEND: no caller asked for it; two thirds of the ttl are enough */
    bool batched : 1;      /* more may follow: the submitter calls flush() after the last */
    /* The engine's: it knows this op already, as the `next` of another. The client must submit it:
     * ACQUIRE, or LEAVE if it does not want the lock any more. The engine sets false then. */
    bool is_ahead;
    bool of_several; /* the client takes several locks, and this is one of them: see `next` */
    /* replies go to the background thread; otherwise a caller parks for them */
    bool in_background;
    uint16_t name_len;
    uint32_t label_len;
    uint32_t seen; /* for the engine: the state of `slot` that the parked caller saw last */
    const char *name, *label;
    /* owner: id of the holder; attempt: id of the try. Two owners exclude each other. A request is
     * repeated and released by its attempt. */
    struct id owner, attempt;
    uint32_t units, capacity;
    int64_t ttl_ms;
    nanos until; /* until when the engine may wait for its own state, such as a mutex */
    union {
        uint64_t token; /* token of the hold, if the caller knows it; 0: unknown */
        /* ACQUIRE, of_several, and the engine offers ENGINE_JOINS: the op that the client submits
         * next if this one is granted, so the engine may ask for both at once, and for those that
         * the next op names in turn. It keeps the replies to them until they are submitted. Valid
         * during submit(); NULL: none. */
        struct engine_op *next;
    };
    /* The fields below belong to the engine. */
    union {                 /* zero at first */
        uint64_t name_hash; /* valid while the name stays the same */
        void *engine_state; /* valid until the op is forgotten */
    };
    uint64_t slot;              /* where the engine keeps this attempt; 0 at first */
    connection_set connections; /* connections on which a reply may arrive */
};

enum reply_kind {
    REPLY_GRANTED,
    REPLY_QUEUED,
    REPLY_BUSY,
    REPLY_EXTENDED,
    REPLY_RELEASED,
    REPLY_NOT_HELD, /* the attempt holds nothing */
    REPLY_UNKNOWN,  /* the request was sent and never answered: unknown outcome */
    /* refused, with `status`; it had no effect unless outcome_unknown is set */
    REPLY_FAILED,
    REPLY_NOTIFY, /* ask again now */
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
    nanos asked_at; /* when the request was handed to the engine, on our clock */
    nanos good;     /* length of the hold, counted from asked_at; core subtracts the drift */
    uint64_t token;
    /* QUEUED, BUSY: when the hold in the way ends; FAILED: when the engine may be reachable;
     * TIME_NEVER: unknown */
    nanos retry_at;
    uint32_t place;       /* QUEUED: position in the queue; 1 is next */
    bool brief;           /* GRANTED: for less than the ttl; the next EXTEND gets the rest */
    bool outcome_unknown; /* FAILED: all, some or none of the request was carried out */
    /* GRANTED, EXTENDED: the last such reply of this op came from another server, with another
     * clock: `good` replaces the earlier end */
    bool is_elsewhere;
    /* GRANTED: every ACQUIRE of this attempt was answered, so none can arrive any more; false: the
     * engine does not know */
    bool is_settled;
    hf_status status; /* FAILED: the reason */
    /* FAILED, NOT_HELD: reason in words; BUSY: the holder in words, or NULL; valid during the
     * call */
    const char *text;
    /* BUSY, and reply to LEAVE: a hold that is in the way; NULL: unknown. Valid during the call. */
    const struct reply_holder *holder;
};
