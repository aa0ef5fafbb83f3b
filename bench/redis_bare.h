/* redis_bare.h - the ceilings on Redis: loops that send what the library sends, or less, and do nothing else. */
#pragma once
#include "captured.h"
#include "crew.h"

extern const struct lock_kind BARE;      /* our bytes; capture first: bare_learn */
extern const struct lock_kind BARE_LOCK; /* SET NX PX and compare-and-delete: no token, no queue, nobody waits */

extern const struct lock_kind BARE_QUORUM; /* our bytes on several servers; capture first: quorum_learn. Nobody waits */

void quorum_learn(const struct bench *b);
void bare_learn(const struct bench *b); /* before any worker is started */
const struct captured *bare_learnt(void);

/* What the bare lock sends. */
struct phrase bare_lock_set(void);
struct phrase bare_lock_delete(const struct bench *b); /* the server knows the script from then on */

/* `depth` cycles under way on one connection, each on a name of its own. */
int run_pipeline(const struct bench *b, int depth);
/* So many connections with one cycle under way on each, in one process. */
int run_connections(const struct bench *b, int connections);
/* From the sending of an RPUSH to the return of the BLPOP that waited for it in another process. */
int run_wake_up(const struct bench *b);
