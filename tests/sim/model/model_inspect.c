/* model_inspect.c - what the server has, for tests that look without asking. */
#include "model_internal.h"

static bool fill(const struct redis_model *model, unsigned slot, struct model_key *out)
{
    static const char kinds[] = {
        [NOTHING] = '-', [STRING] = 's', [LIST] = 'l', [HASH] = 'h', [ZSET] = 'z'};
    const struct key *key = &model->store.keys[slot];
    if (key->kind == NOTHING || (key->expires_ms >= 0 && now_ms(model) > key->expires_ms))
        return false;
    struct slice name = store_text(&model->store, key->name);
    *out = (struct model_key){
        .name = name.bytes,
        .len = name.len,
        .kind = kinds[key->kind],
        .left_ms = key->expires_ms < 0 ? -1 : key->expires_ms - now_ms(model),
        .items = key->count,
        .slot = slot,
    };
    return true;
}

bool model_look(const struct redis_model *model, const char *name, size_t len,
                struct model_key *key)
{
    struct slice wanted = {name, len};
    for (unsigned slot = 0; slot < model->store.key_count; slot++) {
        const struct key *k = &model->store.keys[slot];
        if (k->kind != NOTHING && k->db == 0 &&
            slice_equal(store_text(&model->store, k->name), wanted))
            return fill(model, slot, key);
    }
    return false;
}

bool model_look_next(const struct redis_model *model, unsigned *slot, struct model_key *key)
{
    while (*slot < model->store.key_count)
        if (fill(model, (*slot)++, key))
            return true;
    return false;
}

struct model_item model_look_item(const struct redis_model *model, const struct model_key *key,
                                  uint32_t index)
{
    const struct item *item = store_items(&model->store, &model->store.keys[key->slot]) + index;
    struct slice name = store_text(&model->store, item->name),
                 value = store_text(&model->store, item->value);
    return (struct model_item){name.bytes, value.bytes, name.len, value.len, item->score};
}
