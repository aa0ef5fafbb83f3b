/* consul_engine.c - the engine's table: connects consul.c with the I/O driver that owns the
 * sockets. */
#include "consul.h"
#include "engines/engine.h"
#include "engines/io/io_driver.h"

#include <string.h>

static hf_status open_engine(void **self, const struct url *url, const struct settings *values,
                             const struct engine_host *host)
{
    return io_open(self, url, values, host, &consul_wire_engine);
}

/* The ttl is at least session_min, so a longer session_min raises the default ttl. */
static void fit_defaults(struct settings *values)
{
    bool is_default = strcmp(values->source[SETTING_TTL], "default") == 0;
    int64_t least_ms = values->value[SETTING_SESSION_MIN];
    if (is_default && values->value[SETTING_TTL] < least_ms)
        values->value[SETTING_TTL] = least_ms;
}

static void fit_limits(struct engine_limits *limits, const struct settings *values)
{
    limits->ttl_min_ms = values->value[SETTING_SESSION_MIN];
}

static const char *const schemes[] = {"consul", "consuls", NULL};

static const struct setting_row setting_rows[] = {
#define SETTING SETTING_ROW
#include "consul_settings.def"
#undef SETTING
};
const struct setting_rows consul_settings = {setting_rows,
                                             sizeof setting_rows / sizeof *setting_rows};
static const struct setting_rows *const settings[] = {&wire_settings, &consul_settings, NULL};

const struct engine_type consul_engine = {
    .name = "consul",
    .schemes = schemes,
    .limits = CONSUL_LIMITS,
    .settings = settings,
    .fit_defaults = fit_defaults,
    .fit_limits = fit_limits,
    .open = open_engine,
    IO_ENGINE_FUNCTIONS,
};
