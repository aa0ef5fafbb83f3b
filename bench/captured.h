/* captured.h - what a client of the library sends for a cycle, learnt by listening to one: the ceiling sends the same.
 */
#pragma once
#include "crew.h"

#include <stddef.h>
#include <stdint.h>

enum { ID_LEN = 22, TOKEN_LEN = 16, PHRASES_MOST = 4, PLACES_MOST = 4, SERVERS_MOST = 5 };

/* A command, and where in it stands what each cycle has anew. */
struct phrase {
    char *bytes;
    size_t len;
    size_t id_at[PLACES_MOST], token_at[PLACES_MOST];
    int ids, tokens;
};

/* A cycle on one server: the ask comes first, the release last, between them what a quorum writes back. */
struct captured {
    int phrases;
    struct phrase phrase[PHRASES_MOST];
    struct phrase pop; /* on the second connection, when it was told to wait; len 0: it was not */
    char box[128];     /* where it is told that it has the lock */
};

/* Runs two cycles through the library, in which it must wait if b->workers is more than 1, and compares: what differs
 * is what a cycle has anew. b->url is redis://127.0.0.1:PORT/... or redlock://127.0.0.1:PORT,127.0.0.1:PORT...; fills
 * one entry a server, returns how many. A cycle is `phrases` commands. Afterwards the servers know the scripts. */
int capture(const struct bench *b, int phrases, struct captured captured[SERVERS_MOST]);

/* An argument may be several numbers and ids with spaces between them: the length of the first. */
size_t part_len(const char *word, size_t len);

/* The same for any kind of lock, without the comparing: what was sent after the first cycle is in the recorders. */
struct recorder;
int record_cycles(const struct bench *b, const struct lock_kind *kind, int cycles,
                  struct recorder *recorder[SERVERS_MOST]);

struct phrase phrase_copy(const struct phrase *phrase);
void phrase_free(struct phrase *phrase);
/* Replaces every occurrence by something as long. */
void phrase_replace(struct phrase *phrase, const char *old, const char *new);
void phrase_set_id(struct phrase *phrase, const char *id);
void phrase_set_token(struct phrase *phrase, const char *token);
/* An id that no other cycle of any worker has. */
void phrase_next_id(char id[ID_LEN], int worker, uint64_t cycle);
