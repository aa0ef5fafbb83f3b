/* settings.h - tables of settings, and the values in force for one client.
 *
 * base knows the settings that every engine has (settings.def). Each engine adds a table of its
 * own; engine_settings() joins them all. */
#pragma once
#include "holdfast.h"

/* One row of a table. */
struct setting_row {
    /* position in struct settings; there are gaps if some engine is not in the build */
    size_t index;
    struct hf_setting setting;
    const char *text; /* HF_UNIT_TEXT: the default */
    /* HF_UNIT_TEXT: allowed words, separated by blanks; NULL: any text */
    const char *choices;
};

struct setting_rows {
    const struct setting_row *row;
    size_t count;
};

/* For SETTING and SETTING_TEXT of a .def file: a row, and the id as a number. */
#define SETTING_ROW(index, id, name, unit, min, max, standard, where, help)                        \
    {index, {name, unit, min, max, standard, where, help}, NULL, NULL},
#define SETTING_TEXT_ROW(index, id, name, min, max, text, choices, where, help)                    \
    {index, {name, HF_UNIT_TEXT, min, max, -1, where, help}, text, choices},
#define SETTING_INDEX(index, id, ...) SETTING_##id = index,

enum setting_id {
#define SETTING SETTING_INDEX
#include "settings.def"
#undef SETTING
};
/* table of the settings that every engine has */
extern const struct setting_rows settings_of_all;

#define SETTINGS_MAX 80
#define SETTING_TEXT_MAX 256

/* Several tables joined, without gaps, in the order of the indexes. */
struct settings_table {
    size_t count;
    struct hf_setting row[SETTINGS_MAX];
    const struct setting_row *from[SETTINGS_MAX];
};

/* Adds rows to the table. Rows that are in it already are skipped; two settings with the same
 * index are a programming error. */
void settings_table_join(struct settings_table *table, const struct setting_rows *rows);

/* The arrays are indexed by setting_row.index. */
struct settings {
    const struct settings_table *table;
    /* value in the setting's unit; length of a text in bytes; -1: follows from other settings */
    int64_t value[SETTINGS_MAX];
    const char *source[SETTINGS_MAX];          /* "default", "environment", "url" */
    char text[SETTINGS_MAX][SETTING_TEXT_MAX]; /* HF_UNIT_TEXT; "": none */
};

/* Sets every setting to its default, and keeps a pointer to the table. */
void settings_defaults(struct settings *settings, const struct settings_table *table);

/* Reads HOLDFAST_<NAME> for every setting that may stand in the environment. HF_CONFIG names
 * variable and value (never a password). `lookup` is getenv or a test's own. */
hf_status settings_from_environment(struct settings *settings, char *(*lookup)(const char *name));

/* Reads `ttl=10s&wake=poll` (percent-encoding as usual). A setting that is unknown, bad or given
 * twice is HF_CONFIG and is named; the value of an unknown one is not shown, it may be a password.
 * Call it last, also with an empty query: it then checks that the settings agree with each other.
 */
hf_status settings_from_query(struct settings *settings, const char *query);
/* As settings_from_query(), but skips words that `passes_on` accepts, because these are not
 * settings. NULL: skips none. */
hf_status settings_from_query_except(struct settings *settings, const char *query,
                                     bool (*passes_on)(const char *name, size_t len));
