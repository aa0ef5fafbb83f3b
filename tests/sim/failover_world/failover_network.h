/* failover_network.h - which server a connection reaches, what servers and sentinels answer. */
#pragma once
#include "failover_world.h"

#include "sim/wire_world/wire_events.h"

/* ---- Clocks and doubts ---- */

static int64_t clock_us(const struct node *n)
{
    int64_t us = w.now / 1000;
    return START_US * INT64_C(1000000) + us + us / 1000000 * n->fast_ppm + n->wrong_us;
}

static void set_clock(struct node *n)
{
    model_time_set(n->model, clock_us(n));
}

static void tell_fault(enum history_fault fault, int64_t by)
{
    history_add(judge, &(struct history_event){.what = H_FAULT,
                                               .fault = (uint8_t)fault,
                                               .process = H_ALL,
                                               .at = w.now,
                                               .until = w.now,
                                               .by = by});
}

/* While an old primary goes on, a yes of it counts for nothing: two may hold, and it gives out
 * tokens by a clock that may be behind. With replicas=2 it says no. */
static void doubt(void)
{
    if (w.now > s.split_until || s.is_strong)
        return;
    tell_fault(H_STALE, 0);
    tell_fault(H_BACK, -1);
}

/* ---- Connections ---- */

static bool is_cut_off(unsigned client, const struct peer *peer)
{
    bool is_with = !peer->is_sentinel && peer->index == s.group_node;
    return client == s.group && w.now < s.group_until && !is_with;
}

static nanos dial_takes(unsigned line)
{
    (void)line;
    unsigned number = w.links - 1;
    char host = links[number].host;
    bool is_sentinel = host >= 'x';
    unsigned index = is_sentinel   ? (unsigned)(host - 'x')
                     : host == 'p' ? s.name
                                   : (unsigned)(host - 'a');
    peers[number] = (struct peer){.is_sentinel = is_sentinel, .index = index};
    return delay();
}

static struct knowledge *knowledge_of(unsigned client)
{
    struct knowledge *knows = &s.knows[client];
    if (knows->life != w.client[client].life)
        *knows = (struct knowledge){.life = w.client[client].life};
    return knows;
}

/* Who was told of a primary does not go back to an older one (G40). One that missed some failovers
 * may be at the newest primary by chance. */
static void judge_way(unsigned client, const struct node *n)
{
    if (s.by_name || !n->is_primary)
        return;
    uint64_t *known = &knowledge_of(client)->epoch;
    note("client %u comes to %c, of epoch %llu", client, 'a' + (int)(n - s.node),
         (unsigned long long)n->epoch);
    if (n->epoch < *known)
        flaw("client %u goes back to a primary of epoch %llu, and was at one of epoch %llu", client,
             (unsigned long long)n->epoch, (unsigned long long)*known);
    uint64_t believed = knowledge_of(client)->believed;
    uint64_t told = believed < n->epoch ? believed : n->epoch;
    *known = told > *known ? told : *known;
}

static bool servers_link_up(unsigned link)
{
    struct peer *peer = &peers[link];
    peer->is_open = true;
    if (peer->is_sentinel)
        return true;
    struct node *n = &s.node[peer->index];
    if (!n->is_up) {
        peer->is_open = false;
        return false;
    }
    set_clock(n);
    judge_way(links[link].client, n);
    peer->connection = model_connect(n->model);
    return true;
}

static void servers_link_closed(unsigned link)
{
    struct peer *peer = &peers[link];
    struct node *n = &s.node[peer->index];
    bool has_model = peer->is_open && !peer->is_sentinel && n->is_up;
    if (has_model && model_connected(n->model, peer->connection))
        model_disconnect(n->model, peer->connection);
    peer->is_open = false;
}

/* The node closes all its connections. */
static void close_links_of(unsigned node)
{
    for (unsigned i = 0; i < w.links; i++) {
        bool is_its = peers[i].is_open && !peers[i].is_sentinel && peers[i].index == node;
        if (!is_its)
            continue;
        peers[i].is_open = false;
        if (links[i].is_open)
            schedule((struct occurrence){.at = w.now + delay(), .what = LINK_DOWN, .who = i});
    }
}

static void flush_node(unsigned node)
{
    struct redis_model *model = s.node[node].model;
    for (int connection; (connection = model_ready(model)) >= 0;) {
        size_t len;
        const char *bytes = model_take(model, (unsigned)connection, &len);
        for (unsigned i = w.links; i-- > 0;) {
            const struct peer *peer = &peers[i];
            if (peer->is_open && !peer->is_sentinel && peer->index == node &&
                peer->connection == (unsigned)connection) {
                answer(i, bytes, len);
                break;
            }
        }
    }
}

/* ---- Sentinels ---- */

static void announce(const struct watcher *watcher, const char *channel, const char *message)
{
    char text[300];
    int len = snprintf(text, sizeof text, "*3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                       strlen(channel), channel, strlen(message), message);
    unsigned index = (unsigned)(watcher - s.watcher);
    note("sentinel %c announces %s %s", 'x' + (int)index, channel, message);
    for (unsigned i = 0; i < w.links; i++)
        if (peers[i].is_open && peers[i].is_subscribed && peers[i].index == index)
            answer(i, text, (size_t)len);
}

/* The one that leads a failover names the old primary with the new epoch. */
static void answer_master(unsigned link, const struct watcher *watcher)
{
    char text[300], epoch[24];
    const char *flags = watcher->leads ? "master,failover_in_progress" : "master";
    uint64_t shown = watcher->epoch + watcher->leads;
    snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)shown);
    int len = snprintf(text, sizeof text,
                       "*8\r\n$2\r\nip\r\n$1\r\n%c\r\n$4\r\nport\r\n$4\r\n6379\r\n$5\r\nflags\r\n"
                       "$%zu\r\n%s\r\n$12\r\nconfig-epoch\r\n$%zu\r\n%s\r\n",
                       'a' + (int)watcher->primary, strlen(flags), flags, strlen(epoch), epoch);
    note("sentinel %c names %c to client %u, epoch %llu%s", 'x' + (int)(watcher - s.watcher),
         'a' + (int)watcher->primary, links[link].client, (unsigned long long)shown,
         watcher->leads ? ", a failover goes on" : "");
    answer(link, text, (size_t)len);
}

static void serve_sentinel(unsigned link, const char *bytes, size_t len)
{
    static const char pong[] = "*2\r\n$4\r\npong\r\n$0\r\n\r\n";
    static const char subscribed[] = "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n";
    const struct watcher *watcher = &s.watcher[peers[link].index];
    if (memmem(bytes, len, "MASTER", 6))
        answer_master(link, watcher);
    if (memmem(bytes, len, "PING", 4))
        answer(link, pong, sizeof pong - 1);
    if (!memmem(bytes, len, "SUBSCRIBE", 9))
        return;
    peers[link].is_subscribed = true;
    for (int i = 0; i < 5; i++)
        answer(link, subscribed, sizeof subscribed - 1);
}

static void servers_receive(const struct occurrence *o)
{
    const struct peer *peer = &peers[o->who];
    if (!peer->is_open)
        return;
    if (peer->is_sentinel) {
        serve_sentinel(o->who, o->bytes, o->len);
        return;
    }
    struct node *n = &s.node[peer->index];
    set_clock(n);
    model_feed(n->model, peer->connection, o->bytes, o->len);
    flush_node(peer->index);
}

/* A node that stands still reads later; between groups TCP repeats until they see each other. */
static nanos servers_hold_up(const struct occurrence *o)
{
    bool of_link = o->what == LINK_UP || o->what == TO_CLIENT || o->what == TO_SERVER;
    if (!of_link)
        return 0;
    const struct peer *peer = &peers[o->who];
    nanos until = is_cut_off(links[o->who].client, peer) ? s.group_until : 0;
    bool hangs = o->what == TO_SERVER && !peer->is_sentinel;
    nanos hung = hangs ? s.node[peer->index].hangs_until : 0;
    return until > hung ? until : hung;
}

static bool client_send(void *ctx, unsigned line, const void *bytes, size_t len)
{
    return send_bytes(ctx, line, bytes, len);
}
