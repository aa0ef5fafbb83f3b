/* wire_clients.h - the clients: claims driven by events, users who take and release locks, and what
 * the judge (checker/checker.h) is told of it. */
#pragma once
#include "wire_world.h"

/* ---- The judge ---- */

static const char *const event_names[] = {
    [H_ASKED] = "asks",          [H_QUEUED] = "waits",       [H_LEAVES] = "leaves",
    [H_GRANTED] = "is granted",  [H_REFUSED] = "is refused", [H_EXTENDS] = "extends",
    [H_BELIEVES] = "believes",   [H_RELIES] = "relies",      [H_CONVERTED] = "is converted",
    [H_ENDED] = "does not hold", [H_LOST] = "has lost",      [H_OVER] = "is over",
};

static void tell(const struct attempt *a, struct history_event event)
{
    event.at = w.now;
    event.who = a->id;
    event.process = a->client;
    history_add(judge, &event);
    if (event.what < sizeof event_names / sizeof *event_names)
        note("client %u, attempt %u: %s, token %llu, until %.3f", a->client, a->id,
             event_names[event.what] ? event_names[event.what] : "",
             (unsigned long long)event.token,
             event.until > FIRST_DAY ? (double)(event.until - FIRST_DAY) / 1e6 : 0);
    if (history_failures(judge))
        flaw("%s", history_failure(judge));
}

static bool is_held(const struct attempt *a)
{
    return a->claim.state == CLAIM_HELD || a->claim.state == CLAIM_EXTENDING;
}

static void tell_ask(struct attempt *a)
{
    bool is_rw = w.kind == HF_READ;
    a->id = w.attempts++;
    uint32_t all = is_rw ? QUEUE_ALL : a->op.capacity;
    tell(a, (struct history_event){.what = H_ASKED,
                                   .units = a->op.kind == HF_WRITE ? all : a->op.units,
                                   .capacity = all,
                                   .owner = a->id,
                                   .other = H_NOBODY,
                                   .until = H_NEVER,
                                   .reach = NANOS_OF_MS(WORLD_TTL_MAX_MS)});
}

static void tell_validity(const struct attempt *a, uint8_t what, nanos asked_at)
{
    const struct client *c = &w.client[a->client];
    tell(a, (struct history_event){.what = what,
                                   .token = a->claim.token,
                                   .from = asked_at ? real_time(c, asked_at) : 0,
                                   .until = real_time(c, a->claim.valid_until)});
}

static void tell_step(const struct attempt *a, const struct claim *was,
                      const struct claim_event *event, const struct claim_move *move)
{
    bool was_held = was->state == CLAIM_HELD || was->state == CLAIM_EXTENDING;
    if (move->report == REPORT_DENIED)
        tell(a, (struct history_event){.what = H_REFUSED});
    if (move->report == REPORT_GRANTED)
        tell_validity(a, H_GRANTED, event->reply->asked_at);
    else if (was_held && is_held(a) && a->claim.valid_until != was->valid_until)
        tell_validity(a, H_BELIEVES,
                      a->claim.valid_until > was->valid_until ? event->reply->asked_at : 0);
    else if (was_held && !is_held(a))
        tell(a, (struct history_event){.what = H_ENDED});
    if (a->claim.state == CLAIM_OVER && was->state != CLAIM_OVER)
        tell(a, (struct history_event){.what = H_OVER});
}

/* ---- Claims ---- */

static void apply(struct attempt *a, struct claim_event event);

static void wish_at(struct attempt *a, nanos at)
{
    schedule(
        (struct occurrence){.at = at,
                            .what = WISH,
                            .who = a->client * SLOTS + (unsigned)(a - w.client[a->client].attempt),
                            .serial = ++a->wish});
}

static void arm_timer(struct attempt *a, nanos wake_at)
{
    a->timer++;
    if (wake_at == TIME_NEVER)
        return;
    schedule(
        (struct occurrence){.at = real_time(&w.client[a->client], wake_at),
                            .what = TIMER,
                            .who = a->client * SLOTS + (unsigned)(a - w.client[a->client].attempt),
                            .serial = a->timer});
}

/* ---- Upgrade and downgrade ---- */

/* Its user relies on less before it asks for less. */
static void convert(struct attempt *a)
{
    a->wants = a->op.kind == HF_READ ? OP_UPGRADE : OP_DOWNGRADE;
    if (a->wants == OP_DOWNGRADE)
        tell(a, (struct history_event){.what = H_RELIES, .units = 1});
    apply(a, (struct claim_event){.in = INPUT_CONVERT, .verb = a->wants});
}

static void hear_conversion(struct attempt *a, hf_status status)
{
    enum op_verb wanted = a->wants;
    bool is_fresh = wanted == OP_UPGRADE && !a->upgrade_doubt;
    a->wants = OP_NONE;
    a->upgrade_doubt |= status != HF_OK && status != HF_BUSY;
    if (wanted == OP_NONE || status != HF_OK)
        return;
    a->op.kind = wanted == OP_UPGRADE ? HF_WRITE : HF_READ;
    upgrades += wanted == OP_UPGRADE;
    downgrades += wanted == OP_DOWNGRADE;
    tell(a, (struct history_event){.what = H_CONVERTED,
                                   .units = wanted == OP_UPGRADE ? QUEUE_ALL : 1,
                                   .token = a->claim.token,
                                   .flags = is_fresh ? H_FRESH : 0});
}

static void hear_report(struct attempt *a, const struct claim_move *move)
{
    if (move->report == REPORT_EXTENDED)
        hear_conversion(a, move->status);
    if (move->report == REPORT_GRANTED) {
        sum.grants++;
        wish_at(a, w.now + NANOS_OF_MS(draw(draw(3) ? 300 : 6000)));
    }
    a->is_answered |= move->report == REPORT_GRANTED || move->report == REPORT_DENIED;
    sum.denied += move->report == REPORT_DENIED;
    sum.lost += move->report == REPORT_LOST;
    sum.waits += move->report == REPORT_QUEUED;
}

static void end_round(struct attempt *a)
{
    struct client *c = &w.client[a->client];
    WORLD_ENGINE.forget(c->engine, &a->op);
    a->alive = false;
    a->timer++;
    wish_at(a, w.now + NANOS_OF_MS(draw(200)));
}

/* One event for a claim, as in claim_driver_step(). */
static void apply(struct attempt *a, struct claim_event event)
{
    struct client *c = &w.client[a->client];
    event.now = local_time(c);
    event.random = draw(UINT32_MAX);
    struct claim was = a->claim;
    struct claim_move move = claim_step(&a->claim, &event);
    if (move.status == HF_INTERNAL && move.report == REPORT_NONE)
        flaw("a%u: %s in %s cannot be", a->id, claim_input_name(event.in),
             claim_state_name(was.state));
    tell_step(a, &was, &event, &move);
    hear_report(a, &move);
    arm_timer(a, move.wake_at);
    if (a->claim.state == CLAIM_OVER) {
        end_round(a);
        return;
    }
    if (move.verb == OP_NONE)
        return;
    a->op.verb = move.verb;
    a->op.may_be_in_flight = move.may_be_in_flight;
    a->op.is_renewal = move.is_renewal;
    if (move.verb == OP_EXTEND)
        a->op.ttl_ms = move.ttl / NANOS_OF_MS(1);
    WORLD_ENGINE.submit(c->engine, &a->op, event.now);
}

static void write_to_store(const struct attempt *a)
{
    bool admitted = a->claim.token >= w.stored;
    if (w.kind != HF_EXCLUSIVE)
        return;
    if (admitted)
        w.stored = a->claim.token;
    tell(a, (struct history_event){
                .what = H_WROTE, .token = a->claim.token, .flags = admitted ? H_ADMITTED : 0});
}

static void describe_op(struct attempt *a)
{
    static const struct timing_overrides none;
    bool waits = draw(5) > 0;
    a->op = (struct engine_op){.name = "job",
                               .name_len = 3,
                               .label = "",
                               .kind = w.kind,
                               .units = 1,
                               .capacity = 1,
                               .queue = waits,
                               .waits = waits,
                               .in_background = true,
                               .ttl_ms = 1000 + draw(WORLD_TTL_MAX_MS - 999)};
    if (w.kind == HF_SEMAPHORE) {
        a->op.capacity = PERMITS;
        a->op.units = 1 + draw(2);
    } else if (w.kind == HF_READ) { /* as api_checks.c says it */
        a->op.kind = draw(2) ? HF_WRITE : HF_READ;
        a->op.capacity = QUEUE_ALL;
        a->op.units = a->op.kind == HF_WRITE ? QUEUE_ALL : 1;
    }
    client_wishes(&a->op);
    for (int i = 0; i < 16; i++)
        a->op.attempt.b[i] = (uint8_t)draw(256);
    a->op.owner = a->op.attempt;
    timing_sheet_fill(&a->sheet, a->op.ttl_ms, &limits, &none);
    nanos local = local_time(&w.client[a->client]);
    struct claim_terms terms = {.auto_renew = draw(4) > 0,
                                .deadline = waits ? local + NANOS_OF_MS(200 + draw(12000)) : local};
    claim_init(&a->claim, &terms, &a->sheet);
}

static void ask(struct attempt *a)
{
    struct client *c = &w.client[a->client];
    if (w.peace || c->rounds >= ROUNDS * SLOTS)
        return;
    c->rounds++;
    describe_op(a);
    a->alive = true;
    a->is_answered = a->upgrade_doubt = false;
    a->wants = OP_NONE;
    tell_ask(a);
    apply(a, (struct claim_event){.in = INPUT_START});
}

static void wish(struct attempt *a)
{
    bool may_convert = w.kind == HF_READ && limits.offers & ENGINE_CAN_CONVERT;
    if (!a->alive) {
        ask(a);
    } else if (is_held(a) && may_convert && a->wants == OP_NONE && draw(2)) {
        wish_at(a, w.now + NANOS_OF_MS(draw(600)));
        convert(a);
    } else if (is_held(a)) {
        write_to_store(a);
        apply(a, (struct claim_event){.in = INPUT_RELEASE});
    }
}

/* Somebody else changes the capacity of the semaphore. */
static void resize(struct client *c)
{
    if (c->resizes || c->stands_until > w.now)
        return;
    c->admin = (struct admin_op){.op = {.verb = OP_ADMIN,
                                        .name = "job",
                                        .name_len = 3,
                                        .in_background = true,
                                        .capacity = 1 + draw(PERMITS + 1)},
                                 .verb = ADMIN_RESIZE};
    c->resizes = true;
    WORLD_ENGINE.submit(c->engine, &c->admin.op, local_time(c));
}

/* ---- The engine's host ---- */

static struct attempt *attempt_of(struct client *c, const struct engine_op *op)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (&c->attempt[i].op == op)
            return &c->attempt[i];
    abort();
}

static void on_reply(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    struct client *c = ctx;
    if (op == &c->admin.op) {
        c->resizes = false;
        return;
    }
    if (c->tolds == REPLIES)
        abort();
    c->told[c->tolds].op = op;
    c->told[c->tolds].reply = *reply;
    struct engine_reply *told = &c->told[c->tolds++].reply;
    told->text = NULL;
    spoil_reply(c, op, told);
}

static void ignore_row(void *ctx, struct engine_op *op, const struct hf_row *row)
{
    (void)ctx, (void)op, (void)row;
}

static void note_recheck(void *ctx)
{
    struct client *c = ctx;
    c->recheck = true;
}

static uint32_t draw_for_engine(void *ctx)
{
    (void)ctx;
    return draw(UINT32_MAX);
}

static void recheck_all(struct client *c)
{
    struct engine_reply notify = {.kind = REPLY_NOTIFY, .retry_at = TIME_NEVER};
    c->recheck = false;
    for (unsigned i = 0; i < SLOTS; i++)
        if (c->attempt[i].alive && is_held(&c->attempt[i]))
            apply(&c->attempt[i], (struct claim_event){.in = INPUT_NOTIFY, .reply = &notify});
}

/* A tick that is planned for the same time stays: most calls of an engine change nothing about it.
 */
static void plan_tick(struct client *c)
{
    nanos next = WORLD_ENGINE.tick(c->engine, local_time(c));
    bool is_planned = next == c->tick_wanted && c->tick_at > w.now && c->tick == c->tick_planned;
    if (is_planned)
        return;

    c->tick++;
    c->tick_wanted = next;
    c->tick_at = TIME_NEVER;
    c->tick_planned = c->tick;
    if (next == TIME_NEVER)
        return;

    nanos at = real_time(c, next), soonest = w.now + 100000;
    c->tick_at = at > soonest ? at : soonest;
    schedule((struct occurrence){
        .at = c->tick_at, .what = TICK, .who = (unsigned)(c - w.client), .serial = c->tick});
}

/* After every call of the engine, and every event of a claim: what follows from it. */
static void settle(struct client *c)
{
    do {
        spoil_engine(c);
        for (unsigned i = 0; i < c->tolds; i++) {
            struct attempt *a = attempt_of(c, c->told[i].op);
            struct engine_reply reply = c->told[i].reply;
            if (a->alive)
                apply(a, (struct claim_event){.in = claim_input_of_reply(reply.kind),
                                              .reply = &reply});
        }
        c->tolds = 0;
        if (c->recheck)
            recheck_all(c);
        plan_tick(c);
    } while ((c->tolds || c->recheck) && !w.flaw[0]);
}
