/* sentinel_engine.c - the engine's table: connects sentinel.c with the I/O driver that owns the
 * sockets. */
#include "engines/engine.h"
#include "engines/io/io_driver.h"
#include "sentinel.h"

static hf_status open_engine(void **self, const struct url *url, const struct settings *values,
                             const struct engine_host *host)
{
    return io_open(self, url, values, host, &sentinel_wire_engine);
}

static const char *const schemes[] = {"redis+sentinel", "rediss+sentinel", "valkey+sentinel",
                                      "valkeys+sentinel", NULL};

static const struct setting_row setting_rows[] = {
#define SETTING SETTING_ROW
#define SETTING_TEXT SETTING_TEXT_ROW
#include "sentinel_settings.def"
#undef SETTING
#undef SETTING_TEXT
};
static const struct setting_rows sentinel_settings = {setting_rows,
                                                      sizeof setting_rows / sizeof *setting_rows};
static const struct setting_rows *const settings[] = {&wire_settings, &redis_settings,
                                                      &sentinel_settings, NULL};

const struct engine_type sentinel_engine = {
    .name = "sentinel",
    .schemes = schemes,
    .limits = REDIS_LIMITS,
    .settings = settings,
    .override_timing = redis_override_timing,
    .open = open_engine,
    IO_ENGINE_FUNCTIONS,
    .care_for_library = io_care_for_library,
};
