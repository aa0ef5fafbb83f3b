/* explain.c - the verb `explain`: prints the timing that follows from a ttl, and every setting
 * with its source. */
#include "lock_request.h"
#include "text_table.h"
#include "verb_client.h"
#include "verbs.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct option_spec OPTIONS[] = {
    {"ttl", 0, "DUR", STORE_DURATION, OPTION_FIELD(ttl_ms), 1, LONGEST_MS,
     "for this ttl; default: the one in force"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};

/* Lines of the sheet in the order of time. */
static const struct {
    const char *key;
    size_t field;
    const char *means;
} SHEET[] = {
#define FIELD(member) #member, offsetof(struct hf_timing_sheet, member)
    {FIELD(ttl_ms), "a lease lasts this long unless it is renewed"},
    {FIELD(renew_ms), "time from a grant or renewal to the next renewal"},
    {FIELD(warn_ms), "if the lease is not renewed by then, a warning is logged"},
    {FIELD(stop_ms), "if the lease is not renewed by then, it is lost and its use must stop"},
    {FIELD(drift_ms), "subtracted for clocks that run at different speeds"},
    {FIELD(op_timeout_ms), "longest time for one request to the engine"},
    {FIELD(retry_min_ms), "longest first pause between tries"},
    {FIELD(retry_max_ms), "longest pause between tries"},
#undef FIELD
};
#define SHEET_LINES (sizeof SHEET / sizeof SHEET[0])

struct in_force {
    const struct hf_setting *setting;
    int64_t value;
    const char *source;
};

static int64_t sheet_value(const struct hf_timing_sheet *sheet, size_t line)
{
    int64_t value;
    memcpy(&value, (const char *)sheet + SHEET[line].field, sizeof value);
    return value;
}

static const char *unit_name(enum hf_unit unit)
{
    static const char *const names[] = {[HF_UNIT_MS] = "ms",
                                        [HF_UNIT_COUNT] = "count",
                                        [HF_UNIT_OCTAL] = "octal",
                                        [HF_UNIT_TEXT] = "text",
                                        [HF_UNIT_US] = "us"};
    return names[unit];
}

/* Returns true for `wait`, the only setting that accepts `forever`. By default the command waits
 * forever and the library does not wait. */
static bool is_wait(const struct hf_setting *setting)
{
    return strcmp(setting->name, "wait") == 0;
}

/* Returns a value as text. The value of a text setting is not printed, because it may be the path
 * of a secret. A default of -1 follows from other settings. */
static struct shown value_text(const struct in_force *line)
{
    struct shown shown = {"-"};
    enum hf_unit unit = line->setting->unit;
    bool given = strcmp(line->source, "default") != 0;

    if (unit == HF_UNIT_TEXT)
        return output_shown(given ? "(given)" : "-");
    if (line->value < 0 && !is_wait(line->setting))
        return shown;
    if (line->value == HF_FOREVER)
        return output_shown("forever");

    const char *suffix = unit == HF_UNIT_MS || unit == HF_UNIT_US ? unit_name(unit) : "";
    snprintf(shown.text, sizeof shown.text,
             unit == HF_UNIT_OCTAL ? "0%" PRIo64 "%s" : "%" PRId64 "%s", line->value, suffix);

    return shown;
}

static int read_setting(const struct cli_options *options, const hf_client *client,
                        const struct hf_setting *setting, struct in_force *line)
{
    line->setting = setting;
    if (options->ttl_ms > 0 && strcmp(setting->name, "ttl") == 0) {
        line->value = options->ttl_ms;
        line->source = "flag";
        return 0;
    }

    hf_status status = hf_client_setting(client, setting->name, &line->value, &line->source);
    if (status == HF_OK && is_wait(setting))
        line->value = lock_request_wait(client, HF_WAIT_DEFAULT);
    return status == HF_OK ? 0 : fail_with(status);
}

/* Returns "op_timeout_ms" as "opTimeoutMs". */
static struct shown camel_case(const char *name)
{
    struct shown key;
    size_t len = 0;

    for (; *name; name++) {
        bool begins_word = *name == '_' && name[1];
        if (begins_word)
            key.text[len++] = (char)toupper((unsigned char)*++name);
        else
            key.text[len++] = *name;
    }
    key.text[len] = 0;
    return key;
}

static void print_json_setting(const struct in_force *line)
{
    printf("{\"name\":\"%s\",\"unit\":\"%s\",\"value\":", line->setting->name,
           unit_name(line->setting->unit));
    bool known =
        line->setting->unit != HF_UNIT_TEXT && (line->value >= 0 || is_wait(line->setting));
    if (known)
        printf("%" PRId64, line->value);
    else
        printf("null");
    printf(",\"source\":\"%s\",\"help\":", line->source);
    json_print_text(stdout, line->setting->help);
    printf("}");
}

static void print_json(const struct hf_timing_sheet *sheet, const struct in_force *lines,
                       size_t count)
{
    printf("{\"timing\":{");

    for (size_t i = 0; i < SHEET_LINES; i++)
        printf("%s\"%s\":%" PRId64, i ? "," : "", camel_case(SHEET[i].key).text,
               sheet_value(sheet, i));

    printf("},\n\"settings\":[");
    for (size_t i = 0; i < count; i++) {
        fputs(i ? ",\n  " : "\n  ", stdout);
        print_json_setting(&lines[i]);
    }

    printf("]}\n");
}

static struct shown cell(const void *data, size_t row, size_t column)
{
    const struct in_force *line = &((const struct in_force *)data)[row];

    switch (column) {
    case 0:
        return output_shown(line->setting->name);
    case 1:
        return value_text(line);
    case 2:
        return output_shown(line->source);
    default:
        return output_shown(line->setting->help);
    }
}

static void print_words(const struct hf_timing_sheet *sheet, const struct in_force *lines,
                        size_t count)
{
    static const char *const titles[] = {"SETTING", "VALUE", "SOURCE", "MEANS"};

    printf("A ttl of %" PRId64 " ms means, in milliseconds:\n", sheet->ttl_ms);
    for (size_t i = 0; i < SHEET_LINES; i++) {
        int len = (int)strlen(SHEET[i].key) - (int)sizeof "_ms" + 1;
        printf("  %-10.*s %9" PRId64 "  %s\n", len, SHEET[i].key, sheet_value(sheet, i),
               SHEET[i].means);
    }

    printf("\n");
    text_table_print(&(struct text_table){
        .titles = titles, .columns = 4, .rows = count, .data = lines, .cell = cell});
}

static int explain(const struct cli_options *options, const hf_client *client)
{
    struct hf_timing_sheet sheet = {.size = sizeof sheet};
    size_t count;
    const struct hf_setting *settings = hf_settings(&count);
    hf_status status = hf_explain(client, options->ttl_ms, &sheet);

    if (status != HF_OK)
        return fail_with(status);

    struct in_force *lines = calloc(count, sizeof *lines);
    int code = lines ? 0 : fail_with(HF_NO_MEMORY);
    for (size_t i = 0; i < count && code == 0; i++)
        code = read_setting(options, client, &settings[i], &lines[i]);

    if (code == 0 && options->json)
        print_json(&sheet, lines, count);
    else if (code == 0)
        print_words(&sheet, lines, count);
    free(lines);

    return code == 0 ? finish_stdout() : code;
}

static int run_explain(const struct cli_options *options, int argc, char **argv)
{
    hf_client *client;
    int code = check_operands(&VERB_EXPLAIN, argc, argv, 0, 0);
    if (code == 0)
        code = verb_client_open(options, NULL, &client);
    return code == 0 ? verb_client_close(client, explain(options, client)) : code;
}

const struct verb VERB_EXPLAIN = {
    .name = "explain",
    .operands = "",
    .summary = "Prints the timing that follows from a ttl, and every setting with its source.",
    .details =
        "Sources: flag, url, environment, default; the first of them that gives a value wins.\n"
        "The default of wait is shown for run and acquire; the default of the library is 0.\n"
        "With --json: one object with the keys timing and settings.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_explain,
};
