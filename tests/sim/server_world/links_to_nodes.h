/* links_to_nodes.h - what wire_world.h needs from a world in which every server is a node of
 * redis_nodes.h. (With sentinels, failover_world has its own.) */
#pragma once
#include "redis_nodes.h"

static nanos dial_takes(unsigned line)
{
    (void)line;
    unsigned number = w.links - 1, index = (unsigned)(links[number].host - 'a');
    if (index >= NODES)
        abort();
    peers[number] = (struct peer){.is_node = true, .index = index};
    return delay();
}

static bool servers_link_up(unsigned link)
{
    return node_link_up(link);
}

static void servers_receive(const struct occurrence *o)
{
    if (peers[o->who].is_open)
        node_receive(o);
}
