/* postgres_servers.h - real PostgreSQL servers for tests, each with a data directory and a loopback
 * port of its own. PostgreSQL refuses to run as root: then its processes run as the user postgres.
 *
 * A function that cannot do its work fails the test that called it. A server dies with the thread
 * that started it. The database is "postgres", the superuser too; every local user may log in as
 * anybody. */
#pragma once
#include "sentence.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct postgres_server;

/* Returns why there can be no server here; NULL: there can be one. */
const char *postgres_missing(void);
void postgres_needed(void); /* skips the test, with the reason */

/* Starts a server, and returns when it answers. `settings`: "fsync=on", ends with NULL; NULL: none.
 * They must outlive the server. fsync is off unless they say otherwise. */
struct postgres_server *postgres_start(const char *const *settings);
/* Starts a standby that follows the primary. */
struct postgres_server *postgres_start_standby(struct postgres_server *primary,
                                               const char *const *settings);
/* Returns why there can be no pooler here; NULL: there can be one. */
const char *postgres_pooler_missing(void);
/* Returns the port of a pooler (PgBouncer, transaction mode) in front of the server, with so many
 * sessions. One for each server; it ends with the server. */
uint16_t postgres_pooler(struct postgres_server *s, unsigned sessions);
void postgres_end(struct postgres_server *s); /* ends the server, removes its directory, frees it */
void postgres_servers_end(void);              /* ends all of them */

uint16_t postgres_port(const struct postgres_server *s); /* stays the same after a restart */
pid_t postgres_pid(const struct postgres_server *s);     /* 0: it is down */
const char *postgres_directory(const struct postgres_server *s);

void postgres_crash(struct postgres_server *s);   /* sends SIGKILL to all its processes */
void postgres_stop(struct postgres_server *s);    /* shuts down cleanly */
void postgres_restart(struct postgres_server *s); /* starts it again, after a crash or a stop */
void postgres_promote(struct postgres_server *s); /* makes a standby a primary */

/* Runs SQL with psql and copies what it prints, without the last newline. Returns its exit code. */
int postgres_sql(const struct postgres_server *s, const char *sql, char *out, size_t size);
/* As postgres_sql(), but must succeed. Returns the first number that it prints. */
int64_t postgres_number(const struct postgres_server *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
