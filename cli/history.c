/* history.c - the verb `history`: prints the past holds of a name, as a table or as JSON. */
#include "json_rows.h"
#include "row_cells.h"
#include "verb_client.h"
#include "verbs.h"
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
    return output_shown(outcome(row));
}

static const struct row_column COLUMNS[] = {
    {"ENDED", ended},   {"OUTCOME", how},     {"HELD", row_since},
    {"KIND", row_kind}, {"UNITS", row_units}, {"TOKEN", row_token},
    {"PID", row_pid},   {"HOST", row_host},   {"LABEL", row_label},
};

static void print_table(const struct row_list *rows)
{
    row_cells_print(rows, COLUMNS, sizeof COLUMNS / sizeof COLUMNS[0], 0, NULL);
}

/* Says why there are no past holds: either none are kept, or there were none. */
static void say_none(hf_client *client, const char *name)
{
    int64_t kept;
    const char *source;

    if (hf_client_setting(client, "history", &kept, &source) == HF_OK && kept == 0)
        complain("no past holds of \"%s\": they are kept only if the setting history (URL: "
                 "?history=N, environment: HOLDFAST_HISTORY) says how many",
                 output_shown(name).text);
    else
        complain("the engine has no past holds of \"%s\"", output_shown(name).text);
}

static int run_history(const struct cli_options *options, int argc, char **argv)
{
    struct row_list rows = {0};
    hf_client *client;
    int code = check_operands(&VERB_HISTORY, argc, argv, 1, 1);

    if (code == 0)
        code = verb_client_open(options, NULL, &client);
    if (code != 0)
        return code;

    code = row_list_check(&rows, hf_history(client, argv[0], row_list_add, &rows));
    if (code == 0 && options->json)
        json_print_rows(&rows, json_print_hold);
    else if (code == 0)
        print_table(&rows);
    if (code == 0)
        code = finish_stdout();
    bool is_empty = code == 0 && rows.count == 0 && !options->json;
    if (is_empty && isatty(STDERR_FILENO))
        say_none(client, argv[0]);
    row_list_free(&rows);

    return verb_client_close(client, code);
}

const struct verb VERB_HISTORY = {
    .name = "history",
    .operands = "NAME",
    .summary = "Shows the past holds of NAME that the engine keeps, newest first.",
    .details = "The settings history and history_age say how many holds are kept and for how long. "
               "The clients that\n"
               "take the lock must have them: holdfast -u 'local:?history=20' run ...\n"
               "\n"
               "With --json: an array with one object for each hold; docs/json.md has the keys.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_history,
};
