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
    .enter = hf_wire_enter,
    .leave = hf_wire_leave,
    .submit = hf_wire_submit,
    .peek = hf_wire_peek,
    .unattend = hf_wire_unattend,
    .flush = hf_wire_flush,
    .forget = hf_wire_forget,
    .park = hf_wire_park,
    .wake = hf_wire_wake,
    .attend = hf_wire_attend,
    .attend_wake = hf_wire_attend_wake,
    .list = hf_wire_list,
    .break_hold = hf_wire_break_hold,
    .resize = hf_wire_resize,
    .examine = hf_wire_examine,
    .watch = hf_wire_watch,
    .close = hf_wire_close,
};
