/* etcd_engine.c - the engine's table: connects etcd.c with the I/O driver that owns the sockets. */
#include "engines/engine.h"
#include "engines/io/io_driver.h"
#include "etcd.h"

static hf_status open_engine(void **self, const struct url *url, const struct settings *values,
                             const struct engine_host *host)
{
    return io_open(self, url, values, host, &etcd_wire_engine);
}

static const char *const schemes[] = {"etcd", "etcds", NULL};

static const struct setting_rows *const settings[] = {&wire_settings, NULL};

const struct engine_type etcd_engine = {
    .name = "etcd",
    .schemes = schemes,
    .limits = ETCD_LIMITS,
    .settings = settings,
    .open = open_engine,
    IO_ENGINE_FUNCTIONS,
};
