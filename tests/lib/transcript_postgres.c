/* transcript_postgres.c - a made-up backend behind pg_session.h, for an engine whose socket is
 * moved by libpq: statements come out, replies go in, and no byte is seen.
 *
 *     EXPECT 0 PREPARE NAME          the engine prepares a statement
 *     EXPECT 0 NAME VALUE...         it executes one; without a name, its text in quotes
 *     CONNECTED 0                    the server accepts the connection
 *     SEND 0 ROWS A|B;C|D            the reply to the oldest statement: rows of columns
 *     SEND 0 OK                      the same without rows
 *     SEND 0 ERROR SQLSTATE TEXT     the statement failed
 *     NOTIFY 0 PAYLOAD               a notification
 *     BROKEN 0 TEXT                  the connection is lost */
#include "engines/postgres/pg_session.h"
#include "transcript_dialect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPLIES = 32, ROWS = 8, COLUMNS = 24, FD = 1000 /* a descriptor that is never polled */ };

struct made_reply {
    struct pg_reply reply;
    char text[TRANSCRIPT_LINE]; /* NULs between the columns */
    const char *column[ROWS][COLUMNS];
};

struct pg_session {
    enum pg_progress progress;
    struct made_reply reply[REPLIES];
    unsigned first, count; /* replies that the engine has not taken */
    char notification[256];
    char error[256];
    bool is_broken;
};

static struct pg_session *session; /* the one that was opened last */

/* ---- pg_session.h ---- */

struct pg_session *__wrap_pg_session_open(const struct pg_keywords *keywords);
struct pg_session *__wrap_pg_session_open(const struct pg_keywords *keywords)
{
    (void)keywords;
    session = calloc(1, sizeof *session);
    return session;
}

void __wrap_pg_session_close(struct pg_session *s);
void __wrap_pg_session_close(struct pg_session *s)
{
    session = s == session ? NULL : session;
    free(s);
}

enum pg_progress __wrap_pg_session_connect(struct pg_session *s);
enum pg_progress __wrap_pg_session_connect(struct pg_session *s)
{
    return s->is_broken ? PG_FAILED : s->progress;
}

int __wrap_pg_session_fd(const struct pg_session *s);
int __wrap_pg_session_fd(const struct pg_session *s)
{
    (void)s;
    return FD;
}

bool __wrap_pg_session_wants_to_write(const struct pg_session *s);
bool __wrap_pg_session_wants_to_write(const struct pg_session *s)
{
    (void)s;
    return false;
}

bool __wrap_pg_session_wants_to_read(const struct pg_session *s);
bool __wrap_pg_session_wants_to_read(const struct pg_session *s)
{
    (void)s;
    return true;
}

const char *__wrap_pg_session_error(const struct pg_session *s);
const char *__wrap_pg_session_error(const struct pg_session *s)
{
    return s->error;
}

int __wrap_pg_session_pid(const struct pg_session *s);
int __wrap_pg_session_pid(const struct pg_session *s)
{
    (void)s;
    return 4711;
}

bool __wrap_pg_session_prepare(struct pg_session *s, const char *name, const char *sql);
bool __wrap_pg_session_prepare(struct pg_session *s, const char *name, const char *sql)
{
    (void)sql;
    note("EXPECT 0 PREPARE %s\n", name);
    return !s->is_broken;
}

bool __wrap_pg_session_execute(struct pg_session *s, const char *name, const char *sql, int count,
                               const char *const *values);
bool __wrap_pg_session_execute(struct pg_session *s, const char *name, const char *sql, int count,
                               const char *const *values)
{
    note("EXPECT 0 %s", name ? name : "\"");
    if (!name) {
        print_word(sql, strlen(sql));
        note("\"");
    }
    for (int i = 0; i < count; i++) {
        note(" ");
        print_word(values[i] ? values[i] : "NULL", strlen(values[i] ? values[i] : "NULL"));
    }
    note("\n");
    return !s->is_broken;
}

bool __wrap_pg_session_process(struct pg_session *s);
bool __wrap_pg_session_process(struct pg_session *s)
{
    return !s->is_broken;
}

bool __wrap_pg_session_next(struct pg_session *s, struct pg_reply *reply);
bool __wrap_pg_session_next(struct pg_session *s, struct pg_reply *reply)
{
    if (!s->count)
        return false;
    *reply = s->reply[s->first].reply;
    s->first = (s->first + 1) % REPLIES;
    s->count--;
    return true;
}

bool __wrap_pg_session_notification(struct pg_session *s, char *payload, size_t size);
bool __wrap_pg_session_notification(struct pg_session *s, char *payload, size_t size)
{
    bool has_one = s->notification[0];
    if (has_one)
        snprintf(payload, size, "%s", s->notification);
    s->notification[0] = 0;
    return has_one;
}

const char *__wrap_pg_reply_value(const struct pg_reply *reply, int row, int column);
const char *__wrap_pg_reply_value(const struct pg_reply *reply, int row, int column)
{
    const struct made_reply *made = reply->result;
    const char *value = made->column[row][column];
    return value ? value : "";
}

/* ---- Steps ---- */

static bool read_rows(struct made_reply *made)
{
    made->reply.rows = 1;
    int column = 0;
    made->column[0][0] = made->text;
    for (char *at = made->text; *at; at++) {
        if (*at != '|' && *at != ';')
            continue;
        column = *at == '|' ? column + 1 : 0;
        made->reply.rows += *at == ';';
        *at = 0;
        if (column == COLUMNS || made->reply.rows > ROWS)
            return false;
        made->column[made->reply.rows - 1][column] = at + 1;
    }
    return true;
}

static bool add_reply(const char *text)
{
    struct made_reply *made = &session->reply[(session->first + session->count) % REPLIES];
    if (session->count == REPLIES)
        return false;
    memset(made, 0, sizeof *made);
    made->reply.result = made;
    session->count++;
    if (strcmp(text, "OK") == 0)
        return true;

    bool is_error = strncmp(text, "ERROR ", 6) == 0;
    if (!is_error && strncmp(text, "ROWS ", 5) != 0)
        return false;
    snprintf(made->text, sizeof made->text, "%s", text + (is_error ? 6 : 5));
    if (!is_error)
        return read_rows(made);

    size_t digits = strcspn(made->text, " ");
    bool has_text = made->text[digits];
    made->text[digits] = 0;
    made->reply.sqlstate = made->text;
    made->reply.text = made->text + digits + has_text;
    return true;
}

static void reset(unsigned connection)
{
    (void)connection;
}

static void sent(unsigned connection, const char *bytes, size_t len)
{
    (void)bytes;
    note("EXPECT %u %zu BYTES\n", connection, len);
}

static long make(const char *step, unsigned connection, const char *text,
                 char bytes[TRANSCRIPT_BYTES])
{
    (void)connection;
    (void)bytes;
    bool is_reply = strcmp(step, "SEND") == 0, is_notification = strcmp(step, "NOTIFY") == 0;
    bool is_connected = strcmp(step, "CONNECTED") == 0, is_broken = strcmp(step, "BROKEN") == 0;
    if (!is_reply && !is_notification && !is_connected && !is_broken)
        return -1;
    if (!session || (is_reply && !add_reply(text)))
        return -2;
    session->progress = is_connected ? PG_CONNECTED : session->progress;
    session->is_broken |= is_broken;
    if (is_notification)
        snprintf(session->notification, sizeof session->notification, "%s", text);
    if (is_broken)
        snprintf(session->error, sizeof session->error, "%s", text);
    return 0;
}

const struct dialect postgres_dialect = {.reset = reset, .sent = sent, .make = make};
