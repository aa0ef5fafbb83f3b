/* wire_driver.h - turns an engine behind engines/wire.h, which does no I/O, into one behind the door engines/engine.h.
 *
 * A concrete engine defines its table with these functions, and an open of its own that calls hf_wire_open() with its
 * struct hf_wire_type. inside.h says how it works. */
#pragma once
#include "engines/engine.h"
#include "engines/wire.h"

hf_status hf_wire_open(void **self, const struct hf_url *url, const struct hf_settings *settings,
                       const struct hf_host *host, const struct hf_wire_type *type);
void hf_wire_close(void *self);
hf_status hf_wire_enter(void *self);
void hf_wire_leave(void *self);

bool hf_wire_submit(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news);
bool hf_wire_peek(void *self, struct hf_ask *ask, hf_nanos now, struct hf_news *news);
void hf_wire_unattend(void *self, struct hf_ask *ask);
void hf_wire_flush(void *self);
void hf_wire_forget(void *self, struct hf_ask *ask);

hf_nanos hf_wire_park(void *self, uint64_t slot, uint32_t seen, hf_nanos until);
void hf_wire_wake(void *self, uint64_t slot);
void hf_wire_attend(void *self, hf_nanos until);
void hf_wire_attend_wake(void *self);
void hf_wire_finish(void *self, hf_nanos until);

hf_status hf_wire_list(void *self, const struct hf_seen *what, hf_nanos now, hf_row_fn *fn, void *arg);
/* Not in HF_WIRE_DOOR: for engines with several servers. */
hf_status hf_wire_list_servers(void *self, const struct hf_seen *what, hf_nanos now, hf_standing_fn *fn, void *arg);
hf_status hf_wire_break_hold(void *self, const struct hf_seen *what, uint64_t token, hf_nanos now);
hf_status hf_wire_resize(void *self, const struct hf_seen *what, uint32_t capacity, hf_nanos now);
hf_status hf_wire_examine(void *self, hf_nanos now, hf_finding_fn *fn, void *arg);
void hf_wire_watch(void *self, uint32_t *seen, hf_nanos until);

/* The part of an engine's table that is the same for all of them. */
#define HF_WIRE_DOOR                                                                                                   \
    .enter = hf_wire_enter, .leave = hf_wire_leave, .submit = hf_wire_submit, .peek = hf_wire_peek,                    \
    .unattend = hf_wire_unattend, .flush = hf_wire_flush, .forget = hf_wire_forget, .park = hf_wire_park,              \
    .wake = hf_wire_wake, .attend = hf_wire_attend, .attend_wake = hf_wire_attend_wake, .list = hf_wire_list,          \
    .break_hold = hf_wire_break_hold, .resize = hf_wire_resize, .examine = hf_wire_examine, .watch = hf_wire_watch,    \
    .finish = hf_wire_finish, .close = hf_wire_close
