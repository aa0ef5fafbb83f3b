/* io_ops.c - opening and closing the driver, submitting ops and taking their replies; the functions
 * of its host that the engine calls. */
#include "io_internal.h"

#include "base/error.h"
#include "base/settings.h"
#include "sys/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct io_policy io_policy = {.spin = true, .recv_wait = true, .batch = true, .hand_on = true};

/* ---- Called by the engine ---- */

static void on_reply(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    struct io *io = ctx;
    assert(reply->kind < REPLY_KINDS);
    struct io_mailbox *mailbox = io_mailbox_of(io, op);
    if (!mailbox)
        return;

    mailbox->answered = true;
    if (reply->kind != REPLY_NOTIFY && mailbox->due)
        mailbox->due--;
    io_mailbox_put(io, mailbox, reply);
    io_mailbox_touch(io, mailbox);
}

static void recheck(void *ctx)
{
    struct io *io = ctx;
    io->host->recheck(io->host->ctx);
    io_notify_background(io);
}

static void rerouted(void *ctx, struct engine_op *op)
{
    struct io *io = ctx;
    struct io_mailbox *mailbox = io_mailbox_of(io, op);
    if (!mailbox)
        return;
    io_mailbox_touch(io, mailbox);
    /* some thread must begin to read these connections, as it must for new ones */
    io->dialled |= op->connections;
}

static void takes(void *ctx, nanos length)
{
    struct io *io = ctx;
    if (io->host->takes)
        io->host->takes(io->host->ctx, length);
}

static uint32_t draw(void *ctx)
{
    struct io *io = ctx;
    uint32_t number;
    entropy_take(&io->entropy, &number, sizeof number);
    return number;
}

/* ---- Opening and closing ---- */

static void free_io(struct io *io)
{
    io_connections_close(io);
    io_mailboxes_free(io);
    if (io->background.wake_fd >= 0)
        close(io->background.wake_fd);
    if (io->loop_fd >= 0)
        close(io->loop_fd);
    free(io);
}

static hf_status open_parts(struct io *io, const struct url *url, const struct settings *settings)
{
    int error = entropy_seed(&io->entropy);
    if (!error && (io->background.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        error = errno;
    if (!error && !io_reserve(io, CONNECTION_GROUPS))
        error = ENOMEM;
    if (error)
        return error_set(HF_NO_MEMORY, "no memory for connections: %s", strerror(error));

    io->wire_host = (struct wire_engine_host){
        .ctx = io,
        .reserve = io_reserve,
        .dial = io_dial,
        .send = io_send,
        .start_tls = io_start_tls,
        .hang_up = io_hang_up,
        .adopt = io_adopt,
        .on_reply = on_reply,
        .row = io_admin_row,
        .server_state = io_admin_server_state,
        .find = io_admin_finding,
        .rerouted = rerouted,
        .recheck = recheck,
        .random = draw,
        .takes = takes,
    };
    return io->type->open(&io->engine, url, settings, &io->wire_host);
}

/* Returns nanoseconds; 0 if spinning is off, or if the server needs the only CPU. */
static nanos spin_time(const struct io *io, const struct settings *settings)
{
    bool spins = io->policy.spin && process_cpu_count() > 1;
    return spins ? 1000 * settings->value[SETTING_SPIN] : 0;
}

hf_status io_open(void **self, const struct url *url, const struct settings *settings,
                  const struct engine_host *host, const struct wire_engine_type *type)
{
    assert(host->notify && type->submit && type->tick);
    *self = NULL;
    struct io *io = calloc(1, sizeof *io);
    if (!io)
        return error_set(HF_NO_MEMORY, "no memory for connections");

    io->type = type;
    io->host = host;
    io->policy = io_policy;
    io->spin = spin_time(io, settings);
    io->background.wake_fd = io->loop_fd = -1;
    for (unsigned i = 0; i < CONNECTION_GROUPS; i++)
        io->group[i].wake_fd = -1;

    hf_status status = open_parts(io, url, settings);
    if (status == HF_OK)
        *self = io;
    else
        free_io(io);
    return status;
}

void io_close(void *self)
{
    struct io *io = self;
    assert(!io->entered && !io->waiters);
    io->type->close(io->engine);
    free_io(io);
}

hf_status io_enter(void *self)
{
    struct io *io = self;
    small_mutex_lock(&io->lock);
    assert(!io->entered);
    io->background_thread = pthread_self();
    io->entered = true;
    io_unlock(io);

    return HF_OK;
}

void io_leave(void *self)
{
    struct io *io = self;
    small_mutex_lock(&io->lock);
    assert(io->entered && !io->background.connections);
    io->entered = false;
    io_unlock(io);
}

/* ---- Submitting ---- */

static bool is_background_thread(const struct io *io)
{
    return io->entered && pthread_equal(io->background_thread, pthread_self());
}

/* An event loop sends the requests of one turn together. A large batch goes out in parts:
 * otherwise the server would idle while the loop makes the batch, and then the loop while the
 * server replies. With 64 in flight and a processor for each, parts of 16 made a pair 1.7 times
 * faster; parts of 8 gained the same, parts of 32 less. On one processor the size makes no
 * difference. */
enum { BATCH_PART = 16 };

/* Flushes the request of an op without a caller, unless more follow, and makes sure that a thread
 * reads its reply. */
static void start_in_background(struct io *io, const struct engine_op *op)
{
    if (!op->batched || io->unsent >= BATCH_PART)
        io_flush_connections(io);
    io_offer(io, op->connections);
    io_loop_announce(io, op->connections);

    /* A connection is down: the background thread must call tick(), which redials. If groups have
     * several connections, this one may be down although its group is open. */
    bool needs_tick = !op->connections || op->connections & ~io->open || io->rows > 1;
    if (needs_tick)
        io_wake_waiter(io, &io->background);
}

/* Ends a call that left unflushed bytes. `op` is an op without a caller, or NULL. The background
 * thread does nothing here: it flushes once for all ops, when it parks. */
static void finish_submit(struct io *io, const struct engine_op *op)
{
    if (is_background_thread(io))
        return;

    if (op)
        start_in_background(io, op);
    else
        io_flush_or_defer(io);
}

/* Returns true if the engine replied at once; then *reply has the reply. */
static bool submit(struct io *io, struct io_mailbox *mailbox, nanos now, struct engine_reply *reply)
{
    struct engine_op *op = mailbox->op;
    uint32_t unread = mailbox->count;
    mailbox->has_caller = !op->in_background;
    mailbox->answered = false;
    mailbox->due++;
    assert(mailbox->due);
    io->asked_slot = op->slot;
    io->asked_at = now;

    io->type->submit(io->engine, op, now);
    bool at_once = unread == 0 && mailbox->count == 1 && io_mailbox_take(io, mailbox, reply);
    if (mailbox->interest || mailbox->count || !mailbox->has_caller)
        io_mailbox_touch(io, mailbox);
    io_settle(io);

    if (op->in_background && (!at_once || op->connections))
        finish_submit(io, op);
    else if (at_once)
        finish_submit(io, NULL);
    return at_once; /* if false, the caller parks, which flushes */
}

bool io_submit(void *self, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    struct io *io = self;
    small_mutex_lock(&io->lock);
    struct io_mailbox *mailbox = io_mailbox_of(io, op);
    if (!mailbox)
        mailbox = io_mailbox_make(io, op);

    bool answered = true;
    io_read_idle(io, now);
    if (mailbox && io_mailbox_reserve(io, mailbox)) {
        answered = submit(io, mailbox, now, reply);
        io_mailbox_rest(io, mailbox);
    } else {
        *reply = (struct engine_reply){.kind = REPLY_FAILED,
                                       .asked_at = now,
                                       .retry_at = TIME_NEVER,
                                       .status = HF_NO_MEMORY,
                                       .text = "no memory for another request"};
    }
    io_unlock(io);
    return answered;
}

/* ---- After the submit ---- */

bool io_take_reply(void *self, struct engine_op *op, nanos now, struct engine_reply *reply)
{
    struct io *io = self;
    (void)now;
    /* no lock needed: only a submit sets the slot, and the caller has the lease's lock */
    if (!op->slot)
        return false;

    small_mutex_lock(&io->lock);
    struct io_mailbox *mailbox = io_mailbox_of(io, op);
    bool unread = mailbox && io_mailbox_take(io, mailbox, reply);
    if (mailbox)
        io_mailbox_rest(io, mailbox);
    io_unlock(io);
    return unread;
}

void io_detach_caller(void *self, struct engine_op *op)
{
    struct io *io = self;
    if (!op->slot)
        return;

    small_mutex_lock(&io->lock);
    struct io_mailbox *mailbox = io_mailbox_of(io, op);
    if (mailbox && mailbox->has_caller) {
        mailbox->has_caller = false;
        io_mailbox_touch(io, mailbox);
        io_settle(io);
        bool is_done = mailbox->answered && !op->connections;
        /* an op that is done needs no background thread */
        finish_submit(io, is_done ? NULL : op);
    }
    io_unlock(io);
}

void io_flush(void *self)
{
    struct io *io = self;
    small_mutex_lock(&io->lock);
    connection_set flushed = io->dirty & io->loop_set;
    io_flush_connections(io);
    if (flushed)
        /* the background thread drives the connections whose socket is full */
        io_offer(io, flushed);
    io_unlock(io);
}

void io_forget(void *self, struct engine_op *op)
{
    struct io *io = self;
    small_mutex_lock(&io->lock);
    struct io_mailbox *mailbox = io_mailbox_of(io, op);
    io->type->forget(io->engine, op);
    if (mailbox)
        io_drop_waiters(io, mailbox);
    else
        io_settle(io);
    assert(!op->slot);
    finish_submit(io, NULL);
    io_unlock(io);
}
