/* pg_diagnose.c - findings about the server for an operator: each says what the fact means for
 * locks, and what to do. */
#include "postgres.h"

#include "sys/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* beyond this offset the times in two logs are hard to compare */
#define CLOCK_APART_US 1000000
#define PATIENCE NANOS_OF_MS(5000)
#define SNAPSHOT_OLD_S 600

enum column {
    VERSION,
    UPTIME_S,
    FSYNC,
    FULL_PAGES,
    STANDBYS,
    SYNCHRONOUS,
    CONNECTIONS,
    CONNECTIONS_MAX,
    OLDEST_SNAPSHOT_S,
    CLOCK_US,
    USER,
    IS_OWNER,
    ENCRYPTED,
    STATEMENT_TIMEOUT,
    PINS,
    GRACE_MS,
    LONGEST_TTL_MS,
    LOCKS,
    ENCODING
};

/* ---- The question ---- */

void pg_diagnose_begin(struct postgres *p, struct pg_op *a, nanos now)
{
    assert(a->sent_op.verb == OP_ADMIN && p->schema[0]);
    static const char question[] =
        "SELECT current_setting('server_version'),"
        " extract(epoch FROM now() - pg_postmaster_start_time())::bigint,"
        " current_setting('fsync'), current_setting('full_page_writes'),"
        " (SELECT count(*) FROM pg_stat_replication),"
        " current_setting('synchronous_standby_names'),"
        " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),"
        " current_setting('max_connections'),"
        " coalesce((SELECT max(extract(epoch FROM now() - xact_start))::bigint FROM"
        " pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), 0),"
        " (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, session_user,"
        " (SELECT nspowner = session_user::regrole FROM pg_namespace WHERE nspname = '%1$s'),"
        " coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false),"
        " current_setting('statement_timeout'),"
        " (SELECT count(*) FROM pg_locks l JOIN pg_stat_activity s ON s.pid = l.pid WHERE"
        " l.locktype = 'advisory' AND s.state = 'idle in transaction'),"
        " (SELECT grace_ms FROM %1$s.setup),"
        " coalesce((SELECT max(h.ttl) FROM %1$s.list_holds('', false, '', 10000) h), 0),"
        " (SELECT count(DISTINCT h.name) FROM %1$s.list_holds('', false, '', 10000) h WHERE"
        " h.role = 'h'),"
        " current_setting('server_encoding')";
    char sql[sizeof question + 4 * PG_SCHEMA_MAX];
    struct pg_request request = {
        .kind = PG_REQ_ADMIN, .verb = ADMIN_DIAGNOSE, .op = a, .patience = PATIENCE};

    snprintf(sql, sizeof sql, question, p->schema);
    if (pg_connection_send(p, request, NULL, sql, 0, NULL, now))
        pg_op_settle(p, a);
    else
        pg_op_fail_with_connection(p, a, now);
}

/* ---- Findings ---- */

struct report {
    struct postgres *p;
    struct pg_op *a;
    const struct pg_reply *reply;
};

static const char *text_of(const struct report *report, enum column column)
{
    return pg_reply_value(report->reply, 0, (int)column);
}

static int64_t number_of(const struct report *report, enum column column)
{
    return strtoll(text_of(report, column), NULL, 10);
}

static bool is_true(const struct report *report, enum column column)
{
    return text_of(report, column)[0] == 't';
}

__attribute__((format(printf, 5, 6))) static void find(const struct report *report,
                                                       const char *what, hf_health health,
                                                       const char *advice, const char *format, ...)
{
    char text[300];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct hf_finding finding = {.size = sizeof finding,
                                 .where = report->p->where,
                                 .what = what,
                                 .health = health,
                                 .text = text,
                                 .advice = health == HF_HEALTH_OK ? "" : advice};
    report->p->host->find(report->p->host->ctx, report->a->op, &finding);
}

static void find_server(const struct report *report)
{
    find(report, "server", HF_HEALTH_OK, "", "PostgreSQL %.60s, up for %" PRId64 " s",
         text_of(report, VERSION), number_of(report, UPTIME_S));
    bool is_utf8 = strcmp(text_of(report, ENCODING), "UTF8") == 0;
    find(report, "encoding", is_utf8 ? HF_HEALTH_OK : HF_HEALTH_WARN,
         "use a database with the encoding UTF8", "%.40s%s", text_of(report, ENCODING),
         is_utf8 ? "" : ": names that it cannot hold are refused");
}

static void find_schema(const struct report *report)
{
    const struct postgres *p = report->p;
    find(report, "schema", HF_HEALTH_OK, "", "%s, version %d, %s, %" PRId64 " names held",
         p->schema, pg_sql_count, p->memory ? "in memory" : "durable", number_of(report, LOCKS));
}

static void find_persistence(const struct report *report)
{
    bool syncs = strcmp(text_of(report, FSYNC), "on") == 0;
    bool whole = strcmp(text_of(report, FULL_PAGES), "on") == 0;

    if (report->p->memory)
        find(report, "persistence", HF_HEALTH_NOTE,
             "without memory=1 holds survive a crash, for one fsync a grant",
             "memory schema: a crash of the server forgets every hold, and nothing is granted for "
             "%" PRId64 " ms after it",
             number_of(report, GRACE_MS));
    else if (!syncs || !whole)
        find(report, "persistence", HF_HEALTH_BAD, "fsync = on, full_page_writes = on",
             "%s is off: a crash of the machine may forget holds",
             syncs ? "full_page_writes" : "fsync");
    else
        find(report, "persistence", HF_HEALTH_OK, "",
             "grants are on disk before they are reported");
}

static void find_standbys(const struct report *report)
{
    int64_t standbys = number_of(report, STANDBYS);
    bool waits = text_of(report, SYNCHRONOUS)[0] != 0;

    if (standbys && !waits)
        find(report, "standbys", HF_HEALTH_NOTE,
             "synchronous_standby_names, so that a grant is on a standby before it is reported",
             "%" PRId64 " connected, none synchronous: after a failover nothing is granted for "
             "%" PRId64 " ms",
             standbys, number_of(report, GRACE_MS));
    else
        find(report, "standbys", HF_HEALTH_OK, "", "%" PRId64 " connected%s", standbys,
             waits ? ", synchronous" : "");

    bool outlives = number_of(report, LONGEST_TTL_MS) > number_of(report, GRACE_MS);
    if (standbys && !waits && outlives)
        find(report, "grace", HF_HEALTH_WARN, "UPDATE setup SET grace_ms, or shorter leases",
             "a lease of %" PRId64 " ms is longer than the grace of %" PRId64
             " ms after a lossy failover",
             number_of(report, LONGEST_TTL_MS), number_of(report, GRACE_MS));
}

static void find_connections(const struct report *report)
{
    int64_t now = number_of(report, CONNECTIONS), most = number_of(report, CONNECTIONS_MAX);
    find(report, "connections", now >= most - most / 10 ? HF_HEALTH_WARN : HF_HEALTH_OK,
         "raise max_connections, or use fewer clients: one serves any number of threads",
         "%" PRId64 " of %" PRId64, now, most);
    const struct pg_connection *connection = &report->p->connection;

    find(report, "notifications", connection->pooled ? HF_HEALTH_NOTE : HF_HEALTH_OK,
         "connect to the server itself: behind a pooler waiters poll", "%s%s",
         report->p->polls ? "waiters poll" : "waiters are notified",
         connection->pooled ? ", because a pooler is in between" : "");
}

static void find_user(const struct report *report)
{
    const char *sslmode = pg_keywords_get(&report->p->keywords, "sslmode");
    bool verifies = strcmp(sslmode, "verify-full") == 0;
    bool is_local = strchr(pg_keywords_get(&report->p->keywords, "host"), '/') ||
                    strstr(report->p->where, "localhost") || strstr(report->p->where, "127.0.0.1");

    find(report, "user", HF_HEALTH_OK, "", "%.60s%s", text_of(report, USER),
         is_true(report, IS_OWNER) ? ", owner of the schema" : "");
    find(report, "tls", verifies || is_local ? HF_HEALTH_OK : HF_HEALTH_WARN,
         "sslmode=verify-full, with sslrootcert", "%s, sslmode=%s",
         is_true(report, ENCRYPTED) ? "encrypted" : "not encrypted", *sslmode ? sslmode : "prefer");
}

static void find_transactions(const struct report *report)
{
    int64_t oldest = number_of(report, OLDEST_SNAPSHOT_S), pins = number_of(report, PINS);
    find(report, "snapshots", oldest > SNAPSHOT_OLD_S ? HF_HEALTH_WARN : HF_HEALTH_OK,
         "end that transaction: VACUUM cannot clean up behind it, and busy locks become slower",
         "the oldest is %" PRId64 " s old", oldest);
    find(report, "pins", pins ? HF_HEALTH_NOTE : HF_HEALTH_OK,
         "set idle_in_transaction_session_timeout: a fenced transaction that hangs blocks its lock",
         "%" PRId64 " advisory locks of idle transactions", pins);
    bool cuts = strcmp(text_of(report, STATEMENT_TIMEOUT), "0") != 0;

    find(report, "statement_timeout", cuts ? HF_HEALTH_NOTE : HF_HEALTH_OK,
         "below 1s it may cut requests short", "%.30s",
         cuts ? text_of(report, STATEMENT_TIMEOUT) : "none");
}

static void find_clock(const struct report *report)
{
    int64_t ahead = number_of(report, CLOCK_US) - clock_wall_us();
    bool apart = ahead > CLOCK_APART_US || ahead < -CLOCK_APART_US;
    find(report, "clock", apart ? HF_HEALTH_WARN : HF_HEALTH_OK,
         "let ntp or chrony set it: locks end by this clock, and a step ends them early or late",
         "%" PRId64 " ms %s ours", (ahead < 0 ? -ahead : ahead) / 1000,
         ahead < 0 ? "behind" : "ahead of");
}

void pg_diagnose_installation(struct postgres *p, struct pg_op *a)
{
    assert(p->connection.state == PG_UP);
    const struct pg_connection *connection = &p->connection;
    struct report report = {.p = p, .a = a};
    char outcome[40] = "installed";

    if (!connection->installed)
        snprintf(outcome, sizeof outcome, "was there");
    else if (connection->found_version)
        snprintf(outcome, sizeof outcome, "upgraded from version %d", connection->found_version);
    find(&report, "schema", HF_HEALTH_OK, "", "%s, version %d, %s: %s", p->schema, pg_sql_count,
         p->memory ? "in memory" : "durable", outcome);
}

void pg_diagnose_reply(struct postgres *p, const struct pg_request *request,
                       const struct pg_reply *reply)
{
    assert(request->op && request->verb == ADMIN_DIAGNOSE);
    struct report report = {.p = p, .a = request->op, .reply = reply};
    if (reply->sqlstate) {
        struct pg_error error = pg_error_of(p, reply);
        pg_op_fail(p, request->op, request->sent_at, error.status, error.text);
        return;
    }

    if (reply->rows == 1) {
        find_server(&report);
        find_schema(&report);
        find_persistence(&report);
        find_standbys(&report);
        find_connections(&report);
        find_user(&report);
        find_transactions(&report);
        find_clock(&report);
    }

    pg_op_reply(p, request->op,
                &(struct engine_reply){
                    .kind = REPLY_RELEASED, .asked_at = request->sent_at, .retry_at = TIME_NEVER});
}
