/* clang-format off */
/* toy_engine.h - a tiny engine behind engines/wire_engine.h: each op is a line of text on
 * connection 0, to which the server replies in order. An op that waits in a queue is granted by a
 * line of text on connection 1. An op is named by its token.
 *
 *     CHECK       answered at once
 *     ACQUIRE     "a TOKEN", GRANTED; with op->queue "q TOKEN", QUEUED, and GRANTED when the server pushes "g TOKEN"
 *     RELEASE     "f TOKEN", RELEASED
 *     EXTEND      "u TOKEN" by a library that owns its socket, as connection 2: EXTENDED
 *     DOWNGRADE   hangs up and dials both connections, RELEASED
 *     LEAVE       RELEASED and then ten notifications
 *     LIST        "l 3", three rows; BREAK GONE unless the token is 7; RESIZE FAILED
 *
 * A label is sent behind the token as ballast. */
/* clang-format on */
#pragma once
#include "toy_library.h"
#include "toy_server.h"

#include "base/error.h"
#include "engines/io/io_driver.h"

enum { TOY_PENDING = 4096, TOY_LIBRARY_OPS = 64, TOY_LIBRARY_CONNECTION = 2 };

struct toy_engine {
    struct wire_engine_host host;
    struct endpoint address;
    struct engine_op
        *pending[TOY_PENDING]; /* on connection 0, in the order of requests; NULL: forgotten */
    unsigned first, count;
    struct engine_op *queued[64];
    bool up[2], dialled[2];
    nanos dial_at[2];
    char text[2][256]; /* the beginning of a line of text that is not complete */
    size_t text_len[2];
    _Atomic int inside; /* threads; more than one is a failure of the driver */
    bool in_host;       /* inside a call of the host, which must not call back */
    _Atomic bool wants_recheck;
    _Atomic bool patient; /* queued ops wait until the next op dials connection 1 again */
    _Atomic int downs, answers, pushes; /* pushes: lines that came unasked and name no queued op */
    _Atomic bool listens;               /* to connection 1, while it is dialled */
    struct toy_library library;
    struct engine_op *library_ops[TOY_LIBRARY_OPS]; /* NULL: none */
    _Atomic bool library_reconnects;                /* at the next op, once */
    hf_status down_status;
    char down_why[256];
};

static struct toy_engine *toy; /* the one that was opened last */

static inline void toy_enter(struct toy_engine *t)
{
    if (atomic_fetch_add(&t->inside, 1) != 0 || t->in_host)
        abort();
}

static inline void toy_leave(struct toy_engine *t)
{
    atomic_fetch_sub(&t->inside, 1);
}

static inline void toy_reply(struct toy_engine *t, struct engine_op *op, enum reply_kind kind,
                             nanos now)
{
    struct engine_reply reply = {
        .kind = kind, .asked_at = now, .token = op->token, .retry_at = TIME_NEVER};
    if (kind == REPLY_FAILED)
        reply.status = HF_UNAVAILABLE, reply.text = "the toy has no answer";
    t->in_host = true;
    t->host.on_reply(t->host.ctx, op, &reply);
    t->in_host = false;
}

static inline void toy_dial(struct toy_engine *t, unsigned number)
{
    t->dialled[number] = true;
    t->dial_at[number] = TIME_NEVER;
    t->in_host = true;
    t->host.dial(t->host.ctx, number, &t->address);
    t->in_host = false;
}

static inline bool toy_lists(const struct engine_op *op)
{
    return op->verb == OP_ADMIN && admin_op_of(op)->verb == ADMIN_LIST;
}

static inline char toy_letter(const struct engine_op *op)
{
    static const char letters[] = {[OP_ACQUIRE] = 'a', [OP_RELEASE] = 'f', [OP_UPGRADE] = 'z'};
    static const char admin_letters[] = {
        [ADMIN_LIST] = 'l', [ADMIN_BREAK] = 'b', [ADMIN_RESIZE] = 'z'};
    if (op->verb == OP_ADMIN)
        return admin_letters[admin_op_of(op)->verb];
    return op->verb == OP_ACQUIRE && op->queue ? 'q' : letters[op->verb];
}

static inline void toy_send(struct toy_engine *t, struct engine_op *op)
{
    char text[64];
    int len =
        snprintf(text, sizeof text, "%c %llu%s", toy_letter(op),
                 (unsigned long long)(toy_lists(op) ? 3 : op->token), op->label_len ? " " : "");
    if (!t->host.send(t->host.ctx, 0, text, (size_t)len))
        return;
    if (op->label_len)
        t->host.send(t->host.ctx, 0, op->label, op->label_len);
    t->host.send(t->host.ctx, 0, "\n", 1);
}

static inline void toy_request(struct toy_engine *t, struct engine_op *op)
{
    if (t->count == TOY_PENDING)
        abort();
    t->pending[(t->first + t->count++) % TOY_PENDING] = op;
    op->connections = 1;
    for (unsigned number = 0; number < 2; number++)
        if (!t->dialled[number] && t->dial_at[number] == TIME_NEVER)
            toy_dial(t, number);
    if (t->up[0])
        toy_send(t, op);
}

static inline void toy_reset(struct toy_engine *t, unsigned number)
{
    t->up[number] = t->dialled[number] = false;
    t->text_len[number] = 0;
}

static inline void toy_cut(struct toy_engine *t, unsigned number, nanos now)
{
    while (number == 0 && t->count) {
        struct engine_op *op = t->pending[t->first];
        t->first = (t->first + 1) % TOY_PENDING;
        t->count--;
        if (op)
            op->connections = 0, toy_reply(t, op, REPLY_UNKNOWN, now);
    }
    for (unsigned i = 0; number == 1 && i < 64; i++)
        if (t->queued[i]) {
            struct engine_op *op = t->queued[i];
            t->queued[i] = NULL;
            op->connections = 0;
            toy_reply(t, op, REPLY_UNKNOWN, now);
        }
}

/* ---- The library ---- */

static inline void toy_library_adopt(struct toy_engine *t)
{
    unsigned interest = WIRE_READABLE;
    interest |= library_wants_to_write(&t->library) ? (unsigned)WIRE_WRITABLE : 0;
    t->in_host = true;
    t->host.adopt(t->host.ctx, TOY_LIBRARY_CONNECTION, t->library.fd, interest);
    t->in_host = false;
}

static inline void toy_library_cut(struct toy_engine *t, nanos now)
{
    t->host.hang_up(t->host.ctx, TOY_LIBRARY_CONNECTION);
    library_close(&t->library);
    for (unsigned i = 0; i < TOY_LIBRARY_OPS; i++) {
        struct engine_op *op = t->library_ops[i];
        t->library_ops[i] = NULL;
        if (op)
            op->connections = 0, toy_reply(t, op, REPLY_UNKNOWN, now);
    }
}

static inline void toy_library_request(struct toy_engine *t, struct engine_op *op, nanos now)
{
    if (atomic_exchange(&t->library_reconnects, false))
        toy_library_cut(t, now);
    if (t->library.fd < 0)
        library_open(&t->library, t->address.port);

    unsigned free = 0;
    while (t->library_ops[free])
        if (++free == TOY_LIBRARY_OPS)
            abort();
    t->library_ops[free] = op;
    op->connections = 1u << TOY_LIBRARY_CONNECTION;
    library_request(&t->library, op->token, op->label, op->label_len);
    toy_library_adopt(t);
}

static inline void toy_connection_ready(void *self, unsigned number, unsigned events, nanos now)
{
    struct toy_engine *t = self;
    uint64_t token;
    toy_enter(t);
    if (number != TOY_LIBRARY_CONNECTION || !events)
        abort();

    bool open = library_process(&t->library);
    while (open && library_next_reply(&t->library, &token))
        for (unsigned i = 0; i < TOY_LIBRARY_OPS; i++) {
            struct engine_op *op = t->library_ops[i];
            if (!op || op->token != token)
                continue;
            t->library_ops[i] = NULL;
            op->connections = 0;
            toy_reply(t, op, REPLY_EXTENDED, now);
            break;
        }
    if (open)
        toy_library_adopt(t);
    else
        toy_library_cut(t, now);
    toy_leave(t);
}

/* ---- What the driver calls ---- */

static inline void toy_submit(void *self, struct engine_op *op, nanos now)
{
    struct toy_engine *t = self;
    toy_enter(t);
    switch (op->verb) {
    case OP_CHECK:
        toy_reply(t, op, REPLY_EXTENDED, now);
        break;
    case OP_LEAVE:
        toy_reply(t, op, REPLY_RELEASED, now);
        for (int i = 0; i < 10; i++)
            toy_reply(t, op, REPLY_NOTIFY, now);
        break;
    case OP_DOWNGRADE:
        for (unsigned number = 0; number < 2; number++) {
            t->host.hang_up(t->host.ctx, number);
            toy_reset(t, number);
            toy_cut(t, number, now);
            toy_dial(t, number);
        }
        toy_reply(t, op, REPLY_RELEASED, now);
        break;
    case OP_EXTEND:
        toy_library_request(t, op, now);
        break;
    default:
        toy_request(t, op);
    }
    toy_leave(t);
}

static inline void toy_forget(void *self, struct engine_op *op)
{
    struct toy_engine *t = self;
    toy_enter(t);
    for (unsigned i = 0; i < t->count; i++)
        if (t->pending[(t->first + i) % TOY_PENDING] == op)
            t->pending[(t->first + i) % TOY_PENDING] = NULL;
    for (unsigned i = 0; i < 64; i++)
        if (t->queued[i] == op)
            t->queued[i] = NULL;
    for (unsigned i = 0; i < TOY_LIBRARY_OPS; i++)
        if (t->library_ops[i] == op)
            t->library_ops[i] = NULL;
    toy_leave(t);
}

static inline void toy_connection_up(void *self, unsigned number, nanos now)
{
    struct toy_engine *t = self;
    char text[16];
    (void)now;
    toy_enter(t);
    t->up[number] = true;
    snprintf(text, sizeof text, "hello %u\n", number);
    t->host.send(t->host.ctx, number, text, strlen(text));
    for (unsigned i = 0; number == 0 && i < t->count; i++)
        if (t->pending[(t->first + i) % TOY_PENDING])
            toy_send(t, t->pending[(t->first + i) % TOY_PENDING]);
    toy_leave(t);
}

static inline void toy_connection_down(void *self, unsigned number, hf_status status,
                                       const char *why, nanos now)
{
    struct toy_engine *t = self;
    toy_enter(t);
    t->downs++;
    t->down_status = status;
    snprintf(t->down_why, sizeof t->down_why, "%s", why);
    toy_reset(t, number);
    if (number == 0 || !atomic_load(&t->patient)) {
        t->dial_at[number] = now + NANOS_OF_MS(10);
        toy_cut(t, number, now);
    }
    toy_leave(t);
}

static inline void toy_queue(struct toy_engine *t, struct engine_op *op, nanos now)
{
    for (unsigned i = 0; i < 64; i++)
        if (!t->queued[i]) {
            t->queued[i] = op;
            op->connections = 2;
            toy_reply(t, op, REPLY_QUEUED, now);
            return;
        }
    abort();
}

static inline void toy_push(struct toy_engine *t, uint64_t token, nanos now)
{
    unsigned found = 0;
    for (unsigned i = 0; i < 64; i++) {
        struct engine_op *op = t->queued[i];
        if (!op || op->token != token)
            continue;
        found++;
        t->queued[i] = NULL;
        toy_reply(t, op, REPLY_GRANTED,
                  now); /* its connections change after the reply here, before it elsewhere */
        op->connections = 0;
    }
    t->pushes += !found;
}

static inline connection_set toy_listening(void *self)
{
    const struct toy_engine *t = self;
    return t->dialled[1] && atomic_load(&t->listens) ? 2 : 0;
}

static inline void toy_answer(struct toy_engine *t, char letter, uint64_t token, nanos now)
{
    struct engine_op *op = t->count ? t->pending[t->first] : NULL;
    if (!t->count)
        abort();
    if (letter == 'r') {
        struct hf_row row = {.size = sizeof row, .name = "row", .host = "", .label = ""};
        if (op)
            t->host.row(t->host.ctx, op, &row);
        return;
    }
    t->first = (t->first + 1) % TOY_PENDING;
    t->count--;
    atomic_fetch_add(&t->answers, 1);
    if (!op)
        return;
    if (!toy_lists(op) && op->token != token)
        abort();
    op->connections = 0;
    if (letter == 'q')
        toy_queue(t, op, now);
    else if (letter == 'a')
        toy_reply(t, op, REPLY_GRANTED, now);
    else if (letter == 'b' && token != 7)
        toy_reply(t, op, REPLY_NOT_HELD, now);
    else
        toy_reply(t, op, letter == 'z' ? REPLY_FAILED : REPLY_RELEASED, now);
}

static inline void toy_connection_bytes(void *self, unsigned number, const char *bytes, size_t len,
                                        nanos now)
{
    struct toy_engine *t = self;
    toy_enter(t);
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != '\n') {
            t->text[number][t->text_len[number]++] = bytes[i];
            continue;
        }
        t->text[number][t->text_len[number]] = 0;
        t->text_len[number] = 0;
        uint64_t token = strtoull(t->text[number] + 2, NULL, 10);
        if (t->text[number][0] == 'g')
            toy_push(t, token, now);
        else
            toy_answer(t, t->text[number][0], token, now);
    }
    toy_leave(t);
}

/* The server still replies to forgotten ops. */
static inline connection_set toy_replies_due(void *self)
{
    const struct toy_engine *t = self;
    for (unsigned i = 0; i < t->count; i++)
        if (!t->pending[(t->first + i) % TOY_PENDING])
            return 1;
    return 0;
}

static inline nanos toy_tick(void *self, nanos now)
{
    struct toy_engine *t = self;
    nanos again = TIME_NEVER;
    toy_enter(t);
    if (atomic_exchange(&t->wants_recheck, false))
        t->host.recheck(t->host.ctx);
    for (unsigned number = 0; number < 2; number++) {
        if (t->dial_at[number] <= now)
            toy_dial(t, number);
        again = t->dial_at[number] < again ? t->dial_at[number] : again;
    }
    for (unsigned i = 0; i < t->count; i++) {
        struct engine_op *op = t->pending[(t->first + i) % TOY_PENDING];
        if (op && op->until <= now) {
            t->pending[(t->first + i) % TOY_PENDING] = NULL;
            op->connections = 0;
            toy_reply(t, op, REPLY_FAILED, now);
        } else if (op && op->until < again) {
            again = op->until;
        }
    }
    toy_leave(t);
    return again;
}

static inline hf_status toy_open(void **self, const struct url *url,
                                 const struct settings *settings,
                                 const struct wire_engine_host *host)
{
    (void)settings;
    *self = NULL;
    if (!url)
        return error_set(HF_CONFIG, "the toy wants a URL");
    struct toy_engine *t = calloc(1, sizeof *t);
    t->host = *host;
    t->library.fd = -1;
    t->dial_at[0] = t->dial_at[1] = TIME_NEVER;
    *self = toy = t;
    return HF_OK;
}

static inline void toy_close_engine(void *self)
{
    struct toy_engine *t = self;
    for (unsigned number = 0; number < 2; number++)
        t->host.hang_up(t->host.ctx, number);
    t->host.hang_up(t->host.ctx, TOY_LIBRARY_CONNECTION);
    library_close(&t->library);
    free(t);
}

static const struct wire_engine_type toy_type = {
    .open = toy_open,
    .submit = toy_submit,
    .forget = toy_forget,
    .connection_up = toy_connection_up,
    .connection_bytes = toy_connection_bytes,
    .connection_down = toy_connection_down,
    .connection_ready = toy_connection_ready,
    .connections = toy_replies_due,
    .listening_connections = toy_listening,
    .tick = toy_tick,
    .close = toy_close_engine,
};
