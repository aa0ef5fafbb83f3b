/* serve_settings.h - the settings of the service, from flags, environment and a file, by one table
 * (serve_settings.def). */
#pragma once
#include "serve.h"

enum setting_kind { KIND_TEXT, KIND_LIST, KIND_NUMBER, KIND_DURATION, KIND_CHOICE };

enum serve_setting {
#define SERVE_SETTING(id, name, argument, kind, low, high, standard, help) SET_##id,
#include "serve_settings.def"
#undef SERVE_SETTING
    SETTING_COUNT
};

enum { SETTING_ITEMS_MAX = 16 };

struct setting_value {
    char *items[SETTING_ITEMS_MAX]; /* a list has several items, the others one */
    size_t count;
    int64_t number;     /* value of a number or duration; index of a choice */
    const char *source; /* "default", "file", "environment", "flag" */
};

struct settings {
    struct setting_value value[SETTING_COUNT];
};

/* Returns 0, or an exit code after a message that names the setting and its source. */
int settings_load(struct settings *settings, const struct serve_order *order);
void settings_free(struct settings *settings);

int64_t setting_number(const struct settings *settings, enum serve_setting which);
/* Returns the value as text; NULL if it is not set. */
const char *setting_text(const struct settings *settings, enum serve_setting which);

/* Prints all settings to stdout, as lines of a configuration file or as JSON. */
void settings_print(const struct settings *settings, bool json);
