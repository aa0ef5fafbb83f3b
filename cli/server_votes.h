/* server_votes.h - the state of a name on each server of a quorum, as hf_show_servers reports
 * it. */
#pragma once
#include "row_list.h"

enum { SERVER_VOTES_MAX = 16 };

struct server_vote {
    char where[300], text[400];
    bool answered, counts, held;
    size_t holder; /* index of the holder's row, if held */
};

struct server_votes {
    struct server_vote all[SERVER_VOTES_MAX];
    size_t count;
    struct row_list holders;
};

/* An hf_server_state_fn; arg is a struct server_votes that began as zero. */
void server_votes_add(void *server_votes, const struct hf_server_state *server_vote);
void server_votes_free(struct server_votes *server_votes);

/* For a lock without a holder on a majority: prints whether it is free, and if not, which
 * servers are in the way and why. */
void server_votes_print_votes(const struct server_votes *server_votes, const char *name);
void server_votes_print(const struct server_votes *server_votes);
/* Prints one object for each server, after `printed` others of the same array. */
void server_votes_print_json(const struct server_votes *server_votes, const char *name,
                             size_t printed);
