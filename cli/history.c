/* history.c - the verb `history`: the past holds of a name, as a table or as JSON. */
#include "row_cells.h"
#include "session.h"
#include "verbs.h"
#include <inttypes.h>
#include <unistd.h>

static const struct option_spec OPTIONS[] = {OPTION_URL, OPTION_JSON, OPTION_HELP};

static const char *outcome(const struct hf_row *row)
{
    return row->ended == HF_OK ? "released" : "lost";
}

static struct shown ended(const struct hf_row *row)
{
    struct shown shown;
    snprintf(shown.text, sizeof shown.text, "%.600s ago", text_duration(row->ended_ms).text);
    return shown;
}

static struct shown how(const struct hf_row *row)
{
    return text_shown(outcome(row));
}

static const struct row_column COLUMNS[] = {
    {"ENDED", ended},     {"OUTCOME", how}, {"HELD", row_since}, {"KIND", row_kind},   {"UNITS", row_units},
    {"TOKEN", row_token}, {"PID", row_pid}, {"HOST", row_host},  {"LABEL", row_label},
};

static void print_json_row(const struct hf_row *row)
{
    printf("{\"name\":");
    json_print_text(stdout, row->name);
    printf(",\"kind\":\"%s\",\"units\":%" PRIu32 ",\"capacity\":%" PRIu32 ",\"token\":%" PRIu64,
           hf_kind_name(row->kind), row->units, row->capacity, row->token);
    printf(",\"outcome\":\"%s\",\"held_ms\":%" PRId64 ",\"ended_ms\":%" PRId64 ",", outcome(row), row->since_ms,
           row->ended_ms);
    row_json_who(row);
    printf("}");
}

static void print_json(const struct rows *rows)
{
    printf("[");
    row_json_items(rows, print_json_row);
    printf(rows->count ? "\n]\n" : "]\n");
}

static void print_table(const struct rows *rows)
{
    row_cells_print(rows, COLUMNS, sizeof COLUMNS / sizeof COLUMNS[0], NULL);
}

/* An empty answer has two reasons, and one of them can be helped. */
static void say_none(hf_client *client, const char *name)
{
    int64_t kept;
    const char *source;
    if (hf_client_setting(client, "history", &kept, &source) == HF_OK && kept == 0)
        complain("no past holds of \"%s\": none are kept unless the setting history (URL: ?history=N, environment: "
                 "HOLDFAST_HISTORY) says how many",
                 text_shown(name).text);
    else
        complain("no past holds of \"%s\" are known", text_shown(name).text);
}

static int run_history(const struct cli_options *options, int argc, char **argv)
{
    struct rows rows = {0};
    hf_client *client;
    int code = check_operands(&VERB_HISTORY, argc, argv, 1, 1);
    if (code == 0)
        code = session_open(options, NULL, &client);
    if (code != 0)
        return code;
    code = rows_check(&rows, hf_history(client, argv[0], rows_add, &rows));
    if (code == 0 && options->json)
        print_json(&rows);
    else if (code == 0)
        print_table(&rows);
    if (code == 0)
        code = finish_stdout();
    if (code == 0 && rows.count == 0 && !options->json && isatty(STDERR_FILENO))
        say_none(client, argv[0]);
    rows_free(&rows);
    return session_close(client, code);
}

const struct verb VERB_HISTORY = {
    .name = "history",
    .operands = "NAME",
    .summary = "Shows past holds of NAME, newest first, as far as the engine keeps them.",
    .details = "How many are kept for how long say the settings history and history_age, which those who ask for the\n"
               "lock must have: holdfast -u 'local:?history=20' run ...\n\n"
               "With --json: an array with one object for each hold; docs/json.md has the keys.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_history,
};
