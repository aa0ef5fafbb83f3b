/* model.c - the model's life: opening, connections, the clock, and the faults that a test can
 * cause. */
#include "model.h"
#include "model_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEW_YEAR_2025_US INT64_C(1735689600000000)

uint64_t model_draw(struct redis_model *model)
{
    uint64_t z = model->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* A server that has just started, with whatever data it has. */
static void start(struct redis_model *model)
{
    static const char hex[] = "0123456789abcdef";
    for (unsigned i = 0; i < 40; i++)
        model->run_id[i] = hex[model_draw(model) % 16];
    model->started_us = model->now_us;
    for (unsigned i = 0; i < model->connection_count; i++)
        model_disconnect(model, i);
    model_script_flush(model);
}

struct redis_model *model_open(uint64_t seed)
{
    struct redis_model *model = calloc(1, sizeof *model);
    assert(model);
    store_open(&model->store);
    lua_begin(model);
    model_reset(model, seed);
    return model;
}

void model_reset(struct redis_model *model, uint64_t seed)
{
    model->random = seed;
    model->now_us = NEW_YEAR_2025_US;
    model->full = model->is_replica = false;
    model->fail_at = 0;
    model->forbidden = NULL;
    model->cluster = NULL;
    model->replicas = 0;
    model->functions = MODEL_FUNCTIONS;
    model->plant = MODEL_HONEST;
    model->counts = (struct model_counts){0};
    model->ids = model->blockings = 0;
    store_empty(&model->store);
    if (model->copy.arena)
        store_empty(&model->copy);
    start(model);
    model_function_flush(model);
    model->connection_count = 0;
}

void model_close(struct redis_model *model)
{
    lua_end(model);
    for (unsigned i = 0; i < model->connection_room; i++) {
        struct connection *c = &model->connections[i];
        free(c->in.bytes);
        free(c->out.bytes);
        free(c->taken.bytes);
        free(c->channels.names.bytes);
        free(c->shard_channels.names.bytes);
    }
    store_close(&model->store);
    if (model->copy.arena)
        store_close(&model->copy);
    free(model->connections);
    free(model->ready.bytes);
    free(model->scratch.bytes);
    free(model->words);
    free(model->lua_words);
    free(model->lua_numbers);
    free(model);
}

void model_time_set(struct redis_model *model, int64_t us)
{
    model->now_us = us;
}

int64_t model_time(const struct redis_model *model)
{
    return model->now_us;
}

struct model_counts model_counts(const struct redis_model *model)
{
    return model->counts;
}

/* ---- Connections ---- */

static void more_connections(struct redis_model *model)
{
    unsigned room = 2 * model->connection_room + 8;
    model->connections = realloc(model->connections, room * sizeof *model->connections);
    assert(model->connections);
    memset(model->connections + model->connection_room, 0,
           (room - model->connection_room) * sizeof *model->connections);
    model->connection_room = room;
}

/* Memory stays with the place, for the next one there. */
static void clear(struct connection *c)
{
    struct buffer in = c->in, out = c->out, taken = c->taken;
    struct buffer names = c->channels.names, shard_names = c->shard_channels.names;
    in.len = out.len = taken.len = names.len = shard_names.len = 0;
    *c = (struct connection){.in = in,
                             .out = out,
                             .taken = taken,
                             .channels = {.names = names},
                             .shard_channels = {.names = shard_names}};
}

unsigned model_connect(struct redis_model *model)
{
    if (model->connection_count == model->connection_room)
        more_connections(model);
    struct connection *c = &model->connections[model->connection_count];
    clear(c);
    c->connected = true;
    c->id = ++model->ids;
    return model->connection_count++;
}

void model_disconnect(struct redis_model *model, unsigned connection)
{
    assert(connection < model->connection_count);
    struct connection *c = &model->connections[connection];
    model->blocked_count -= c->blocked;
    clear(c);
}

bool model_connected(const struct redis_model *model, unsigned connection)
{
    return connection < model->connection_count && model->connections[connection].connected;
}

const char *model_take(struct redis_model *model, unsigned connection, size_t *len)
{
    assert(connection < model->connection_count);
    struct connection *c = &model->connections[connection];
    struct buffer taken = c->out;
    c->out = c->taken;
    c->out.len = 0;
    c->taken = taken;
    if (c->closing)
        c->connected = false;
    *len = taken.len;
    return taken.bytes;
}

int model_ready(const struct redis_model *model)
{
    for (unsigned i = 0; i < model->connection_count; i++)
        if (model->connections[i].out.len)
            return (int)i;
    return -1;
}

/* ---- Faults ---- */

void model_restart(struct redis_model *model, bool keep_data)
{
    if (!keep_data) {
        store_empty(&model->store);
        model_function_flush(model); /* libraries are data, and scripts are not */
    }
    start(model);
}

static void copy_store(struct store *to, const struct store *from)
{
    memcpy(to->arena, from->arena, from->used);
    memcpy(to->keys, from->keys, from->key_count * sizeof *from->keys);
    to->used = from->used;
    to->compact_at = from->compact_at;
    to->key_count = from->key_count;
}

void model_snapshot(struct redis_model *model)
{
    if (!model->copy.arena)
        store_open(&model->copy);
    copy_store(&model->copy, &model->store);
    for (unsigned i = 0; i < model->library_count; i++)
        model->libraries[i].in_copy = model->libraries[i].loaded;
}

void model_promote(struct redis_model *model)
{
    assert(model->copy.arena);
    copy_store(&model->store, &model->copy);
    for (unsigned i = 0; i < model->library_count; i++)
        model->libraries[i].loaded = model->libraries[i].in_copy;
    start(model);
}

static struct library *find_library(struct redis_model *model, const char *name)
{
    for (unsigned i = 0; i < model->library_count; i++)
        if (strcmp(model->libraries[i].name, name) == 0)
            return &model->libraries[i];
    return NULL;
}

static void learn(struct redis_model *model, const struct library *library)
{
    char head[80];
    bool is_replica = model->is_replica;
    unsigned connection = model_connect(model);
    int len =
        snprintf(head, sizeof head, "*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n$%zu\r\n", library->len);
    model->is_replica = false;
    model_feed(model, connection, head, (size_t)len);
    model_feed(model, connection, library->text, library->len);
    model_feed(model, connection, "\r\n", 2);
    model->is_replica = is_replica;
    model_disconnect(model, connection);
}

void model_copy(struct redis_model *to, const struct redis_model *from)
{
    copy_store(&to->store, &from->store);
    for (unsigned i = 0; i < to->library_count; i++)
        to->libraries[i].loaded = false;
    for (unsigned i = 0; i < from->library_count; i++) {
        const struct library *library = &from->libraries[i];
        struct library *known = find_library(to, library->name);
        if (known)
            known->loaded = library->loaded;
        else if (library->loaded)
            learn(to, library);
    }
}

void model_set_replica(struct redis_model *model, bool is_replica)
{
    bool becomes_one = is_replica && !model->is_replica && !model->cluster;
    model->is_replica = is_replica;
    for (unsigned i = 0; becomes_one && i < model->connection_count; i++)
        model_disconnect(model, i);
}

void model_full(struct redis_model *model, bool full)
{
    model->full = full;
}

void model_fail_call(struct redis_model *model, uint64_t nth, const char *error)
{
    model->fail_at = nth ? model->counts.calls + nth : 0;
    model->fail_error = error;
}

void model_note_lines(struct redis_model *model, struct model_line *line, unsigned lines)
{
    model->line = line;
    model->lines = line ? lines : 0;
}

void model_forbid(struct redis_model *model, const char *command)
{
    model->forbidden = command;
}

void model_plant(struct redis_model *model, enum model_plant plant)
{
    model->plant = plant;
}
