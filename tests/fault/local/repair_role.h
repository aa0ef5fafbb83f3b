/* repair_role.h - what a client does when it is told to. */
#pragma once
#include "repair_world.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

/* ---- In a client ---- */

static struct role {
    int id;
    struct table table;
    struct table_caller who;
    struct async_waiters pending;
    struct engine_op asks[SLOTS];
    uint32_t serial;
} role;

static void prepare_ask(struct engine_op *op, const struct command *c)
{
    const struct known_name *name = &names[c->name];
    *op = (struct engine_op){.name = name->text,
                             .name_len = (uint16_t)strlen(name->text),
                             .kind = (hf_kind)(c->flags & WRITING  ? HF_WRITE
                                               : c->flags & MISFIT ? HF_SEMAPHORE
                                                                   : name->kind),
                             .units = c->flags & WRITING ? name->capacity
                                      : c->units         ? c->units
                                                         : 1,
                             .capacity = name->capacity,
                             .barging = c->flags & BARGE,
                             .named = c->team != ALONE,
                             .ttl_ms = c->flags & BRIEFLY ? BRIEF_TTL_MS : LONG_TTL_MS,
                             .queue = c->flags & QUEUE,
                             .detached = c->flags & LOOSELY,
                             .label = "repair",
                             .label_len = 6};
    op->attempt.b[0] = op->owner.b[0] = (uint8_t)(role.id + 1);
    role.serial++;
    memcpy(op->attempt.b + 4, &role.serial, sizeof role.serial);
    if (c->team != ALONE)
        op->owner = (struct id){.b = {100, (uint8_t)c->team}};
    if (c->flags & REPEATED)
        op->attempt = (struct id){.b = {101, (uint8_t)c->name}};
    if (c->flags & BELL)
        op->slot = slot_make(0, async_waiters_add(&role.pending, op));
}

static void note_token(uint32_t name, uint64_t token)
{
    if (token > atomic_load(&world.highest[name]))
        atomic_store(&world.highest[name], token);
}

/* The test drains by itself: what a client would do with the news does not matter here. */
static void ignore(void *ctx, struct engine_op *op)
{
    (void)ctx, (void)op;
}

static void perform(const struct command *c, struct reply *reply);

/* Whatever an ordinary client does, for ever: somebody kills it. */
static _Noreturn void churn(uint32_t seed)
{
    static const uint32_t where[] = {FRESH, FRESH_SCROLL, IDLE,        DESK,
                                     POOL,  FULL_FRESH,   TIGHT_FRESH, TIGHT_SCROLL};
    static const enum deed then[] = {RELEASE, EXTEND, ASK_AGAIN, LEAVE, RELEASE};
    struct reply reply;
    for (uint32_t x = seed;;) {
        x = x * 1664525u + 1013904223u;
        uint32_t name = where[(x >> 16) % 8], flags = x >> 24 & (QUEUE | BELL);
        flags = flags & QUEUE ? flags : 0;
        perform(&(struct command){.deed = ASK, .slot = name, .name = name, .flags = flags}, &reply);
        for (unsigned i = 0; i < 5; i++)
            perform(&(struct command){.deed = then[i], .slot = name, .name = name}, &reply);
        perform(&(struct command){.deed = DRAIN}, &reply);
        async_waiters_remove(&role.pending, 1);
    }
}

/* The same with holds that others share, and with conversions. */
static _Noreturn void churn_in_company(uint32_t seed)
{
    static const struct command where[] = {{.name = FRESH},
                                           {.name = CLUB, .team = REDS},
                                           {.name = KEEP, .team = REDS},
                                           {.name = FRESH_BOOK},
                                           {.name = FRESH_BOOK, .team = BLUES},
                                           {.name = STAIRS, .team = BLUES},
                                           {.name = LOG, .flags = QUEUE},
                                           {.name = SNUG_FRESH}};
    static const enum deed then[] = {UPGRADE, SHOW, DOWNGRADE, LEAVE, RELEASE};
    struct reply reply;
    for (uint32_t x = seed;;) {
        x = x * 1664525u + 1013904223u;
        struct command c = where[(x >> 16) % 8];
        c.slot = SECOND + c.name;
        c.deed = ASK;
        perform(&c, &reply);
        for (unsigned i = 0; i < 5; i++) {
            c.deed = then[i];
            if (names[c.name].kind == HF_READ || (c.deed != UPGRADE && c.deed != DOWNGRADE))
                perform(&c, &reply);
        }
    }
}

/* As if it were the clients' setting, which the names here do not share. */
static void set_history(uint32_t name)
{
    bool has_past = names[name].shard == HALL || names[name].shard == SNUG;
    role.who.history = has_past ? HISTORY : 0;
    role.who.history_age = NANOS_OF_MS(name == AGED ? AGED_MS : LONG_TTL_MS);
}

/* What a client asks of the table about a name. */
static void use_name(const struct command *c, struct engine_op *op, struct engine_reply *outcome)
{
    struct table *t = &role.table;
    nanos now = clock_boot();
    switch (c->deed) {
    case LEAVE:
        table_leave(t, op, now, outcome);
        break;
    case RELEASE:
        table_release(t, op, now, outcome);
        break;
    case EXTEND:
        table_extend(t, op, now, false, outcome);
        break;
    case UPGRADE:
    case DOWNGRADE:
        op->verb = c->deed == UPGRADE ? OP_UPGRADE : OP_DOWNGRADE;
        table_convert(t, op, now, outcome);
        break;
    case DETACH:
        if (!table_detach(t, op, false)) {
            async_waiters_drain(&role.pending, t, role.who.client, ignore, NULL);
            table_detach(t, op, true);
        }
        break;
    default:
        set_history(c->name);
        table_acquire(t, &role.who, op, now, outcome);
    }
}

static void count_row(void *arg, const struct hf_row *row)
{
    *(uint32_t *)arg += row->units;
}

/* What somebody does who sees it all. A break is of the newest hold. */
static hf_status oversee(const struct command *c, nanos until)
{
    struct table *t = &role.table;
    nanos now = clock_boot();
    uint32_t units = 0;
    struct admin_target what = {.which = LIST_ONE,
                                .name = names[c->name].text,
                                .len = strlen(names[c->name].text),
                                .until = until};
    switch (c->deed) {
    case BREAK:
        return table_break(t, &what, atomic_load(&world.highest[c->name]), now);
    case RESIZE:
        return table_resize(t, &what, c->target, now);
    case SHOW_PAST:
        what.which = LIST_HISTORY;
        break;
    case LIST_ALL:
        what.which = LIST_PREFIX;
        what.len = 0;
        break;
    default:
        break;
    }
    return table_list(t, &what, now, count_row, &units);
}

/* What a client does as one of several. */
static hf_status use_table(const struct command *c, nanos until)
{
    struct table *t = &role.table;
    hf_status status = HF_OK;
    switch (c->deed) {
    case JOIN:
        return table_client_join(t, getpid(), until, &role.who.client);
    case QUIT:
        return table_client_leave(t, role.who.client) ? HF_OK : HF_UNAVAILABLE;
    case BURY:
        return table_client_reap(t, c->target) == REAP_DONE ? HF_OK : HF_UNAVAILABLE;
    case ENTER:
        status = shard_lock(t, c->target, until);
        if (status == HF_OK)
            shard_unlock(t, c->target);
        return status;
    case DRAIN:
        async_waiters_drain(&role.pending, t, role.who.client, ignore, NULL);
        return HF_OK;
    case CHURN:
        churn(c->target);
    default:
        churn_in_company(c->target);
    }
}

static void forbid_longer_files(void)
{
    struct rlimit none = {0, 0};
    sigset_t too_long; /* blocked: one that is ignored would still stop a client that is stepped */
    sigemptyset(&too_long);
    sigaddset(&too_long, SIGXFSZ);
    if (sigprocmask(SIG_BLOCK, &too_long, NULL) != 0 || setrlimit(RLIMIT_FSIZE, &none) != 0)
        _exit(1);
}

static void perform(const struct command *c, struct reply *reply)
{
    struct engine_op *op = &role.asks[c->slot];
    struct engine_reply outcome = {.kind = REPLY_KINDS};
    if (c->deed == ASK)
        prepare_ask(op, c);
    op->until = clock_boot() + NANOS_OF_MS(1000);
    reply->status = HF_OK;
    if (c->flags & NO_ROOM)
        forbid_longer_files();
    if (c->flags & STEPPED)
        raise(SIGSTOP);
    if (c->deed <= DETACH)
        use_name(c, op, &outcome);
    else if (c->deed <= RESIZE)
        reply->status = oversee(c, op->until);
    else
        reply->status = use_table(c, op->until);
    if (c->flags & STEPPED)
        raise(SIGSTOP);
    reply->kind = outcome.kind;
    reply->client = role.who.client;
    reply->thread = role.table.owner.id;
    reply->token =
        outcome.kind == REPLY_GRANTED || outcome.kind == REPLY_EXTENDED ? outcome.token : 0;
    if (outcome.kind == REPLY_FAILED)
        reply->status = outcome.status;
    if (reply->token)
        note_token(c->name, reply->token);
}

static void live_as(int id, int socket)
{
    struct command c;
    struct reply reply = {.kind = REPLY_KINDS};
    role.id = id;
    role.who.pid = getpid();
    async_waiters_init(&role.pending);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((id == XENIA || id == DORA) && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(1);
    if (table_open(&role.table, world.path, 0600) != HF_OK)
        _exit(1);
    reply.thread = role.table.owner.id;
    while (write(socket, &reply, sizeof reply) == sizeof reply &&
           read(socket, &c, sizeof c) == sizeof c)
        perform(&c, &reply);
    _exit(0);
}
