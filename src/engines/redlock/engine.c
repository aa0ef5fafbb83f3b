/* engine.c - the engine's table: redlock.c behind the driver that owns the sockets. */
#include "engines/engine.h"
#include "engines/wire/wire_driver.h"
#include "redlock.h"

static hf_status open_engine(void **self, const struct hf_url *url, const struct hf_settings *settings,
                             const struct hf_host *host)
{
    return hf_wire_open(self, url, settings, host, &hf_wire_redlock);
}

static const char *const schemes[] = {"redlock", "redlocks", NULL};

const struct hf_engine_type hf_engine_redlock = {
    .name = "redlock",
    .schemes = schemes,
    .limits = HF_REDLOCK_LIMITS,
    .open = open_engine,
    HF_WIRE_DOOR,
    .list_servers = hf_wire_list_servers,
};
