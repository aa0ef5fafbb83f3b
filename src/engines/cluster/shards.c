/* shards.c - the primaries of a cluster: an engine for each, redirects, and ops that move. */
#include "cluster.h"

#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* time after the last redirect when the map is asked for once more */
#define REVIEW_AFTER NANOS_OF_MS(10000)

/* ---- What the engines of the shards call ---- */

static unsigned connection_of(const struct cluster_shard *shard, unsigned connection)
{
    assert(connection < shard->cluster->stride && shard->first >= 0);
    return (unsigned)shard->first + connection;
}

static void shard_dial(void *ctx, unsigned connection, const struct endpoint *to)
{
    struct cluster_shard *shard = ctx;
    const struct wire_engine_host *host = shard->cluster->host;
    host->dial(host->ctx, connection_of(shard, connection), to);
}

static bool shard_send(void *ctx, unsigned connection, const void *bytes, size_t len)
{
    struct cluster_shard *shard = ctx;
    const struct wire_engine_host *host = shard->cluster->host;
    return host->send(host->ctx, connection_of(shard, connection), bytes, len);
}

static void shard_hang_up(void *ctx, unsigned connection)
{
    struct cluster_shard *shard = ctx;
    const struct wire_engine_host *host = shard->cluster->host;
    host->hang_up(host->ctx, connection_of(shard, connection));
}

static void shard_on_reply(void *ctx, struct engine_op *op, const struct engine_reply *reply)
{
    struct cluster_shard *shard = ctx;
    struct cluster *c = shard->cluster;
    struct cluster_survey *survey = survey_of_part(c, op);

    if (survey)
        survey_on_reply(survey, op, reply);
    else
        c->host->on_reply(c->host->ctx, op, reply);
}

static void shard_row(void *ctx, struct engine_op *op, const struct hf_row *row)
{
    struct cluster_shard *shard = ctx;
    struct cluster *c = shard->cluster;
    struct cluster_survey *survey = survey_of_part(c, op);

    if (survey)
        survey_on_row(c, survey, shard, row);
    else
        c->host->row(c->host->ctx, op, row);
}

static void shard_find(void *ctx, struct engine_op *op, const struct hf_finding *finding)
{
    struct cluster_shard *shard = ctx;
    const struct cluster_survey *survey = survey_of_part(shard->cluster, op);
    if (survey)
        survey_on_finding(shard->cluster, survey, finding);
}

static void shard_rerouted(void *ctx, struct engine_op *op)
{
    struct cluster_shard *shard = ctx;
    const struct wire_engine_host *host = shard->cluster->host;

    if (host->rerouted)
        host->rerouted(host->ctx, op);
}

static void shard_recheck(void *ctx)
{
    struct cluster_shard *shard = ctx;
    shard->cluster->host->recheck(shard->cluster->host->ctx);
}

static uint32_t shard_random(void *ctx)
{
    struct cluster_shard *shard = ctx;
    return shard->cluster->host->random(shard->cluster->host->ctx);
}

/* Reports the time that requests take on the slowest shard. */
static void shard_takes(void *ctx, nanos length)
{
    struct cluster_shard *shard = ctx;
    struct cluster *c = shard->cluster;
    nanos most = 0;
    assert(length >= 0);

    shard->takes = length;
    for (unsigned i = 0; i < c->shards; i++)
        most = c->shard[i]->redis && c->shard[i]->takes > most ? c->shard[i]->takes : most;

    if (c->host->takes)
        c->host->takes(c->host->ctx, most);
}

static const struct wire_engine_host host_of_shards = {
    .dial = shard_dial,
    .send = shard_send,
    .hang_up = shard_hang_up,
    .on_reply = shard_on_reply,
    .row = shard_row,
    .find = shard_find,
    .rerouted = shard_rerouted,
    .recheck = shard_recheck,
    .random = shard_random,
    .takes = shard_takes,
};

static void shard_is_needed(void *ctx)
{
    shards_need(ctx);
}

static int shard_redirected(void *ctx, enum redis_redirect how, unsigned slot, const char *host,
                            const char *port)
{
    struct cluster_shard *from = ctx;
    struct cluster *c = from->cluster;
    c->search.is_wanted |= how == REDIS_MOVED || how == REDIS_CLUSTER_DOWN;
    c->is_doubted |= how == REDIS_CLUSTER_DOWN;
    if (how != REDIS_MOVED && how != REDIS_IMPORTING)
        return -1;

    const char *where = host[0] ? host : from->primary.host;
    struct cluster_shard *to = shards_find_or_make(c, where, port);
    if (!to)
        return -1;

    if (how == REDIS_MOVED) {
        slot_map_moved(c, slot, to);
        map_query_prefer(c, where, port);
        c->is_doubted = false;
        c->review_at = c->last_now + REVIEW_AFTER;
    }
    return (int)to->index;
}

/* ---- Shards ---- */

/* Makes room for the shard and for the numbers of its connections. */
static bool make_room(struct cluster *c)
{
    unsigned room = c->shards < 8 ? 8 : 2 * c->shards;
    assert(c->shards <= c->shard_room);

    if (c->shards == c->shard_room) {
        struct cluster_shard **shard = realloc(c->shard, room * sizeof *shard);
        c->shard = shard ? shard : c->shard;
        void **member = realloc(c->member, room * sizeof *member);
        c->member = member ? member : c->member;
        if (!shard || !member)
            return false;
        c->shard_room = room;
    }

    unsigned numbers = CLUSTER_QUERIES + (c->shards + 1) * c->stride;
    return connection_numbers_reserve(&c->numbers, numbers, c->host);
}

/* Returns an unused place, or a new one. NULL: there is no memory. */
static struct cluster_shard *find_place(struct cluster *c)
{
    for (unsigned i = 0; i < c->shards; i++)
        if (!c->shard[i]->redis)
            return c->shard[i];
    if (c->shards == CLUSTER_SHARDS_MAX || !make_room(c))
        return NULL;

    struct cluster_shard *shard = calloc(1, sizeof *shard);
    if (!shard)
        return NULL;

    shard->index = (uint16_t)c->shards;
    shard->first = -1;
    c->member[c->shards] = NULL;
    c->shard[c->shards++] = shard;
    return shard;
}

struct cluster_shard *shards_make(struct cluster *c)
{
    struct cluster_shard *shard = find_place(c);
    if (!shard) {
        c->open_status = error_set(HF_NO_MEMORY, "%s: no memory for a client", c->scheme);
        return NULL;
    }
    assert(!shard->redis);

    *shard = (struct cluster_shard){
        .cluster = c, .index = shard->index, .first = -1, .host = host_of_shards};
    shard->host.ctx = shard;
    hf_status status = redis_wire_engine.open(&shard->redis, &c->url, &c->settings, &shard->host);
    if (status != HF_OK) {
        c->open_status = status;
        return NULL;
    }

    redis_follow_begin(shard->redis, "the cluster");
    redis_cluster_join(shard->redis, &(struct redis_cluster_place){.index = shard->index,
                                                                   .polls = c->polls,
                                                                   .ctx = shard,
                                                                   .is_needed = shard_is_needed,
                                                                   .redirected = shard_redirected});
    return shard;
}

/* Gives the shard numbers for its connections. shards_make() has already made room for them. */
void shards_need(struct cluster_shard *shard)
{
    struct cluster *c = shard->cluster;
    assert(shard->redis);
    if (shard->first >= 0)
        return;

    shard->first = connection_numbers_take(&c->numbers, c->stride, shard);
    assert(shard->first >= CLUSTER_QUERIES);
    redis_cluster_set_first_connection(shard->redis, (unsigned)shard->first);
}

hf_status shards_open(struct cluster *c)
{
    if (!connection_numbers_reserve(&c->numbers, CLUSTER_QUERIES, c->host))
        return error_set(HF_NO_MEMORY, "%s: no memory for a client", c->scheme);

    connection_numbers_take(&c->numbers, CLUSTER_QUERIES, c);
    return shards_make(c) ? HF_OK : c->open_status; /* error_text() has the reason */
}

void shards_close(struct cluster *c)
{
    for (unsigned i = 0; i < c->shards; i++) {
        if (c->shard[i]->redis)
            redis_wire_engine.close(c->shard[i]->redis);
        free(c->shard[i]);
    }

    free(c->shard);
    free(c->member);
}

bool cluster_node_is_at(const struct cluster_node *node, const char *host, const char *port)
{
    return strcmp(node->host, host) == 0 && strcmp(node->port, port) == 0;
}

static const char *id_of_address(const struct cluster *c, const char *host, const char *port)
{
    for (unsigned i = 0; i < c->nodes; i++)
        if (cluster_node_is_at(&c->node[i], host, port))
            return c->node[i].id;
    return "";
}

bool cluster_shard_has_replica(const struct cluster_shard *shard, const char *id)
{
    for (unsigned i = 0; i < shard->replicas; i++)
        if (id[0] && strcmp(shard->replica[i], id) == 0)
            return true;
    return false;
}

static void set_primary(struct cluster_shard *shard, const char *host, const char *port,
                        const char *id)
{
    assert(shard->redis);
    snprintf(shard->primary.host, sizeof shard->primary.host, "%s", host);
    snprintf(shard->primary.port, sizeof shard->primary.port, "%s", port);
    snprintf(shard->primary.id, sizeof shard->primary.id, "%s", id);

    shard->is_named = shard->has_moved = true;
}

struct cluster_shard *shards_find_or_make(struct cluster *c, const char *host, const char *port)
{
    const char *id = id_of_address(c, host, port);
    struct cluster_shard *shard = NULL;
    for (unsigned i = 0; i < c->shards; i++)
        if (c->shard[i]->redis && cluster_node_is_at(&c->shard[i]->primary, host, port))
            return c->shard[i];

    for (unsigned i = 0; i < c->shards && !shard; i++)
        if (c->shard[i]->redis && cluster_shard_has_replica(c->shard[i], id))
            shard = c->shard[i]; /* the node was found as a replica, which was promoted */

    shard = shard ? shard : shards_make(c);
    if (shard)
        set_primary(shard, host, port, id);
    return shard;
}

uint32_t shards_slots_of(const struct cluster *c, const struct cluster_shard *shard)
{
    uint32_t count = 0;
    for (unsigned i = 0; i < CLUSTER_SLOTS; i++)
        count += c->owner[i] == shard->index;
    return count;
}

/* ---- Ops ---- */

/* Returns the shard for an op. While a request of the op is in flight, the op stays on its shard:
 * that server will redirect the request. */
struct cluster_shard *shards_route(struct cluster *c, struct engine_op *op, nanos now)
{
    int home = redis_cluster_home(op);
    unsigned slot = redis_cluster_slot(c->prefix, op->name, op->name_len);
    assert(slot < CLUSTER_SLOTS && c->owner[slot] < c->shards);

    struct cluster_shard *owner = c->shard[c->owner[slot]];
    shards_need(owner);
    if (home < 0 || (unsigned)home == owner->index)
        return owner;

    struct cluster_shard *at = c->shard[home];
    assert((unsigned)home < c->shards && at->redis);
    bool stays =
        redis_cluster_is_in_flight(op) || !redis_cluster_move(at->redis, owner->redis, op, now);
    return stays ? at : owner;
}

void shards_review(struct cluster *c)
{
    for (unsigned i = 0; i < c->shards; i++)
        if (c->shard[i]->redis)
            redis_cluster_review(c->shard[i]->redis, c->owner);
}

static void follow(struct cluster *c, struct cluster_shard *shard, nanos now)
{
    struct endpoint to = c->endpoint;
    assert(shard->redis && shard->has_moved);

    shard->has_moved = false;
    snprintf(to.host, sizeof to.host, "%s", shard->primary.host);
    snprintf(to.port, sizeof to.port, "%s", shard->primary.port);
    redis_follow(shard->redis, &to, now);
}

static void note_loss(struct cluster_shard *shard, nanos now)
{
    bool was_lost = redis_follow_take_loss(shard->redis);

    if (redis_follow_is_up(shard->redis))
        shard->lost_at = 0;
    else if (was_lost && !shard->lost_at)
        shard->lost_at = now;
}

bool shards_are_lost(const struct cluster *c)
{
    for (unsigned i = 0; i < c->shards; i++) {
        const struct cluster_shard *shard = c->shard[i];
        if (shard->redis && shard->lost_at && redis_cluster_has_ops(shard->redis))
            return true;
    }
    return false;
}

/* Closes the engine of a primary that has no slots and no ops. */
static void drop_unused(struct cluster *c, struct cluster_shard *shard)
{
    assert(shard->redis);
    bool is_used = shard->is_named || redis_cluster_has_ops(shard->redis);
    if (!c->is_mapped || is_used || shards_slots_of(c, shard))
        return;

    redis_wire_engine.close(shard->redis);
    if (shard->first >= 0)
        connection_numbers_give_back(&c->numbers, (unsigned)shard->first, c->stride);

    for (unsigned i = 0; i < CLUSTER_MOVES_MAX; i++)
        if (c->move[i].shard == shard->index)
            c->move[i].at = 0;

    *shard = (struct cluster_shard){.index = shard->index, .first = -1};
}

void shards_settle(struct cluster *c, nanos now)
{
    for (unsigned i = 0; i < c->shards; i++) {
        struct cluster_shard *shard = c->shard[i];
        c->member[i] = shard->redis;
        if (shard->redis && shard->has_moved)
            follow(c, shard, now);
    }

    for (unsigned i = 0; i < c->shards; i++) {
        if (!c->member[i])
            continue;
        redis_cluster_move_strays(c->member[i], c->member, now);
        note_loss(c->shard[i], now);
    }

    for (unsigned i = 0; i < c->shards; i++)
        if (c->shard[i]->redis)
            drop_unused(c, c->shard[i]);
}
