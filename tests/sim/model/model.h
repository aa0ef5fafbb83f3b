/* model.h - a Redis 7.0 server for the simulator: bytes and a time go in, bytes come out; the same
 * seed and the same calls give the same bytes. It runs the shipped Lua scripts on liblua5.1.
 *
 * It answers as a server does, byte for byte; sim/model_compare.c compares it with real ones. What
 * it deliberately does not have: RESP3 (HELLO is an unknown command), passwords (AUTH is accepted),
 * inline requests, transactions, patterns of channels, and commands beyond the list in
 * commands.def. SCAN and HRANDFIELD choose their own order.
 *
 * A connection is a small number. All that comes out waits until it is taken. Nothing here is
 * thread-safe. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redis_model;

#define MODEL_NEVER INT64_MAX

/* The mistakes that can be planted, each of which a comparison with a real server must find. */
enum model_plant {
    MODEL_HONEST,
    MODEL_LATE_EXPIRY,   /* a key lives one millisecond too long */
    MODEL_TIES,          /* members of equal score stand in the order of their arrival */
    MODEL_ROUNDS,        /* a script's numbers are rounded instead of cut off */
    MODEL_FULL_RUNS,     /* a script without flags runs although the memory is full */
    MODEL_FORGETS_KEEPS, /* SET without KEEPTTL keeps the time to live */
};

/* Opening compiles nothing and costs milliseconds; a reset costs microseconds and keeps the
 * compiled scripts. */
struct redis_model *model_open(uint64_t seed);
void model_reset(struct redis_model *model,
                 uint64_t seed); /* as if newly opened: no data, connections, scripts; honest */
void model_close(struct redis_model *model);

/* The server's wall clock, in microseconds since 1970. It may step back. Starts at 1 January 2025.
 */
void model_time_set(struct redis_model *model, int64_t us);
int64_t model_time(const struct redis_model *model);
/* When a blocked request runs out, on that clock; MODEL_NEVER if none does. */
int64_t model_next_event(const struct redis_model *model);
/* Answers the blocked requests that have run out by now. */
void model_advance(struct redis_model *model);

unsigned model_connect(struct redis_model *model); /* the number of the new connection */
void model_disconnect(struct redis_model *model, unsigned connection);
bool model_connected(const struct redis_model *model, unsigned connection);

/* Takes bytes of requests, split anywhere, and executes those that are complete, now. Bytes for a
 * connection that is gone are dropped. A request that is none is answered by an error, and the
 * connection is gone once that is taken. */
void model_feed(struct redis_model *model, unsigned connection, const void *bytes, size_t len);
/* What came out for this connection since the last call; *len is 0 if nothing did. Good until the
 * next call. */
const char *model_take(struct redis_model *model, unsigned connection, size_t *len);
/* A connection with something to take, the lowest; -1 if there is none. */
int model_ready(const struct redis_model *model);

/* The server dies and starts again: connections and loaded scripts are gone, the run id is a new
 * one; data is what an append-only file written to the last byte would keep, or nothing. */
void model_restart(struct redis_model *model, bool keep_data);
/* Remembers the data as a replica has it now, then makes that replica the server: as after a
 * restart, with that data.
 */
void model_snapshot(struct redis_model *model);
void model_promote(struct redis_model *model);
/* Data and libraries of `to` become those of `from`, as a replica has them. */
void model_copy(struct redis_model *to, const struct redis_model *from);
/* A replica says so in INFO and refuses what writes. A server that becomes one closes its
 * connections, unless it is one of a cluster. */
void model_set_replica(struct redis_model *model, bool is_replica);
/* ---- A server of a cluster ---- */

/* What it believes of a slot. */
enum model_slot {
    MODEL_SLOT_OWN,
    MODEL_SLOT_MIGRATING, /* its own, and being moved to another server */
    MODEL_SLOT_ELSEWHERE,
    MODEL_SLOT_IMPORTING, /* another server's, and being moved here */
    MODEL_SLOT_DOWN,      /* the cluster is down */
};
struct model_cluster {
    void *ctx;
    unsigned (*slot_of)(const char *key, size_t len);
    /* *other, as "host:port": where the slot is, or is being moved to */
    enum model_slot (*look)(void *ctx, unsigned slot, const char **other);
    /* Its reply to CLUSTER SLOTS, good until the next call. */
    const char *(*map)(void *ctx, size_t *len);
    /* While a slot is moved, a request whose keys are on both servers is told TRYAGAIN, as from
     * Redis 7.2 on; ASK before. */
    bool tries_again;
    bool is_always_asked; /* planted: every request counts as one behind ASKING */
};
/* The server belongs to a cluster until the next reset. `cluster` is kept. */
void model_join(struct redis_model *model, const struct model_cluster *cluster);
/* The slot is another server's now: ends the subscriptions there. */
void model_end_slot(struct redis_model *model, unsigned slot);
void model_empty_slot(struct redis_model *model, unsigned slot);
/* Moves one key of that slot as MIGRATE with REPLACE does: its time to live goes on by the clock of
 * `to`. Returns false if there is none. */
bool model_migrate(struct redis_model *from, struct redis_model *to, unsigned slot);

/* maxmemory is reached, and nothing may be evicted. */
void model_full(struct redis_model *model, bool full);
void model_script_flush(struct redis_model *model);
void model_function_flush(struct redis_model *model);
/* Whether the server offers functions. */
enum model_functions {
    MODEL_FUNCTIONS,      /* yes */
    MODEL_NO_FUNCTIONS,   /* no such command, as behind some proxies */
    MODEL_FUNCTION_DENIED /* the user may call functions, but not load them */
};
void model_offer_functions(struct redis_model *model, enum model_functions functions);
void model_script_recall(struct redis_model *model); /* every script and library that it ever
                                                        compiled, as others have left them */
void model_replicas(struct redis_model *model,
                    unsigned count); /* that follow: WAIT waits for them; 0 at first */
void model_plant(struct redis_model *model, enum model_plant plant);

/* The n-th call of a command by a script from now on (1: the next one) is refused with that error,
 * and has no effect; 0: none is. One that repeats the command and the key of the call before it is
 * not refused, for the server has just allowed that: it is the one behind it then. The text is kept
 * until the next call of this function. */
void model_fail_call(struct redis_model *model, uint64_t nth, const char *error);
/* What scripts called in a line of theirs. */
struct model_line {
    uint64_t first; /* the first call that can be refused, as model_fail_call() counts; 0: none */
    bool is_called;
};
/* From now on notes that of each line below `lines`; NULL: no more. */
void model_note_lines(struct redis_model *model, struct model_line *line, unsigned lines);
/* The user of every connection may not use that command (in lower case), in a script or without;
 * NULL: it may use all.
 */
void model_forbid(struct redis_model *model, const char *command);

/* How often scripts ran, how many of those runs ended in an error, and whose connection ran the
 * last one. */
struct model_counts {
    uint64_t requests, scripts, script_errors;
    uint64_t calls;      /* of commands, by scripts */
    uint64_t refused;    /* of those: by model_fail_call() or model_forbid() */
    char refused_in[41]; /* the hash of the script whose call was refused last, */
    int refused_line;    /* and the line of that call */
    unsigned by;
};
struct model_counts model_counts(const struct redis_model *model);

/* ---- Looking inside, for tests: what the server has, without a request ---- */

struct model_key {
    const char *name; /* not terminated; good until the next call */
    size_t len;
    char kind;       /* s string, l list, h hash, z sorted set */
    int64_t left_ms; /* -1: for ever */
    uint32_t items;
    unsigned slot;
};
struct model_item {
    const char *name, *value; /* of a string and of a list's element the name */
    size_t name_len, value_len;
    double score;
};
/* The key of that name in database 0, if it is there and has not expired. */
bool model_look(const struct redis_model *model, const char *name, size_t len,
                struct model_key *key);
/* The keys of all databases one after the other: *slot begins at 0. False: that was all. */
bool model_look_next(const struct redis_model *model, unsigned *slot, struct model_key *key);
struct model_item model_look_item(const struct redis_model *model, const struct model_key *key,
                                  uint32_t index);

/* A script is compiled from what `spoil` makes of its text (NULL: from the text itself) and is
 * known by the hash of the text as it came. For scripts that are loaded from now on for the first
 * time; the result is copied. */
typedef const char *model_spoil_fn(const char *text, size_t len, size_t *spoilt_len);
void model_spoil(struct redis_model *model, model_spoil_fn *spoil);
