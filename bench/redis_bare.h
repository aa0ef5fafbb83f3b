/* redis_bare.h - the ceilings on Redis: loops that send what the library sends, or less, and do
 * nothing else. */
#pragma once
#include "captured.h"
#include "workload.h"

extern const struct lock_kind BARE; /* sends the same bytes as the library; call bare_learn first */
extern const struct lock_kind
    BARE_LOCK; /* SET NX PX, compare-and-delete: no token, no queue, no waiting */
/* BLPOP, RPUSH: an order, but no token; call bare_queue_fill first */
extern const struct lock_kind BARE_QUEUE;

/* Sends the same bytes as the library to several servers, without waiting; call quorum_learn
 * first. */
extern const struct lock_kind BARE_QUORUM;

void quorum_learn(const struct bench *b);
void bare_learn(const struct bench *b); /* call it before any worker is started */
const struct captured *bare_learnt(void);

void bare_queue_fill(const struct bench *b); /* call it before any worker is started */

/* Make the commands of the bare lock. */
struct phrase bare_lock_set(void);
struct phrase bare_lock_delete(const struct bench *b); /* also loads the script */

/* Runs `depth` cycles in flight on one connection, each on its own name. */
int run_pipeline(const struct bench *b, int depth);
/* Runs one process with `connections` connections and one cycle in flight on each. */
int run_connections(const struct bench *b, int connections);
/* Measures the time from the sending of an RPUSH to the return of the BLPOP that waited for it in
 * another process. */
int run_wake_up(const struct bench *b);
