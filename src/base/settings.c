/* settings.c - reads settings from the environment and from a URL's query, as the table in settings.def says.
 *
 * To add a setting, add a line to settings.def; a text with a default or a choice also gets a line in text_rules. */
#include "settings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "duration.h"
#include "name.h"
#include "url.h"
#include "why.h"

static const struct hf_setting table[HF_SET_COUNT] = {
#define HF_SETTING(id, name, unit, min, max, standard, where, help) {name, unit, min, max, standard, where, help},
#include "settings.def"
#undef HF_SETTING
};

static const struct {
    const char *standard;
    const char *choices; /* separated by blanks; NULL: anything */
} text_rules[HF_SET_COUNT] = {
    [HF_SET_PREFIX] = {"lock:", NULL},
    [HF_SET_WAKE] = {"inbox", "inbox pubsub poll"},
};

/* A setting as it was found somewhere. */
struct given {
    size_t id;
    const char *key; /* as written there: "ttl", "HOLDFAST_TTL" */
    const char *value;
    const char *source; /* as in struct hf_settings */
    const char *from;   /* the same in a sentence */
};

const struct hf_setting *hf_settings_table(size_t *count)
{
    *count = HF_SET_COUNT;
    return table;
}

void hf_settings_defaults(struct hf_settings *settings)
{
    memset(settings, 0, sizeof *settings);
    for (size_t i = 0; i < HF_SET_COUNT; i++) {
        settings->value[i] = table[i].standard;
        settings->source[i] = "default";
        if (table[i].unit != HF_UNIT_TEXT)
            continue;
        const char *text = text_rules[i].standard ? text_rules[i].standard : "";
        settings->value[i] = (int64_t)strlen(text);
        memcpy(settings->text[i], text, strlen(text) + 1);
    }
}

__attribute__((format(printf, 2, 3))) static hf_status refuse(const struct given *given, const char *format, ...)
{
    char reason[160];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return hf_why(HF_CONFIG, "%s=%.80s from %s: %s", given->key, given->value, given->from, reason);
}

static hf_status refuse_range(const struct given *given)
{
    const struct hf_setting *row = &table[given->id];
    char least[HF_DURATION_MAX], most[HF_DURATION_MAX];
    switch (row->unit) {
    case HF_UNIT_MS:
        /* Where forever is allowed it is no bound: the smallest number is 0. */
        hf_duration_print(row->min < 0 ? 0 : row->min, least);
        hf_duration_print(row->max, most);
        return refuse(given, "not between %s and %s", least, most);
    case HF_UNIT_US:
        hf_duration_print_us(row->min, least);
        hf_duration_print_us(row->max, most);
        return refuse(given, "not between %s and %s", least, most);
    case HF_UNIT_OCTAL:
        return refuse(given, "not permissions between 0%" PRIo64 " and 0%" PRIo64, row->min, row->max);
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

/* Digits only: neither sign nor blanks. */
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
    const char *choices = text_rules[given->id].choices;
    size_t place;
    const char *flaw = hf_name_flaw(given->value, strlen(given->value), &place);
    if (flaw)
        return refuse(given, "byte %zu is %s", place + 1, flaw);
    if (choices && !is_choice(choices, given->value))
        return refuse(given, "not one of: %s", choices);
    *value = (int64_t)strlen(given->value);
    return HF_OK;
}

static hf_status read_value(const struct given *given, int64_t *value)
{
    switch (table[given->id].unit) {
    case HF_UNIT_MS:
        if (hf_duration_parse(given->value, value) != HF_OK)
            return refuse(given, "not a duration (like 500ms, 5s, 2m, 1h)");
        return HF_OK;
    case HF_UNIT_US:
        if (hf_duration_parse_us(given->value, value) != HF_OK)
            return refuse(given, "not a duration (like 50us, 1ms)");
        return HF_OK;
    case HF_UNIT_OCTAL:
        return read_number(given->value, 8, value) ? HF_OK : refuse(given, "not an octal number (like 0660)");
    case HF_UNIT_COUNT:
        return read_number(given->value, 10, value) ? HF_OK : refuse(given, "not a whole number");
    case HF_UNIT_TEXT:
        break;
    }
    return read_text(given, value);
}

static hf_status apply(struct hf_settings *settings, const struct given *given)
{
    int64_t value;
    hf_status status = read_value(given, &value);
    if (status != HF_OK)
        return status;
    if (!is_in_range(&table[given->id], value))
        return refuse_range(given);
    settings->value[given->id] = value;
    settings->source[given->id] = given->source;
    if (table[given->id].unit == HF_UNIT_TEXT)
        memcpy(settings->text[given->id], given->value, (size_t)value + 1);
    return HF_OK;
}

static void name_variable(const char *setting, char *variable, size_t size)
{
    snprintf(variable, size, "HOLDFAST_%s", setting);
    for (char *c = variable; *c; c++)
        if (*c >= 'a' && *c <= 'z')
            *c = (char)(*c - 'a' + 'A');
}

hf_status hf_settings_from_environment(struct hf_settings *settings, char *(*lookup)(const char *name))
{
    for (size_t id = 0; id < HF_SET_COUNT; id++) {
        if (!(table[id].where & HF_IN_ENVIRONMENT))
            continue;
        char variable[64];
        name_variable(table[id].name, variable, sizeof variable);
        const char *value = lookup(variable);
        struct given given = {id, variable, value, "environment", "the environment"};
        hf_status status = value ? apply(settings, &given) : HF_OK;
        if (status != HF_OK)
            return status;
    }
    return HF_OK;
}

static size_t find_setting(const char *name, size_t len)
{
    size_t id = 0;
    while (id < HF_SET_COUNT && (strlen(table[id].name) != len || memcmp(table[id].name, name, len) != 0))
        id++;
    return id;
}

/* One `name=value` of a query, where every setting may stand; `seen` remembers which ones came before. */
static hf_status read_pair(struct hf_settings *settings, const char *pair, size_t len, bool seen[HF_SET_COUNT])
{
    const char *equals = memchr(pair, '=', len);
    size_t name_len = equals ? (size_t)(equals - pair) : len;
    size_t id = find_setting(pair, name_len);
    int shown = name_len > 40 ? 40 : (int)name_len;
    if (id == HF_SET_COUNT)
        return hf_why(HF_CONFIG, "\"%.*s\" from the URL: no such setting", shown, pair);
    if (!equals)
        return hf_why(HF_CONFIG, "%s from the URL: no value (write %s=...)", table[id].name, table[id].name);
    if (seen[id])
        return hf_why(HF_CONFIG, "%s from the URL: given twice", table[id].name);
    seen[id] = true;

    char value[HF_URL_MAX];
    if (hf_url_decode(equals + 1, len - name_len - 1, value, sizeof value) != HF_OK)
        return hf_why(HF_CONFIG, "%s from the URL: %s", table[id].name, hf_why_text());
    return apply(settings, &(struct given){id, table[id].name, value, "url", "the URL"});
}

static hf_status check_agreement(const struct hf_settings *settings)
{
    int64_t least = settings->value[HF_SET_RETRY_MIN], most = settings->value[HF_SET_RETRY_MAX];
    if (least <= most)
        return HF_OK;
    char least_text[HF_DURATION_MAX], most_text[HF_DURATION_MAX];
    hf_duration_print(least, least_text);
    hf_duration_print(most, most_text);
    return hf_why(HF_CONFIG, "retry_min=%s (%s) is above retry_max=%s (%s)", least_text,
                  settings->source[HF_SET_RETRY_MIN], most_text, settings->source[HF_SET_RETRY_MAX]);
}

hf_status hf_settings_from_query(struct hf_settings *settings, const char *query)
{
    bool seen[HF_SET_COUNT] = {false};
    for (const char *pair = query; *pair;) {
        size_t len = strcspn(pair, "&");
        hf_status status = read_pair(settings, pair, len, seen);
        if (status != HF_OK)
            return status;
        pair += len + (pair[len] == '&');
    }
    return check_agreement(settings);
}
