/* cluster_member.h - one primary of a cluster, as engines/cluster uses it: a followed server
 * (followed_server.h) with these differences.
 *
 * The server has some of the slots. If it refuses a request because the slot is elsewhere, nothing
 * happened: the engine above is told, and the op moves to the member that has the slot now, with
 * all that is known of its earlier requests. If the slot is being moved, the request is sent again
 * later. All keys of a lock are in one slot, and a client proves there that it lives (presence.c).
 *
 * An op belongs to one member at a time, from its first submit until it is forgotten or moves. None
 * of these functions is called from inside a function of the host. */
#pragma once
#include "followed_server.h"
#include "key_slot.h"

struct settings;

/* How a server refused a request. IMPORTING (ASK): the key is on another server already, but the
 * slot as a whole is not. */
enum redis_redirect { REDIS_MOVED, REDIS_IMPORTING, REDIS_TRY_AGAIN, REDIS_CLUSTER_DOWN };

struct redis_cluster_place {
    uint16_t index;            /* index of this member; less than UINT16_MAX */
    unsigned first_connection; /* number of its first connection in the engine above */
    bool polls;                /* setting wake is "poll" */
    void *ctx;
    /* An op moves to this member. If it is the member's first op, the member must get the number of
     * its first connection now. */
    void (*is_needed)(void *ctx);
    /* Called when a request was refused and did nothing. For MOVED and IMPORTING `host` and `port`
     * name the server that has the slot, or will have it; an empty host means the server that
     * refused. Returns the index of that member; -1: none is known. Must not call a member. */
    int (*redirected)(void *ctx, enum redis_redirect how, unsigned slot, const char *host,
                      const char *port);
};

/* Returns the number of connections that a member may need with these settings. */
unsigned redis_cluster_connections(const struct settings *settings, bool polls);
/* Makes an engine a member. Call it after redis_follow_begin(), before the first submit. */
void redis_cluster_join(void *redis, const struct redis_cluster_place *place);
/* Sets the number of the member's first connection, before the first op comes. */
void redis_cluster_set_first_connection(void *redis, unsigned number);
/* Names a slot of this server, for the keys that the greeting tries. */
void redis_cluster_set_probe(void *redis, unsigned slot);

/* Returns the slot of a lock; prefix: value of the setting. */
unsigned redis_cluster_slot(const char *prefix, const char *name, size_t len);
/* Returns the index of the member that the op belongs to; -1: none. */
int redis_cluster_home(const struct engine_op *op);
/* Returns true while a request of the op awaits its reply: then it must not move. */
bool redis_cluster_is_in_flight(const struct engine_op *op);
bool redis_cluster_has_ops(const void *redis);

/* Moves an op that has no request in flight. An unsent request is sent by the new member.
 * Returns false without memory; then the op stays. */
bool redis_cluster_move(void *from, void *to, struct engine_op *op, nanos now);
/* Looks at all ops. If another member has the slot of an op by the table `owner`, a waiter asks
 * again, and an unsent op becomes a stray: it moves with redis_cluster_move_strays(). */
void redis_cluster_review(void *redis, const uint16_t owner[CLUSTER_SLOTS]);
/* Moves the ops whose requests were redirected. `members` is indexed by the members' indexes. */
void redis_cluster_move_strays(void *redis, void *const *members, nanos now);
