/* booking.c - guests book tables in a SQLite file, each in a process of its own, under a lock for
 * each table.
 *
 *     booking [URL [FILE]]
 *
 * Four evenings: one after the other, two at the same instant, a guest that dies with the lock in
 * its hands, and a guest that is so slow that its lease ends before it writes. */
#include <holdfast.h>
#include <inttypes.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TTL_MS = 1000 };

static const char *url, *file;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "booking: %s: %s\n", what, why);
    exit(1);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* ---- The database: a row is a table on an evening; its token is that of the last lease that wrote
 * it ---- */

static sqlite3 *open_database(void)
{
    sqlite3 *db;
    if (sqlite3_open(file, &db) != SQLITE_OK || sqlite3_busy_timeout(db, 5000) != SQLITE_OK)
        fail(file, sqlite3_errmsg(db));
    return db;
}

static void make_database(void)
{
    char *why = NULL;
    sqlite3 *db = open_database();
    if (sqlite3_exec(db,
                     "CREATE TABLE booking (evening TEXT PRIMARY KEY, guest TEXT, token INTEGER "
                     "NOT NULL DEFAULT 0);"
                     "INSERT INTO booking (evening) VALUES ('monday'), ('tuesday'), ('wednesday'), "
                     "('thursday'), "
                     "('friday')",
                     NULL, NULL, &why) != SQLITE_OK)
        fail(file, why);
    sqlite3_close(db);
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
        fail(sql, sqlite3_errmsg(db));
    return statement;
}

/* Who has it; "" for nobody. */
static void read_guest(const char *evening, char *guest, size_t size)
{
    sqlite3 *db = open_database();
    sqlite3_stmt *look = prepare(db, "SELECT ifnull(guest, '') FROM booking WHERE evening = ?");
    sqlite3_bind_text(look, 1, evening, -1, SQLITE_STATIC);
    if (sqlite3_step(look) != SQLITE_ROW)
        fail(evening, sqlite3_errmsg(db));
    snprintf(guest, size, "%s", (const char *)sqlite3_column_text(look, 0));
    sqlite3_finalize(look);
    sqlite3_close(db);
}

/* The fence: check and write are one statement, and an older token changes no row. */
static bool write_guest(const char *evening, const char *guest, uint64_t token)
{
    sqlite3 *db = open_database();
    sqlite3_stmt *write =
        prepare(db, "UPDATE booking SET guest = ?1, token = ?2 WHERE evening = ?3 AND token <= ?2");
    sqlite3_bind_text(write, 1, guest, -1, SQLITE_STATIC);
    sqlite3_bind_int64(write, 2, (sqlite3_int64)token);
    sqlite3_bind_text(write, 3, evening, -1, SQLITE_STATIC);
    if (sqlite3_step(write) != SQLITE_DONE)
        fail(evening, sqlite3_errmsg(db));
    bool written = sqlite3_changes(db) == 1;
    sqlite3_finalize(write);
    sqlite3_close(db);
    return written;
}

/* ---- A guest: a process that asks for the lock, looks, and writes ---- */

enum manner { QUICK, HURRIED, DYING, SLOW };

struct guest {
    const char *name, *evening;
    enum manner manner;
    int64_t ttl_ms, wait_ms;
    pid_t pid;
    int said[2]; /* the guest says here how its asking went: 'y' or 'n' */
    int go[2];   /* when this is closed at the other end, a hurried or slow guest goes on */
};

enum { BOOKED = 0, REFUSED = 10, FENCED = 11 }; /* exit codes of a guest */

static void log_line(void *guest, const struct hf_log_event *event)
{
    printf("  %-6s lock: %s %s, token %" PRIu64 ", waited %" PRId64 " ms, held %" PRId64 " ms\n",
           (const char *)guest, event->name, event->event, event->token, event->waited_ms,
           event->held_ms);
}

static void say(const struct guest *me, char word)
{
    if (write(me->said[1], &word, 1) != 1)
        fail(me->name, "nobody listens");
}

static void await_go(const struct guest *me)
{
    char none;
    close(me->go[1]);
    while (read(me->go[0], &none, 1) > 0)
        continue;
}

static int refused(const struct guest *me, hf_client *client)
{
    printf("  %-6s is refused: %s\n", me->name, hf_error_text());
    say(me, 'n');
    hf_close(client, 1000);
    return REFUSED;
}

static int book(const struct guest *me)
{
    char name[64], before[64];
    hf_client *client;
    hf_lease *lease;
    snprintf(name, sizeof name, "table-12/%s", me->evening);
    struct hf_client_options options = {
        .size = sizeof options, .on_log = log_line, .log_arg = (void *)me->name};
    struct hf_request want = {
        .size = sizeof want, .name = name, .ttl_ms = me->ttl_ms, .wait_ms = me->wait_ms};
    if (hf_open(url, &options, &client) != HF_OK)
        fail(me->name, hf_error_text());
    if (hf_acquire(client, &want, &lease) != HF_OK)
        return refused(me, client);
    uint64_t token = hf_lease_token(lease);
    read_guest(me->evening, before, sizeof before);
    say(me, 'y');
    if (me->manner == DYING)
        raise(SIGKILL);
    if (me->manner != QUICK)
        await_go(
            me); /* a slow one does not look whether its lease is still good: the fence must help */
    bool written = !*before && write_guest(me->evening, me->name, token);
    printf("  %-6s %s\n", me->name,
           written ? "has booked" : "is too late: the database refused its token");
    if (hf_release(lease) != HF_OK)
        printf("  %-6s releases: %s\n", me->name, hf_error_text());
    hf_lease_free(lease);
    hf_close(client, 1000);
    return written ? BOOKED : FENCED;
}

static void start(struct guest *guest)
{
    if (pipe(guest->said) != 0 || pipe(guest->go) != 0)
        fail(guest->name, "no pipe");
    guest->pid = fork();
    if (guest->pid < 0)
        fail(guest->name, "no process");
    if (guest->pid == 0)
        exit(book(guest));
    close(guest->go[0]);
    close(guest->said[1]);
}

/* How did the asking of a guest go? */
static char heard(const struct guest *guest)
{
    char word;
    if (read(guest->said[0], &word, 1) != 1)
        fail(guest->name, "ended without a word");
    return word;
}

static void let_go(const struct guest *guest)
{
    close(guest->go[1]);
}

static int ended(const struct guest *guest)
{
    int status;
    if (waitpid(guest->pid, &status, 0) != guest->pid)
        fail(guest->name, "cannot be waited for");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void check(const char *evening, const char *wanted)
{
    char guest[64];
    read_guest(evening, guest, sizeof guest);
    printf("  the database says: %s has table 12 on %s\n", guest, evening);
    if (strcmp(guest, wanted) != 0)
        fail(evening, "that is not who should have it");
}

/* ---- The evenings ---- */

static void one_after_the_other(void)
{
    struct guest anna = {.name = "anna", .evening = "monday"},
                 ben = {.name = "ben", .evening = "tuesday"};
    printf("1. one after the other\n");
    start(&anna);
    int first = ended(&anna);
    start(&ben);
    if (first != BOOKED || ended(&ben) != BOOKED)
        fail("one after the other", "both should have booked");
    check("monday", "anna");
    check("tuesday", "ben");
}

static void at_the_same_instant(void)
{
    struct guest anna = {.name = "anna", .evening = "wednesday", .manner = HURRIED};
    struct guest ben = {.name = "ben", .evening = "wednesday", .manner = HURRIED};
    printf("2. two at the same instant\n");
    start(&anna);
    start(&ben);
    char annas = heard(&anna), bens = heard(&ben);
    let_go(&anna);
    let_go(&ben);
    int first = ended(&anna), second = ended(&ben);
    if (annas == bens || first + second != BOOKED + REFUSED)
        fail("at the same instant", "there should be one winner and one refusal");
    check("wednesday", annas == 'y' ? "anna" : "ben");
}

static const char *dies_with_it(void)
{
    struct guest anna = {.name = "anna", .evening = "thursday", .manner = DYING, .ttl_ms = TTL_MS};
    struct guest ben = {.name = "ben", .evening = "thursday", .wait_ms = 5 * TTL_MS};
    printf("3. a guest dies with the lock in its hands\n");
    start(&anna);
    if (heard(&anna) != 'y' || ended(&anna) != 128 + SIGKILL)
        fail("dies with it", "anna should have died holding it");
    int64_t died = now_ms();
    start(&ben);
    if (heard(&ben) != 'y')
        fail("dies with it", "ben should have got it");
    int64_t later = now_ms() - died;
    if (ended(&ben) != BOOKED)
        fail("dies with it", "ben should have booked");
    const char *how = later < TTL_MS / 2 ? "at once" : "by its ttl";
    printf("  freed %s: ben had it %" PRId64 " ms after the death, the ttl is %d ms\n", how, later,
           TTL_MS);
    check("thursday", "ben");
    return how;
}

static void too_slow(void)
{
    struct guest anna = {.name = "anna", .evening = "friday", .manner = SLOW, .ttl_ms = TTL_MS};
    struct guest ben = {.name = "ben", .evening = "friday", .wait_ms = 5 * TTL_MS};
    printf("4. a guest is slower than its lease is long\n");
    start(&anna);
    if (heard(&anna) != 'y')
        fail("too slow", "anna should have got it");
    start(&ben);
    if (ended(&ben) != BOOKED)
        fail("too slow", "ben should have booked when the lease of anna had ended");
    let_go(&anna);
    if (ended(&anna) != FENCED)
        fail("too slow", "the late write of anna should have been refused");
    check("friday", "ben");
}

int main(int argc, char **argv)
{
    char scratch[] = "/tmp/booking.XXXXXX";
    setvbuf(stdout, NULL, _IOLBF, 0); /* lines of several processes, in their order */
    int made = argc > 2 ? -1 : mkstemp(scratch);
    if (argc <= 2 && made < 0)
        fail(scratch, "cannot be made");
    url = argc > 1 ? argv[1] : NULL;
    file = argc > 2 ? argv[2] : scratch;
    make_database();
    one_after_the_other();
    at_the_same_instant();
    const char *how = dies_with_it();
    too_slow();
    if (made >= 0)
        unlink(scratch);
    printf("proved: one booking for each evening; one winner of two; a dead holder's lock freed "
           "%s; a late write refused "
           "by its token\n",
           how);
    return 0;
}
