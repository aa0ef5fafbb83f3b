/* client_driver.h - what client/claim_driver.c and client/background.c do, for a process in the
 * box: events become moves of claims, moves become submits to the engine, what the engine tells
 * becomes events; and the bugs that are planted on the way. */
#pragma once
#include "redis_network.h"

#include "base/url.h"
#include "engines/engine.h"

static void hear_report(unsigned id, const struct claim_move *move, const struct claim *before);
static void hear_adoption(unsigned id, const struct engine_reply *reply);
static void tell_step(unsigned id, const struct claim *was, const struct claim_event *event,
                      const struct claim_move *move);

/* ---- What the engine may touch ---- */

static unsigned number_of(const struct process *p)
{
    return (unsigned)(p - w.process);
}

static void host_dial(void *ctx, unsigned line, const struct endpoint *to)
{
    (void)to;
    open_link(number_of(ctx), line);
}

/* Planted: what takes a grant back, which nothing else on that line does, names somebody else. */
static void spoil_undo(char *bytes, size_t len)
{
    static const char channel[] = "\r\n$1\r\n-\r\n"; /* stands behind the id */
    char *at = memmem(bytes, len, channel, sizeof channel - 1);
    if (at > bytes)
        at[-1] ^= 1;
}

/* What takes a grant or an upgrade back is the only release and the only downgrade on that line. */
static bool takes_back(unsigned line, const void *bytes, size_t len)
{
    static const char release[] = "\r\nr 0 ", downgrade[] = "\r\n$1\r\nd\r\n";
    return line == CONNECTION_DURABLE && len < 4096 &&
           (memmem(bytes, len, release, sizeof release - 1) ||
            memmem(bytes, len, downgrade, sizeof downgrade - 1));
}

static bool host_send(void *ctx, unsigned line, const void *bytes, size_t len)
{
    static char spoilt[4096];
    const struct process *p = ctx;
    if (w.options.plant == PLANT_WAIT_LEFT && line == CONNECTION_DURABLE && len <= sizeof spoilt) {
        memcpy(spoilt, bytes, len);
        spoil_undo(spoilt, len);
        bytes = spoilt;
    }
    if (takes_back(line, bytes, len) && strikes(FAULT_CUT, 400))
        carry_last((unsigned)p->line[line], bytes, (uint32_t)len);
    else
        carry((unsigned)p->line[line], true, bytes, (uint32_t)len);
    return true;
}

static void host_hang_up(void *ctx, unsigned line)
{
    struct process *p = ctx;
    bool unheard = strikes(FAULT_HALF, 100);
    note((int)number_of(p), "hangs up line %u", line);
    if (p->line[line] >= 0)
        close_link((unsigned)p->line[line], !unheard);
    p->line[line] = -1;
}

static struct attempt_of_user *attempt_of(const struct engine_op *op)
{
    const char *at = (const char *)op, *first = (const char *)w.attempt;
    if (at < first || at >= first + sizeof w.attempt)
        return NULL;
    return &w.attempt[(size_t)(at - first) / sizeof w.attempt[0]];
}

/* What a planted bug makes of what the engine tells. */
static void spoil_news(const struct process *p, struct attempt_of_user *a,
                       struct engine_reply *reply)
{
    nanos local = local_time(p, w.now);
    struct redis_op *active = redis_active_op(&a->op);
    bool pushed = reply->kind == REPLY_GRANTED && reply->brief && a->claim.state != CLAIM_LEAVING;
    if (w.options.plant == PLANT_PUSH_START && pushed)
        reply->asked_at = local;
    if (w.options.plant == PLANT_REPLY_TIME &&
        (reply->kind == REPLY_GRANTED || reply->kind == REPLY_EXTENDED))
        reply->asked_at = local;
    if (w.options.plant == PLANT_TURN_DRIFT && pushed)
        reply->good += (local - reply->asked_at) / 1000000 * 10000;
    bool downgrades = a->claim.in_flight == OP_DOWNGRADE;
    if (w.options.plant == PLANT_HALF_SURE ||
        (w.options.plant == PLANT_HALF_DOWNGRADE && downgrades))
        reply->outcome_unknown = false;
    if (w.options.plant == PLANT_SHORT_CHANGED)
        reply->brief = false;
    if (w.options.plant == PLANT_ADOPT_BLIND && a->adopts && reply->kind == REPLY_EXTENDED)
        reply->good = w.ttl;
    if (w.options.plant == PLANT_RETRY_TIME && reply->kind == REPLY_QUEUED) {
        if (!a->first_pair_at)
            a->first_pair_at = active->queued_reply.at;
        active->queued_reply.at = a->first_pair_at;
    }
}

/* Planted: what presence.c tells the first local waiters is not heard. Other hints come when there
 * is no such key. */
static bool is_poll(const struct process *p, const struct engine_reply *reply)
{
    const struct redis *r = p->engine;
    return reply->kind == REPLY_NOTIFY && r->presence.is_set &&
           r->presence.renew_at > local_time(p, w.now);
}

static void host_tell(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    struct process *p = ctx;
    struct attempt_of_user *a = attempt_of(op);
    if (w.options.plant == PLANT_NO_POLLS && is_poll(p, reply))
        return;
    if (p->news_count == p->news_room) {
        fails("process %u hears too much at once", number_of(p));
        return;
    }
    struct told *told = &p->reply[(p->first_news + p->news_count++) % p->news_room];
    *told = (struct told){.op = op, .reply = *reply};
    told->reply.text = NULL;
    if (a && reply->kind == REPLY_FAILED && reply->status == HF_NOT_REPLICATED)
        tally.unreplicated++;
    if (a)
        spoil_news(p, a, &told->reply);
}

static void host_row(void *ctx, struct engine_op *op, const struct hf_row *row)
{
    (void)op;
    if (!row->name || (row->token == 0 && row->kind == HF_WRITE && row->units == 0))
        fails("process %u sees a row that makes no sense", number_of(ctx));
}

static void host_recheck(void *ctx)
{
    struct process *p = ctx;
    p->recheck = true;
}

static uint32_t host_random(void *ctx)
{
    (void)ctx;
    return draw(UINT32_MAX);
}

/* ---- Claims ---- */

static bool is_held(const struct attempt_of_user *a)
{
    return a->claim.state == CLAIM_HELD || a->claim.state == CLAIM_EXTENDING;
}

/* What a planted bug makes of an event. False: the claim never hears of it. */
static bool spoil_event(struct attempt_of_user *a, struct claim_event *event)
{
    if (w.options.plant == PLANT_LATE_GRANT && a->claim.state == CLAIM_LEAVING &&
        event->in == INPUT_GRANTED)
        event->in = INPUT_RELEASED;
    if (w.options.plant == PLANT_LOST_PUSH && a->claim.state == CLAIM_QUEUED &&
        event->now < a->claim.deadline) {
        a->claim.act_at = TIME_NEVER;
        return event->in != INPUT_TIMER;
    }
    return true;
}

static void submit(struct attempt_of_user *a, const struct claim_move *move, nanos local)
{
    const struct process *p = &w.process[a->process];
    a->op.verb = move->verb;
    a->op.may_be_in_flight = move->may_be_in_flight;
    a->op.in_background = true;
    a->op.until = local + a->claim.sheet->t.op_timeout;
    if (move->verb == OP_EXTEND) {
        a->op.ttl_ms = move->ttl / NANOS_OF_MS(1);
        if (w.options.plant == PLANT_ROUNDED)
            a->op.ttl_ms = a->op.ttl_ms / 1000 * 1000;
        a->longest = later(a->longest, move->ttl);
        tell_judge((struct history_event){
            .what = H_EXTENDS, .who = (unsigned)(a - w.attempt), .reach = a->longest});
    }
    redis_wire_engine.submit(p->engine, &a->op, local);
    if (move->verb == OP_ACQUIRE)
        a->op.next = NULL;
}

/* The timer comes when its process's clock shows a->wake_at, and that much later. */
static void plan_timer(unsigned id, nanos late)
{
    struct attempt_of_user *a = &w.attempt[id];
    a->timer++;
    if (a->wake_at != TIME_NEVER)
        schedule((struct occurrence){
            .at = later(w.now, real_time(&w.process[a->process], a->wake_at)) + late,
            .what = TIMER,
            .who = id,
            .serial = a->timer});
}

static void arm_timer(unsigned id, nanos wake_at)
{
    w.attempt[id].wake_at = wake_at;
    plan_timer(id, 0);
}

/* A claim that is over is forgotten by the engine, and what that still had to tell is not looked
 * at. */
static void keep_alive(struct attempt_of_user *a)
{
    bool alive = a->claim.state != CLAIM_OVER && a->claim.state != CLAIM_NEW;
    if (a->alive && !alive)
        redis_wire_engine.forget(w.process[a->process].engine, &a->op);
    a->alive = alive;
}

static const char *const verb_names[] = {"",
                                         " sends ACQUIRE",
                                         " sends LEAVE",
                                         " sends EXTEND",
                                         " sends CHECK",
                                         " sends RELEASE",
                                         " sends UPGRADE",
                                         " sends DOWNGRADE"};
static const char *const report_names[] = {"",           ": GRANTED", ": DENIED", "",
                                           ": EXTENDED", ": WARN",    ": LOST",   ": RELEASED"};

static void note_step(unsigned id, const struct claim *was, const struct claim_event *event,
                      const struct claim_move *move)
{
    const struct attempt_of_user *a = &w.attempt[id];
    if (!recording ||
        (event->in == INPUT_TIMER && !move->verb && !move->report && was->state == a->claim.state))
        return;
    char until[40] = "";
    if (a->claim.valid_until && a->claim.valid_until != was->valid_until)
        snprintf(until, sizeof until, " until %.1f",
                 (double)real_time(&w.process[a->process], a->claim.valid_until) / 1e6);
    note((int)a->process, "a%u %s%s%s%s%s", id, claim_input_name(event->in),
         report_names[move->report], verb_names[move->verb],
         move->verb && move->may_be_in_flight ? " in doubt" : "", until);
}

/* One event for a claim, as in claim_driver_step(). */
static void apply(unsigned id, struct claim_event event)
{
    struct attempt_of_user *a = &w.attempt[id];
    event.now = local_time(&w.process[a->process], w.now);
    event.random = draw(UINT32_MAX);
    if (!spoil_event(a, &event)) {
        arm_timer(id, a->claim.deadline);
        return;
    }
    struct claim was = a->claim;
    covered[was.state][event.in]++;
    struct claim_move move = claim_step(&a->claim, &event);
    mix((uint64_t)id << 32 | (uint64_t)was.state << 24 | (uint64_t)event.in << 16 |
        (uint64_t)move.verb << 8 | (uint64_t)move.report);
    note_step(id, &was, &event, &move);
    if (move.status == HF_INTERNAL && move.report == REPORT_NONE)
        fails("a%u: %s in %s cannot be", id, claim_input_name(event.in),
              claim_state_name(was.state));
    tell_step(id, &was, &event, &move);
    hear_report(id, &move, &was);
    arm_timer(id, move.wake_at);
    keep_alive(a);
    if (move.verb != OP_NONE)
        submit(a, &move, event.now);
}

/* ---- A process ---- */

static void hear_errand(struct process *p, struct engine_op *op, const struct engine_reply *reply)
{
    note((int)number_of(p), "an errand ends: %s",
         reply->kind == REPLY_RELEASED ? "done" : "not done");
    redis_wire_engine.forget(p->engine, op);
    op->verb = OP_NONE;
}

static void recheck_all(struct process *p)
{
    struct engine_reply hint = {.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER};
    p->recheck = false;
    for (unsigned id = 0; id < w.attempts; id++)
        if (&w.process[w.attempt[id].process] == p && w.attempt[id].life == p->life &&
            is_held(&w.attempt[id]))
            apply(id, (struct claim_event){.in = INPUT_NOTIFY, .reply = &hint});
}

static void plan_next_tick(struct process *p, nanos late)
{
    p->tick++;
    if (p->tick_at != TIME_NEVER)
        schedule((struct occurrence){.at = later(w.now + 1, real_time(p, p->tick_at)) + late,
                                     .what = TICK,
                                     .who = number_of(p),
                                     .serial = p->tick});
}

static void plan_tick(struct process *p)
{
    nanos due = redis_wire_engine.tick(p->engine, local_time(p, w.now));
    if (due == p->tick_at)
        return;
    p->tick_at = due;
    plan_next_tick(p, 0);
}

/* Does p read now what it was told? Where that takes its time, the timers of whoever waits for it
 * go on. */
static bool reads(struct process *p)
{
    if (w.now <= p->reads_at || !w.reads_late || draw_from(&w.read_random, 30))
        return w.now >= p->reads_at;
    if (is_healthy() || !(w.options.faults & FAULT_UNREAD))
        return true;
    p->reads_at = w.now + 1 + 2 * w.op_timeout / 4096 * draw_from(&w.read_random, 4096);
    tally.unread++;
    tell_fault(H_PAUSED, number_of(p), p->reads_at);
    note((int)number_of(p), "does not read until %.1f", (double)p->reads_at / 1e6);
    schedule((struct occurrence){.at = p->reads_at, .what = READ, .who = number_of(p)});
    return false;
}

/* After every call of the engine, and every event of a claim: what follows from it, until nothing
 * does. */
static void settle(struct process *p)
{
    do {
        while (p->news_count && reads(p)) {
            struct told told = p->reply[p->first_news];
            p->first_news = (p->first_news + 1) % p->news_room;
            p->news_count--;
            struct attempt_of_user *a = attempt_of(told.op);
            if (!a)
                hear_errand(p, told.op, &told.reply);
            else if (a->alive && a->life == p->life && a->adopts)
                hear_adoption((unsigned)(a - w.attempt), &told.reply);
            else if (a->alive && a->life == p->life)
                apply((unsigned)(a - w.attempt),
                      (struct claim_event){.in = claim_input_of_reply(told.reply.kind),
                                           .reply = &told.reply});
        }
        if (p->recheck && w.now >= p->reads_at)
            recheck_all(p);
        plan_tick(p);
    } while ((p->news_count || p->recheck) && w.now >= p->reads_at && !*w.failure);
}

/* As whose the product sees the simulator's own process: a schedule must not depend on it, nor on
 * its length. */
static int process_id = 1;

/* In the place of the C library's. */
pid_t getpid(void)
{
    return process_id;
}

static void start_process(unsigned number)
{
    struct process *p = &w.process[number];
    static struct settings settings;
    static struct url url;
    char text[200];
    snprintf(
        text, sizeof text,
        "redis://"
        "server?wake=%s&name=p%u&connect_timeout=%lldms&history=%lld&history_age=60s&replicas=%d"
        "&replica_timeout=%lldms",
        w.wake, number, (long long)(2 * w.op_timeout / NANOS_OF_MS(1)), (long long)w.history,
        w.strong, (long long)(w.strong ? w.acknowledge_ms : 1000));
    settings_defaults(&settings, engine_settings());
    if (url_parse(&url, text) != HF_OK || settings_from_query(&settings, url.query) != HF_OK) {
        fails("the URL %s is refused", text);
        return;
    }
    p->host = (struct wire_engine_host){.ctx = p,
                                        .dial = host_dial,
                                        .send = host_send,
                                        .hang_up = host_hang_up,
                                        .on_reply = host_tell,
                                        .row = host_row,
                                        .recheck = host_recheck,
                                        .random = host_random};
    for (unsigned i = 0; i < CONNECTIONS; i++)
        p->line[i] = -1;
    p->dead = p->closing = false;
    p->life++;
    p->tick_at = TIME_NEVER;
    p->news_count = p->errands = 0;
    p->reads_at = 0;
    p->recheck = false;
    if (redis_wire_engine.open(&p->engine, &url, &settings, &p->host) != HF_OK) {
        fails("the engine does not open");
        return;
    }
    /* What the product takes from the machine would make two runs differ. */
    struct redis *r = p->engine;
    r->about_len = (size_t)snprintf(r->about, sizeof r->about, " %u sim ", number + 1);
}

/* It is gone in the middle of everything. The engine's memory is freed without a word to anybody.
 */
static void kill_process(unsigned number, bool heard)
{
    struct process *p = &w.process[number];
    for (unsigned line = 0; line < CONNECTIONS; line++)
        if (p->line[line] >= 0)
            close_link((unsigned)p->line[line], heard);
    for (unsigned line = 0; line < CONNECTIONS; line++)
        p->line[line] = -1;
    p->dead = true;
    p->died_at = w.now;
    p->tick++;
    redis_wire_engine.close(p->engine);
    p->engine = NULL;
    for (unsigned id = 0; id < w.attempts; id++)
        if (w.attempt[id].process == number && w.attempt[id].life == p->life)
            w.attempt[id].op.engine_state = NULL;
    tell_fault(H_KILLED, number, w.now);
}
