/* pg_session.h - one connection of libpq in pipeline mode, behind functions that never block. No
 * other file of this room knows libpq.
 *
 * Every statement is a transaction of its own: a Sync follows it. Its reply is passed on only after
 * the answer to that Sync, because a row arrives before its commit, and a commit may fail. */
#pragma once
#include "holdfast.h"

#include <stdbool.h>
#include <stddef.h>

struct pg_session;

enum pg_progress { PG_CONNECTING, PG_CONNECTED, PG_FAILED };

/* The reply to one statement; valid until the next call for the session. */
struct pg_reply {
    const char *sqlstate; /* SQLSTATE of the error; NULL: the statement succeeded */
    const char *text;     /* the error in the server's words */
    /* a warning of class 01 came with the reply: the commit may not have been replicated */
    bool warned;
    int rows;
    const void *result;
};

/* A connection keyword of libpq, and its value. */
struct pg_keyword {
    char *name, *value; /* freed by pg_keywords_free() */
};
enum { PG_KEYWORDS_MAX = 48 };
struct pg_keywords {
    struct pg_keyword word[PG_KEYWORDS_MAX + 1]; /* list of keywords; ends with NULL */
    int count;
};

/* Reads a URI as libpq does. HF_CONFIG: `why` says what is wrong, without passwords.
 * HF_NO_MEMORY. */
hf_status pg_keywords_read(struct pg_keywords *keywords, const char *uri, char *why, size_t size);
bool pg_keywords_set(struct pg_keywords *keywords, const char *name, const char *value);
/* Returns the value of a keyword; "": none. */
const char *pg_keywords_get(const struct pg_keywords *keywords, const char *name);
void pg_keywords_free(struct pg_keywords *keywords);
/* Returns true if a keyword of that name may stand in a URL. */
bool pg_keyword_is_known(const char *name, size_t len);

/* Returns NULL without memory. May return a session that has already failed; pg_session_connect()
 * then reports the failure. */
struct pg_session *pg_session_open(const struct pg_keywords *keywords);
void pg_session_close(struct pg_session *s);
enum pg_progress pg_session_connect(struct pg_session *s); /* Continues to connect. */
/* Returns the descriptor of the socket; -1: none. */
int pg_session_fd(const struct pg_session *s);
bool pg_session_wants_to_write(const struct pg_session *s);
bool pg_session_wants_to_read(const struct pg_session *s);
/* Returns why the session failed, in one line. */
const char *pg_session_error(const struct pg_session *s);
/* Returns the id of the server process, as the handshake said. */
int pg_session_pid(const struct pg_session *s);

/* Sends the prepared statement called `name`, or the text `sql` if `name` is NULL. Returns false if
 * the session failed. */
bool pg_session_prepare(struct pg_session *s, const char *name, const char *sql);
bool pg_session_execute(struct pg_session *s, const char *name, const char *sql, int count,
                        const char *const *values);
/* Reads and writes as far as the socket allows. Returns false if the session failed; replies
 * that arrived before can still be taken. */
bool pg_session_process(struct pg_session *s);
/* Takes the next complete reply. Returns false if there is none. */
bool pg_session_next(struct pg_session *s, struct pg_reply *reply);
/* Takes the payload of the next notification into `payload`. Returns false if there is none. */
bool pg_session_notification(struct pg_session *s, char *payload, size_t size);

/* Returns a value of the row; "" for NULL. */
const char *pg_reply_value(const struct pg_reply *reply, int row, int column);
