/* payment.c - cashiers pay invoices, each invoice once: a lock on five servers, and a ledger in
 * PostgreSQL that checks its token.
 *
 *     payment URL CONNINFO [KILL]
 *
 * In the middle the shell command KILL takes one of the servers away, and one cashier is stopped
 * between reading and paying for longer than its lease lasts. */
#include <holdfast.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CASHIERS = 3, INVOICES = 20, FALLS_ASLEEP_AT = 5, TTL_MS = 1500 };

static const char *url, *conninfo;

static void fail(const char *why)
{
    fprintf(stderr, "payment: %s\n", why);
    exit(1);
}

static void must(hf_status status)
{
    if (status != HF_OK)
        fail(hf_error_text());
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* ---- The ledger ---- */

static PGconn *open_ledger(void)
{
    PGconn *db = PQconnectdb(conninfo);
    if (PQstatus(db) != CONNECTION_OK)
        fail(PQerrorMessage(db));
    return db;
}

static PGresult *sql(PGconn *db, const char *text, int count, const char *const *values)
{
    PGresult *result = PQexecParams(db, text, count, NULL, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail(PQerrorMessage(db));
    return result;
}

static int number(PGconn *db, const char *text)
{
    PGresult *result = sql(db, text, 0, NULL);
    int value = PQntuples(result) == 1 ? atoi(PQgetvalue(result, 0, 0)) : 0;
    PQclear(result);
    return value;
}

/* The ledger has no UNIQUE constraint, which would be the better answer: here the fence alone must
 * do. */
static void make_ledger(void)
{
    char insert[128];
    PGconn *db = open_ledger();
    snprintf(insert, sizeof insert, "INSERT INTO invoice SELECT generate_series(1, %d)", INVOICES);
    const char *const texts[] = {
        "SET client_min_messages = warning",
        "DROP TABLE IF EXISTS payment, invoice, fence",
        "CREATE TABLE invoice (id integer PRIMARY KEY)",
        "CREATE TABLE payment (invoice integer REFERENCES invoice, cashier integer)",
        "CREATE TABLE fence (token bigint)",
        "INSERT INTO fence VALUES (0)",
        insert};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        PQclear(sql(db, texts[i], 0, NULL));
    PQfinish(db);
}

/* The first that is not paid; 0: all are. */
static int next_invoice(PGconn *db)
{
    return number(db, "SELECT min(id) FROM invoice WHERE id NOT IN (SELECT invoice FROM payment)");
}

/* Fence and payment are one transaction: an older token finds no row to raise, and nothing is paid.
 */
static bool pay(PGconn *db, int invoice, int cashier, uint64_t token)
{
    char text[3][32];
    const char *values[3] = {text[0], text[1], text[2]};
    snprintf(text[0], sizeof text[0], "%" PRIu64, token);
    snprintf(text[1], sizeof text[1], "%d", invoice);
    snprintf(text[2], sizeof text[2], "%d", cashier);
    PGresult *result = sql(db,
                           "WITH passed AS (UPDATE fence SET token = $1::bigint WHERE token <= "
                           "$1::bigint RETURNING 1) "
                           "INSERT INTO payment SELECT $2::integer, $3::integer FROM passed",
                           3, values);
    bool paid = strcmp(PQcmdTuples(result), "1") == 0;
    PQclear(result);
    return paid;
}

/* ---- Cashiers ---- */

/* Pays one; false: there is none left. */
static bool serve(hf_client *client, PGconn *db, int cashier)
{
    struct hf_request want = {
        .size = sizeof want, .name = "ledger", .ttl_ms = TTL_MS, .wait_ms = HF_FOREVER};
    hf_lease *lease;
    must(hf_acquire(client, &want, &lease));
    int invoice = next_invoice(db);
    if (cashier == 0 && invoice >= FALLS_ASLEEP_AT)
        raise(SIGSTOP); /* and does not look at its lease when it goes on */
    if (invoice && !pay(db, invoice, cashier, hf_lease_token(lease))) {
        printf("cashier %d comes too late with invoice %d: the ledger refused its token\n", cashier,
               invoice);
        exit(0);
    }
    hf_lease_free(lease); /* releases */
    return invoice != 0;
}

static void be_cashier(int cashier)
{
    hf_client *client;
    PGconn *db = open_ledger();
    must(hf_open(url, NULL, &client));
    while (serve(client, db, cashier))
        nap_ms(20); /* the others want a turn, too */
    PQfinish(db);
    hf_close(client, 1000);
}

static pid_t start_cashier(int cashier)
{
    pid_t pid = fork();
    if (pid < 0)
        fail("no process");
    if (pid == 0) {
        be_cashier(cashier);
        exit(0);
    }
    return pid;
}

static void await_end(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        fail("a cashier failed");
}

/* The sleeper wakes up when the others have paid all the rest. */
static void oversee(pid_t *cashier, const char *kill_server)
{
    int status;
    if (waitpid(cashier[0], &status, WUNTRACED) != cashier[0] || !WIFSTOPPED(status))
        fail("the first cashier should have fallen asleep");
    printf("cashier 0 falls asleep with an invoice in its hands\n");
    if (kill_server && system(kill_server) != 0)
        fail(kill_server);
    printf("%s\n", kill_server ? "a server is killed" : "no server is killed");
    for (int i = 1; i < CASHIERS; i++)
        await_end(cashier[i]);
    if (kill(cashier[0], SIGCONT) != 0)
        fail("the sleeper cannot be woken");
    await_end(cashier[0]);
}

int main(int argc, char **argv)
{
    pid_t cashier[CASHIERS];
    if (argc < 3)
        fail("usage: payment URL CONNINFO [KILL]");
    setvbuf(stdout, NULL, _IOLBF, 0); /* lines of several processes, in their order */
    url = argv[1];
    conninfo = argv[2];
    make_ledger();
    for (int i = 0; i < CASHIERS; i++)
        cashier[i] = start_cashier(i);
    oversee(cashier, argc > 3 ? argv[3] : NULL);
    PGconn *db = open_ledger();
    int payments = number(db, "SELECT count(*) FROM payment");
    int invoices = number(db, "SELECT count(DISTINCT invoice) FROM payment");
    PQfinish(db);
    printf("%d payments for %d invoices\n", payments, invoices);
    if (payments != INVOICES || invoices != INVOICES)
        fail("each invoice should have been paid once");
    printf("proved: %d invoices, each paid once, with a server killed and a cashier paused past "
           "its ttl\n",
           INVOICES);
    return 0;
}
