/* etcd_events.h - faults, and what happens to whom. */
#pragma once
#include "etcd_clients.h"

static void open_client(unsigned i)
{
    static struct settings settings;
    struct url url;
    struct client *c = &w.client[i];
    char text[128];
    snprintf(text, sizeof text, "etcd://a,b,c/s%s", w.delays ? "?lock_delay=4s" : "");
    settings_defaults(&settings, engine_settings());
    if (url_parse(&url, text) != HF_OK || settings_from_query(&settings, url.query) != HF_OK)
        abort();
    c->host = (struct wire_engine_host){.ctx = c,
                                        .dial = dial,
                                        .send = send_nothing,
                                        .hang_up = hang_up,
                                        .on_reply = on_reply,
                                        .row = ignore_row,
                                        .recheck = note_recheck,
                                        .random = draw_for_engine};
    for (unsigned line = 0; line < CONNECTIONS; line++)
        c->link[line] = -1;
    if (etcd_wire_engine.open(&c->engine, &url, &settings, &c->host) != HF_OK)
        abort();
}

/* It is gone in the middle of everything, and starts again. */
static void kill_client(unsigned i)
{
    struct client *c = &w.client[i];
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
    etcd_wire_engine.close(c->engine);
    c->tolds = 0;
    c->recheck = false;
    c->tick++;
    open_client(i);
    sum.deaths++;
    w.has_died = true;
}

/* The attempts on that lease do not count any more: a grant may be on its way to one of them. */
static void tell_broken(int64_t lease)
{
    for (unsigned i = 0; i < CLIENTS * SLOTS; i++) {
        struct attempt *a = &w.client[i / SLOTS].attempt[i % SLOTS];
        const struct etcd_entry *entry = a->alive ? a->op.engine_state : NULL;
        const struct pair *pair = NULL;
        for (unsigned k = 0; entry && k < store.pairs; k++)
            if (memmem(store.pair[k].key, store.pair[k].key_len, entry->id, ETCD_ID_TEXT))
                pair = &store.pair[k];
        if (pair && pair->lease == lease)
            tell(a,
                 (struct history_event){.what = H_BROKEN, .owner = a->id, .token = a->claim.token});
    }
}

/* The cluster ends a lease that was renewed. With lock_delay that excuses nothing. */
static void revoke_wrongly(void)
{
    if (!store.leases)
        return;
    struct lease *lease = &store.lease[draw(store.leases)];
    bool is_orphan = w.delays && lease->seconds == LOCK_DELAY_MS / 1000;
    if (is_orphan)
        return; /* a second fault within the delay of the first */
    if (!w.delays)
        tell_broken(lease->id);
    sum.revokes++;
    end_lease(lease);
}

static void cut(unsigned client)
{
    int number = w.client[client].link[draw(CONNECTIONS)];
    if (number < 0)
        return;
    sum.cuts++;
    schedule((struct occurrence){.at = w.now, .what = LINK_DOWN, .who = (unsigned)number});
}

/* A member goes on following a leader that was replaced. */
static void lag_member(unsigned client)
{
    nanos until = w.now + NANOS_OF_MS(200 + draw(3000));
    for (unsigned line = 0; line < CONNECTIONS; line++) {
        int number = w.client[client].link[line];
        if (number < 0)
            continue;
        w.link[number].stale_until = until;
        w.link[number].term = store.term;
    }
    elect();
    sum.elections++;
}

static void hurt(void)
{
    unsigned client = draw(CLIENTS);
    switch (draw(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        cut(client);
        break;
    case 4:
    case 5:
    case 6:
        w.client[client].stands_until = w.now + NANOS_OF_MS(draw(draw(3) ? 400 : 4000));
        break;
    case 7:
        elect();
        sum.elections++;
        break;
    case 8:
    case 9:
        lag_member(client);
        break;
    case 10:
        revoke_wrongly();
        break;
    default:
        kill_client(client);
    }
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
    struct link *l = &w.link[o->who];
    struct client *c = &w.client[l->client];
    if (!l->is_open)
        return;
    if (o->what == LINK_UP) {
        etcd_wire_engine.connection_up(c->engine, l->line, local_time(c));
    } else if (o->what == TO_CLIENT) {
        etcd_wire_engine.connection_bytes(c->engine, l->line, o->bytes, o->len, local_time(c));
    } else {
        close_link(o->who);
        etcd_wire_engine.connection_down(c->engine, l->line, HF_UNAVAILABLE, "closed",
                                         local_time(c));
    }
    settle(c);
}

static void happen_to_server(const struct occurrence *o)
{
    struct frame frame;
    memcpy(&frame, o->bytes, sizeof frame);
    sum.late += !w.link[o->who].is_open;
    serve(o->who, frame.stream, frame.text,
          pb_read(o->bytes + sizeof frame, o->len - sizeof frame));
}

/* A member that follows an old leader answers nothing but keepalives. */
static nanos held_up_until(const struct occurrence *o)
{
    const struct link *l = &w.link[o->who];
    struct frame frame;
    if (o->what != TO_SERVER)
        return 0;
    memcpy(&frame, o->bytes, sizeof frame);
    return strstr(frame.text, "KeepAlive") ? 0 : l->stale_until;
}

static bool is_postponed(struct occurrence o)
{
    bool of_link = o.what == LINK_UP || o.what == LINK_DOWN || o.what == TO_CLIENT;
    bool of_client = o.what == TICK, of_attempt = o.what == TIMER || o.what == WISH;
    nanos until = held_up_until(&o);
    if (of_link)
        until = w.client[w.link[o.who].client].stands_until;
    else if (of_client)
        until = w.client[o.who].stands_until;
    else if (of_attempt)
        until = w.client[o.who / SLOTS].stands_until;
    if (until <= w.now)
        return false;
    o.at = until + (of_client || of_attempt); /* it reads before it looks at the clock */
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
        happen_to_server(&o);
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
    case EXPIRY:
        expire_leases();
        schedule((struct occurrence){.at = w.now + NANOS_OF_MS(300), .what = EXPIRY});
        break;
    default:
        happen_to_link(&o);
    }
    free(o.bytes);
}
