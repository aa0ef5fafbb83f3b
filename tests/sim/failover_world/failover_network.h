/* failover_network.h - which server a connection reaches, what servers and sentinels answer. */
#pragma once
#include "failover_world.h"

/* ---- Doubts ---- */

/* While an old primary goes on, a yes of it counts for nothing: two may hold, and it gives out
 * tokens by a clock that may be behind. With replicas=2 it says no. */
static void doubt(void)
{
    if (w.now > s.split_until || s.is_strong)
        return;
    if (planted != PLANT_WAITS)
        tell_fault(H_STALE, 0);
    tell_fault(H_BACK, -1);
}

/* ---- Connections ---- */

static nanos dial_takes(unsigned line)
{
    (void)line;
    unsigned number = w.links - 1;
    char host = links[number].host;
    bool is_sentinel = host >= 'x';
    unsigned index = is_sentinel   ? (unsigned)(host - 'x')
                     : host == 'p' ? s.name
                                   : (unsigned)(host - 'a');
    peers[number] = (struct peer){.is_node = !is_sentinel, .index = index};
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
static void judge_way(unsigned client, const struct redis_node *n)
{
    if (s.by_name || !n->is_primary)
        return;
    uint64_t *known = &knowledge_of(client)->epoch;
    note("client %u comes to %c, of epoch %llu", client, letter_of(n),
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
    if (!peer->is_node)
        return true;
    if (!node_link_up(link))
        return false;
    judge_way(links[link].client, &nodes[peer->index]);
    return true;
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
    if (peer->is_node)
        node_receive(o);
    else
        serve_sentinel(o->who, o->bytes, o->len);
}
