/* wire_links.h - connections: dialled, cut, and closed. Bytes of one direction arrive in order. */
#pragma once
#include "wire_world.h"

static void dial(void *ctx, unsigned line, const struct endpoint *to)
{
    struct client *c = ctx;
    if (w.links == LINKS || line >= WORLD_CONNECTIONS)
        abort();
    unsigned number = w.links++;
    links[number] = (struct link){
        .client = (unsigned)(c - w.client), .line = line, .host = to->host[0], .is_open = true};
    c->link[line] = (int)number;
    bool is_refused = !w.calm && !w.peace && draw(20) == 0;
    schedule((struct occurrence){
        .at = w.now + dial_takes(line), .what = is_refused ? LINK_DOWN : LINK_UP, .who = number});
}

static void close_link(unsigned number)
{
    struct link *l = &links[number];
    l->is_open = false;
    w.client[l->client].link[l->line] = -1;
    servers_link_closed(number);
}

static void hang_up(void *ctx, unsigned line)
{
    struct client *c = ctx;
    if (c->link[line] >= 0)
        close_link((unsigned)c->link[line]);
}

/* Cuts one of the connections of a client. */
static void cut(unsigned client)
{
    int number = -1;
    unsigned open = 0;
    for (unsigned line = 0; line < WORLD_CONNECTIONS; line++) {
        int one = w.client[client].link[line];
        if (one >= 0 && draw(++open) == 0)
            number = one;
    }
    if (number < 0)
        return;
    sum.cuts++;
    note("client %u: connection %u is cut", client, links[number].line);
    schedule((struct occurrence){.at = w.now, .what = LINK_DOWN, .who = (unsigned)number});
}

/* Puts bytes into a stream: they arrive after those that were sent before. */
static inline void send_in_order(struct stream *stream, struct occurrence o, const void *bytes,
                                 size_t len)
{
    o.at = w.now + delay();
    keep_order(stream, &o);
    o.bytes = malloc(len + 1);
    if (!o.bytes)
        abort();
    memcpy(o.bytes, bytes, len);
    o.len = len;
    schedule(o);
}

/* The host's function: bytes of an engine. */
static inline bool send_bytes(void *ctx, unsigned line, const void *bytes, size_t len)
{
    struct client *c = ctx;
    int number = c->link[line];
    if (number < 0)
        abort();
    send_in_order(&links[number].to_server,
                  (struct occurrence){.what = TO_SERVER, .who = (unsigned)number}, bytes, len);
    return true;
}

/* Bytes of a server. */
static inline void answer(unsigned number, const void *bytes, size_t len)
{
    struct link *l = &links[number];
    if (l->is_open)
        send_in_order(&l->to_client, (struct occurrence){.what = TO_CLIENT, .who = number}, bytes,
                      len);
}
