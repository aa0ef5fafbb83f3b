/* cluster_map.h - what the nodes believe of the slots, and what they say of it. */
#pragma once
#include "cluster_world.h"

static unsigned shard_of_node(unsigned node)
{
    return node / 2;
}

/* Returns the other node of the shard; NODES: there is none. */
static unsigned other_node(unsigned node)
{
    return node == NODES - 1 ? NODES : node ^ 1;
}

static unsigned shard_of_slot(const struct view *view, unsigned slot)
{
    return slot == s.slot ? view->owner : slot * SHARDS / CLUSTER_SLOTS;
}

static struct redis_node *primary_of_lock(void)
{
    return &nodes[s.truth.primary[s.truth.owner]];
}

static bool is_down(const struct view *view)
{
    bool is_lonely = view->cut_since && w.now - view->cut_since > NANOS_OF_MS(NODE_TIMEOUT_MS);
    return is_lonely || w.now < view->down_until;
}

static const char *address_of(unsigned node)
{
    static char text[8];
    snprintf(text, sizeof text, "%c:6379", letter_of(&nodes[node]));
    return text;
}

/* Of the slot that is being moved: as both ends of the move say. */
static enum model_slot moved_slot(unsigned node, const struct view *view, const char **other)
{
    bool is_source = view->primary[s.from] == node, is_target = view->primary[s.to] == node;
    bool knows_target = view->owner == s.to;
    if (is_source && !knows_target && s.step != MOVE_BEGINS) {
        *other = address_of(view->primary[s.to]);
        return planted == PLANT_HALF_MOVED ? MODEL_SLOT_OWN : MODEL_SLOT_MIGRATING;
    }
    return is_target && !knows_target ? MODEL_SLOT_IMPORTING : MODEL_SLOT_ELSEWHERE;
}

static enum model_slot look_at_slot(void *ctx, unsigned slot, const char **other)
{
    const struct view *view = ctx;
    unsigned node = (unsigned)(view - s.view), primary = view->primary[shard_of_slot(view, slot)];
    *other = address_of(primary);
    if (is_down(view)) {
        sum.refusals++;
        return MODEL_SLOT_DOWN;
    }
    bool moves = slot == s.slot && s.step >= MOVE_BEGINS;
    enum model_slot moved = moves ? moved_slot(node, view, other) : MODEL_SLOT_ELSEWHERE;
    if (moved != MODEL_SLOT_ELSEWHERE)
        return moved;
    return primary == node ? MODEL_SLOT_OWN : MODEL_SLOT_ELSEWHERE;
}

/* ---- CLUSTER SLOTS ---- */

static size_t write_node(char *at, size_t room, unsigned node)
{
    char id[CLUSTER_NODE_ID + 1];
    memset(id, letter_of(&nodes[node]), CLUSTER_NODE_ID);
    id[CLUSTER_NODE_ID] = 0;
    return (size_t)snprintf(at, room, "*4\r\n$1\r\n%c\r\n:6379\r\n$40\r\n%s\r\n*0\r\n",
                            letter_of(&nodes[node]), id);
}

/* A replica that the node cannot reach is not named. */
static size_t write_range(char *at, size_t room, const struct view *view, unsigned first,
                          unsigned last)
{
    unsigned primary = view->primary[shard_of_slot(view, first)], replica = other_node(primary);
    bool has_replica = replica < NODES && nodes[replica].is_up;
    size_t len = (size_t)snprintf(at, room, "*%d\r\n:%u\r\n:%u\r\n", 3 + has_replica, first, last);
    len += write_node(at + len, room - len, primary);
    if (has_replica)
        len += write_node(at + len, room - len, replica);
    return len;
}

/* The slot of the lock is a range of its own. */
static unsigned last_of_range(unsigned first)
{
    unsigned shard = first * SHARDS / CLUSTER_SLOTS;
    unsigned last = ((shard + 1) * CLUSTER_SLOTS + SHARDS - 1) / SHARDS - 1;
    if (first == s.slot)
        return first;
    return first < s.slot && s.slot <= last ? s.slot - 1 : last;
}

static const char *write_map(void *ctx, size_t *size)
{
    static char text[4000];
    const struct view *view = ctx;
    size_t len = 8; /* the number of ranges is written last */
    unsigned ranges = 0;
    for (unsigned first = 0, last; first < CLUSTER_SLOTS; first = last + 1, ranges++) {
        last = last_of_range(first);
        len += write_range(text + len, sizeof text - len, view, first, last);
    }
    char head[9];
    int head_len = snprintf(head, sizeof head, "*%u\r\n", ranges);
    char *begin = text + 8 - head_len;
    memcpy(begin, head, (size_t)head_len);
    note("%c says that %c has the slot", letter_of(&nodes[view - s.view]),
         letter_of(&nodes[view->primary[view->owner]]));
    *size = len - 8 + (size_t)head_len;
    return begin;
}

static const struct model_cluster *place_of_node(unsigned node)
{
    s.place[node] = (struct model_cluster){.ctx = &s.view[node],
                                           .slot_of = redis_slot_of,
                                           .look = look_at_slot,
                                           .map = write_map,
                                           .tries_again = draw(2),
                                           .is_always_asked = planted == PLANT_ALWAYS_ASKING};
    return &s.place[node];
}

/* ---- What nodes learn ---- */

/* A primary that has been replaced follows its successor. */
static void learn(unsigned node)
{
    struct view *view = &s.view[node];
    unsigned shard = shard_of_node(node);
    bool was_primary = view->primary[shard] == node, owned = view->owner == shard;
    for (unsigned i = 0; i < SHARDS; i++) {
        view->primary[i] = s.truth.primary[i];
        view->epoch[i] = s.truth.epoch[i];
    }
    view->owner = s.truth.owner;
    view->moves = s.truth.moves;
    view->learns_at = 0;
    nodes[node].is_primary = view->primary[shard] == node;
    model_set_replica(nodes[node].model, !nodes[node].is_primary);
    bool owns = nodes[node].is_primary && view->owner == shard;
    if (was_primary && owned && !owns) {
        model_end_slot(nodes[node].model, s.slot);
        flush_node(node);
    }
}

/* Grants of a primary that was replaced meanwhile count for nothing: doubt() excuses them while it
 * goes on, and no longer. So those under way are lost with its connections. */
static void hear(unsigned node)
{
    unsigned shard = shard_of_node(node);
    bool is_old = nodes[node].is_primary && s.truth.primary[shard] != node;
    learn(node);
    if (is_old)
        close_links(node, true);
}

static bool is_behind(const struct view *view)
{
    bool is = view->moves < s.truth.moves;
    for (unsigned i = 0; i < SHARDS; i++)
        is |= view->epoch[i] < s.truth.epoch[i];
    return is;
}

/* One that was alone for long waits before it goes on, as Redis does (its rejoin delay). */
static void note_cut(struct view *view, bool is_cut)
{
    if (!is_cut && is_down(view))
        view->down_until = w.now + NANOS_OF_MS(NODE_TIMEOUT_MS);
    if (!is_cut || !view->cut_since)
        view->cut_since = is_cut ? w.now : 0;
}

static void tend_view(unsigned node)
{
    struct view *view = &s.view[node];
    const struct redis_node *n = &nodes[node];
    bool is_cut = w.now < group.until && group.nodes >> node & 1;
    if (is_cut || view->cut_since)
        note_cut(view, is_cut);
    bool may_learn = n->is_up && !is_cut && w.now >= n->hangs_until;
    if (!is_behind(view) || !may_learn) {
        view->learns_at = 0;
        return;
    }
    if (!view->learns_at)
        view->learns_at = soon(0, LEARNS_MS);
    else if (w.now >= view->learns_at)
        hear(node);
}
