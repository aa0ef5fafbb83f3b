/* wire_events.h - faults, and what happens to whom. */
#pragma once
#include "wire_clients.h"
#include "wire_links.h"

static void open_client(unsigned i)
{
    static struct settings settings;
    struct url url;
    struct client *c = &w.client[i];
    char text[128];
    client_url(text, sizeof text);
    settings_defaults(&settings, engine_settings());
    if (url_parse(&url, text) != HF_OK || settings_from_query(&settings, url.query) != HF_OK)
        abort();
    c->host = (struct wire_engine_host){.ctx = c,
                                        .dial = dial,
                                        .send = client_send,
                                        .hang_up = hang_up,
                                        .on_reply = on_reply,
                                        .row = ignore_row,
                                        .recheck = note_recheck,
                                        .random = draw_for_engine};
    for (unsigned line = 0; line < WORLD_CONNECTIONS; line++)
        c->link[line] = -1;
    c->life++;
    if (WORLD_ENGINE.open(&c->engine, &url, &settings, &c->host) != HF_OK)
        abort();
}

/* It is gone in the middle of everything, and starts again. */
static void kill_client(unsigned i)
{
    struct client *c = &w.client[i];
    note("client %u dies", i);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        struct attempt *a = &c->attempt[slot];
        if (a->alive && is_held(a))
            tell(a, (struct history_event){.what = H_ENDED});
        else if (a->alive && !a->is_answered)
            tell(a, (struct history_event){.what = H_REFUSED});
        if (a->alive)
            tell(a, (struct history_event){.what = H_OVER});
        a->alive = false;
        a->timer++;
        a->op.engine_state = NULL;
        wish_at(a, w.now + NANOS_OF_MS(100 + draw(2000)));
    }
    WORLD_ENGINE.close(c->engine);
    c->tolds = 0;
    c->recheck = c->resizes = false;
    c->tick++;
    open_client(i);
    sum.deaths++;
    w.has_died = true;
}

/* A packet is lost: what is sent behind it arrives with it. */
static void delay_requests(const struct client *c, nanos until)
{
    for (unsigned line = 0; line < WORLD_CONNECTIONS; line++) {
        if (c->link[line] < 0)
            continue;
        struct stream *stream = &links[c->link[line]].to_server;
        stream->at = until > stream->at ? until : stream->at;
    }
}

static void stop(struct client *c)
{
    nanos until = w.now + NANOS_OF_MS(draw(draw(3) ? 400 : 4000));
    c->stands_until = until > c->stands_until ? until : c->stands_until;
    if (draw(3) == 0) /* and its first requests afterwards are late */
        delay_requests(c, c->stands_until + NANOS_OF_MS(draw(300)));
    note("client %d stands still until %.3f", (int)(c - w.client),
         (double)(c->stands_until - FIRST_DAY) / 1e6);
}

static void hurt(void)
{
    unsigned client = draw(CLIENTS), fault = w.calm ? 0 : draw(13);
    bool may_resize = WORLD_RESIZES && w.kind == HF_SEMAPHORE;
    if (may_resize && draw(2)) {
        resize(&w.client[client]);
        settle(&w.client[client]);
    } else if (fault < 4)
        cut(client);
    else if (fault == 4)
        delay_requests(&w.client[client], w.now + NANOS_OF_MS(draw(400)));
    else if (fault < 8)
        stop(&w.client[client]);
    else if (fault < 12)
        servers_fail();
    else
        kill_client(client);
    schedule((struct occurrence){.at = w.now + NANOS_OF_MS(draw(900)), .what = FAULT});
}

/* ---- What happens ---- */

/* Calm: what nobody holds is granted to somebody who waits. */
static void judge_availability(void)
{
    enum { FREE_MOST_MS = 1500 };
    bool held = false, waits = false;
    for (unsigned i = 0; i < CLIENTS * SLOTS; i++) {
        const struct attempt *a = &w.client[i / SLOTS].attempt[i % SLOTS];
        held |= a->alive && (is_held(a) || a->claim.state == CLAIM_RELEASING);
        waits |= a->alive && a->claim.state == CLAIM_QUEUED;
    }
    if (held || !waits || !w.calm)
        w.free_since = w.now;
    else if (w.now - w.free_since > NANOS_OF_MS(FREE_MOST_MS))
        flaw("nobody holds it since %lld ms, and somebody waits",
             (long long)((w.now - w.free_since) / NANOS_OF_MS(1)));
}

static void happen_to_link(const struct occurrence *o)
{
    struct link *l = &links[o->who];
    struct client *c = &w.client[l->client];
    if (!l->is_open)
        return;
    if (o->what == LINK_UP && servers_link_up(o->who)) {
        WORLD_ENGINE.connection_up(c->engine, l->line, local_time(c));
    } else if (o->what == TO_CLIENT) {
        WORLD_ENGINE.connection_bytes(c->engine, l->line, o->bytes, o->len, local_time(c));
    } else {
        close_link(o->who);
        WORLD_ENGINE.connection_down(c->engine, l->line, HF_UNAVAILABLE, "closed", local_time(c));
    }
    settle(c);
}

static struct stream *stream_of(const struct occurrence *o)
{
    bool is_bytes = o->what == TO_SERVER || o->what == TO_CLIENT;
    if (!is_bytes || !o->serial)
        return NULL;
    return o->what == TO_SERVER ? &links[o->who].to_server : &links[o->who].to_client;
}

/* Puts off what happens to somebody who stands still, and bytes that overtook others. */
static bool is_postponed(struct occurrence o)
{
    bool of_link = o.what == LINK_UP || o.what == LINK_DOWN || o.what == TO_CLIENT;
    bool of_client = o.what == TICK, of_attempt = o.what == TIMER || o.what == WISH;
    struct stream *stream = stream_of(&o);
    bool is_early = stream && o.serial != stream->arrived + 1;
    nanos until = servers_hold_up(&o), stands = 0;
    if (of_link)
        stands = w.client[links[o.who].client].stands_until;
    else if (of_client)
        stands = w.client[o.who].stands_until;
    else if (of_attempt)
        stands = w.client[o.who / SLOTS].stands_until;
    until = until > stands ? until : stands;

    if (until <= w.now && !is_early) {
        if (stream)
            stream->arrived++;
        return false;
    }
    if (until > w.now)
        o.at = until + (of_client || of_attempt); /* it reads before it looks at the clock */
    else
        o.at = w.now + 1000;
    schedule(o);
    return true;
}

static void happen_to_attempt(const struct occurrence *o)
{
    struct attempt *a = &w.client[o->who / SLOTS].attempt[o->who % SLOTS];
    uint64_t current = o->what == TIMER ? a->timer : a->wish;
    if (o->serial != current)
        return;
    if (o->what == WISH)
        wish(a);
    else if (a->alive)
        apply(a, (struct claim_event){.in = INPUT_TIMER});
    settle(&w.client[a->client]);
}

static void happen(void)
{
    struct occurrence o = calendar_take(w.heap, &w.count);
    w.now = o.at;
    judge_availability(); /* of the time that has passed */
    if (is_postponed(o))
        return;
    switch (o.what) {
    case TO_SERVER:
        sum.late += !links[o.who].is_open;
        servers_receive(&o);
        break;
    case TICK:
        if (o.serial == w.client[o.who].tick)
            settle(&w.client[o.who]);
        break;
    case TIMER:
    case WISH:
        happen_to_attempt(&o);
        break;
    case FAULT:
        if (!w.peace)
            hurt();
        break;
    case SERVER:
        servers_happen(&o);
        break;
    default:
        happen_to_link(&o);
    }
    free(o.bytes);
}
