/* zookeeper_engine.c - the engine's table: connects zookeeper.c with the I/O driver that owns
 * the sockets. */
#include "engines/engine.h"
#include "engines/io/io_driver.h"
#include "zookeeper.h"

static hf_status open_engine(void **self, const struct url *url, const struct settings *values,
                             const struct engine_host *host)
{
    return io_open(self, url, values, host, &zookeeper_wire_engine);
}

static const char *const schemes[] = {"zookeeper", "zk", "zookeepers", NULL};

static const struct setting_rows *const settings[] = {&wire_settings, NULL};

const struct engine_type zookeeper_engine = {
    .name = "zookeeper",
    .schemes = schemes,
    .limits = ZOOKEEPER_LIMITS,
    .settings = settings,
    .open = open_engine,
    IO_ENGINE_FUNCTIONS,
};
