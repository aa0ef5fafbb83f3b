/* lists.c - commands on lists, and the ones that wait for an element. */
#include "model_internal.h"

#include <math.h>
#include <string.h>

bool part_of_words(struct call *call, unsigned first_word, uint32_t count, struct part *part)
{
    int64_t from, to;
    if (!word_integer(call, first_word, &from) || !word_integer(call, first_word + 1, &to))
        return false;
    from = from < 0 ? from + count : from;
    to = to < 0 ? to + count : to;
    from = from < 0 ? 0 : from;
    to = to >= count ? (int64_t)count - 1 : to;
    *part =
        from > to ? (struct part){0, 0} : (struct part){(uint32_t)from, (uint32_t)(to - from + 1)};
    return true;
}

static bool list_of(struct call *call, struct slice name, struct key **key)
{
    return key_of_kind(call, name, LIST, key);
}

static void push(struct call *call, bool left)
{
    struct store *store = &call->model->store;
    struct key *key;
    if (!list_of(call, call->words[1], &key))
        return;
    if (!key)
        key = key_make(call, call->words[1], LIST);
    for (unsigned i = 2; i < call->count; i++)
        store_insert(store, key, left ? 0 : key->count)->name = store_keep(store, call->words[i]);
    reply_integer(call, key->count);
    list_got_something(call, call->words[1]);
}

void cmd_rpush(struct call *call)
{
    push(call, false);
}

void cmd_lpush(struct call *call)
{
    push(call, true);
}

static void reply_elements(struct call *call, const struct key *key, struct part part)
{
    reply_array(call, part.count);
    for (uint32_t i = 0; i < part.count; i++)
        reply_text(call, store_items(&call->model->store, key)[part.from + i].name);
}

static void pop_left(struct call *call, struct key *key, int64_t count)
{
    struct part part = {0, count < key->count ? (uint32_t)count : key->count};
    reply_elements(call, key, part);
    if (part.count)
        store_remove(&call->model->store, key, 0, part.count);
}

static void pop_one(struct call *call, struct key *key)
{
    reply_text(call, store_items(&call->model->store, key)->name);
    store_remove(&call->model->store, key, 0, 1);
}

void cmd_lpop(struct call *call)
{
    bool counted = call->count == 3;
    int64_t count = 1;
    struct key *key;
    if (call->count > 3) {
        reply_error(call, "ERR wrong number of arguments for 'lpop' command");
        return;
    }
    if (counted && (!slice_integer(call->words[2], &count) || count < 0)) {
        reply_error(call, "ERR value is out of range, must be positive");
        return;
    }
    if (!list_of(call, call->words[1], &key))
        return;
    if (key && counted)
        pop_left(call, key, count);
    else if (key)
        pop_one(call, key);
    else if (counted)
        reply_null_array(call);
    else
        reply_null(call);
}

void cmd_llen(struct call *call)
{
    struct key *key;
    if (list_of(call, call->words[1], &key))
        reply_integer(call, key ? key->count : 0);
}

void cmd_lrange(struct call *call)
{
    struct part part;
    struct key *key;
    if (part_of_words(call, 2, 0, &part) && list_of(call, call->words[1], &key) &&
        part_of_words(call, 2, key ? key->count : 0, &part))
        reply_elements(call, key, part);
}

void cmd_ltrim(struct call *call)
{
    struct store *store = &call->model->store;
    struct part part;
    struct key *key;
    if (!part_of_words(call, 2, 0, &part) || !list_of(call, call->words[1], &key) ||
        !part_of_words(call, 2, key ? key->count : 0, &part))
        return;
    if (key && part.from + part.count < key->count)
        store_remove(store, key, part.from + part.count, key->count - part.from - part.count);
    if (key && part.from)
        store_remove(store, key, 0, part.from);
    reply_status(call, "OK");
}

/* ---- Waiting ---- */

/* In ms on the wall clock; 0 is for ever. */
static bool read_timeout(struct call *call, unsigned word, int64_t *until_ms)
{
    double seconds;
    if (!slice_double(call->words[word], &seconds) || seconds * 1000 > 9e15)
        reply_error(call, "ERR timeout is not a float or out of range");
    else if (seconds < 0)
        reply_error(call, "ERR timeout is negative");
    else {
        *until_ms = seconds > 0 ? now_ms(call->model) + (int64_t)ceil(seconds * 1000) : 0;
        return true;
    }
    return false;
}

struct popping {
    unsigned first, last; /* words with keys; `last` is behind them */
    bool many;            /* BLMPOP */
    int64_t count, until_ms;
};

/* Answers from the first key that has something; false if none has. */
static bool pop_first(struct call *call, const struct popping *p)
{
    for (unsigned i = p->first; i < p->last; i++) {
        struct key *key;
        if (call->serve && !slice_equal(*call->serve, call->words[i]))
            continue;
        if (!list_of(call, call->words[i], &key))
            return true;
        if (!key)
            continue;
        reply_array(call, 2);
        reply_bulk(call, call->words[i]);
        if (p->many)
            pop_left(call, key, p->count);
        else
            pop_one(call, key);
        return true;
    }
    return false;
}

static void pop_or_wait(struct call *call, const struct popping *p)
{
    if (pop_first(call, p))
        return;
    if (call->run) /* nobody waits inside of a script */
        reply_null_array(call);
    else
        command_block(call, p->until_ms);
}

void cmd_blpop(struct call *call)
{
    struct popping p = {.first = 1, .last = call->count - 1};
    if (read_timeout(call, p.last, &p.until_ms))
        pop_or_wait(call, &p);
}

void cmd_blmpop(struct call *call)
{
    struct popping p = {.first = 3, .many = true, .count = 1};
    int64_t keys;
    if (!slice_integer(call->words[2], &keys) || keys < 1 || keys > INT32_MAX) {
        reply_error(call, "ERR numkeys should be greater than 0");
        return;
    }
    p.last = 3 + (unsigned)keys;
    bool counted = call->count == p.last + 3 && slice_is(call->words[p.last + 1], "count");
    if (p.last >= call->count || !slice_is(call->words[p.last], "left") ||
        (call->count != p.last + 1 && !counted)) {
        reply_error(call, SYNTAX_ERROR);
        return;
    }
    if (counted && (!slice_integer(call->words[p.last + 2], &p.count) || p.count < 1)) {
        reply_error(call, "ERR count should be greater than 0");
        return;
    }
    if (read_timeout(call, 1, &p.until_ms))
        pop_or_wait(call, &p);
}
