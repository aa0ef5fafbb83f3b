/* clients.h - the clients: what each wants of the engine, and what it believes. */
#pragma once
#include "telling.h"

static void tell(void *ctx, struct hf_ask *ask, const struct hf_news *news)
{
    struct client *c = ctx;
    if (ask != &c->ask || c->count == 64)
        abort();
    c->news[c->count++] = *news;
}

static void ignore_row(void *ctx, struct hf_ask *ask, const struct hf_row *row)
{
    (void)ctx, (void)ask, (void)row;
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

static void wish_at(struct client *c, hf_nanos at)
{
    c->wishes++;
    schedule((struct occurrence){
        .at = at > w.now ? at : w.now, .what = WISH, .who = (unsigned)(c - w.client), .len = c->wishes});
}

static void submit(struct client *c, enum hf_verb verb, enum state state)
{
    c->state = state;
    c->ask.verb = verb;
    hf_wire_redlock.submit(c->engine, &c->ask, local_time(c));
}

static void ask(struct client *c)
{
    if (c->state == IDLE) {
        c->rounds++;
        c->ask = (struct hf_ask){.name = "job",
                                 .name_len = 3,
                                 .label = "",
                                 .kind = HF_EXCLUSIVE,
                                 .units = 1,
                                 .capacity = 1,
                                 .waits = true,
                                 .ttl_ms = 200 + draw(draw(2) && c->max_ttl_ms > 1000 ? 800 : c->max_ttl_ms - 199)};
        for (int i = 0; i < 16; i++)
            c->ask.attempt.b[i] = (uint8_t)draw(256);
        c->ask.owner = c->ask.attempt;
        tell_ask(c);
    }
    submit(c, HF_V_ACQUIRE, ASKING);
    wish_at(c, w.now + HF_MS(c->ask.ttl_ms / 2)); /* to look whether an answer came at all */
}

static void end_round(struct client *c)
{
    tell_over(c);
    hf_wire_redlock.forget(c->engine, &c->ask);
    c->count = 0;
    c->state = c->rounds < ROUNDS && !w.peace ? IDLE : DONE;
    if (c->state == IDLE)
        wish_at(c, w.now + HF_MS(draw(60)));
}

static void release(struct client *c)
{
    tell_end(c);
    submit(c, HF_V_RELEASE, RELEASING);
    wish_at(c, w.now + HF_MS(3000));
}

static void extend(struct client *c)
{
    submit(c, HF_V_EXTEND, EXTENDING);
    wish_at(c, w.now + HF_MS(600));
}

static void hear_granted(struct client *c, const struct hf_news *news)
{
    c->valid_until = news->asked_at + news->good - hf_timing_drift(&limits, news->good);
    c->token = news->token;
    if (c->valid_until <= local_time(c)) {
        flaw("a lease without time left was told");
        return;
    }
    c->state = HOLDING;
    w.grants++;
    tell_grant(c, news->asked_at);
    c->release_at = local_time(c) + HF_MS(draw(draw(4) ? 600 : 4000));
    wish_at(c, w.now + HF_MS(draw((uint32_t)c->ask.ttl_ms)));
}

static void hear(struct client *c, const struct hf_news *news)
{
    if (news->cue == HF_N_HINT) {
        if (c->state == PAUSED)
            ask(c);
        return;
    }
    if (c->state == ASKING) {
        w.busy += news->cue == HF_N_BUSY;
        w.failed += news->cue == HF_N_FAILED && news->status == HF_NO_QUORUM;
        w.expiries += news->cue == HF_N_FAILED && news->status == HF_TIMEOUT;
        if (news->cue == HF_N_GRANTED) {
            hear_granted(c, news);
        } else {
            c->state = PAUSED;
            wish_at(c, w.now + HF_MS(5 + draw(400)));
        }
    } else if (c->state == EXTENDING) {
        hf_nanos until = news->asked_at + news->good - hf_timing_drift(&limits, news->good);
        bool still = local_time(c) < c->valid_until;
        if (news->cue == HF_N_EXTENDED && still) {
            c->valid_until = until > c->valid_until ? until : c->valid_until;
            tell_belief(c, news->asked_at);
            if (news->token != c->token)
                flaw("a renewal changed token %llu to %llu", (unsigned long long)c->token,
                     (unsigned long long)news->token);
        }
        c->state = HOLDING;
        if (news->cue == HF_N_GONE || !still)
            release(c);
        else
            wish_at(c, w.now + HF_MS(draw((uint32_t)c->ask.ttl_ms / 2)));
    } else if (c->state == RELEASING) {
        end_round(c);
    }
}

static void tick_at(struct client *c, hf_nanos at)
{
    if (c->ticks_at && at >= c->ticks_at)
        return;
    c->ticks_at = at;
    schedule((struct occurrence){.at = at, .what = TICK, .who = (unsigned)(c - w.client), .len = ++c->ticks});
}

/* After every call of the engine. The tick comes behind whatever else is due now: a client that stood still reads all
 * of its connections first. */
static void settle(struct client *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        struct hf_news news = c->news[i];
        hear(c, &news);
        if (c->state == IDLE || c->state == DONE)
            break;
    }
    c->count = 0;
    tick_at(c, w.now);
}

static void tick(struct client *c)
{
    c->ticks_at = 0;
    hf_nanos next = hf_wire_redlock.tick(c->engine, local_time(c));
    if (c->count)
        settle(c);
    else if (next != HF_NEVER) {
        hf_nanos in = next - local_time(c);
        tick_at(c, w.now + (in > HF_MS(1) / 10 ? in : HF_MS(1) / 10));
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
            ask(c);
        break;
    case ASKING: /* a waiter whose deadline has come leaves */
        tell_end(c);
        submit(c, HF_V_LEAVE, RELEASING);
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
