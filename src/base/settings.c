/* settings.c - joins tables of settings, and reads settings from the environment and from a URL's
 * query as the joined table says.
 *
 * To add a setting, add a line to settings.def, or to the table in the folder of its engine. */
#include "settings.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "duration.h"
#include "error.h"
#include "name.h"
#include "url.h"

static const struct setting_row rows[] = {
#define SETTING SETTING_ROW
#include "settings.def"
#undef SETTING
};
const struct setting_rows settings_of_all = {rows, sizeof rows / sizeof *rows};

/* A setting that was found in the URL or the environment. */
struct given {
    const struct setting_row *row;
    const char *key; /* its key there: "ttl", "HOLDFAST_TTL" */
    const char *value;
    const char *source; /* as in struct settings */
    const char *from;   /* `source` in words, for messages: "the URL" */
};

static void join_row(struct settings_table *table, const struct setting_row *row)
{
    size_t at = table->count;
    assert(row->index < SETTINGS_MAX);
    while (at > 0 && table->from[at - 1]->index > row->index)
        at--;

    bool is_there = at > 0 && table->from[at - 1]->index == row->index;
    assert(!is_there || table->from[at - 1] == row);
    if (is_there)
        return;

    assert(table->count < SETTINGS_MAX);
    memmove(&table->from[at + 1], &table->from[at], (table->count - at) * sizeof *table->from);
    memmove(&table->row[at + 1], &table->row[at], (table->count - at) * sizeof *table->row);
    table->from[at] = row;
    table->row[at] = row->setting;
    table->count++;
}

void settings_table_join(struct settings_table *table, const struct setting_rows *more)
{
    for (size_t i = 0; i < more->count; i++)
        join_row(table, &more->row[i]);
}

void settings_defaults(struct settings *settings, const struct settings_table *table)
{
    assert(table->count <= SETTINGS_MAX);
    memset(settings, 0, sizeof *settings);
    settings->table = table;

    for (size_t i = 0; i < table->count; i++) {
        size_t index = table->from[i]->index;
        settings->value[index] = table->row[i].standard;
        settings->source[index] = "default";
        if (table->row[i].unit != HF_UNIT_TEXT)
            continue;

        const char *text = table->from[i]->text;
        settings->value[index] = (int64_t)strlen(text);
        memcpy(settings->text[index], text, strlen(text) + 1);
    }
}

__attribute__((format(printf, 2, 3))) static hf_status refuse(const struct given *given,
                                                              const char *format, ...)
{
    char reason[160];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);

    return error_set(HF_CONFIG, "%s=%.80s from %s: %s", given->key, given->value, given->from,
                     reason);
}

static hf_status refuse_range(const struct given *given)
{
    const struct hf_setting *row = &given->row->setting;
    char least[DURATION_MAX], most[DURATION_MAX];

    switch (row->unit) {
    case HF_UNIT_MS:
        /* A negative minimum only means that `forever` is accepted; the smallest number is still
         * 0. */
        duration_print(row->min < 0 ? 0 : row->min, least);
        duration_print(row->max, most);
        return refuse(given, "not between %s and %s", least, most);
    case HF_UNIT_US:
        duration_print_us(row->min, least);
        duration_print_us(row->max, most);
        return refuse(given, "not between %s and %s", least, most);
    case HF_UNIT_OCTAL:
        return refuse(given, "not permissions between 0%" PRIo64 " and 0%" PRIo64, row->min,
                      row->max);
    case HF_UNIT_TEXT:
        return refuse(given, "not %" PRId64 " to %" PRId64 " bytes", row->min, row->max);
    case HF_UNIT_COUNT:
        break;
    }
    return refuse(given, "not between %" PRId64 " and %" PRId64, row->min, row->max);
}

static bool is_in_range(const struct hf_setting *row, int64_t value)
{
    if (row->unit == HF_UNIT_OCTAL)
        return (value & row->min) == row->min && (value & ~row->max) == 0;
    return value >= row->min && value <= row->max;
}

/* Reads a number of digits only, without sign or blanks. */
static bool read_number(const char *text, int base, int64_t *value)
{
    if (*text == '\0')
        return false;

    for (*value = 0; *text; text++)
        if (*text < '0' || *text >= '0' + base || __builtin_mul_overflow(*value, base, value) ||
            __builtin_add_overflow(*value, *text - '0', value))
            return false;
    return true;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t len = strlen(text);

    for (const char *at = choices; *at; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");
        if (word == len && memcmp(at, text, len) == 0)
            return true;
        at += word;
    }
    return false;
}

static hf_status read_text(const struct given *given, int64_t *value)
{
    const char *choices = given->row->choices;
    size_t place;
    const char *flaw = name_flaw(given->value, strlen(given->value), &place);
    if (flaw)
        return refuse(given, "byte %zu is %s", place + 1, flaw);
    if (choices && !is_choice(choices, given->value))
        return refuse(given, "not one of: %s", choices);

    *value = (int64_t)strlen(given->value);
    return HF_OK;
}

static hf_status read_value(const struct given *given, int64_t *value)
{
    switch (given->row->setting.unit) {
    case HF_UNIT_MS:
        if (duration_parse(given->value, value) != HF_OK)
            return refuse(given, "not a duration (like 500ms, 5s, 2m, 1h)");
        return HF_OK;
    case HF_UNIT_US:
        if (duration_parse_us(given->value, value) != HF_OK)
            return refuse(given, "not a duration (like 50us, 1ms)");
        return HF_OK;
    case HF_UNIT_OCTAL:
        return read_number(given->value, 8, value)
                   ? HF_OK
                   : refuse(given, "not an octal number (like 0660)");
    case HF_UNIT_COUNT:
        return read_number(given->value, 10, value) ? HF_OK : refuse(given, "not a whole number");
    case HF_UNIT_TEXT:
        break;
    }
    return read_text(given, value);
}

static hf_status apply(struct settings *settings, const struct given *given)
{
    size_t id = given->row->index;
    int64_t value;
    hf_status status = read_value(given, &value);
    if (status != HF_OK)
        return status;
    if (!is_in_range(&given->row->setting, value))
        return refuse_range(given);

    settings->value[id] = value;
    settings->source[id] = given->source;
    if (given->row->setting.unit == HF_UNIT_TEXT)
        memcpy(settings->text[id], given->value, (size_t)value + 1);
    return HF_OK;
}

static void name_variable(const char *setting, char *variable, size_t size)
{
    int len = snprintf(variable, size, "HOLDFAST_%s", setting);
    assert(len > 0 && (size_t)len < size);

    for (char *c = variable; *c; c++)
        if (*c >= 'a' && *c <= 'z')
            *c = (char)(*c - 'a' + 'A');
}

hf_status settings_from_environment(struct settings *settings, char *(*lookup)(const char *name))
{
    const struct settings_table *table = settings->table;
    assert(table);

    for (size_t i = 0; i < table->count; i++) {
        if (!(table->row[i].where & HF_IN_ENVIRONMENT))
            continue;

        char variable[64];
        name_variable(table->row[i].name, variable, sizeof variable);
        const char *value = lookup(variable);
        struct given given = {table->from[i], variable, value, "environment", "the environment"};
        hf_status status = value ? apply(settings, &given) : HF_OK;
        if (status != HF_OK)
            return status;
    }
    return HF_OK;
}

/* Returns NULL if no setting has that name. */
static const struct setting_row *find_setting(const struct settings_table *table, const char *name,
                                              size_t len)
{
    for (size_t i = 0; i < table->count; i++)
        if (strlen(table->row[i].name) == len && memcmp(table->row[i].name, name, len) == 0)
            return table->from[i];
    return NULL;
}

/* Reads one `name=value` of a query; `seen`: the names that came before. */
static hf_status read_pair(struct settings *settings, const char *pair, size_t len,
                           bool seen[SETTINGS_MAX])
{
    const char *equals = memchr(pair, '=', len);
    size_t name_len = equals ? (size_t)(equals - pair) : len;
    const struct setting_row *row = find_setting(settings->table, pair, name_len);
    int shown = name_len > 40 ? 40 : (int)name_len;
    if (!row)
        return error_set(HF_CONFIG, "\"%.*s\" from the URL: no such setting", shown, pair);

    const char *name = row->setting.name;
    if (!equals)
        return error_set(HF_CONFIG, "%s from the URL: no value (write %s=...)", name, name);
    if (seen[row->index])
        return error_set(HF_CONFIG, "%s from the URL: given twice", name);

    seen[row->index] = true;

    char value[URL_MAX];
    if (url_decode(equals + 1, len - name_len - 1, value, sizeof value) != HF_OK)
        return error_set(HF_CONFIG, "%s from the URL: %s", name, error_text());
    return apply(settings, &(struct given){row, name, value, "url", "the URL"});
}

static hf_status check_agreement(const struct settings *settings)
{
    int64_t least = settings->value[SETTING_RETRY_MIN], most = settings->value[SETTING_RETRY_MAX];
    if (least <= most)
        return HF_OK;

    char least_text[DURATION_MAX], most_text[DURATION_MAX];
    duration_print(least, least_text);
    duration_print(most, most_text);
    return error_set(HF_CONFIG, "retry_min=%s (%s) is above retry_max=%s (%s)", least_text,
                     settings->source[SETTING_RETRY_MIN], most_text,
                     settings->source[SETTING_RETRY_MAX]);
}

hf_status settings_from_query(struct settings *settings, const char *query)
{
    return settings_from_query_except(settings, query, NULL);
}

static bool is_passed_on(const struct settings *settings, const char *pair,
                         bool (*passes_on)(const char *name, size_t len))
{
    size_t name_len = strcspn(pair, "=&");
    return passes_on && !find_setting(settings->table, pair, name_len) && passes_on(pair, name_len);
}

hf_status settings_from_query_except(struct settings *settings, const char *query,
                                     bool (*passes_on)(const char *name, size_t len))
{
    bool seen[SETTINGS_MAX] = {false};
    assert(settings->table);

    for (const char *pair = query; *pair;) {
        size_t len = strcspn(pair, "&");
        hf_status status = HF_OK;
        if (!is_passed_on(settings, pair, passes_on))
            status = read_pair(settings, pair, len, seen);
        if (status != HF_OK)
            return status;
        pair += len + (pair[len] == '&');
    }

    return check_agreement(settings);
}
