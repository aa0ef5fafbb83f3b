/* redlock_engine.c - the engine's table: connects redlock.c with the I/O driver that owns the
 * sockets. */
#include "engines/engine.h"
#include "engines/io/io_driver.h"
#include "redlock.h"

#include <string.h>

static hf_status open_engine(void **self, const struct url *url, const struct settings *values,
                             const struct engine_host *host)
{
    return io_open(self, url, values, host, &redlock_wire_engine);
}

/* A quorum refuses a ttl above max_ttl, so a smaller max_ttl lowers the default ttl. */
static void fit_defaults(struct settings *values)
{
    bool is_default = strcmp(values->source[SETTING_TTL], "default") == 0;
    int64_t most_ms = values->value[SETTING_MAX_TTL];
    if (is_default && values->value[SETTING_TTL] > most_ms)
        values->value[SETTING_TTL] = most_ms;
}

static const char *const schemes[] = {"redlock", "redlocks", NULL};

static const struct setting_row setting_rows[] = {
#define SETTING SETTING_ROW
#include "redlock_settings.def"
#undef SETTING
};
static const struct setting_rows redlock_settings = {setting_rows,
                                                     sizeof setting_rows / sizeof *setting_rows};
static const struct setting_rows *const settings[] = {&wire_settings, &redis_settings,
                                                      &redlock_settings, NULL};

const struct engine_type redlock_engine = {
    .name = "redlock",
    .schemes = schemes,
    .limits = REDLOCK_LIMITS,
    .settings = settings,
    .override_timing = redis_override_timing,
    .fit_defaults = fit_defaults,
    .open = open_engine,
    IO_ENGINE_FUNCTIONS,
    .care_for_library = io_care_for_library,
    .list_servers = io_list_servers,
};
