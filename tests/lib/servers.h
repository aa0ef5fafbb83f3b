/* servers.h - real Redis and Valkey servers for tests, each a process with a directory, a loopback
 * port and a Unix socket of its own. The test starts, stops, kills, pauses and questions them; they
 * end with the test whatever happens.
 *
 * A function that cannot do its work fails the test that called it. A server belongs to the process
 * that started it, and dies with the thread that did: start it on a thread that stays. Questions
 * may be asked from any process and thread. */
#pragma once
#include "sentence.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum server_kind { SERVER_REDIS, SERVER_VALKEY };

/* All zero: a Redis without TLS and password that keeps no data. */
struct server_options {
    enum server_kind kind;
    bool tls;        /* the port speaks TLS and asks for a client certificate; see server_file() */
    bool appendonly; /* every write is on disk before it is answered */
    const char *password;    /* of the user "default"; NULL: none */
    const char *sentinel;    /* a sentinel with these lines of configuration; NULL: a server */
    const char *const *args; /* more of the command line, ends with NULL; NULL: none */
    const char *preload;     /* a library that the server loads before all others; NULL: none */
    const char *
        locales; /* a folder with en_US.UTF-8, which the server sorts by; NULL: it sorts by bytes */
};

struct server;

/* Returns why this kind cannot be started here; NULL: it can be. */
const char *server_missing(enum server_kind kind);
/* First line of a test that needs a server: skips the test, with the reason, where it cannot be
 * started. */
void server_needed(enum server_kind kind);

/* Starts a server, and returns when it answers. `options` may be NULL; what it points to must
 * outlive the server. */
struct server *server_start(const struct server_options *options);
/* Ends the server, removes its directory, frees it. */
void server_end(struct server *s);
void servers_end(void); /* ends all of them */

/* ---- Where it is ---- */

uint16_t server_port(const struct server *s); /* on 127.0.0.1; stays the same after a restart */
const char *server_directory(const struct server *s);
const char *server_socket(
    const struct server *s); /* path of its Unix socket: plain even where the port speaks TLS */
/* password of the user "default"; NULL: none */
const char *server_password(const struct server *s);
pid_t server_pid(const struct server *s); /* 0: it is down */
/* Returns the path of a file in the server's directory, valid until the fourth call from here:
 * "log"; with TLS also ca.crt, client.crt, client.key, and another authority's stranger-ca.crt,
 * stranger.crt, stranger.key. */
const char *server_file(const struct server *s, const char *name);

/* ---- What happens to it ---- */

void server_stop(struct server *s);  /* SIGTERM, and waits for its end */
void server_kill9(struct server *s); /* SIGKILL, and waits for its end */
/* Starts the server again on the same port, and stops it first if it is up. Only appendonly has
 * data to keep. */
void server_restart(struct server *s, bool keep_data);
void server_pause(struct server *s);    /* SIGSTOP, and waits until it stands still */
void server_continue(struct server *s); /* SIGCONT */
/* Makes the server follow that primary; when this returns, writes stream to it. NULL: makes it a
 * primary itself. */
void server_replica_of(struct server *s, struct server *primary);

/* ---- Users ---- */

/* Gives the server the user that docs/redis-operations.md describes, with the password PASSWORD,
 * under that name. `without`: a right that the user does not get, written as there ("+get"); it
 * must be among them. NULL: the user gets all. */
void server_add_locker(const struct server *s, const char *name, const char *without);
/* Returns the rights in that document, one after the other; NULL: no more. */
const char *locker_right(size_t index);

/* ---- Questions ---- */

/* true if the server answers a PING; false also while it is not up yet */
bool server_answers(const struct server *s);
/* Opens a connection of the test's own, logged in; the caller frees it. For more than one
 * command. */
redisContext *server_connect(const struct server *s);
/* Sends one command on a connection of its own, written as for redisCommand(): "SET %s %b". Returns
 * the reply, which may be an error; the caller frees it with freeReplyObject(). */
redisReply *server_cli(const struct server *s, const char *format, ...);
void server_does(const struct server *s, const char *format,
                 ...); /* the server must not answer with an error */
int64_t server_count(const struct server *s, const char *format,
                     ...); /* the server must answer with an integer */
/* Returns a number of INFO: ("stats", "total_commands_processed"), which must be there. Each
 * question is a command itself. */
int64_t server_info_number(const struct server *s, const char *section, const char *field);
/* Returns how often a command ran ("evalsha", "script|load"), questions of the test included. */
int64_t server_calls(const struct server *s, const char *command);
/* Returns what the server's wall clock shows. */
int64_t server_clock_us(const struct server *s);

/* Returns a loopback port that nobody listens on now, outside the range from which the kernel
 * picks. */
uint16_t free_port(void);
