/* pg_advisory.c - PostgreSQL's advisory locks through libpq: one worker with one connection.
 * Statements are prepared, and the number of the lock is bound in binary. Arguments are name=value;
 * worker.py explains the commands that `run` sends. */
#include <endian.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS_MAX = 2000000, TURN = 5 };

static PGconn *connection;
static char **words;

static void fail(const char *what)
{
    fprintf(stderr, "pg_advisory: %s: %s", what, PQerrorMessage(connection));
    exit(70);
}

static const char *word(const char *name)
{
    for (char **w = words; *w != NULL; w++) {
        if (strncmp(*w, name, strlen(name)) == 0 && (*w)[strlen(name)] == '=')
            return *w + strlen(name) + 1;
    }
    fprintf(stderr, "pg_advisory: %s= is missing\n", name);
    exit(64);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* An advisory lock is a number: FNV-1a of the key. */
static uint64_t number_of(const char *key)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *key != '\0'; key++)
        hash = (hash ^ (unsigned char)*key) * UINT64_C(1099511628211);
    return hash;
}

static void call(const char *statement, uint64_t number)
{
    uint64_t sent = htobe64(number);
    PGresult *result =
        PQexecPrepared(connection, statement, 1, (const char *[]){(const char *)&sent},
                       (int[]){sizeof sent}, (int[]){1}, 1);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail(statement);
    PQclear(result);
}

static void prepare(const char *name, const char *text)
{
    PGresult *result = PQprepare(connection, name, text, 1, NULL);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail(text);
    PQclear(result);
}

static void open_connection(void)
{
    connection = PQconnectdb(word("url"));
    if (PQstatus(connection) != CONNECTION_OK)
        fail("connect");
    prepare("lock", "SELECT pg_advisory_lock($1)");
    prepare("unlock", "SELECT pg_advisory_unlock($1)");
}

static void keep(const int64_t *turns, size_t count)
{
    FILE *file = fopen(word("records"), "wb");
    if (file == NULL || fwrite(turns, sizeof *turns * TURN, count, file) != count ||
        fclose(file) != 0) {
        perror("pg_advisory: records");
        exit(70);
    }
}

static void cycle(int64_t end_ns)
{
    int64_t *turns = calloc(TURNS_MAX, sizeof *turns * TURN);
    uint64_t number = number_of(word("key"));
    double section_ms = atof(word("section_ms"));
    struct timespec section = {0, (long)(section_ms * 1e6)};
    size_t count = 0;
    if (turns == NULL)
        fail("out of memory");
    for (int64_t *turn = turns; count < TURNS_MAX && now_ns() < end_ns; turn += TURN, count++) {
        turn[0] = atoll(word("first"));
        turn[1] = now_ns();
        call("lock", number);
        turn[2] = now_ns();
        if (section_ms > 0)
            nanosleep(&section, NULL);
        turn[3] = now_ns();
        call("unlock", number);
        turn[4] = now_ns();
    }
    keep(turns, count);
}

static void obey(const char *statement, const char *said, const char *key)
{
    int64_t called = now_ns();
    call(statement, number_of(key));
    printf("%s %s %" PRId64 " %" PRId64 "\n", said, key, called, now_ns());
}

int main(int argc, char **argv)
{
    char line[256], argument[200];
    (void)argc;
    words = argv + 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_connection();
    puts("ready -");
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "ask %199s", argument) == 1) {
            obey("lock", "got", argument);
        } else if (sscanf(line, "free %199s", argument) == 1) {
            obey("unlock", "freed", argument);
        } else {
            if (sscanf(line, "cycle %199s", argument) == 1)
                cycle(atoll(argument));
            break;
        }
    }
    PQfinish(connection);
    return 0;
}
