/* repair_role.h - what a client does when it is told to. */
#pragma once
#include "repair_world.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

/* ---- In a client ---- */

static struct role {
    int id;
    struct hf_table table;
    struct hf_asker who;
    struct hf_pending pending;
    struct hf_ask asks[SLOTS];
    uint32_t serial;
} role;

static void prepare_ask(struct hf_ask *ask, const struct command *c)
{
    const struct known_name *name = &names[c->name];
    *ask = (struct hf_ask){.name = name->text,
                           .name_len = (uint32_t)strlen(name->text),
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
    ask->attempt.b[0] = ask->owner.b[0] = (uint8_t)(role.id + 1);
    role.serial++;
    memcpy(ask->attempt.b + 4, &role.serial, sizeof role.serial);
    if (c->team != ALONE)
        ask->owner = (struct hf_id){.b = {100, (uint8_t)c->team}};
    if (c->flags & REPEATED)
        ask->attempt = (struct hf_id){.b = {101, (uint8_t)c->name}};
    if (c->flags & BELL)
        ask->slot = hf_slot(0, hf_pending_add(&role.pending, ask));
}

static void note_token(uint32_t name, uint64_t token)
{
    if (token > atomic_load(&world.highest[name]))
        atomic_store(&world.highest[name], token);
}

/* The test drains by itself: what a client would do with the news does not matter here. */
static void ignore(void *ctx, struct hf_ask *ask)
{
    (void)ctx, (void)ask;
}

static void perform(const struct command *c, struct reply *reply);

/* Whatever an ordinary client does, for ever: somebody kills it. */
static _Noreturn void churn(uint32_t seed)
{
    static const uint32_t where[] = {FRESH, FRESH_SCROLL, IDLE, DESK, POOL, FULL_FRESH, TIGHT_FRESH, TIGHT_SCROLL};
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
        hf_pending_remove(&role.pending, 1);
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
    role.who.history_age = HF_MS(name == AGED ? AGED_MS : LONG_TTL_MS);
}

/* What a client asks of the table about a name. */
static void use_name(const struct command *c, struct hf_ask *ask, struct hf_news *news)
{
    struct hf_table *t = &role.table;
    hf_nanos now = hf_clock_boot();
    switch (c->deed) {
    case LEAVE:
        hf_lease_leave(t, ask, now, news);
        break;
    case RELEASE:
        hf_lease_release(t, ask, now, news);
        break;
    case EXTEND:
        hf_lease_extend(t, ask, now, false, news);
        break;
    case UPGRADE:
    case DOWNGRADE:
        ask->verb = c->deed == UPGRADE ? HF_V_UPGRADE : HF_V_DOWNGRADE;
        hf_lease_convert(t, ask, now, news);
        break;
    case DETACH:
        if (!hf_lease_detach(t, ask, false)) {
            hf_pending_drain(&role.pending, t, role.who.member, ignore, NULL);
            hf_lease_detach(t, ask, true);
        }
        break;
    default:
        set_history(c->name);
        hf_lease_ask(t, &role.who, ask, now, news);
    }
}

static void count_row(void *arg, const struct hf_row *row)
{
    *(uint32_t *)arg += row->units;
}

/* What somebody does who sees it all. A break is of the newest hold. */
static hf_status oversee(const struct command *c, hf_nanos until)
{
    struct hf_table *t = &role.table;
    hf_nanos now = hf_clock_boot();
    uint32_t units = 0;
    struct hf_seen what = {
        .which = HF_SEE_ONE, .name = names[c->name].text, .len = strlen(names[c->name].text), .until = until};
    switch (c->deed) {
    case BREAK:
        return hf_lease_break(t, &what, atomic_load(&world.highest[c->name]), now);
    case RESIZE:
        return hf_lease_resize(t, &what, c->target, now);
    case SHOW_PAST:
        what.which = HF_SEE_PAST;
        break;
    case LIST_ALL:
        what.which = HF_SEE_PREFIX;
        what.len = 0;
        break;
    default:
        break;
    }
    return hf_lease_list(t, &what, now, count_row, &units);
}

/* What a client does as one of several. */
static hf_status use_table(const struct command *c, hf_nanos until)
{
    struct hf_table *t = &role.table;
    hf_status status = HF_OK;
    switch (c->deed) {
    case JOIN:
        return hf_member_join(t, getpid(), until, &role.who.member);
    case QUIT:
        return hf_member_leave(t, role.who.member) ? HF_OK : HF_UNAVAILABLE;
    case BURY:
        return hf_member_bury(t, c->target) == HF_BURIAL_DONE ? HF_OK : HF_UNAVAILABLE;
    case ENTER:
        status = hf_shard_lock(t, c->target, until);
        if (status == HF_OK)
            hf_shard_unlock(t, c->target);
        return status;
    case DRAIN:
        hf_pending_drain(&role.pending, t, role.who.member, ignore, NULL);
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
    struct hf_ask *ask = &role.asks[c->slot];
    struct hf_news news = {.cue = HF_N_CUES};
    if (c->deed == ASK)
        prepare_ask(ask, c);
    ask->until = hf_clock_boot() + HF_MS(1000);
    reply->status = HF_OK;
    if (c->flags & NO_ROOM)
        forbid_longer_files();
    if (c->flags & STEPPED)
        raise(SIGSTOP);
    if (c->deed <= DETACH)
        use_name(c, ask, &news);
    else if (c->deed <= RESIZE)
        reply->status = oversee(c, ask->until);
    else
        reply->status = use_table(c, ask->until);
    if (c->flags & STEPPED)
        raise(SIGSTOP);
    reply->cue = news.cue;
    reply->member = role.who.member;
    reply->token = news.cue == HF_N_GRANTED || news.cue == HF_N_EXTENDED ? news.token : 0;
    if (news.cue == HF_N_FAILED)
        reply->status = news.status;
    if (reply->token)
        note_token(c->name, reply->token);
}

static void live_as(int id, int socket)
{
    struct command c;
    struct reply reply;
    role.id = id;
    role.who.pid = getpid();
    hf_pending_init(&role.pending);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((id == XENIA || id == DORA) && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(1);
    if (hf_table_open(&role.table, world.path, 0600) != HF_OK)
        _exit(1);
    while (read(socket, &c, sizeof c) == sizeof c) {
        perform(&c, &reply);
        if (write(socket, &reply, sizeof reply) != sizeof reply)
            break;
    }
    _exit(0);
}
