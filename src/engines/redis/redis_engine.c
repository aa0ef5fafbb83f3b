/* redis_engine.c - the engine's table: connects redis.c with the I/O driver that owns the
 * sockets. */
#include "engines/engine.h"
#include "engines/io/io_driver.h"
#include "redis.h"

static hf_status open_engine(void **self, const struct url *url, const struct settings *values,
                             const struct engine_host *host)
{
    return io_open(self, url, values, host, &redis_wire_engine);
}

static const char *const schemes[] = {"redis",   "rediss",      "redis+unix", "valkey",
                                      "valkeys", "valkey+unix", NULL};

static const struct setting_rows *const settings[] = {&wire_settings, &redis_settings, NULL};

const struct engine_type redis_engine = {
    .name = "redis",
    .schemes = schemes,
    .limits = REDIS_LIMITS,
    .settings = settings,
    .override_timing = redis_override_timing,
    .open = open_engine,
    IO_ENGINE_FUNCTIONS,
    .care_for_library = io_care_for_library,
};
