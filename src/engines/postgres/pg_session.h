/* pg_session.h - one connection of libpq, in pipeline mode, behind functions that never block. No
 * other file of this room knows libpq.
 *
 * Every statement is a transaction of its own: a Sync follows it. Its reply is passed on when that
 * Sync was answered, because a row arrives before its commit, and a commit may fail. */
#pragma once
#include "holdfast.h"

#include <stdbool.h>
#include <stddef.h>

struct pg_session;

enum pg_progress { PG_CONNECTING, PG_CONNECTED, PG_FAILED };

/* The reply to one statement; valid until the next call for the session. */
struct pg_reply {
    const char *sqlstate; /* code of the error; NULL: the statement succeeded */
    const char *text;     /* the error in the server's words */
    bool warned; /* the commit may not have been replicated: a warning of class 01 came with it */
    int rows;
    const void *result;
};

/* A keyword of libpq with its value. */
struct pg_keyword {
    char *name, *value; /* freed by pg_keywords_free() */
};
enum { PG_KEYWORDS_MAX = 48 };
struct pg_keywords {
    struct pg_keyword word[PG_KEYWORDS_MAX + 1]; /* ends with NULL */
    int count;
};

/* Reads a URI as libpq does. HF_CONFIG with words in `why`, which show no password; HF_NO_MEMORY.
 */
hf_status pg_keywords_read(struct pg_keywords *keywords, const char *uri, char *why, size_t size);
bool pg_keywords_set(struct pg_keywords *keywords, const char *name, const char *value);
const char *pg_keywords_get(const struct pg_keywords *keywords, const char *name); /* "": none */
void pg_keywords_free(struct pg_keywords *keywords);
/* Is this the name of a keyword that may stand in a URL? */
bool pg_keyword_is_known(const char *name, size_t len);

/* NULL: no memory. The session may have failed already: pg_session_connect() says so. */
struct pg_session *pg_session_open(const struct pg_keywords *keywords);
void pg_session_close(struct pg_session *s);
enum pg_progress pg_session_connect(struct pg_session *s); /* goes on connecting */
int pg_session_fd(const struct pg_session *s);             /* -1: none */
bool pg_session_wants_to_write(const struct pg_session *s);
bool pg_session_wants_to_read(const struct pg_session *s);
const char *pg_session_error(const struct pg_session *s); /* why it failed, on one line */
int pg_session_pid(const struct pg_session *s); /* of the server process, as the handshake said */

/* Sends a statement: `name` was prepared, or is NULL and `sql` is the text. Returns false if the
 * session failed. */
bool pg_session_prepare(struct pg_session *s, const char *name, const char *sql);
bool pg_session_execute(struct pg_session *s, const char *name, const char *sql, int count,
                        const char *const *values);
/* Reads and writes what the socket has and takes. Returns false if the session failed; replies that
 * came before are still there. */
bool pg_session_process(struct pg_session *s);
/* Takes the next whole reply. Returns false if there is none. */
bool pg_session_next(struct pg_session *s, struct pg_reply *reply);
/* Takes the payload of the next notification into `payload`. Returns false if there is none. */
bool pg_session_notification(struct pg_session *s, char *payload, size_t size);

const char *pg_reply_value(const struct pg_reply *reply, int row, int column); /* "": NULL */
