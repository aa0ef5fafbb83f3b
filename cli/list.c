/* list.c - the verbs `list` and `show`: who holds what, since when, for how long, and who waits, as a table or as JSON.
 */
#include "rows.h"
#include "session.h"
#include "standings.h"
#include "table.h"
#include "trouble.h"
#include "verbs.h"
#include <inttypes.h>
#include <unistd.h>

#define CELL_MAX sizeof(struct shown)

/* The last one is there where a lock stands on several servers. */
enum column { NAME, KIND, ROLE, UNITS, TOKEN, LEFT, SINCE, PID, HOST, LABEL, SERVERS, COLUMNS };

static const char *const TITLES[COLUMNS] = {"NAME",  "KIND", "ROLE", "UNITS", "TOKEN",  "LEFT",
                                            "SINCE", "PID",  "HOST", "LABEL", "SERVERS"};

static const struct option_spec OPTIONS[] = {OPTION_URL, OPTION_JSON, OPTION_HELP};

/* What stands in one cell of the table; "-" where a row has nothing to say. */
static struct shown cell(const struct hf_row *row, enum column column)
{
    struct shown shown = {"-"};
    bool holder = row->role == HF_HOLDER;
    switch (column) {
    case NAME:
        return text_shown(row->name);
    case KIND:
        return text_shown(hf_kind_name(row->kind));
    case ROLE:
        snprintf(shown.text, CELL_MAX, holder ? "holder" : "waiter %" PRIu32, row->place);
        break;
    case UNITS:
        snprintf(shown.text, CELL_MAX, "%" PRIu32 "/%" PRIu32, row->units, row->capacity);
        break;
    case TOKEN:
        if (holder && !row->foreign)
            snprintf(shown.text, CELL_MAX, "%" PRIu64, row->token);
        break;
    case LEFT:
        if (row->foreign && row->left_ms < 0)
            snprintf(shown.text, CELL_MAX, "no end");
        else if (holder)
            shown = text_duration(row->left_ms);
        break;
    case SINCE:
        return row->foreign ? shown : text_duration(row->since_ms);
    case PID:
        if (!row->foreign)
            snprintf(shown.text, CELL_MAX, "%" PRId64, row->pid);
        break;
    case HOST:
        return *row->host ? text_shown(row->host) : shown;
    case LABEL:
        if (row->foreign)
            snprintf(shown.text, CELL_MAX, "(foreign: another program's lock)");
        return *row->label ? text_shown(row->label) : shown;
    case SERVERS:
        snprintf(shown.text, CELL_MAX, "%" PRIu32 "/%" PRIu32, row->servers, row->servers_all);
        break;
    case COLUMNS:
        break;
    }
    return shown;
}

static struct shown list_cell(const void *rows, size_t row, size_t column)
{
    return cell(&((const struct rows *)rows)->all[row], (enum column)column);
}

static bool is_waiter(const void *rows, size_t row)
{
    return ((const struct rows *)rows)->all[row].role == HF_WAITER;
}

static bool has_servers(const struct rows *rows)
{
    return rows->count > 0 && rows->all[0].servers > 0;
}

static void print_table(const struct rows *rows)
{
    table_print(&(struct table){.titles = TITLES,
                                .columns = has_servers(rows) ? COLUMNS : SERVERS,
                                .rows = rows->count,
                                .data = rows,
                                .cell = list_cell,
                                .is_dim = is_waiter});
}

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
    printf(",\"since_ms\":%" PRId64 ",\"ttl_ms\":%" PRId64 ",\"pid\":%" PRId64 ",\"host\":", row->since_ms, row->ttl_ms,
           row->pid);
    json_print_text(stdout, row->host);
    printf(",\"label\":");
    json_print_text(stdout, row->label);
    printf(",\"detached\":%s,\"foreign\":%s", row->detached ? "true" : "false", row->foreign ? "true" : "false");
    if (row->servers)
        printf(",\"servers\":%" PRIu32 "}", row->servers);
    else
        printf(",\"servers\":null}");
}

static void print_json_rows(const struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        printf(i ? ",\n" : "\n");
        print_json_row(&rows->all[i]);
    }
}

static void print_list(const struct cli_options *options, const struct rows *rows)
{
    if (!options->json) {
        print_table(rows);
        return;
    }
    printf("[");
    print_json_rows(rows);
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
    print_json_rows(&sight->rows);
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
