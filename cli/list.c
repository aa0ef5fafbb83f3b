/* list.c - the verbs `list` and `show`: print holders and waiters, as a table or as JSON. */
#include "json_rows.h"
#include "row_cells.h"
#include "screen.h"
#include "server_votes.h"
#include "sort_by_urgency.h"
#include "verb_client.h"
#include "verbs.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const struct option_spec LIST_OPTIONS[] = {
    {"sort", 0, ROW_ORDERS, STORE_CHOICE, OPTION_FIELD(sort), 0, 0,
     "order of the names; default: urgency"},
    {"state", 0, "held|waited", STORE_CHOICE, OPTION_FIELD(state), 0, 0,
     "only names that are held, or that somebody waits for"},
    {"format", 0, "KEYS", STORE_TEXT, OPTION_FIELD(format), 0, 0,
     "print these columns only, separated by tabs, as name,pid,label"},
    {"wide", 0, NULL, STORE_CONSTANT, OPTION_FIELD(wide), 1, 1,
     "do not cut long names at the width of the terminal"},
    {"foreign", 0, NULL, STORE_CONSTANT, OPTION_FIELD(foreign), 1, 1,
     "also locks of other programs; on Redis that searches all its keys"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};
static const struct option_spec SHOW_OPTIONS[] = {OPTION_URL, OPTION_JSON, OPTION_HELP};

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
        return output_shown("no end");
    return row->role == HF_HOLDER ? text_duration(row->left_ms) : output_shown("-");
}

static struct shown servers(const struct hf_row *row)
{
    struct shown shown;
    snprintf(shown.text, sizeof shown.text, "%" PRIu32 "/%" PRIu32, row->servers, row->servers_all);
    return shown;
}

/* The last column is printed for a quorum only. */
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

static bool has_servers(const struct row_list *rows)
{
    return rows->count > 0 && rows->all[0].servers > 0;
}

/* `wide`: long names are not cut at the terminal's width. */
static void print_table(const struct row_list *rows, bool wide)
{
    size_t columns = 0, lines;
    if (!wide && isatty(STDOUT_FILENO))
        screen_size(&columns, &lines);
    row_cells_print(rows, COLUMNS, COLUMN_COUNT - !has_servers(rows), columns, is_waiter);
}

/* ---- --format ---- */

struct format {
    const struct row_column *columns[16];
    size_t count;
};

static const struct row_column *find_column(const char *key, size_t len)
{
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        if (strlen(COLUMNS[i].title) == len && strncasecmp(COLUMNS[i].title, key, len) == 0)
            return &COLUMNS[i];
    return NULL;
}

/* Reads "name,pid". Returns 0, or 64 after a message. */
static int read_format(const char *keys, struct format *format)
{
    for (size_t len; *keys; keys += len + (keys[len] == ',')) {
        len = strcspn(keys, ",");
        const struct row_column *column = find_column(keys, len);
        if (!column || format->count == sizeof format->columns / sizeof format->columns[0]) {
            complain("--format: \"%s\" is not one of name, kind, role, units, token, left, since, "
                     "pid, host, label, servers",
                     text_shown_bytes(keys, len).text);
            return EXIT_USAGE;
        }
        format->columns[format->count++] = column;
    }
    return 0;
}

static void print_formatted(const struct row_list *rows, const struct format *format)
{
    for (size_t i = 0; i < rows->count; i++)
        for (size_t c = 0; c < format->count; c++)
            printf("%s%s", format->columns[c]->cell(&rows->all[i]).text,
                   c + 1 < format->count ? "\t" : "\n");
}

/* ---- --state ---- */

enum { STATE_HELD, STATE_WAITED };

/* Keeps the names that have a holder, or a waiter. Rows of one name are neighbours. Returns false
 * after a message if memory is out. */
static bool filter_state(struct row_list *rows, int64_t state)
{
    hf_role wanted = state == STATE_HELD ? HF_HOLDER : HF_WAITER;
    bool *keep = calloc(rows->count + 1, sizeof *keep);
    if (!keep) {
        complain("out of memory for %zu rows", rows->count);
        return false;
    }

    for (size_t first = 0, end; first < rows->count; first = end) {
        bool has = false;
        for (end = first; end < rows->count; end++) {
            if (strcmp(rows->all[end].name, rows->all[first].name) != 0)
                break;
            has |= rows->all[end].role == wanted;
        }
        for (size_t i = first; i < end; i++)
            keep[i] = has;
    }
    row_list_filter(rows, keep);
    free(keep);
    return true;
}

/* ---- All names ---- */

static void print_list(const struct cli_options *options, const struct format *format,
                       const struct row_list *rows)
{
    if (options->json)
        json_print_rows(rows, json_print_row);
    else if (format->count > 0)
        print_formatted(rows, format);
    else
        print_table(rows, options->wide);
}

static int read_list(const struct cli_options *options, const char *prefix, struct row_list *rows)
{
    hf_client *client;
    int code = verb_client_open(options, NULL, &client);
    if (code != 0)
        return code;

    struct hf_page all = {.size = sizeof all, .prefix = prefix, .foreign = options->foreign != 0};
    char next[HF_NAME_MAX + 1];
    hf_status status = hf_list_page(client, &all, row_list_add, rows, next);
    return verb_client_close(client, row_list_check(rows, status));
}

static int prepare_list(const struct cli_options *options, const char *prefix,
                        struct row_list *rows)
{
    int code = read_list(options, prefix, rows);
    if (code == 0 && options->state >= 0 && !filter_state(rows, options->state))
        code = EXIT_INTERNAL;
    if (code == 0 && !sort_rows(rows, (enum row_order)options->sort))
        code = EXIT_INTERNAL;
    return code;
}

static int run_list(const struct cli_options *options, int argc, char **argv)
{
    struct row_list rows = {0};
    struct format format = {.count = 0};
    int code = check_operands(&VERB_LIST, argc, argv, 0, 1);
    if (code == 0 && options->format)
        code = read_format(options->format, &format);
    if (code == 0)
        code = prepare_list(options, argc > 0 ? argv[0] : NULL, &rows);
    if (code == 0) {
        print_list(options, &format, &rows);
        code = finish_stdout();
    }

    bool is_empty = code == 0 && rows.count == 0 && !options->json;
    if (is_empty && isatty(STDERR_FILENO))
        complain("nothing is held%s%s%s", argc > 0 ? " under a name that begins with \"" : "",
                 argc > 0 ? output_shown(argv[0]).text : "", argc > 0 ? "\"" : "");
    row_list_free(&rows);
    return code;
}

/* ---- One name ---- */

/* The state of one name, and on a quorum also its state on each server. */
struct listing {
    const char *name;
    struct row_list rows;
    struct server_votes server_votes;
    /* exit code; without a majority there are no rows, but the servers' states are printed */
    int code;
};

static int read_listing(const struct cli_options *options, struct listing *listing)
{
    hf_client *client;
    int code = verb_client_open(options, NULL, &client);

    if (code != 0)
        return code;
    hf_status servers =
        hf_show_servers(client, listing->name, server_votes_add, &listing->server_votes);
    hf_status status =
        servers == HF_OK ? hf_show(client, listing->name, row_list_add, &listing->rows) : servers;
    listing->code = row_list_check(&listing->rows, status);
    return verb_client_close(client, listing->server_votes.count > 0 ? 0 : listing->code);
}

static void print_json_listing(const struct listing *listing)
{
    size_t count = listing->rows.count + listing->server_votes.count;
    printf("[");
    json_print_items(&listing->rows, json_print_row);
    server_votes_print_json(&listing->server_votes, listing->name, listing->rows.count);
    printf(count ? "\n]\n" : "]\n");
}

static void print_listing(const struct listing *listing)
{
    bool is_free = listing->code == 0 && listing->rows.count == 0;

    if (is_free && listing->server_votes.count > 0)
        server_votes_print_votes(&listing->server_votes, listing->name);
    else if (is_free)
        printf("\"%s\" is free\n", output_shown(listing->name).text);
    print_table(&listing->rows, false);
    if (listing->server_votes.count > 0 && listing->code == 0)
        printf("\n");
    server_votes_print(&listing->server_votes);
}

static int run_show(const struct cli_options *options, int argc, char **argv)
{
    struct listing listing = {0};
    int code = check_operands(&VERB_SHOW, argc, argv, 1, 1);

    if (code == 0) {
        listing.name = argv[0];
        code = read_listing(options, &listing);
    }
    if (code == 0) {
        (options->json ? print_json_listing : print_listing)(&listing);
        code = finish_stdout();
    }

    row_list_free(&listing.rows);
    server_votes_free(&listing.server_votes);

    return code == 0 ? listing.code : code;
}

#define JSON_KEYS                                                                                  \
    "With --json: an array with one object for each holder and waiter, and the keys\n"             \
    "  name, kind     name of the lock; exclusive, semaphore, read or write\n"                     \
    "  role           holder or waiter\n"                                                          \
    "  capacity, used units of the lock, and how many of them are held\n"                          \
    "  units, depth   units of this holder or waiter; how often its owner has entered the lock\n"  \
    "  place          waiters: place in the queue, 1 is next; holders: null\n"                     \
    "  token          holders: the fencing token, in digits; waiters: null\n"                      \
    "  leftMs         holders: time until the lease ends unless it is renewed; waiters: null\n"    \
    "  sinceMs        how long it has held or waited\n"                                            \
    "  ttlMs, pid, host, label, detached, ticket\n"                                                \
    "  foreign        true for a lock of another program; its leftMs is -1 if it has no end\n"     \
    "  servers        redlock: number of servers that have the hold; elsewhere null\n"

#define SERVER_KEYS                                                                                \
    "On redlock follows one object for each server, with the role \"server\" and the keys\n"       \
    "  server, state  host:port; held, free or silent\n"                                           \
    "  counts         whether its vote counts; if not, text says why, and when it will\n"          \
    "  token, leftMs, pid, host, label, foreign\n"                                                 \
    "                 of the holder on that server; null if there is none\n"                       \
    "  votes          number of servers with the same hold; a majority of them holds the lock\n"   \
    "  name, text\n"

const struct verb VERB_LIST = {
    .name = "list",
    .operands = "[PREFIX]",
    .summary = "Shows who holds and who waits, for all names or those that begin with PREFIX.",
    .details = "The most urgent name comes first: the one whose hold has the smallest share of its "
               "ttl left,\n"
               "then the one with the most waiters. Locks of other programs on Redis are shown if "
               "somebody\n"
               "here waited for them within the last hour, or with --foreign.\n\n" JSON_KEYS,
    .options = LIST_OPTIONS,
    .option_count = sizeof LIST_OPTIONS / sizeof LIST_OPTIONS[0],
    .run = run_list,
};

const struct verb VERB_SHOW = {
    .name = "show",
    .operands = "NAME",
    .summary = "Shows who holds NAME and who waits for it, in order; on redlock also what each "
               "server says.",
    .details = JSON_KEYS SERVER_KEYS,
    .options = SHOW_OPTIONS,
    .option_count = sizeof SHOW_OPTIONS / sizeof SHOW_OPTIONS[0],
    .run = run_show,
};
