/* postgres_upgrades.c - numbered upgrades of the schema, on a real server: this program is a newer
 * Holdfast, with one more file than the shipped command, which made the schema that it meets. The
 * linker gives it its own list of files.
 *
 * The second file cannot be run twice: it adds a column and a row. */
#include "holdfast.h"
#include "lib/postgres_servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 8, LINE = 400 };

extern const char *const __real_pg_sql_files[];
extern const char *__wrap_pg_sql_files[2];
extern const int __wrap_pg_sql_count;
const char *__wrap_pg_sql_files[2];
const int __wrap_pg_sql_count = 2;

static const char second[] = "ALTER TABLE @schema@.setup ADD COLUMN color text;"
                             "CREATE TABLE @schema@.upgraded (at timestamptz);"
                             "INSERT INTO @schema@.upgraded VALUES (clock_timestamp());"
                             "UPDATE @schema@.setup SET version = 2;";

static struct postgres_server *server;

static void url_of(char url[LINE], const char *user, const char *query)
{
    snprintf(url, LINE, "postgres://%s@127.0.0.1:%u/postgres%s", user, postgres_port(server),
             query);
}

/* Runs the shipped command, an older Holdfast. Returns its exit code; what it says is in `said`. */
static int older(const char *arguments, char said[LINE])
{
    char url[LINE], line[2 * LINE];
    size_t len = 0;
    url_of(url, "postgres", "");
    snprintf(line, sizeof line, "'%s' -u '%s' %s 2>&1", HF_COMMAND, url, arguments);
    FILE *out = popen(line, "r");
    assert_non_null(out);
    len = fread(said, 1, LINE - 1, out);
    said[len] = 0;
    return WEXITSTATUS(pclose(out));
}

/* One client of this newer Holdfast. */
static hf_status lock_once(const char *user, const char *query, const char *name)
{
    char url[LINE];
    hf_client *client;
    hf_lease *lease;
    struct hf_request want = {.size = sizeof want, .name = name, .wait_ms = 20000};
    url_of(url, user, query);
    hf_status status = hf_open(url, NULL, &client);
    if (status != HF_OK)
        return status;
    status = hf_acquire(client, &want, &lease);
    if (status == HF_OK) {
        status = hf_release(lease);
        hf_lease_free(lease);
    }
    hf_close(client, 1000);
    return status;
}

static void start_over(void)
{
    char said[LINE];
    postgres_number(
        server,
        "SET client_min_messages = error; DROP SCHEMA IF EXISTS holdfast CASCADE; SELECT 1");
    assert_int_equal(older("run -n first -- true", said), 0);
    assert_int_equal(postgres_number(server, "SELECT version FROM holdfast.setup"), 1);
}

static void assert_upgraded_once(void)
{
    assert_int_equal(postgres_number(server, "SELECT version FROM holdfast.setup"), 2);
    assert_int_equal(postgres_number(server, "SELECT count(*) FROM holdfast.upgraded"), 1);
}

/* ---- Tests ---- */

static void test_holds_go_on(void **state)
{
    (void)state;
    char said[LINE];
    start_over();
    assert_int_equal(older("acquire -n --ttl 60s --lease lease kept", said), 0);
    assert_int_equal(lock_once("postgres", "", "other"), HF_OK);
    assert_upgraded_once();
    assert_int_equal(postgres_number(server, "SELECT count(*) FROM holdfast.lock "
                                             "WHERE name = 'kept' AND id IS NOT NULL"),
                     1);
    unlink("lease");
}

static void test_older_refuses(void **state)
{
    (void)state;
    char said[LINE];
    start_over();
    assert_int_equal(lock_once("postgres", "", "other"), HF_OK);
    assert_int_equal(older("run -n first -- true", said), 78);
    assert_non_null(strstr(said, "made by a newer Holdfast"));
}

/* The setting forbids to make a schema, and to change one. */
static void test_install_0(void **state)
{
    (void)state;
    start_over();
    assert_int_equal(lock_once("postgres", "?install=0", "other"), HF_CONFIG);
    assert_non_null(strstr(hf_error_text(), "version 1"));
    assert_int_equal(postgres_number(server, "SELECT version FROM holdfast.setup"), 1);
}

static void note_finding(void *arg, const struct hf_finding *finding)
{
    snprintf(arg, LINE, "%s", finding->text);
}

static void test_install_says_so(void **state)
{
    (void)state;
    char url[LINE], said[LINE] = "";
    hf_client *client;
    start_over();
    url_of(url, "postgres", "?install=0");
    assert_int_equal(hf_open(url, NULL, &client), HF_OK);
    assert_int_equal(hf_library_install(client, note_finding, said), HF_OK);
    assert_string_equal(said, "holdfast, version 2, durable: upgraded from version 1");
    hf_close(client, 1000);
    assert_upgraded_once();
}

static void test_rights(void **state)
{
    (void)state;
    start_over();
    postgres_number(server, "GRANT USAGE ON SCHEMA holdfast TO app; GRANT SELECT ON "
                            "holdfast.setup TO app; SELECT 1");
    assert_int_equal(lock_once("app", "", "other"), HF_DENIED);
    assert_non_null(
        strstr(hf_error_text(), "has version 1, and 2 is needed, and this user cannot do it"));
    assert_int_equal(postgres_number(server, "SELECT version FROM holdfast.setup"), 1);
}

/* They all find version 1, or no schema, and wait for one that has a lock. */
static void upgrade_at_once(const char *user, const char *blocked)
{
    pid_t child[CLIENTS];
    char text[LINE];
    snprintf(text, sizeof text, "BEGIN; %s; SELECT pg_sleep(0.7); COMMIT", blocked);
    pid_t blocker = fork();
    assert_return_code(blocker, 0);
    if (blocker == 0)
        _exit(postgres_sql(server, text, text, sizeof text));
    usleep(300000);
    for (int i = 0; i < CLIENTS; i++) {
        child[i] = fork();
        assert_return_code(child[i], 0);
        if (child[i] == 0)
            _exit(lock_once(user, "", "other") == HF_OK
                      ? 0
                      : !fprintf(stderr, "%s\n", hf_error_text()) + 1);
    }
    int status;
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(waitpid(blocker, &status, 0), blocker);
    assert_int_equal(status, 0);
    assert_upgraded_once();
}

static const char install_lock[] =
    "SELECT pg_advisory_xact_lock(hashtextextended('holdfast install', 0))";

static void test_many_at_once(void **state)
{
    (void)state;
    start_over();
    upgrade_at_once("postgres", install_lock);
}

static void test_many_install(void **state)
{
    (void)state;
    start_over();
    postgres_number(server,
                    "SET client_min_messages = error; DROP SCHEMA holdfast CASCADE; SELECT 1");
    upgrade_at_once("postgres", install_lock);
}

/* Their snapshots are older than the lock that they wait for. */
static void test_serializable(void **state)
{
    (void)state;
    start_over();
    upgrade_at_once("strict", install_lock);
}

static int open_server(void **state)
{
    (void)state;
    postgres_needed();
    __wrap_pg_sql_files[0] = __real_pg_sql_files[0];
    __wrap_pg_sql_files[1] = second;
    server = postgres_start(NULL);
    postgres_number(server, "CREATE ROLE app LOGIN; CREATE ROLE strict LOGIN SUPERUSER; ALTER "
                            "ROLE strict SET default_transaction_isolation = 'serializable'; "
                            "SELECT 1");
    return 0;
}

static int close_server(void **state)
{
    (void)state;
    postgres_servers_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE("a newer client upgrades the schema, and holds go on", test_holds_go_on),
        SENTENCE("an older client refuses a schema that it does not know", test_older_refuses),
        SENTENCE("install=0 upgrades nothing", test_install_0),
        SENTENCE("an administrator upgrades with install=0, too", test_install_says_so),
        SENTENCE("a user without the right to upgrade is told so", test_rights),
        SENTENCE("clients that upgrade at the same time do it once", test_many_at_once),
        SENTENCE("clients that install at the same time do it once", test_many_install),
        SENTENCE("also if their transactions are serializable", test_serializable),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
