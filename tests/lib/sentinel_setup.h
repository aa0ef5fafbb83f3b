/* sentinel_setup.h - a primary with replicas, and sentinels that watch it. */
#pragma once
#include "servers.h"

enum { WATCHED_MOST = 3 };

struct watched_options {
    unsigned replicas, sentinels;  /* at most WATCHED_MOST - 1 and WATCHED_MOST */
    const char *password;          /* password of all servers; NULL: none */
    const char *sentinel_password; /* password of all sentinels; NULL: none */
    const char *preload;           /* library that all servers load first; NULL: none */
    const char *lines; /* more configuration of all sentinels, lines with their ends; NULL: none */
    /* Sentinels and replicas log in as users of their own: watched_shut_out(). Needs a password:
     * otherwise a process that is refused would go on as the default user. */
    bool has_users;
    bool tls; /* all speak TLS, with the certificate of locks.example from watched_tls() */
};

struct watched {
    struct watched_options options;
    struct server *server[WATCHED_MOST]; /* the first one begins as the primary */
    struct server *sentinel[WATCHED_MOST];
};

/* Starts all servers. When this returns each sentinel knows the others and all replicas. A primary
 * that is silent for a second is down for them. `options` must outlive the servers. */
void watched_start(struct watched *w, const struct watched_options *options);
/* Writes the URL with all sentinels; `query` begins with a question mark, or is "". */
void watched_url(const struct watched *w, const char *query, char *url, size_t size);
/* Returns the folder with the certificates of all servers and clients. */
const char *watched_tls(const struct watched *w);
/* With has_users: makes that server refuse the sentinel with that index, as if the network were cut
 * between the two. WATCHED_MOST: it refuses the replicas. Clients are not concerned. */
void watched_shut_out(const struct server *server, unsigned sentinel);
void watched_let_in(const struct server *server, unsigned sentinel);
/* Returns true if that sentinel names that server as the primary. */
bool watched_is_named(const struct server *sentinel, const struct server *server);
/* Returns the server that most sentinels name now. */
struct server *watched_primary(const struct watched *w);
/* Waits until each sentinel names another primary than that one. Returns the new one. */
struct server *watched_await_switch(const struct watched *w, const struct server *old);

/* Waits until no sentinel sees the primary down or a failover under way, and all name the same. */
void watched_await_rest(const struct watched *w);

/* Replicas that cannot log in any more keep what they had. Needs a password. */
void watched_cut_replicas(const struct watched *w);

/* Listens to all sentinels from now on. */
void watched_listen(const struct watched *w);
/* Waits until a sentinel announces a new primary, and ends the listening. Returns the time of the
 * first announcement since watched_listen(): the leader of a failover announces it seconds later
 * than the others. */
int64_t watched_await_announcement(void);
