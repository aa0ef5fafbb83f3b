/* io_driver.h - turns an engine that does no I/O (engines/wire_engine.h) into one that does
 * (engines/engine.h).
 *
 * An engine fills its struct engine_type with IO_ENGINE_FUNCTIONS, and with an open() of its own
 * that calls io_open() with its struct wire_engine_type. io_internal.h says how the driver works.
 */
#pragma once
#include "engines/engine.h"
#include "engines/wire_engine.h"

hf_status io_open(void **self, const struct url *url, const struct settings *settings,
                  const struct engine_host *host, const struct wire_engine_type *type);
void io_close(void *self);
hf_status io_enter(void *self);
void io_leave(void *self);

bool io_submit(void *self, struct engine_op *op, nanos now, struct engine_reply *reply);
bool io_take_reply(void *self, struct engine_op *op, nanos now, struct engine_reply *reply);
void io_detach_caller(void *self, struct engine_op *op);
void io_flush(void *self);
void io_forget(void *self, struct engine_op *op);

nanos io_park(void *self, uint64_t slot, uint32_t seen, nanos until);
void io_wake(void *self, uint64_t slot);
void io_background_park(void *self, nanos until);
void io_background_wake(void *self);
int io_loop_begin(void *self, int wake_fd);
void io_loop_read(void *self);
void io_loop_end(void *self);
void io_finish(void *self, nanos until);

hf_status io_list(void *self, const struct admin_target *what, nanos now, hf_row_fn *fn, void *arg);
/* Used by some engines only, so not in IO_ENGINE_FUNCTIONS. */
hf_status io_care_for_library(void *self, enum admin_verb verb, const char *in_use, nanos now,
                              hf_finding_fn *fn, void *arg);
/* Used by engines with several servers only, so not in IO_ENGINE_FUNCTIONS. */
hf_status io_list_servers(void *self, const struct admin_target *what, nanos now,
                          hf_server_state_fn *fn, void *arg);
hf_status io_break_hold(void *self, const struct admin_target *what, uint64_t token, nanos now);
hf_status io_resize(void *self, const struct admin_target *what, uint32_t capacity, nanos now);
hf_status io_diagnose(void *self, nanos now, hf_finding_fn *fn, void *arg);
void io_watch(void *self, uint32_t *seen, nanos until);

/* The part of struct engine_type that is the same for all such engines. */
#define IO_ENGINE_FUNCTIONS                                                                        \
    .enter = io_enter, .leave = io_leave, .submit = io_submit, .take_reply = io_take_reply,        \
    .detach_caller = io_detach_caller, .flush = io_flush, .forget = io_forget, .park = io_park,    \
    .wake = io_wake, .background_park = io_background_park, .background_wake = io_background_wake, \
    .loop_begin = io_loop_begin, .loop_read = io_loop_read, .loop_end = io_loop_end,               \
    .list = io_list, .break_hold = io_break_hold, .resize = io_resize, .diagnose = io_diagnose,    \
    .watch = io_watch, .finish = io_finish, .close = io_close
