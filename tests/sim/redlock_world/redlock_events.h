/* redlock_events.h - faults, and what happens to whom. */
#pragma once
#include "redlock_clients.h"

static void restart_empty(unsigned i)
{
    struct server *s = &w.server[i];
    set_clock(s);
    model_restart(s->model, false);
    s->hangs_until = 0;
    for (unsigned j = 0; j < w.links; j++)
        if (w.link[j].server == i && w.link[j].server_open) {
            w.link[j].server_open = false;
            if (w.link[j].client_open)
                schedule((struct occurrence){.at = w.now + delay(), .what = LINK_DOWN, .who = j});
        }
    if (s->lies)
        s->jumped_us += INT64_C(3600000000);
}

/* A client's clock jumps ahead, as sim/redis_world/client_clocks.h says; one that slept stood
 * still, and finds it ahead. */
static void perhaps_jump(void)
{
    struct client *c = &w.client[draw_from(&w.clock_seed, CLIENTS)];
    if (draw_from(&w.clock_seed, 20))
        return;
    c->ahead += NANOS_OF_MS(draw_from(&w.clock_seed, 3000));
    if (is_held(c))
        tell_belief(c, 0);
    tick_at(c, w.now);
    w.jumps++;
}

/* A minority hangs or is slow, for up to 50 s, which is shorter than releases are tried. Then all
 * are well for as long as it takes to connect again: who is not connected to a server is as far
 * from a majority as if that one hung. */
static void trouble_servers(void)
{
    w.ill = !w.ill;
    nanos until = w.now + NANOS_OF_MS(w.ill ? 2000 + draw(48000) : 5000);
    unsigned ill = w.ill ? draw(SERVERS / 2 + 1) : 0, first = draw(SERVERS);
    for (unsigned i = 0; i < SERVERS; i++) {
        struct server *s = &w.server[(first + i) % SERVERS];
        bool is_ill = i < ill, hangs = draw(2);
        s->slow = is_ill && !hangs ? NANOS_OF_MS(20 + draw(400)) : 0;
        s->hangs_until = is_ill && hangs ? until : 0;
    }
    schedule((struct occurrence){.at = until + 1, .what = FAULT});
}

static void hurt(void)
{
    unsigned server = draw(SERVERS), client = draw(CLIENTS);
    switch (draw(w.data_is_lost ? 10 : 9)) {
    case 0:
    case 1:
        w.server[server].hangs_until = w.now + NANOS_OF_MS(draw(1500));
        break;
    case 2:
    case 3:
    case 4:
        w.client[client].stands_until = w.now + NANOS_OF_MS(draw(draw(3) ? 300 : 3000));
        break;
    case 5:
    case 6:
    case 7:
    case 8: { /* a connection is cut, and what was sent comes late */
        int number = w.client[client].link[draw(LINES_EACH)];
        if (number >= 0) {
            w.link[number].last_up += NANOS_OF_MS(draw(3000));
            schedule((struct occurrence){.at = w.now, .what = LINK_DOWN, .who = (unsigned)number});
        }
        break;
    }
    default: /* one, or several that had the same power */
        for (unsigned i = draw(2) ? 1 : 1 + draw(3); i; i--)
            restart_empty((server + i) % SERVERS);
    }
    perhaps_jump();
    if (!w.peace)
        schedule((struct occurrence){.at = w.now + NANOS_OF_MS(draw(1000)), .what = FAULT});
}

/* ---- What happens ---- */

static void happen_to_link(const struct occurrence *o)
{
    struct link *l = &w.link[o->who];
    struct client *c = &w.client[l->client];
    if (!l->client_open)
        return;
    if (o->what == LINK_UP) {
        l->connection = model_connect(w.server[l->server].model);
        l->server_open = true;
        redlock_wire_engine.connection_up(c->engine, l->line, local_time(c));
    } else if (o->what == TO_CLIENT) {
        c->unheard[l->server] = false;
        redlock_wire_engine.connection_bytes(c->engine, l->line, o->bytes, o->len, local_time(c));
    } else {
        unsigned line = l->line;
        close_for_client(o->who);
        redlock_wire_engine.connection_down(c->engine, line, HF_UNAVAILABLE, "closed",
                                            local_time(c));
    }
    settle(c);
}

static void happen_to_server(const struct occurrence *o)
{
    struct link *l = &w.link[o->who];
    struct server *s = &w.server[l->server];
    if (!l->server_open)
        return;
    set_clock(s);
    if (o->what == TO_SERVER) {
        model_feed(s->model, l->connection, o->bytes, o->len);
    } else {
        model_disconnect(s->model, l->connection);
        l->server_open = false;
    }
    flush_server(l->server);
}

static bool is_postponed(struct occurrence o)
{
    bool to_server = o.what == TO_SERVER || o.what == SERVER_CLOSES || o.what == LINK_UP;
    bool to_client = o.what == TO_CLIENT || o.what == LINK_DOWN || o.what == TICK ||
                     o.what == WISH || o.what == LINK_UP;
    bool of_link = o.what != TICK && o.what != WISH && o.what != FAULT;
    nanos until = 0;
    if (to_server)
        until = w.server[w.link[o.who].server].hangs_until;
    if (to_client) {
        nanos stands = w.client[of_link ? w.link[o.who].client : o.who].stands_until;
        until = stands > until ? stands : until;
    }
    if (until <= w.now)
        return false;
    o.at = until + (o.what == TICK || o.what == WISH); /* it reads before it looks at the clock */
    schedule(o);
    return true;
}

static void happen(void)
{
    struct occurrence o = calendar_take(w.heap, &w.count);
    if (o.at < w.now)
        abort();
    w.now = o.at;
    judge_availability(); /* of the time that has passed */
    if (is_postponed(o))
        return;
    switch (o.what) {
    case TO_SERVER:
    case SERVER_CLOSES:
        happen_to_server(&o);
        break;
    case TICK:
        if (o.len == w.client[o.who].ticks)
            tick(&w.client[o.who]);
        break;
    case WISH:
        if (o.len == w.client[o.who].overrides) {
            wish(&w.client[o.who]);
            settle(&w.client[o.who]);
        }
        break;
    case FAULT:
        if (!w.peace)
            (w.calm ? trouble_servers : hurt)();
        break;
    default:
        happen_to_link(&o);
    }
    free(o.bytes);
}
