/* captured.h - records the commands that the library sends in a cycle, so that the ceiling can send
 * the same. A cycle is one acquire and one release. */
#pragma once
#include "workload.h"

#include <stddef.h>
#include <stdint.h>

enum { ID_LEN = 22, TOKEN_LEN = 16, PHRASES_MOST = 4, PLACES_MOST = 4, SERVERS_MOST = 5 };

/* A command, and the offsets of the ids and tokens in it that differ in each cycle. */
struct phrase {
    char *bytes;
    size_t len;
    size_t id_at[PLACES_MOST], token_at[PLACES_MOST];
    int ids, tokens;
};

/* A cycle on one server: first the acquire, last the release, and between them the command with
 * which a quorum writes its token back. */
struct captured {
    int phrases;
    struct phrase phrase[PHRASES_MOST];
    struct phrase pop; /* sent by a waiter on its second connection; len 0 if it did not wait */
    char box[128];     /* key of the inbox in which a waiter is notified of its grant */
};

/* Runs two cycles through the library and compares their commands: the bytes that differ are the
 * ids and tokens of a cycle. The library must wait in each cycle if b->workers is more than 1.
 * b->url is redis://127.0.0.1:PORT/... or redlock://127.0.0.1:PORT,127.0.0.1:PORT... Fills one
 * entry for each server and returns their number. A cycle must be `phrases` commands. Afterwards
 * the servers have the scripts. */
int capture(const struct bench *b, int phrases, struct captured captured[SERVERS_MOST]);

/* Returns true if the argument is a number of ms, which may differ between two cycles. */
bool is_measured_time(const char *word, size_t len);
/* Returns the length of the first part of an argument. Parts are numbers and ids, separated by
 * spaces. */
size_t part_len(const char *word, size_t len);

/* Runs cycles of any kind of lock through recorders, which keep what was sent after the first
 * cycle. Returns the number of servers. */
struct recorder;
int record_cycles(const struct bench *b, const struct lock_kind *kind, int cycles,
                  struct recorder *recorder[SERVERS_MOST]);

struct phrase phrase_copy(const struct phrase *phrase);
void phrase_free(struct phrase *phrase);
/* Replaces every occurrence of `old` by `new`, which must have the same length. */
void phrase_replace(struct phrase *phrase, const char *old, const char *new);
void phrase_set_id(struct phrase *phrase, const char *id);
void phrase_set_token(struct phrase *phrase, const char *token);
/* Makes an id that is unique among all cycles of all workers. */
void phrase_next_id(char id[ID_LEN], int worker, uint64_t cycle);
