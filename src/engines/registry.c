/* registry.c - finds the engine that a URL's scheme names. */
#include "engine.h"

#include <string.h>

#define HF_ENGINE(table, name) extern const struct hf_engine_type table;
#include "engines.def"
#undef HF_ENGINE

static const struct hf_engine_type *const engines[] = {
#define HF_ENGINE(table, name) &table,
#include "engines.def"
#undef HF_ENGINE
};
enum { ENGINES = sizeof engines / sizeof *engines };

const struct hf_engine_type *hf_engine_find(const char *scheme, size_t len)
{
    for (size_t i = 0; i < ENGINES; i++)
        for (const char *const *s = engines[i]->schemes; *s; s++)
            if (strlen(*s) == len && memcmp(*s, scheme, len) == 0)
                return engines[i];
    return NULL;
}

const char *hf_engine_names(void)
{
    static const char names[] =
#define HF_ENGINE(table, name) " " name
#include "engines.def"
#undef HF_ENGINE
        ;
    return names + 1;
}
