/* registry.c - finds the engine that a URL's scheme names, and joins the settings of all engines.
 */
#include "engine.h"

#include "base/settings.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define ENGINE_LEFT_OUT(name, why)
#define ENGINE(table, name) extern const struct engine_type table;
#include "built_engines.def"
#undef ENGINE

static const struct engine_type *const engines[] = {
#define ENGINE(table, name) &table,
#include "built_engines.def"
#undef ENGINE
};
enum { ENGINES = sizeof engines / sizeof *engines };

const struct engine_type *engine_find(const char *scheme, size_t len)
{
    assert(scheme);

    for (size_t i = 0; i < ENGINES; i++)
        for (const char *const *s = engines[i]->schemes; *s; s++)
            if (strlen(*s) == len && memcmp(*s, scheme, len) == 0)
                return engines[i];
    return NULL;
}

const struct engine_type *engine_named(const char *name)
{
    assert(name);

    for (size_t i = 0; i < ENGINES; i++)
        if (strcmp(engines[i]->name, name) == 0)
            return engines[i];
    return NULL;
}

const char *engine_names(void)
{
    static const char names[] =
#define ENGINE(table, name) " " name
#include "built_engines.def"
#undef ENGINE
        ;
    return names + 1;
}
#undef ENGINE_LEFT_OUT

const char *engines_left_out(void)
{
    static const char text[] = ""
#define ENGINE(table, name)
#define ENGINE_LEFT_OUT(name, why) name ": " why "\n"
#include "built_engines.def"
#undef ENGINE_LEFT_OUT
#undef ENGINE
        ;
    return text;
}

static struct settings_table settings;

static void join_settings(void)
{
    settings_table_join(&settings, &settings_of_all);
    for (size_t i = 0; i < ENGINES; i++)
        for (const struct setting_rows *const *rows = engines[i]->settings; *rows; rows++)
            settings_table_join(&settings, *rows);
}

const struct settings_table *engine_settings(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, join_settings);
    return &settings;
}
