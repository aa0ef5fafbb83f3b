/* io_admin.c - admin calls: list, show, break, resize, diagnose, watch. Each is an op on the stack
 * of a caller that parks until the reply. */
#include "io_internal.h"

#include "base/error.h"
#include "sys/clock.h"

/* Time for a reply; a list may have many rows. */
#define LIST_PATIENCE NANOS_OF_MS(5000)
/* Servers do not notify of changes, so a watch reads again after this time. */
#define WATCH_PERIOD NANOS_OF_MS(200)

struct io_admin {
    struct admin_op op; /* must be the first field: admin_of() converts a pointer to it */
    hf_row_fn *fn;
    hf_server_state_fn *server_state;
    hf_finding_fn *find;
    void *arg;
};

/* ---- Called by the engine ---- */

/* Returns NULL if the op was forgotten. */
static const struct io_admin *admin_of(const struct io *io, struct engine_op *op)
{
    assert(op->verb == OP_ADMIN);
    return io_mailbox_of(io, op) ? (const struct io_admin *)(const void *)op : NULL;
}

void io_admin_row(void *ctx, struct engine_op *op, const struct hf_row *row)
{
    const struct io_admin *admin = admin_of(ctx, op);
    if (admin && admin->fn)
        admin->fn(admin->arg, row);
}

void io_admin_server_state(void *ctx, struct engine_op *op,
                           const struct hf_server_state *server_state)
{
    const struct io_admin *admin = admin_of(ctx, op);
    if (admin && admin->server_state)
        admin->server_state(admin->arg, server_state);
}

void io_admin_finding(void *ctx, struct engine_op *op, const struct hf_finding *finding)
{
    const struct io_admin *admin = admin_of(ctx, op);
    if (admin && admin->find)
        admin->find(admin->arg, finding);
}

/* ---- Running one ---- */

static struct admin_op new_op(enum admin_verb verb, const struct admin_target *what, nanos until)
{
    return (struct admin_op){.op = {.verb = OP_ADMIN,
                                    .name = what->name,
                                    .name_len = (uint16_t)what->len,
                                    .until = until},
                             .verb = verb,
                             .scope = what->which,
                             .page = what->page};
}

static bool is_answer(const struct engine_reply *reply)
{
    return reply->kind != REPLY_QUEUED && reply->kind != REPLY_NOTIFY;
}

/* Returns false if no reply came before op->until. */
static bool await_reply(struct io *io, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    if (io_submit(io, op, now, reply) && is_answer(reply))
        return true;

    for (;;) {
        io_park(io, op->slot, op->seen, op->until);
        while (io_take_reply(io, op, now, reply))
            if (is_answer(reply))
                return true;
        if (clock_boot() >= op->until)
            return false;
    }
}

static const char *text_or(const struct engine_reply *reply, const char *otherwise)
{
    return reply->text && *reply->text ? reply->text : otherwise;
}

static bool changes_locks(const struct admin_op *admin)
{
    return admin->verb == ADMIN_BREAK || admin->verb == ADMIN_RESIZE;
}

static hf_status failed_status(const struct engine_op *op, const struct engine_reply *reply)
{
    if (!reply->outcome_unknown)
        return error_set(reply->status, "%s", text_or(reply, ""));
    return error_set(HF_IN_DOUBT, "%.*s: it failed half-way, and may have been carried out: %s",
                     (int)op->name_len, op->name, text_or(reply, ""));
}

/* `not_held` is the text for REPLY_NOT_HELD if the reply has none. */
static hf_status status_of(const struct admin_op *admin, const struct engine_reply *reply,
                           const char *not_held)
{
    const struct engine_op *op = &admin->op;
    int len = (int)op->name_len;

    switch (reply->kind) {
    case REPLY_RELEASED:
        return HF_OK;

    case REPLY_NOT_HELD:
        return error_set(HF_NOT_HELD, "%.*s: %s", len, op->name, text_or(reply, not_held));
    case REPLY_FAILED:
        return failed_status(op, reply);
    default:
        return error_set(changes_locks(admin) ? HF_IN_DOUBT : HF_UNAVAILABLE, "%.*s: %s", len,
                         op->name, text_or(reply, "no answer came from the server"));
    }
}

static hf_status run(struct io *io, struct admin_op *admin, nanos now, const char *not_held)
{
    struct engine_reply reply;
    if (!await_reply(io, &admin->op, now, &reply))
        reply = (struct engine_reply){.kind = REPLY_UNKNOWN};

    hf_status status = status_of(admin, &reply, not_held);
    io_forget(io, &admin->op);
    return status;
}

/* ---- Functions of engine.h ---- */

hf_status io_list(void *self, const struct admin_target *what, nanos now, hf_row_fn *fn, void *arg)
{
    nanos until = now + LIST_PATIENCE > what->until ? now + LIST_PATIENCE : what->until;
    struct io_admin admin = {.op = new_op(ADMIN_LIST, what, until), .fn = fn, .arg = arg};
    return run(self, &admin.op, now, "is not there");
}

hf_status io_list_servers(void *self, const struct admin_target *what, nanos now,
                          hf_server_state_fn *fn, void *arg)
{
    struct io_admin admin = {
        .op = new_op(ADMIN_LIST, what, now + LIST_PATIENCE), .server_state = fn, .arg = arg};
    return run(self, &admin.op, now, "is not there");
}

hf_status io_break_hold(void *self, const struct admin_target *what, uint64_t token, nanos now)
{
    struct io_admin admin = {.op = new_op(ADMIN_BREAK, what, what->until)};
    admin.op.op.token = token;
    return run(self, &admin.op, now, "nobody holds it with that token");
}

hf_status io_resize(void *self, const struct admin_target *what, uint32_t capacity, nanos now)
{
    struct io_admin admin = {.op = new_op(ADMIN_RESIZE, what, what->until)};
    admin.op.op.capacity = capacity;
    return run(self, &admin.op, now, "is not in use");
}

hf_status io_diagnose(void *self, nanos now, hf_finding_fn *fn, void *arg)
{
    struct admin_target nothing = {.which = LIST_ONE, .name = "-", .len = 1};
    struct io_admin admin = {
        .op = new_op(ADMIN_DIAGNOSE, &nothing, now + LIST_PATIENCE), .find = fn, .arg = arg};
    return run(self, &admin.op, now, "is not there");
}

hf_status io_care_for_library(void *self, enum admin_verb verb, const char *in_use, nanos now,
                              hf_finding_fn *fn, void *arg)
{
    assert(verb == ADMIN_INSTALL || verb == ADMIN_USES || verb == ADMIN_PRUNE);
    struct admin_target nothing = {.which = LIST_ONE, .name = "-", .len = 1};
    struct io_admin admin = {
        .op = new_op(verb, &nothing, now + LIST_PATIENCE), .find = fn, .arg = arg};
    admin.op.in_use = in_use;
    return run(self, &admin.op, now, "is not there");
}

void io_watch(void *self, uint32_t *seen, nanos until)
{
    (void)self;
    nanos period = clock_boot() + WATCH_PERIOD;
    if (until > 0)
        clock_sleep_until(until < period ? until : period);
    ++*seen;
}
