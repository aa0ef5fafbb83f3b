/* redlock_clients.h - the clients: what each wants of the engine, and what it believes. */
#pragma once
#include "redlock_history.h"

static void on_reply(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    struct client *c = ctx;
    if (op != &c->op || c->count == 64)
        abort();
    c->reply[c->count++] = *reply;
}

static void ignore_row(void *ctx, struct engine_op *op, const struct hf_row *row)
{
    (void)ctx, (void)op, (void)row;
}

static void ignore_recheck(void *ctx)
{
    (void)ctx;
}

static uint32_t draw_for_engine(void *ctx)
{
    (void)ctx;
    return draw(UINT32_MAX);
}

static void wish_at(struct client *c, nanos at)
{
    c->overrides++;
    schedule((struct occurrence){.at = at > w.now ? at : w.now,
                                 .what = WISH,
                                 .who = (unsigned)(c - w.client),
                                 .len = c->overrides});
}

static void submit(struct client *c, enum op_verb verb, enum state state)
{
    c->state = state;
    c->op.verb = verb;
    redlock_wire_engine.submit(c->engine, &c->op, local_time(c));
}

static void request_lock(struct client *c)
{
    if (c->state == IDLE) {
        c->rounds++;
        c->op = (struct engine_op){
            .name = "job",
            .name_len = 3,
            .label = "",
            .kind = HF_EXCLUSIVE,
            .units = 1,
            .capacity = 1,
            .waits = true,
            .barging = !w.calm && draw(2),
            .ttl_ms = 200 + draw(draw(2) && c->max_ttl_ms > 1000 ? 800 : c->max_ttl_ms - 199)};
        for (int i = 0; i < 16; i++)
            c->op.attempt.b[i] = (uint8_t)draw(256);
        c->op.owner = c->op.attempt;
        tell_ask(c);
        c->waits_since = w.now;
    }
    submit(c, OP_ACQUIRE, ASKING);
    wish_at(c, w.now + NANOS_OF_MS(c->op.ttl_ms / 2)); /* to look whether an answer came at all */
}

static void end_round(struct client *c)
{
    tell_over(c);
    redlock_wire_engine.forget(c->engine, &c->op);
    c->count = 0;
    c->state = (w.calm || c->rounds < ROUNDS) && !w.peace ? IDLE : DONE;
    if (c->state == IDLE)
        wish_at(c, w.now + NANOS_OF_MS(draw(60)));
}

static void release(struct client *c)
{
    tell_end(c);
    submit(c, OP_RELEASE, RELEASING);
    wish_at(c, w.now + NANOS_OF_MS(3000));
}

static void extend(struct client *c)
{
    submit(c, OP_EXTEND, EXTENDING);
    wish_at(c, w.now + NANOS_OF_MS(600));
}

static bool is_waiting(const struct client *c)
{
    return c->state == ASKING || c->state == PAUSED;
}

/* Calm: nobody stands still, so one that a majority knew of comes first. */
static void judge_order(const struct client *c)
{
    enum {
        KNOWN_AFTER_MS = 1000
    }; /* by then its second try has told its ticket to all servers that answer */
    for (unsigned i = 0; w.calm && i < CLIENTS; i++) {
        const struct client *other = &w.client[i];
        if (other != c && is_waiting(other) &&
            other->waits_since + NANOS_OF_MS(KNOWN_AFTER_MS) < c->waits_since)
            flaw("client %u waits since %lld ms, and client %u came %lld ms later and holds", i,
                 (long long)((w.now - other->waits_since) / NANOS_OF_MS(1)),
                 (unsigned)(c - w.client),
                 (long long)((c->waits_since - other->waits_since) / NANOS_OF_MS(1)));
    }
    w.waits += w.calm;
}

/* Calm: what nobody holds is granted to somebody who waits. */
static void judge_availability(void)
{
    enum { FREE_MOST_MS = 200 };
    bool held = false, waits = false;
    for (unsigned i = 0; i < CLIENTS; i++) {
        held |= is_held(&w.client[i]);
        waits |= is_waiting(&w.client[i]);
    }
    if (held || !waits || !w.calm || w.peace)
        w.free_since = w.now;
    else if (w.now - w.free_since > NANOS_OF_MS(FREE_MOST_MS))
        flaw("nobody holds it since %lld ms, and somebody waits",
             (long long)((w.now - w.free_since) / NANOS_OF_MS(1)));
}

/* Planted: the engine as it was when a round had its whole time whoever had answered. */
static void wait_for_all(const struct client *c)
{
    struct redlock *l = c->engine;
    for (unsigned i = 0; i < l->servers; i++)
        l->node[i].silent = false;
    for (struct quorum_try *b = l->tries; b; b = b->next)
        b->hurried = true;
}

static void hear_granted(struct client *c, const struct engine_reply *reply)
{
    c->valid_until = reply->asked_at + reply->good - timing_drift(&limits, reply->good);
    c->token = reply->token;
    if (c->valid_until <= local_time(c)) {
        flaw("a lease without time left was told");
        return;
    }
    c->state = HOLDING;
    w.grants++;
    judge_order(c);
    tell_grant(c, reply->asked_at);
    c->release_at = local_time(c) + NANOS_OF_MS(draw(draw(4) ? 600 : 4000));
    wish_at(c, w.now + NANOS_OF_MS(draw((uint32_t)c->op.ttl_ms)));
}

static void hear(struct client *c, const struct engine_reply *reply)
{
    if (reply->kind == REPLY_NOTIFY) {
        if (c->state == PAUSED)
            request_lock(c);
        return;
    }
    if (c->state == ASKING) {
        w.busy += reply->kind == REPLY_BUSY;
        bool reaches_few = reply->kind == REPLY_FAILED && reply->status == HF_NO_QUORUM;
        w.failed += reaches_few;
        if (reaches_few) /* it gives up its place */
            c->waits_since = w.now;
        w.expiries += reply->kind == REPLY_FAILED && reply->status == HF_TIMEOUT;
        if (reply->kind == REPLY_GRANTED) {
            hear_granted(c, reply);
        } else {
            c->state = PAUSED;
            wish_at(c, w.now + NANOS_OF_MS(5 + draw(400)));
        }
    } else if (c->state == EXTENDING) {
        nanos until = reply->asked_at + reply->good - timing_drift(&limits, reply->good);
        bool still = local_time(c) < c->valid_until;
        if (reply->kind == REPLY_EXTENDED && still) {
            c->valid_until = until > c->valid_until ? until : c->valid_until;
            tell_belief(c, reply->asked_at);
            if (reply->token != c->token)
                flaw("a renewal changed token %llu to %llu", (unsigned long long)c->token,
                     (unsigned long long)reply->token);
        }
        c->state = HOLDING;
        if (reply->kind == REPLY_NOT_HELD || !still)
            release(c);
        else
            wish_at(c, w.now + NANOS_OF_MS(draw((uint32_t)c->op.ttl_ms / 2)));
    } else if (c->state == RELEASING) {
        end_round(c);
    }
}

static void tick_at(struct client *c, nanos at)
{
    if (c->ticks_at && at >= c->ticks_at)
        return;
    c->ticks_at = at;
    schedule((struct occurrence){
        .at = at, .what = TICK, .who = (unsigned)(c - w.client), .len = ++c->ticks});
}

/* After every call of the engine. The tick comes behind whatever else is due now: a client that
 * stood still reads all of its connections first. */
static void settle(struct client *c)
{
    if (planted == PLANT_WAITS_FOR_ALL)
        wait_for_all(c);
    for (unsigned i = 0; i < c->count; i++) {
        struct engine_reply reply = c->reply[i];
        hear(c, &reply);
        if (c->state == IDLE || c->state == DONE)
            break;
    }
    c->count = 0;
    tick_at(c, w.now);
}

static void tick(struct client *c)
{
    c->ticks_at = 0;
    nanos next = redlock_wire_engine.tick(c->engine, local_time(c));
    if (planted == PLANT_WAITS_FOR_ALL)
        wait_for_all(c);
    if (c->count)
        settle(c);
    else if (next != TIME_NEVER) {
        nanos in = next - local_time(c);
        tick_at(c, w.now + (in > NANOS_OF_MS(1) / 10 ? in : NANOS_OF_MS(1) / 10));
    }
}

static void wish(struct client *c)
{
    switch (c->state) {
    case IDLE:
    case PAUSED:
        if (w.peace && c->state == PAUSED)
            release(c);
        else if (w.peace)
            c->state = DONE;
        else
            request_lock(c);
        break;
    case ASKING: /* a waiter whose deadline has come leaves */
        tell_end(c);
        submit(c, OP_LEAVE, RELEASING);
        break;
    case HOLDING:
        write_to_store(c);
        if (local_time(c) >= c->release_at || local_time(c) >= c->valid_until || w.peace)
            release(c);
        else
            extend(c);
        break;
    case EXTENDING:
        release(c);
        break;
    case RELEASING:
        end_round(c);
        break;
    case DONE:
        break;
    }
}
