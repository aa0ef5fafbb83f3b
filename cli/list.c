/* list.c - the verbs `list` and `show`: who holds what, since when, for how long, and who waits, as a table or as JSON.
 */
#include "row_cells.h"
#include "session.h"
#include "standings.h"
#include "trouble.h"
#include "verbs.h"
#include <inttypes.h>
#include <unistd.h>

static const struct option_spec OPTIONS[] = {OPTION_URL, OPTION_JSON, OPTION_HELP};

/* ---- The table ---- */

static struct shown role(const struct hf_row *row)
{
    struct shown shown = {"holder"};
    if (row->role == HF_WAITER)
        snprintf(shown.text, sizeof shown.text, "waiter %" PRIu32, row->place);
    return shown;
}

static struct shown left(const struct hf_row *row)
{
    if (row->foreign && row->left_ms < 0)
        return text_shown("no end");
    return row->role == HF_HOLDER ? text_duration(row->left_ms) : text_shown("-");
}

static struct shown servers(const struct hf_row *row)
{
    struct shown shown;
    snprintf(shown.text, sizeof shown.text, "%" PRIu32 "/%" PRIu32, row->servers, row->servers_all);
    return shown;
}

/* The last one is there where a lock stands on several servers. */
static const struct row_column COLUMNS[] = {
    {"NAME", row_name},   {"KIND", row_kind},   {"ROLE", role},       {"UNITS", row_units},
    {"TOKEN", row_token}, {"LEFT", left},       {"SINCE", row_since}, {"PID", row_pid},
    {"HOST", row_host},   {"LABEL", row_label}, {"SERVERS", servers},
};
#define COLUMN_COUNT (sizeof COLUMNS / sizeof COLUMNS[0])

static bool is_waiter(const struct hf_row *row)
{
    return row->role == HF_WAITER;
}

static bool has_servers(const struct rows *rows)
{
    return rows->count > 0 && rows->all[0].servers > 0;
}

static void print_table(const struct rows *rows)
{
    row_cells_print(rows, COLUMNS, COLUMN_COUNT - !has_servers(rows), is_waiter);
}

/* ---- JSON ---- */

static void print_json_row(const struct hf_row *row)
{
    printf("{\"name\":");
    json_print_text(stdout, row->name);
    printf(",\"kind\":\"%s\",\"role\":\"%s\"", hf_kind_name(row->kind), row->role == HF_HOLDER ? "holder" : "waiter");
    printf(",\"capacity\":%" PRIu32 ",\"used\":%" PRIu32 ",\"units\":%" PRIu32 ",\"count\":%" PRIu32, row->capacity,
           row->used, row->units, row->count);
    if (row->foreign)
        printf(",\"place\":null,\"token\":null,\"left_ms\":%" PRId64, row->left_ms);
    else if (row->role == HF_HOLDER)
        printf(",\"place\":null,\"token\":%" PRIu64 ",\"left_ms\":%" PRId64, row->token, row->left_ms);
    else
        printf(",\"place\":%" PRIu32 ",\"token\":null,\"left_ms\":null", row->place);
    printf(",\"since_ms\":%" PRId64 ",", row->since_ms);
    row_json_who(row);
    printf(",\"detached\":%s,\"foreign\":%s", row->detached ? "true" : "false", row->foreign ? "true" : "false");
    if (row->servers)
        printf(",\"servers\":%" PRIu32 "}", row->servers);
    else
        printf(",\"servers\":null}");
}

/* ---- All names ---- */

static void print_list(const struct cli_options *options, const struct rows *rows)
{
    if (!options->json) {
        print_table(rows);
        return;
    }
    printf("[");
    row_json_items(rows, print_json_row);
    printf(rows->count ? "\n]\n" : "]\n");
}

static int read_list(const struct cli_options *options, const char *prefix, struct rows *rows)
{
    hf_client *client;
    int code = session_open(options, NULL, &client);
    if (code != 0)
        return code;
    return session_close(client, rows_check(rows, hf_list(client, prefix, rows_add, rows)));
}

static int run_list(const struct cli_options *options, int argc, char **argv)
{
    struct rows rows = {0};
    int code = check_operands(&VERB_LIST, argc, argv, 0, 1);
    if (code == 0)
        code = read_list(options, argc > 0 ? argv[0] : NULL, &rows);
    if (code == 0 && !trouble_first(&rows))
        code = EXIT_INTERNAL;
    if (code == 0) {
        print_list(options, &rows);
        code = finish_stdout();
    }
    if (code == 0 && rows.count == 0 && !options->json && isatty(STDERR_FILENO))
        complain("nothing is held%s%s%s", argc > 0 ? " under a name that begins with \"" : "",
                 argc > 0 ? text_shown(argv[0]).text : "", argc > 0 ? "\"" : "");
    rows_free(&rows);
    return code;
}

/* ---- One name ---- */

/* What a majority says, and what each server says, where there are several. */
struct sight {
    const char *name;
    struct rows rows;
    struct standings standings;
    int code; /* of the rows: without a majority there are none, but there are servers to show */
};

static int read_sight(const struct cli_options *options, struct sight *sight)
{
    hf_client *client;
    int code = session_open(options, NULL, &client);
    if (code != 0)
        return code;
    hf_status servers = hf_show_servers(client, sight->name, standings_add, &sight->standings);
    hf_status status = servers == HF_OK ? hf_show(client, sight->name, rows_add, &sight->rows) : servers;
    sight->code = rows_check(&sight->rows, status);
    return session_close(client, sight->standings.count > 0 ? 0 : sight->code);
}

static void print_json_sight(const struct sight *sight)
{
    size_t count = sight->rows.count + sight->standings.count;
    printf("[");
    row_json_items(&sight->rows, print_json_row);
    standings_print_json(&sight->standings, sight->name, sight->rows.count);
    printf(count ? "\n]\n" : "]\n");
}

static void print_sight(const struct sight *sight)
{
    if (sight->code == 0 && sight->rows.count == 0)
        printf("\"%s\" is free\n", text_shown(sight->name).text);
    print_table(&sight->rows);
    if (sight->standings.count > 0 && sight->code == 0)
        printf("\n");
    standings_print(&sight->standings);
}

static int run_show(const struct cli_options *options, int argc, char **argv)
{
    struct sight sight = {0};
    int code = check_operands(&VERB_SHOW, argc, argv, 1, 1);
    if (code == 0) {
        sight.name = argv[0];
        code = read_sight(options, &sight);
    }
    if (code == 0) {
        (options->json ? print_json_sight : print_sight)(&sight);
        code = finish_stdout();
    }
    rows_free(&sight.rows);
    standings_free(&sight.standings);
    return code == 0 ? sight.code : code;
}

#define JSON_KEYS                                                                                                      \
    "With --json: an array with one object for each holder and waiter, and the keys\n"                                 \
    "  name, kind     of the resource; kind is exclusive, semaphore, read or write\n"                                  \
    "  role           holder or waiter\n"                                                                              \
    "  capacity, used of the resource, in units\n"                                                                     \
    "  units, count   of this holder or waiter; count is the depth of a reentrant hold\n"                              \
    "  place          waiters: 1 is the next one; holders: null\n"                                                     \
    "  token          holders: the fencing token; waiters: null\n"                                                     \
    "  left_ms        holders: until the lease ends unless it is renewed; waiters: null\n"                             \
    "  since_ms       how long it has held or waited\n"                                                                \
    "  ttl_ms, pid, host, label, detached\n"                                                                           \
    "  foreign        another program's lock: only left_ms is known of it, -1 if it has no end\n"                      \
    "  servers        redlock: on how many servers it stands; elsewhere null\n"

#define SERVER_KEYS                                                                                                    \
    "On redlock, then, one object for each server, with the role \"server\" and the keys\n"                            \
    "  server, state  host:port; held, free or silent\n"                                                               \
    "  counts         whether its word counts; if not, text says why, and when it will\n"                              \
    "  token, left_ms, pid, host, label, foreign of who holds it there, else null\n"                                   \
    "  name, text\n"

const struct verb VERB_LIST = {
    .name = "list",
    .operands = "[PREFIX]",
    .summary = "Shows who holds and who waits, for all names or those that begin with PREFIX.",
    .details = "Trouble comes first: the name whose hold has least of its ttl left, then the one with most "
               "waiters.\n\n" JSON_KEYS,
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_list,
};

const struct verb VERB_SHOW = {
    .name = "show",
    .operands = "NAME",
    .summary = "Shows who holds NAME and who waits for it, in order; on redlock also what each server says.",
    .details = JSON_KEYS SERVER_KEYS,
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_show,
};
