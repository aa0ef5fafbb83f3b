/* cluster_setup.h - a cluster of real servers: primaries with all slots, and replicas. */
#pragma once
#include "servers.h"

enum { CLUSTER_MOST = 40, CLUSTER_SLOT_COUNT = 16384 };

struct cluster_options {
    enum server_kind kind;
    unsigned primaries, replicas; /* replicas: number of replicas of each primary */
    const char *password;         /* password of all servers; NULL: none */
    /* time after which a silent server is down for the others; 0: 1000 */
    unsigned node_timeout_ms;
    /* The first server sends from CLUSTER_OWN_ADDRESS, so that rules can tell its connections. */
    bool has_own_address;
    bool tls; /* clients and the bus speak TLS, with the certificates from cluster_tls() */
    /* TLS with a plain port beside: the bus is plain, and nodes name the plain port. */
    bool two_ports;
    const char *const *args; /* further arguments for each server, ends with NULL */
};

#define CLUSTER_OWN_ADDRESS "127.0.0.2"

struct cluster_servers {
    struct cluster_options options;
    unsigned count;
    /* the primaries first; the rest are replicas: replica i follows primary i */
    struct server *server[CLUSTER_MOST];
    char id[CLUSTER_MOST][48];
};

/* When this returns each server knows all others, and every slot has a primary. `options` must
 * outlive the servers. */
void cluster_start(struct cluster_servers *c, const struct cluster_options *options);
/* Writes the URL with all primaries; `query` begins with a question mark, or is "". */
void cluster_url(const struct cluster_servers *c, const char *query, char *url, size_t size);
/* Returns the primary of the slot of that key, according to the first server that is up. */
unsigned cluster_primary_of(const struct cluster_servers *c, const char *key);
unsigned cluster_slot_of(const struct cluster_servers *c, const char *key);
/* Moves a slot with all its keys from one primary to another, as redis-cli --cluster reshard does.
 */
void cluster_move_slot(const struct cluster_servers *c, unsigned slot, unsigned from, unsigned to);
/* cluster_move_slot() in steps: begin, some or all keys, end. */
void cluster_move_begin(const struct cluster_servers *c, unsigned slot, unsigned from, unsigned to);
/* Moves at most `most` keys. Returns how many there were. */
unsigned cluster_move_keys(const struct cluster_servers *c, unsigned slot, unsigned from,
                           unsigned to, unsigned most);
void cluster_move_end(const struct cluster_servers *c, unsigned slot, unsigned from, unsigned to);
/* Waits until all primaries know that the move has ended. Call it before the next move. */
void cluster_await_move(const struct cluster_servers *c, unsigned slot, unsigned to);
/* Moves a slot in one step, as newer servers can: Redis 8.4 or Valkey 9. Returns false if these
 * servers cannot. */
bool cluster_move_whole(const struct cluster_servers *c, unsigned slot, unsigned from, unsigned to);
/* Moves that many slots, the lowest ones of `from`, as an operator does: redis-cli. */
void cluster_reshard(const struct cluster_servers *c, unsigned from, unsigned to, unsigned slots);
/* Ends what an interrupted move left half open: redis-cli --cluster fix. */
void cluster_fix(const struct cluster_servers *c, unsigned any);
/* Returns the folder with the certificates of all servers and clients. */
const char *cluster_tls(const struct cluster_servers *c);
/* Waits until the replica has all that the primary was told so far. */
void cluster_await_replica(const struct cluster_servers *c, unsigned primary, unsigned replica);
/* Waits until that server is a primary. */
void cluster_await_promotion(const struct cluster_servers *c, unsigned index);
