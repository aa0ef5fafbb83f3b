/* slot_map.c - reads a map of slots, and decides which shard has which slot. */
#include "cluster.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* time for which a redirect counts more than maps of other nodes */
#define MOVE_LIFE NANOS_OF_MS(2000)
enum { NOBODY = UINT16_MAX };

/* A primary in the map that is being read. */
struct found {
    struct cluster_node primary;
    char replica[CLUSTER_REPLICAS_MAX][CLUSTER_NODE_ID + 1];
    unsigned replicas;
    struct cluster_shard *shard;
};

struct map {
    struct found *found; /* at most one for each range of slots */
    unsigned count;
    uint16_t owner[CLUSTER_SLOTS]; /* for each slot an index in `found`, or NOBODY */
};

/* ---- Reading ---- */

/* Reads {host, port, id, {name, value ...}}. An empty or nil host means the server that was asked;
 * with "?" the address is in the list of names and values. */
static bool read_node(const struct resp_reply *resp, const struct cluster_node *from,
                      struct cluster_node *node)
{
    const struct resp_reply *host = resp_item(resp, 0), *port = resp_item(resp, 1);
    const struct resp_reply *id = resp_item(resp, 2), *more = resp_item(resp, 3);
    if (!host || !port || port->type != RESP_NUMBER || port->number < 1 || port->number > 65535)
        return false;

    const char *name = host->type == RESP_TEXT ? host->text : "";
    if (strcmp(name, "?") == 0)
        for (const struct resp_reply *at = more ? more->first : NULL; at && at->next; at = at->next)
            if (at->type == RESP_TEXT && at->next->type == RESP_TEXT && strcmp(at->text, "ip") == 0)
                name = at->next->text;

    name = name[0] ? name : from->host;
    if (strlen(name) >= sizeof node->host)
        return false;

    snprintf(node->host, sizeof node->host, "%s", name);
    snprintf(node->port, sizeof node->port, "%lld", (long long)port->number);
    bool has_id = id && id->type == RESP_TEXT && id->len <= CLUSTER_NODE_ID;
    snprintf(node->id, sizeof node->id, "%s", has_id ? id->text : "");
    return true;
}

static bool is_same(const struct cluster_node *a, const struct cluster_node *b)
{
    bool same_id = a->id[0] && strcmp(a->id, b->id) == 0;
    return same_id || cluster_node_is_at(a, b->host, b->port);
}

static void remember_node(struct cluster *c, const struct cluster_node *node)
{
    for (unsigned i = 0; i < c->nodes; i++) {
        struct cluster_node *known = &c->node[i];
        if (cluster_node_is_at(known, node->host, node->port)) {
            memcpy(known->id, node->id, sizeof known->id);
            return;
        }
    }

    map_query_add_node(c, node);
}

static struct found *find_primary(struct map *map, const struct cluster_node *node)
{
    for (unsigned i = 0; i < map->count; i++)
        if (is_same(&map->found[i].primary, node))
            return &map->found[i];

    map->found[map->count] = (struct found){.primary = *node};
    return &map->found[map->count++];
}

static void add_replica(struct found *found, const char *id)
{
    for (unsigned i = 0; i < found->replicas; i++)
        if (strcmp(found->replica[i], id) == 0)
            return;
    if (id[0] && found->replicas < CLUSTER_REPLICAS_MAX)
        memcpy(found->replica[found->replicas++], id, CLUSTER_NODE_ID + 1);
}

/* Reads {from, to, primary, replica ...}. */
static const char *read_range(struct cluster *c, struct map *map, const struct cluster_node *from,
                              const struct resp_reply *range)
{
    int64_t first = resp_count(resp_item(range, 0)), last = resp_count(resp_item(range, 1));
    const struct resp_reply *one = resp_item(range, 2);
    struct cluster_node node;
    bool is_range = one && first >= 0 && first <= last && last < CLUSTER_SLOTS;
    if (!is_range || !read_node(one, from, &node))
        return "its map of slots makes no sense";

    struct found *found = find_primary(map, &node);
    remember_node(c, &node);
    for (int64_t slot = first; slot <= last; slot++)
        map->owner[slot] = (uint16_t)(found - map->found);

    for (one = one->next; one; one = one->next)
        if (read_node(one, from, &node)) {
            remember_node(c, &node);
            add_replica(found, node.id);
        }
    return NULL;
}

/* ---- Recognising shards ---- */

/* The signs by which a shard is recognised, the surest first. */
enum sign { BY_ID, BY_ADDRESS, BY_REPLICA, BY_WAITING, SIGNS };

static bool matches(const struct cluster_shard *shard, const struct found *found, enum sign sign)
{
    const struct cluster_node *a = &shard->primary, *b = &found->primary;
    switch (sign) {
    case BY_ID:
        return a->id[0] && strcmp(a->id, b->id) == 0;
    case BY_ADDRESS: /* a redirect named the address, or the server was set up again */
        return cluster_node_is_at(a, b->host, b->port);
    case BY_REPLICA: /* the replica was promoted */
        return cluster_shard_has_replica(shard, b->id);
    default: /* the first shard, which has no address yet */
        return !a->host[0];
    }
}

static void recognise(struct cluster *c, struct map *map, enum sign sign)
{
    for (unsigned i = 0; i < map->count; i++)
        for (unsigned k = 0; k < c->shards && !map->found[i].shard; k++) {
            struct cluster_shard *shard = c->shard[k];
            if (shard->redis && !shard->is_named && matches(shard, &map->found[i], sign)) {
                map->found[i].shard = shard;
                shard->is_named = true;
            }
        }
}

static void set_found(struct cluster_shard *shard, const struct found *found)
{
    bool is_there = cluster_node_is_at(&shard->primary, found->primary.host, found->primary.port);
    assert(shard->redis && found->shard == shard);

    shard->primary = found->primary;
    shard->is_named = true;
    shard->has_moved |= !is_there;
    memcpy(shard->replica, found->replica, sizeof shard->replica);
    shard->replicas = found->replicas;
}

/* Returns false if there is no room or no memory. */
static bool set_shards(struct cluster *c, struct map *map)
{
    for (unsigned i = 0; i < c->shards; i++)
        c->shard[i]->is_named = false;
    for (int sign = 0; sign < SIGNS; sign++)
        recognise(c, map, (enum sign)sign);

    for (unsigned i = 0; i < map->count; i++) {
        struct found *found = &map->found[i];
        found->shard = found->shard ? found->shard : shards_make(c);
        if (!found->shard)
            return false;
        set_found(found->shard, found);
    }
    return true;
}

/* ---- Slots ---- */

/* Returns the shard to which a redirect gave the slot within MOVE_LIFE; NULL: none. */
static const struct cluster_shard *moved_to(const struct cluster *c, unsigned slot, nanos now)
{
    const struct cluster_move *last = NULL;
    assert(slot < CLUSTER_SLOTS);

    for (unsigned i = 0; i < CLUSTER_MOVES_MAX; i++) {
        const struct cluster_move *move = &c->move[i];
        bool counts = move->at && move->slot == slot && now - move->at < MOVE_LIFE;
        if (counts && (!last || move->at >= last->at))
            last = move;
    }
    return last ? c->shard[last->shard] : NULL;
}

void slot_map_moved(struct cluster *c, unsigned slot, const struct cluster_shard *to)
{
    assert(slot < CLUSTER_SLOTS && to->redis);
    c->owner[slot] = to->index;
    c->move[c->next_move++ % CLUSTER_MOVES_MAX] =
        (struct cluster_move){.at = c->last_now, .slot = (uint16_t)slot, .shard = to->index};
}

/* Returns true if a slot has another owner now. */
static bool set_owners(struct cluster *c, const struct map *map, const struct cluster_node *from,
                       nanos now)
{
    bool has_changed = false;
    for (unsigned slot = 0; slot < CLUSTER_SLOTS; slot++) {
        if (map->owner[slot] == NOBODY)
            continue;

        assert(map->owner[slot] < map->count);
        const struct found *found = &map->found[map->owner[slot]];
        if (c->owner[slot] == found->shard->index)
            continue;

        const struct cluster_shard *moved = moved_to(c, slot, now);
        bool is_newer = moved && moved->redis && !is_same(&moved->primary, from);
        if (is_newer)
            continue;

        c->owner[slot] = found->shard->index;
        has_changed = true;
    }
    return has_changed;
}

static void set_probes(struct cluster *c)
{
    for (unsigned slot = CLUSTER_SLOTS; slot-- > 0;) {
        assert(c->owner[slot] < c->shards);
        redis_cluster_set_probe(c->shard[c->owner[slot]]->redis, slot);
    }
}

/* Makes the client check holds on the present owners of their slots: a shard that no map names any
 * more may have lost the holds. */
static void check_holds(struct cluster *c)
{
    for (unsigned i = 0; i < c->shards; i++) {
        const struct cluster_shard *shard = c->shard[i];
        if (shard->redis && !shard->is_named && redis_cluster_has_ops(shard->redis)) {
            c->host->recheck(c->host->ctx);
            return;
        }
    }
}

static const char *read_map(struct cluster *c, struct map *map, const struct cluster_node *from,
                            const struct resp_reply *resp)
{
    if (resp->type != RESP_LIST || !resp->first)
        return "it knows no slots: it has not joined a cluster";

    size_t ranges = 0;
    for (const struct resp_reply *range = resp->first; range; range = range->next)
        ranges++;
    if (ranges >= NOBODY)
        return "its map of slots makes no sense";

    map->found = calloc(ranges, sizeof *map->found);
    if (!map->found)
        return "no memory for its map of slots";

    memset(map->owner, 0xff, sizeof map->owner); /* NOBODY for every slot */
    for (const struct resp_reply *range = resp->first; range; range = range->next) {
        const char *flaw = read_range(c, map, from, range);
        if (flaw)
            return flaw;
    }

    return set_shards(c, map) ? NULL : "no memory for another primary";
}

const char *slot_map_read(struct cluster *c, const struct cluster_node *from,
                          const struct resp_reply *resp, nanos now)
{
    struct map *map = calloc(1, sizeof *map);
    if (!map)
        return "no memory for its map of slots";

    assert(c->nodes >= c->seeds && from);
    c->nodes = c->seeds;
    const char *flaw = read_map(c, map, from, resp);
    if (!flaw) {
        bool has_changed = set_owners(c, map, from, now);
        set_probes(c);
        if (has_changed || !c->is_mapped)
            shards_review(c);
        check_holds(c);
        c->is_mapped = true;
    }

    free(map->found);
    free(map);
    return flaw;
}
