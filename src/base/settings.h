/* settings.h - the settings table of the project and the values in force for one client. settings.def is the table. */
#pragma once
#include "holdfast.h"

enum hf_setting_id {
#define HF_SETTING(id, name, unit, min, max, standard, where, help) HF_SET_##id,
#include "settings.def"
#undef HF_SETTING
    HF_SET_COUNT
};

#define HF_SETTING_TEXT_MAX 256

struct hf_settings {
    int64_t value[HF_SET_COUNT];      /* in the setting's unit; of a text its length in bytes; -1: follows */
    const char *source[HF_SET_COUNT]; /* "default", "environment", "url" */
    char text[HF_SET_COUNT][HF_SETTING_TEXT_MAX]; /* for settings whose unit is text; "" = none */
};

/* The table, in the order of enum hf_setting_id. */
const struct hf_setting *hf_settings_table(size_t *count);

void hf_settings_defaults(struct hf_settings *settings);

/* Reads HOLDFAST_<NAME> for every setting that may stand in the environment. HF_CONFIG names variable and value (never
 * a password). `lookup` is getenv or a test's own. */
hf_status hf_settings_from_environment(struct hf_settings *settings, char *(*lookup)(const char *name));

/* Reads `ttl=10s&wake=poll` (percent-encoding as usual). A setting that is unknown, bad or given twice is HF_CONFIG and
 * is named; the value of an unknown one is not shown, it may be a password. To be called last, also for an empty query:
 * it then checks that the settings agree with each other. */
hf_status hf_settings_from_query(struct hf_settings *settings, const char *query);
