/* serve_settings.c - reads the settings by their table, and prints them. */
#include "serve_settings.h"
#include "service_log.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 64
#define EXIT_CONFIG 78
#define FLAG "flag"
#define LINE_BYTES 4096

struct spec {
    const char *name, *argument;
    enum setting_kind kind;
    int64_t low, high;
    const char *standard;
};

static const struct spec SPECS[SETTING_COUNT] = {
#define SERVE_SETTING(id, name, argument, kind, low, high, standard, help)                         \
    [SET_##id] = {name, argument, KIND_##kind, low, high, standard},
#include "serve_settings.def"
#undef SERVE_SETTING
};

static bool read_number(const char *text, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return isdigit((unsigned char)text[0]) && *end == 0 && errno == 0;
}

/* Returns the index of `text` among the words of "a|b|c", or -1. */
static int64_t choice_of(const char *words, const char *text)
{
    size_t len = strlen(text);
    for (int64_t place = 0;; place++) {
        size_t end = strcspn(words, "|");
        if (end == len && memcmp(words, text, len) == 0)
            return place;
        if (words[end] == 0)
            return -1;
        words += end + 1;
    }
}

static const char *check(const struct spec *spec, const char *text, int64_t *number)
{
    switch (spec->kind) {
    case KIND_TEXT:
    case KIND_LIST:
        return NULL;
    case KIND_CHOICE:
        *number = choice_of(spec->argument, text);
        return *number < 0 ? "is not one of the choices" : NULL;
    case KIND_NUMBER:
        if (!read_number(text, number))
            return "is not a number";
        break;
    case KIND_DURATION:
        if (hf_parse_duration(text, number) != HF_OK)
            return "is not a duration";
        break;
    }

    return *number < spec->low || *number > spec->high ? "is out of range" : NULL;
}

static int refuse(const struct spec *spec, const char *text, const char *source, const char *why)
{
    log_complain("%s \"%s\" (%s) %s; expected: %s", spec->name, text, source, why, spec->argument);
    return strcmp(source, FLAG) == 0 ? EXIT_USAGE : EXIT_CONFIG;
}

/* A stronger source replaces the value of a weaker one. Within one source the items of a list
 * add up. */
static int set(struct settings *settings, size_t which, const char *text, const char *source)
{
    const struct spec *spec = &SPECS[which];
    struct setting_value *value = &settings->value[which];
    int64_t number = 0;
    const char *why = check(spec, text, &number);

    if (why)
        return refuse(spec, text, source, why);

    bool adds = spec->kind == KIND_LIST && value->source && strcmp(value->source, source) == 0;
    while (!adds && value->count > 0)
        free(value->items[--value->count]);
    if (value->count == SETTING_ITEMS_MAX)
        return refuse(spec, text, source, "is one item too many");

    value->items[value->count] = strdup(text);
    if (!value->items[value->count])
        abort();
    value->count++;
    value->number = number;
    value->source = source;

    return 0;
}

static size_t find(const char *name)
{
    size_t which = 0;
    while (which < SETTING_COUNT && strcmp(SPECS[which].name, name) != 0)
        which++;
    return which;
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    for (size_t len = strlen(text); len > 0 && strchr(" \t\r\n", text[len - 1]); len--)
        text[len - 1] = 0;
    return text;
}

static int read_line(struct settings *settings, char *line, const char *path, int number)
{
    char *text = trim(line), *equals = strchr(text, '=');

    if (*text == 0 || *text == '#')
        return 0;

    if (equals)
        *equals = 0;
    size_t which = equals ? find(trim(text)) : SETTING_COUNT;
    if (which == SETTING_COUNT) {
        log_complain("%s: line %d: no such setting: \"%s\"", path, number, text);
        return EXIT_CONFIG;
    }
    return set(settings, which, trim(equals + 1), "file");
}

static int read_file(struct settings *settings, const char *path)
{
    char line[LINE_BYTES];
    int code = 0;
    FILE *file = fopen(path, "re");

    if (!file) {
        log_complain("cannot open the configuration \"%s\": %s", path, strerror(errno));
        return EXIT_CONFIG;
    }

    for (int number = 1; code == 0 && fgets(line, sizeof line, file); number++)
        code = read_line(settings, line, path, number);
    fclose(file);

    return code;
}

static int read_environment(struct settings *settings)
{
    int code = 0;

    for (size_t which = 0; code == 0 && which < SETTING_COUNT; which++) {
        char name[64] = "HOLDFAST_SERVE_";
        size_t len = strlen(name);
        for (const char *c = SPECS[which].name; *c && len + 1 < sizeof name; c++)
            name[len++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        name[len] = 0;
        const char *text = getenv(name);
        if (text && *text)
            code = set(settings, which, text, "environment");
    }

    return code;
}

int settings_load(struct settings *settings, const struct serve_order *order)
{
    int code = 0;

    *settings = (struct settings){0};
    for (size_t which = 0; which < SETTING_COUNT; which++) {
        if (*SPECS[which].standard)
            code = set(settings, which, SPECS[which].standard, "default");
        else
            settings->value[which].source = "default";
        if (code != 0)
            return code;
    }

    const char *config = order->config ? order->config : getenv("HOLDFAST_SERVE_CONFIG");
    if (config && *config)
        code = read_file(settings, config);
    if (code == 0)
        code = read_environment(settings);
    for (size_t i = 0; code == 0 && i < order->flag_count; i++)
        code = set(settings, find(order->flags[i].name), order->flags[i].value, FLAG);

    return code;
}

void settings_free(struct settings *settings)
{
    for (size_t which = 0; which < SETTING_COUNT; which++)
        while (settings->value[which].count > 0)
            free(settings->value[which].items[--settings->value[which].count]);
}

int64_t setting_number(const struct settings *settings, enum serve_setting which)
{
    return settings->value[which].number;
}

const char *setting_text(const struct settings *settings, enum serve_setting which)
{
    const struct setting_value *value = &settings->value[which];
    return value->count > 0 && *value->items[0] ? value->items[0] : NULL;
}

static void print_lines(const struct settings *settings)
{
    for (size_t which = 0; which < SETTING_COUNT; which++) {
        const struct setting_value *value = &settings->value[which];
        for (size_t i = 0; i < value->count; i++)
            printf("# %s\n%s = %s\n", value->source, SPECS[which].name, value->items[i]);
        if (value->count == 0)
            printf("# %s is not set\n", SPECS[which].name);
    }
}

static void print_json(const struct settings *settings)
{
    json_t *all = json_array();

    for (size_t which = 0; which < SETTING_COUNT; which++) {
        const struct setting_value *value = &settings->value[which];
        json_t *items = json_array();
        for (size_t i = 0; i < value->count; i++)
            json_array_append_new(items, json_string(value->items[i]));
        json_array_append_new(all, json_pack("{s:s, s:o, s:s}", "name", SPECS[which].name, "value",
                                             items, "source", value->source));
    }

    json_dumpf(all, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(all);
}

void settings_print(const struct settings *settings, bool json)
{
    if (json)
        print_json(settings);
    else
        print_lines(settings);
}
