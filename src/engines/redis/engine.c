/* engine.c - the engine's table: redis.c behind the driver that owns the sockets. */
#include "engines/engine.h"
#include "engines/wire/wire_driver.h"
#include "redis.h"

static hf_status open_engine(void **self, const struct hf_url *url, const struct hf_settings *settings,
                             const struct hf_host *host)
{
    return hf_wire_open(self, url, settings, host, &hf_wire_redis);
}

static const char *const schemes[] = {"redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix", NULL};

const struct hf_engine_type hf_engine_redis = {
    .name = "redis",
    .schemes = schemes,
    .limits = HF_REDIS_LIMITS,
    .open = open_engine,
    HF_WIRE_DOOR,
};
