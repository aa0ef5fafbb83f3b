/* hashes.c - commands on hashes. Fields stand in the order of their arrival, as in a server's small
 * hashes. */
#include "model_internal.h"

#include <string.h>

struct item *hash_field(struct call *call, const struct key *key, struct slice name)
{
    struct store *store = &call->model->store;
    for (uint32_t i = 0; key && i < key->count; i++) {
        struct item *item = store_items(store, key) + i;
        if (slice_equal(store_text(store, item->name), name))
            return item;
    }
    return NULL;
}

static bool hash_of(struct call *call, struct key **key)
{
    return key_of_kind(call, call->words[1], HASH, key);
}

/* True if the field is new. */
static bool put_field(struct call *call, struct key *key, struct slice name, struct slice value)
{
    struct store *store = &call->model->store;
    struct item *item = hash_field(call, key, name);
    bool fresh = !item;
    if (fresh) {
        item = store_insert(store, key, key->count);
        item->name = store_keep(store, name);
    }
    item->value = store_keep(store, value);
    return fresh;
}

void cmd_hset(struct call *call)
{
    struct key *key;
    int64_t fresh = 0;
    if (call->count % 2) {
        reply_error(call, "ERR wrong number of arguments for 'hset' command");
        return;
    }
    if (!hash_of(call, &key))
        return;
    if (!key)
        key = key_make(call, call->words[1], HASH);
    for (unsigned i = 2; i < call->count; i += 2)
        fresh += put_field(call, key, call->words[i], call->words[i + 1]);
    reply_integer(call, fresh);
}

static void reply_field(struct call *call, const struct key *key, struct slice name)
{
    const struct item *item = hash_field(call, key, name);
    if (item)
        reply_text(call, item->value);
    else
        reply_null(call);
}

void cmd_hget(struct call *call)
{
    struct key *key;
    if (hash_of(call, &key))
        reply_field(call, key, call->words[2]);
}

void cmd_hmget(struct call *call)
{
    struct key *key;
    if (!hash_of(call, &key))
        return;
    reply_array(call, call->count - 2);
    for (unsigned i = 2; i < call->count; i++)
        reply_field(call, key, call->words[i]);
}

void cmd_hdel(struct call *call)
{
    struct key *key;
    int64_t gone = 0;
    if (!hash_of(call, &key))
        return;
    for (unsigned i = 2; key && key->kind == HASH && i < call->count; i++) {
        struct item *item = hash_field(call, key, call->words[i]);
        if (!item)
            continue;
        store_remove(&call->model->store, key,
                     (uint32_t)(item - store_items(&call->model->store, key)), 1);
        gone++;
    }
    reply_integer(call, gone);
}

static void reply_item(struct call *call, const struct item *item, bool with_value)
{
    reply_text(call, item->name);
    if (with_value)
        reply_text(call, item->value);
}

static void reply_all(struct call *call, bool with_values)
{
    struct key *key;
    if (!hash_of(call, &key))
        return;
    uint32_t count = key ? key->count : 0;
    reply_array(call, with_values ? 2 * count : count);
    for (uint32_t i = 0; i < count; i++)
        reply_item(call, store_items(&call->model->store, key) + i, with_values);
}

void cmd_hgetall(struct call *call)
{
    reply_all(call, true);
}

void cmd_hkeys(struct call *call)
{
    reply_all(call, false);
}

void cmd_hlen(struct call *call)
{
    struct key *key;
    if (hash_of(call, &key))
        reply_integer(call, key ? key->count : 0);
}

void cmd_hexists(struct call *call)
{
    struct key *key;
    if (hash_of(call, &key))
        reply_integer(call, hash_field(call, key, call->words[2]) != NULL);
}

void cmd_hincrby(struct call *call)
{
    struct key *key;
    int64_t by, value = 0;
    if (!word_integer(call, 3, &by) || !hash_of(call, &key))
        return;
    const struct item *item = hash_field(call, key, call->words[2]);
    if (item && !slice_integer(store_text(&call->model->store, item->value), &value)) {
        reply_error(call, "ERR hash value is not an integer");
        return;
    }
    if (__builtin_add_overflow(value, by, &value)) {
        reply_error(call, "ERR increment or decrement would overflow");
        return;
    }
    if (!key)
        key = key_make(call, call->words[1], HASH);
    char digits[21];
    put_field(call, key, call->words[2], (struct slice){digits, integer_print(digits, value)});
    reply_integer(call, value);
}

/* ---- HRANDFIELD ---- */

/* Each subset of `wanted` fields is as likely as any other; they come in the order of the hash. */
static void reply_sample(struct call *call, const struct key *key, uint32_t wanted,
                         bool with_values)
{
    for (uint32_t i = 0; wanted; i++) {
        if (model_draw(call->model) % (key->count - i) >= wanted)
            continue;
        reply_item(call, store_items(&call->model->store, key) + i, with_values);
        wanted--;
    }
}

static void reply_one_field(struct call *call, const struct key *key, bool with_value)
{
    uint32_t i = (uint32_t)(model_draw(call->model) % key->count);
    reply_item(call, store_items(&call->model->store, key) + i, with_value);
}

void cmd_hrandfield(struct call *call)
{
    struct key *key;
    int64_t count = 1;
    bool with_values = call->count == 4;
    if (call->count > 2 && !word_integer(call, 2, &count))
        return;
    if (call->count > 4 || (with_values && !slice_is(call->words[3], "withvalues"))) {
        reply_error(call, SYNTAX_ERROR);
        return;
    }
    if (!hash_of(call, &key))
        return;
    if (!key && call->count == 2) {
        reply_null(call);
    } else if (!key) {
        reply_array(call, 0);
    } else if (call->count == 2) {
        reply_one_field(call, key, false);
    } else if (count < 0) { /* that many, and some perhaps more than once */
        reply_array(call, (size_t)-count * (with_values ? 2 : 1));
        for (int64_t i = 0; i < -count; i++)
            reply_one_field(call, key, with_values);
    } else {
        uint32_t wanted = count < key->count ? (uint32_t)count : key->count;
        reply_array(call, (size_t)wanted * (with_values ? 2 : 1));
        reply_sample(call, key, wanted, with_values);
    }
}
