/* zsets.c - commands on sorted sets, which are arrays in the order of score and then of bytes. */
#include "model_internal.h"

#include <math.h>
#include <string.h>

static bool zset_of(struct call *call, struct key **key)
{
    return key_of_kind(call, call->words[1], ZSET, key);
}

static int compare_bytes(struct slice a, struct slice b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    int order = shorter ? memcmp(a.bytes, b.bytes, shorter) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static bool stands_before(const struct redis_model *model, const struct item *item, double score,
                          struct slice member)
{
    if (item->score != score || model->plant == MODEL_TIES)
        return item->score <= score;
    return compare_bytes(store_text(&model->store, item->name), member) < 0;
}

static void put_member(struct call *call, struct key *key, double score, struct slice member)
{
    struct store *store = &call->model->store;
    uint32_t i = 0;
    while (i < key->count && stands_before(call->model, store_items(store, key) + i, score, member))
        i++;
    struct item *item = store_insert(store, key, i);
    item->name = store_keep(store, member);
    item->score = score;
}

static uint32_t rank_of(struct call *call, const struct key *key, const struct item *item)
{
    return (uint32_t)(item - store_items(&call->model->store, key));
}

/* ---- ZADD ---- */

struct zadd {
    bool nx, xx, gt, lt, changed, incr;
    unsigned first; /* word of the first score */
};

static struct zadd zadd_options(const struct call *call)
{
    struct zadd z = {.first = 2};
    for (; z.first < call->count; z.first++) {
        struct slice word = call->words[z.first];
        bool *option = slice_is(word, "nx")     ? &z.nx
                       : slice_is(word, "xx")   ? &z.xx
                       : slice_is(word, "gt")   ? &z.gt
                       : slice_is(word, "lt")   ? &z.lt
                       : slice_is(word, "ch")   ? &z.changed
                       : slice_is(word, "incr") ? &z.incr
                                                : NULL;
        if (!option)
            break;
        *option = true;
    }
    return z;
}

static const char *zadd_wrong(const struct call *call, const struct zadd *z)
{
    unsigned words = call->count - z->first;
    if (!words || words % 2)
        return SYNTAX_ERROR;
    if (z->nx && z->xx)
        return "ERR XX and NX options at the same time are not compatible";
    if ((z->gt && z->nx) || (z->lt && z->nx) || (z->gt && z->lt))
        return "ERR GT, LT, and/or NX options at the same time are not compatible";
    if (z->incr && words > 2)
        return "ERR INCR option supports a single increment-element pair";
    double score;
    for (unsigned i = z->first; i < call->count; i += 2)
        if (!slice_double(call->words[i], &score))
            return "ERR value is not a valid float";
    return NULL;
}

struct outcome {
    int64_t added, updated;
    bool refused;
    double score; /* of the last member */
};

/* False: the sum is not a number. */
static bool zadd_one(struct call *call, struct key *key, const struct zadd *z, unsigned word,
                     struct outcome *outcome)
{
    struct slice member = call->words[word + 1];
    struct item *item = hash_field(call, key, member);
    double score = 0, old = item ? item->score : 0;
    slice_double(call->words[word], &score);
    outcome->refused = item ? z->nx : z->xx;
    if (outcome->refused)
        return true;
    if (item && z->incr)
        score += old;
    if (isnan(score))
        return false;
    outcome->refused = item && ((z->gt && score <= old) || (z->lt && score >= old));
    if (outcome->refused)
        return true;
    outcome->score = score;
    outcome->added += !item;
    outcome->updated += item && score != old;
    if (item && score == old)
        return true;
    if (item)
        store_cut(&call->model->store, key, rank_of(call, key, item), 1);
    put_member(call, key, score, member);
    return true;
}

static void zadd_reply(struct call *call, const struct zadd *z, const struct outcome *outcome)
{
    if (!z->incr)
        reply_integer(call, outcome->added + (z->changed ? outcome->updated : 0));
    else if (outcome->refused)
        reply_null(call);
    else
        reply_double(call, outcome->score);
}

void cmd_zadd(struct call *call)
{
    struct zadd z = zadd_options(call);
    const char *wrong = zadd_wrong(call, &z);
    struct key *key;
    struct outcome outcome = {.refused = true};
    if (wrong) {
        reply_error(call, wrong);
        return;
    }
    if (!zset_of(call, &key))
        return;
    if (!key && !z.xx)
        key = key_make(call, call->words[1], ZSET);
    for (unsigned i = z.first; key && i < call->count; i += 2) {
        if (!zadd_one(call, key, &z, i, &outcome)) {
            reply_error(call, "ERR resulting score is not a number (NaN)");
            return;
        }
    }
    zadd_reply(call, &z, &outcome);
}

/* ---- Single members ---- */

void cmd_zrem(struct call *call)
{
    struct key *key;
    int64_t gone = 0;
    if (!zset_of(call, &key))
        return;
    for (unsigned i = 2; key && key->kind == ZSET && i < call->count; i++) {
        const struct item *item = hash_field(call, key, call->words[i]);
        if (!item)
            continue;
        store_remove(&call->model->store, key, rank_of(call, key, item), 1);
        gone++;
    }
    reply_integer(call, gone);
}

void cmd_zrank(struct call *call)
{
    struct key *key;
    if (!zset_of(call, &key))
        return;
    const struct item *item = hash_field(call, key, call->words[2]);
    if (item)
        reply_integer(call, rank_of(call, key, item));
    else
        reply_null(call);
}

void cmd_zscore(struct call *call)
{
    struct key *key;
    if (!zset_of(call, &key))
        return;
    const struct item *item = hash_field(call, key, call->words[2]);
    if (item)
        reply_double(call, item->score);
    else
        reply_null(call);
}

void cmd_zcard(struct call *call)
{
    struct key *key;
    if (zset_of(call, &key))
        reply_integer(call, key ? key->count : 0);
}

static void reply_part(struct call *call, const struct key *key, struct part part, bool reversed,
                       bool with_scores)
{
    reply_array(call, (size_t)part.count * (with_scores ? 2 : 1));
    for (uint32_t i = 0; i < part.count; i++) {
        uint32_t at = part.from + (reversed ? part.count - 1 - i : i);
        const struct item *item = store_items(&call->model->store, key) + at;
        reply_text(call, item->name);
        if (with_scores)
            reply_double(call, item->score);
    }
}

void cmd_zpopmin(struct call *call)
{
    int64_t count = 1;
    struct key *key;
    if (call->count > 3) {
        reply_error(call, SYNTAX_ERROR);
        return;
    }
    if (call->count == 3 && (!slice_integer(call->words[2], &count) || count < 0)) {
        reply_error(call, "ERR value is out of range, must be positive");
        return;
    }
    if (!zset_of(call, &key))
        return;
    uint32_t there = key ? key->count : 0;
    struct part part = {0, count < there ? (uint32_t)count : there};
    reply_part(call, key, part, false, true);
    if (part.count)
        store_remove(&call->model->store, key, 0, part.count);
}

/* ---- Ranges ---- */

struct bound {
    double score;
    bool open;
};

static bool read_bound(struct slice word, struct bound *bound)
{
    bound->open = word.len && word.bytes[0] == '(';
    if (bound->open)
        word = (struct slice){word.bytes + 1, word.len - 1};
    return slice_double(word, &bound->score);
}

static bool read_bounds(struct call *call, unsigned from_word, unsigned to_word, struct bound *from,
                        struct bound *to)
{
    if (read_bound(call->words[from_word], from) && read_bound(call->words[to_word], to))
        return true;
    reply_error(call, "ERR min or max is not a float");
    return false;
}

static struct part part_by_score(struct call *call, const struct key *key, struct bound from,
                                 struct bound to)
{
    struct part part = {0, 0};
    for (uint32_t i = 0; key && i < key->count; i++) {
        double score = store_items(&call->model->store, key)[i].score;
        bool below = from.open ? score <= from.score : score < from.score;
        bool above = to.open ? score >= to.score : score > to.score;
        part.from += below;
        part.count += !below && !above;
    }
    return part;
}

/* LIMIT: a negative count is no limit. */
static struct part limited(struct part part, int64_t offset, int64_t count, bool reversed)
{
    if (offset < 0 || offset >= part.count)
        return (struct part){0, 0};
    uint32_t left = part.count - (uint32_t)offset;
    uint32_t taken = count < 0 || count > left ? left : (uint32_t)count;
    uint32_t first = reversed ? left - taken : (uint32_t)offset;
    return (struct part){part.from + first, taken};
}

/* A bound of ZRANGE BYLEX: "-", "+", "[name" or "(name". Members have equal scores. */
static bool is_lex_bound(struct slice word)
{
    bool is_end = word.len == 1 && (word.bytes[0] == '-' || word.bytes[0] == '+');
    return is_end || (word.len && (word.bytes[0] == '[' || word.bytes[0] == '('));
}

/* Below 0: the member stands before the bound. */
static int order_to_bound(struct slice member, struct slice bound)
{
    if (bound.bytes[0] == '-' || bound.bytes[0] == '+')
        return bound.bytes[0] == '-' ? 1 : -1;
    return compare_bytes(member, (struct slice){bound.bytes + 1, bound.len - 1});
}

static struct part part_by_lex(struct call *call, const struct key *key, struct slice from,
                               struct slice to)
{
    struct part part = {0, 0};
    for (uint32_t i = 0; key && i < key->count; i++) {
        const struct item *item = store_items(&call->model->store, key) + i;
        struct slice member = store_text(&call->model->store, item->name);
        int to_first = order_to_bound(member, from), to_last = order_to_bound(member, to);
        bool below = to_first < 0 || (to_first == 0 && from.bytes[0] == '(');
        bool above = to_last > 0 || (to_last == 0 && to.bytes[0] == '(');
        part.from += below;
        part.count += !below && !above;
    }
    return part;
}

struct range {
    bool by_score, by_lex, reversed, with_scores, limited;
    int64_t offset, count;
};

static bool range_option(struct call *call, unsigned *word, bool zrange, struct range *range)
{
    struct slice option = call->words[*word];
    if (slice_is(option, "withscores")) {
        range->with_scores = true;
    } else if (slice_is(option, "limit") && *word + 2 < call->count) {
        range->limited = true;
        if (!word_integer(call, *word + 1, &range->offset) ||
            !word_integer(call, *word + 2, &range->count))
            return false;
        *word += 2;
    } else if (zrange && !range->by_score && slice_is(option, "byscore")) {
        range->by_score = true;
    } else if (zrange && !range->by_lex && slice_is(option, "bylex")) {
        range->by_lex = true;
    } else if (zrange && !range->reversed && slice_is(option, "rev")) {
        range->reversed = true;
    } else {
        reply_error(call, SYNTAX_ERROR);
        return false;
    }
    return true;
}

static void reply_range(struct call *call, bool zrange)
{
    struct range range = {.by_score = !zrange, .count = -1};
    struct bound from, to;
    struct key *key;
    struct part part;
    for (unsigned i = 4; i < call->count; i++)
        if (!range_option(call, &i, zrange, &range))
            return;
    if (range.limited && !range.by_score && !range.by_lex) {
        reply_error(call, "ERR syntax error, LIMIT is only supported in combination with either "
                          "BYSCORE or BYLEX");
        return;
    }
    unsigned first = range.reversed ? 3 : 2;
    if (range.by_lex) {
        struct slice low = call->words[first], high = call->words[5 - first];
        if (!is_lex_bound(low) || !is_lex_bound(high)) {
            reply_error(call, "ERR min or max not valid string range item");
            return;
        }
        if (!zset_of(call, &key))
            return;
        part =
            limited(part_by_lex(call, key, low, high), range.offset, range.count, range.reversed);
    } else if (range.by_score) {
        if (!read_bounds(call, first, 5 - first, &from, &to) || !zset_of(call, &key))
            return;
        part =
            limited(part_by_score(call, key, from, to), range.offset, range.count, range.reversed);
    } else {
        /* Syntax comes before the kind of key, and only the key says where -1 is. */
        struct part unused;
        if (!part_of_words(call, 2, 0, &unused) || !zset_of(call, &key) ||
            !part_of_words(call, 2, key ? key->count : 0, &part))
            return;
        if (range.reversed && key)
            part.from = key->count - part.from - part.count;
    }
    reply_part(call, key, part, range.reversed, range.with_scores);
}

void cmd_zrange(struct call *call)
{
    reply_range(call, true);
}

void cmd_zrangebyscore(struct call *call)
{
    reply_range(call, false);
}

static void remove_part(struct call *call, struct key *key, struct part part)
{
    reply_integer(call, part.count);
    if (part.count)
        store_remove(&call->model->store, key, part.from, part.count);
}

void cmd_zremrangebyrank(struct call *call)
{
    struct part part;
    struct key *key;
    if (part_of_words(call, 2, 0, &part) && zset_of(call, &key) &&
        part_of_words(call, 2, key ? key->count : 0, &part))
        remove_part(call, key, part);
}

void cmd_zremrangebyscore(struct call *call)
{
    struct bound from, to;
    struct key *key;
    if (read_bounds(call, 2, 3, &from, &to) && zset_of(call, &key))
        remove_part(call, key, part_by_score(call, key, from, to));
}
