/* postgres_engine.c - the engine's table: connects postgres.c with the I/O driver that polls its
 * socket. */
#include "engines/engine.h"
#include "engines/io/io_driver.h"
#include "postgres.h"

static hf_status open_engine(void **self, const struct url *url, const struct settings *values,
                             const struct engine_host *host)
{
    return io_open(self, url, values, host, &postgres_wire_engine);
}

static const char *const schemes[] = {"postgres", "postgresql", NULL};

static const struct setting_rows *const settings[] = {&wire_settings, &postgres_settings, NULL};

const struct engine_type postgres_engine = {
    .name = "postgres",
    .schemes = schemes,
    .limits = POSTGRES_LIMITS,
    .settings = settings,
    .fit_defaults = postgres_fit_defaults,
    .passes_on = postgres_passes_on,
    .open = open_engine,
    .care_for_library = io_care_for_library,
    IO_ENGINE_FUNCTIONS,
};
