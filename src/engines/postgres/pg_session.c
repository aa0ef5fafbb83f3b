/* pg_session.c - one connection of libpq. */
#include "pg_session.h"

#include "pg_library.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pg_session {
    PGconn *conn;
    PostgresPollingStatusType polling;
    /* reply that awaits its Sync, and reply that was passed on last */
    PGresult *held, *passed_on;
    uint32_t syncs; /* number of Syncs in flight */
    bool up, writes, warned;
    char why[512];
};

/* ---- Keywords ---- */

static bool copy_option(struct pg_keywords *keywords, const PQconninfoOption *option)
{
    return !option->val || pg_keywords_set(keywords, option->keyword, option->val);
}

hf_status pg_keywords_read(struct pg_keywords *keywords, const char *uri, char *why, size_t size)
{
    assert(uri && size);
    char *error = NULL;
    bool copied = true;
    memset(keywords, 0, sizeof *keywords);
    if (!pg_library_load()) {
        snprintf(why, size, "%s", pg_library_error());
        return HF_CONFIG;
    }

    PQconninfoOption *options = pq.PQconninfoParse(uri, &error);
    if (!options) {
        bool no_memory = !error || strstr(error, "out of memory");
        snprintf(why, size, "%.*s", error ? (int)strcspn(error, "\n") : 0, error ? error : "");
        pq.PQfreemem(error);
        return no_memory ? HF_NO_MEMORY : HF_CONFIG;
    }

    for (const PQconninfoOption *option = options; option->keyword && copied; option++)
        copied = copy_option(keywords, option);
    pq.PQconninfoFree(options);
    return copied ? HF_OK : HF_NO_MEMORY;
}

static struct pg_keyword *find_keyword(const struct pg_keywords *keywords, const char *name)
{
    for (int i = 0; i < keywords->count; i++)
        if (strcmp(keywords->word[i].name, name) == 0)
            return (struct pg_keyword *)&keywords->word[i];
    return NULL;
}

bool pg_keywords_set(struct pg_keywords *keywords, const char *name, const char *value)
{
    assert(name && value && keywords->count <= PG_KEYWORDS_MAX);
    struct pg_keyword *word = find_keyword(keywords, name);
    char *copy = strdup(value);
    if (word && copy) {
        free(word->value);
        word->value = copy;
        return true;
    }

    char *key = copy && keywords->count < PG_KEYWORDS_MAX ? strdup(name) : NULL;
    if (!key) {
        free(copy);
        return false;
    }

    keywords->word[keywords->count++] = (struct pg_keyword){key, copy};
    return true;
}

const char *pg_keywords_get(const struct pg_keywords *keywords, const char *name)
{
    assert(name);
    const struct pg_keyword *word = find_keyword(keywords, name);
    return word ? word->value : "";
}

void pg_keywords_free(struct pg_keywords *keywords)
{
    for (int i = 0; i < keywords->count; i++) {
        explicit_bzero(keywords->word[i].value, strlen(keywords->word[i].value));
        free(keywords->word[i].name);
        free(keywords->word[i].value);
    }
    keywords->count = 0;
}

bool pg_keyword_is_known(const char *name, size_t len)
{
    assert(name && len);
    if (!pg_library_load())
        return true; /* pg_keywords_read() reports it */

    PQconninfoOption *options = pq.PQconndefaults();
    bool known = !options; /* without memory: pg_keywords_read() reports it */
    for (const PQconninfoOption *option = options; option && option->keyword; option++)
        known |= strlen(option->keyword) == len && memcmp(option->keyword, name, len) == 0;
    pq.PQconninfoFree(options);
    return known;
}

/* ---- The connection ---- */

static void on_notice(void *ctx, const PGresult *notice)
{
    struct pg_session *s = ctx;
    const char *state = pq.PQresultErrorField(notice, PG_DIAG_SQLSTATE);
    s->warned |= state && strcmp(state, "01000") == 0;
}

static bool fail(struct pg_session *s)
{
    const char *why = pq.PQerrorMessage(s->conn);
    snprintf(s->why, sizeof s->why, "%s", *why ? why : "the server closed the connection");

    s->why[strcspn(s->why, "\n")] = 0; /* keeps the first line, because the rest is advice */
    return false;
}

struct pg_session *pg_session_open(const struct pg_keywords *keywords)
{
    assert(keywords->count <= PG_KEYWORDS_MAX);
    const char *names[PG_KEYWORDS_MAX + 1] = {0}, *values[PG_KEYWORDS_MAX + 1] = {0};
    struct pg_session *s = calloc(1, sizeof *s);
    for (int i = 0; i < keywords->count; i++) {
        names[i] = keywords->word[i].name;
        values[i] = keywords->word[i].value;
    }

    if (s)
        s->conn = pq.PQconnectStartParams(names, values, 0);
    if (!s || !s->conn) {
        free(s);
        return NULL;
    }

    s->polling = PGRES_POLLING_WRITING;
    return s;
}

void pg_session_close(struct pg_session *s)
{
    if (!s)
        return;

    pq.PQclear(s->held);
    pq.PQclear(s->passed_on);
    pq.PQfinish(s->conn);
    free(s);
}

enum pg_progress pg_session_connect(struct pg_session *s)
{
    assert(!s->up);
    if (pq.PQstatus(s->conn) != CONNECTION_BAD)
        s->polling = pq.PQconnectPoll(s->conn);
    if (pq.PQstatus(s->conn) == CONNECTION_BAD || s->polling == PGRES_POLLING_FAILED) {
        fail(s);
        return PG_FAILED;
    }

    if (s->polling != PGRES_POLLING_OK)
        return PG_CONNECTING;

    pq.PQsetNoticeReceiver(s->conn, on_notice, s);
    if (pq.PQsetnonblocking(s->conn, 1) != 0 || !pq.PQenterPipelineMode(s->conn)) {
        fail(s);
        return PG_FAILED;
    }

    s->up = true;
    return PG_CONNECTED;
}

int pg_session_fd(const struct pg_session *s)
{
    return pq.PQsocket(s->conn);
}

bool pg_session_wants_to_write(const struct pg_session *s)
{
    return s->up ? s->writes : s->polling == PGRES_POLLING_WRITING;
}

bool pg_session_wants_to_read(const struct pg_session *s)
{
    return s->up || s->polling == PGRES_POLLING_READING;
}

const char *pg_session_error(const struct pg_session *s)
{
    return s->why;
}

int pg_session_pid(const struct pg_session *s)
{
    return pq.PQbackendPID(s->conn);
}

/* ---- Statements ---- */

static bool flush(struct pg_session *s)
{
    int left = pq.PQflush(s->conn);
    s->writes = left > 0;
    return left >= 0 || fail(s);
}

static bool end_statement(struct pg_session *s, int sent)
{
    if (!sent || !pq.PQpipelineSync(s->conn))
        return fail(s);
    s->syncs++;
    return flush(s);
}

bool pg_session_prepare(struct pg_session *s, const char *name, const char *sql)
{
    assert(s->up);
    return end_statement(s, pq.PQsendPrepare(s->conn, name, sql, 0, NULL));
}

bool pg_session_execute(struct pg_session *s, const char *name, const char *sql, int count,
                        const char *const *values)
{
    assert(s->up);
    if (name)
        return end_statement(s,
                             pq.PQsendQueryPrepared(s->conn, name, count, values, NULL, NULL, 0));
    return end_statement(s, pq.PQsendQueryParams(s->conn, sql, count, NULL, values, NULL, NULL, 0));
}

bool pg_session_process(struct pg_session *s)
{
    assert(s->up);
    if (!pq.PQconsumeInput(s->conn))
        return fail(s);
    return flush(s);
}

/* Keeps a result until its Sync. An error behind a row replaces it: the commit has failed. */
static void hold_back(struct pg_session *s, PGresult *result)
{
    pq.PQclear(s->held);
    s->held = result;
}

static void pass_on(struct pg_session *s, struct pg_reply *reply)
{
    pq.PQclear(s->passed_on);
    s->passed_on = s->held;
    s->held = NULL;

    ExecStatusType status = pq.PQresultStatus(s->passed_on);
    bool good = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
    const char *state = pq.PQresultErrorField(s->passed_on, PG_DIAG_SQLSTATE);
    const char *text = pq.PQresultErrorField(s->passed_on, PG_DIAG_MESSAGE_PRIMARY);

    *reply = (struct pg_reply){.result = s->passed_on,
                               .rows = good ? pq.PQntuples(s->passed_on) : 0,
                               .warned = s->warned,
                               .text = text ? text : ""};
    if (!good)
        reply->sqlstate = state ? state : "XX000";
    s->warned = false;
}

bool pg_session_next(struct pg_session *s, struct pg_reply *reply)
{
    assert(s->conn);
    while (s->syncs && !pq.PQisBusy(s->conn)) {
        PGresult *result = pq.PQgetResult(s->conn);
        if (!result) {
            if (pq.PQstatus(s->conn) == CONNECTION_BAD)
                return false;
            continue; /* NULL separates the results of a statement from its Sync */
        }
        if (pq.PQresultStatus(result) != PGRES_PIPELINE_SYNC) {
            hold_back(s, result);
            continue;
        }

        pq.PQclear(result);
        s->syncs--;
        pass_on(s, reply);
        return true;
    }

    return false;
}

bool pg_session_notification(struct pg_session *s, char *payload, size_t size)
{
    assert(payload && size);
    PGnotify *notify = pq.PQnotifies(s->conn);
    if (!notify)
        return false;

    snprintf(payload, size, "%s", notify->extra);
    pq.PQfreemem(notify);
    return true;
}

const char *pg_reply_value(const struct pg_reply *reply, int row, int column)
{
    const PGresult *result = reply->result;
    assert(row < reply->rows);
    return column < pq.PQnfields(result) ? pq.PQgetvalue(result, row, column) : "";
}
