/* model_cluster.c - a server of a cluster: which requests it refuses because their slot is another
 * server's, and keys that move from one server to another. */
#include "model_internal.h"

#include <assert.h>
#include <string.h>

void model_join(struct redis_model *model, const struct model_cluster *cluster)
{
    model->cluster = cluster;
}

/* ---- Commands ---- */

void cmd_asking(struct call *call)
{
    if (call->model->cluster)
        call->connection->is_asking = true;
    if (call->model->cluster)
        reply_status(call, "OK");
    else
        reply_error(call, "ERR This instance has cluster support disabled");
}

void cmd_cluster_slots(struct call *call)
{
    const struct model_cluster *cluster = call->model->cluster;
    size_t len = 0;
    const char *map = cluster ? cluster->map(cluster->ctx, &len) : NULL;
    if (map)
        buffer_add(call->out, map, len);
    else
        reply_error(call, "ERR This instance has cluster support disabled");
}

/* ---- Which requests ---- */

struct keys {
    const struct slice *first;
    unsigned count;
};

static struct keys keys_of(const struct call *call, const struct command *command)
{
    int64_t count = 0;
    bool is_script = strcmp(command->name, "fcall") == 0 || strncmp(command->name, "eval", 4) == 0;
    if (command->flags & K && call->count > 1)
        return (struct keys){call->words + 1, 1};
    if (!is_script || !slice_integer(call->words[2], &count) || count < 0 ||
        count > (int64_t)call->count - 3)
        return (struct keys){0};
    return (struct keys){call->words + 3, (unsigned)count};
}

struct place_of_keys {
    enum model_slot slot;
    unsigned number;
    const char *other; /* see struct model_cluster */
    bool is_crossing;  /* the keys have several slots */
    bool are_several;
    unsigned missing;
};

static struct place_of_keys look_at_keys(const struct call *call, struct keys keys)
{
    const struct model_cluster *cluster = call->model->cluster;
    struct call looking = *call;
    struct place_of_keys place = {.slot = MODEL_SLOT_OWN};
    place.number = cluster->slot_of(keys.first[0].bytes, keys.first[0].len);
    for (unsigned i = 0; i < keys.count; i++) {
        struct slice key = keys.first[i];
        place.is_crossing |= cluster->slot_of(key.bytes, key.len) != place.number;
        place.are_several |= !slice_equal(key, keys.first[0]);
        place.missing += key_find(&looking, key) == NULL;
    }
    place.slot = cluster->look(cluster->ctx, place.number, &place.other);
    return place;
}

static void redirect(struct call *call, const char *how, const struct place_of_keys *place)
{
    reply_errorf(call, "%s %u %s", how, place->number, place->other);
}

static bool admits_migrating(struct call *call, const struct place_of_keys *place, unsigned keys)
{
    if (!place->missing)
        return true;
    if (call->model->cluster->tries_again && place->missing < keys)
        reply_error(call, "TRYAGAIN Multiple keys request during rehashing of slot");
    else
        redirect(call, "ASK", place);
    return false;
}

static bool admits_importing(struct call *call, const struct place_of_keys *place)
{
    if (!call->connection->was_asking && !call->model->cluster->is_always_asked)
        redirect(call, "MOVED", place);
    else if (!place->are_several || !place->missing)
        return true;
    else
        reply_error(call, "TRYAGAIN Multiple keys request during rehashing of slot");
    return false;
}

bool cluster_admits(struct call *call, const struct command *command)
{
    if (!call->model->cluster)
        return true;
    struct keys keys = keys_of(call, command);
    bool is_shard_channel = strstr(command->name, "subscribe") || strstr(command->name, "publish");
    if (!keys.count)
        return true;

    struct place_of_keys place = look_at_keys(call, keys);
    place.missing = is_shard_channel ? 0 : place.missing;
    if (place.is_crossing) {
        reply_error(call, "CROSSSLOT Keys in request don't hash to the same slot");
        return false;
    }
    switch (place.slot) {
    case MODEL_SLOT_OWN:
        return true;
    case MODEL_SLOT_MIGRATING:
        return admits_migrating(call, &place, keys.count);
    case MODEL_SLOT_IMPORTING:
        return admits_importing(call, &place);
    case MODEL_SLOT_ELSEWHERE:
        redirect(call, "MOVED", &place);
        return false;
    default:
        reply_error(call, "CLUSTERDOWN The cluster is down");
        return false;
    }
}

/* A key that is gone counts as moved away, also if the script itself has removed it. */
const char *cluster_refuses_in_script(const struct call *call, const struct command *command)
{
    struct keys keys = {0};
    if (call->model->cluster)
        keys = keys_of(call, command);
    if (!keys.count)
        return NULL;

    struct place_of_keys place = look_at_keys(call, keys);
    bool is_channel = strstr(command->name, "publish") != NULL;
    bool was_asking = call->connection->was_asking || call->model->cluster->is_always_asked;
    bool is_asked = place.slot == MODEL_SLOT_IMPORTING && was_asking;
    bool has_left = place.slot == MODEL_SLOT_MIGRATING && place.missing && !is_channel;
    bool is_here = place.slot == MODEL_SLOT_OWN || place.slot == MODEL_SLOT_MIGRATING || is_asked;
    return is_here && !has_left
               ? NULL
               : "ERR Script attempted to access a non local key in a cluster node";
}

/* ---- Slots that move ---- */

void model_end_slot(struct redis_model *model, unsigned slot)
{
    assert(model->cluster);
    for (unsigned i = 0; i < model->connection_count; i++)
        if (model->connections[i].connected)
            channels_end_slot(model, &model->connections[i], slot);
}

static bool is_in_slot(const struct redis_model *model, const struct key *key, unsigned slot)
{
    struct slice name = store_text(&model->store, key->name);
    return key->kind != NOTHING && model->cluster->slot_of(name.bytes, name.len) == slot;
}

void model_empty_slot(struct redis_model *model, unsigned slot)
{
    for (unsigned i = 0; i < model->store.key_count; i++)
        if (is_in_slot(model, &model->store.keys[i], slot))
            store_drop(&model->store.keys[i]);
}

static void move_items(struct redis_model *to, struct key *into, const struct redis_model *from,
                       const struct key *key)
{
    const struct item *items = store_items(&from->store, key);
    for (uint32_t i = 0; i < key->count; i++) {
        struct text name = store_keep(&to->store, store_text(&from->store, items[i].name));
        struct text value = store_keep(&to->store, store_text(&from->store, items[i].value));
        struct item *item = store_insert(&to->store, into, i);
        *item = (struct item){.name = name, .value = value, .score = items[i].score};
    }
}

/* Returns false if the key has expired. */
static bool move_key(struct redis_model *from, struct redis_model *to, const struct key *key)
{
    unsigned db = 0;
    struct call call = {.model = to, .db = &db};
    struct slice name = store_text(&from->store, key->name);
    bool expires = key->expires_ms >= 0;
    if (expires && key->expires_ms < now_ms(from))
        return false;
    store_compact(&to->store);
    struct key *old = key_find(&call, name);
    if (old)
        store_drop(old);
    struct key *into = key_make(&call, name, key->kind);
    if (expires)
        into->expires_ms = now_ms(to) + key->expires_ms - now_ms(from);
    move_items(to, into, from, key);
    return true;
}

bool model_migrate(struct redis_model *from, struct redis_model *to, unsigned slot)
{
    bool is_moved = false;
    for (unsigned i = 0; i < from->store.key_count && !is_moved; i++) {
        struct key *key = &from->store.keys[i];
        if (!is_in_slot(from, key, slot))
            continue;
        is_moved = move_key(from, to, key);
        store_drop(key);
    }
    return is_moved;
}
