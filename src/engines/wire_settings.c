/* wire_settings.c - the table of settings that all engines with servers have. */
#include "wire_engine.h"

static const struct setting_row rows[] = {
#define SETTING SETTING_ROW
#define SETTING_TEXT SETTING_TEXT_ROW
#include "wire_settings.def"
#undef SETTING
#undef SETTING_TEXT
};
const struct setting_rows wire_settings = {rows, sizeof rows / sizeof *rows};
