/* model_keys.c - commands on keys of any kind, and on strings. */
#include "model_internal.h"

#include <limits.h>
#include <string.h>

/* ---- Keys ---- */

void cmd_del(struct call *call)
{
    int64_t gone = 0;
    for (unsigned i = 1; i < call->count; i++) {
        struct key *key = key_find(call, call->words[i]);
        if (key)
            store_drop(key);
        gone += key != NULL;
    }
    reply_integer(call, gone);
}

void cmd_exists(struct call *call)
{
    int64_t there = 0;
    for (unsigned i = 1; i < call->count; i++)
        there += key_find(call, call->words[i]) != NULL;
    reply_integer(call, there);
}

static const char *kind_name(const struct key *key)
{
    static const char *const names[] = {
        [NOTHING] = "none", [STRING] = "string", [LIST] = "list", [HASH] = "hash", [ZSET] = "zset"};
    return names[key ? key->kind : NOTHING];
}

void cmd_type(struct call *call)
{
    reply_status(call, kind_name(key_find(call, call->words[1])));
}

void cmd_pttl(struct call *call)
{
    const struct key *key = key_find(call, call->words[1]);
    if (!key || key->expires_ms < 0) {
        reply_integer(call, key ? -1 : -2);
        return;
    }
    int64_t left = key->expires_ms - now_ms(call->model);
    reply_integer(call, left < 0 ? 0 : left);
}

void cmd_persist(struct call *call)
{
    struct key *key = key_find(call, call->words[1]);
    reply_integer(call, key && key->expires_ms >= 0);
    if (key)
        key->expires_ms = -1;
}

/* ---- PEXPIRE ---- */

enum { NX = 1, XX = 2, GT = 4, LT = 8 };

static bool expire_conditions(struct call *call, unsigned *conditions)
{
    for (unsigned i = 3; i < call->count; i++) {
        struct slice word = call->words[i];
        unsigned one = slice_is(word, "nx")   ? NX
                       : slice_is(word, "xx") ? XX
                       : slice_is(word, "gt") ? GT
                       : slice_is(word, "lt") ? LT
                                              : 0;
        if (!one) {
            reply_errorf(call, "ERR Unsupported option %.*s", (int)word.len, word.bytes);
            return false;
        }
        *conditions |= one;
    }
    bool both = *conditions & NX && *conditions & (XX | GT | LT);
    if (both)
        reply_error(call, "ERR NX and XX, GT or LT options at the same time are not compatible");
    else if ((*conditions & (GT | LT)) == (GT | LT))
        reply_error(call, "ERR GT and LT options at the same time are not compatible");
    else
        return true;
    return false;
}

/* No end is later than any end. */
static bool may_expire(const struct key *key, int64_t when, unsigned conditions)
{
    bool ends = key->expires_ms >= 0;
    return !((conditions & NX && ends) || (conditions & XX && !ends) ||
             (conditions & GT && (!ends || when <= key->expires_ms)) ||
             (conditions & LT && ends && when >= key->expires_ms));
}

void cmd_pexpire(struct call *call)
{
    unsigned conditions = 0;
    int64_t when;
    if (!expire_conditions(call, &conditions) || !word_integer(call, 2, &when))
        return;
    if (when > INT64_MAX - now_ms(call->model)) {
        reply_error(call, "ERR invalid expire time in 'pexpire' command");
        return;
    }
    when += now_ms(call->model);
    struct key *key = key_find(call, call->words[1]);
    bool changes = key && may_expire(key, when, conditions);
    if (changes && when <= now_ms(call->model))
        store_drop(key);
    else if (changes)
        key->expires_ms = when;
    reply_integer(call, changes);
}

/* ---- SCAN ---- */

/* One element of a pattern in brackets; moves *pattern behind it. */
static bool in_brackets(struct slice *pattern, char c)
{
    bool inverted = pattern->len > 1 && pattern->bytes[1] == '^', found = false;
    size_t i = inverted ? 2 : 1;
    for (; i < pattern->len && pattern->bytes[i] != ']'; i++) {
        const char *at = pattern->bytes + i;
        if (*at == '\\' && i + 1 < pattern->len) {
            found |= at[1] == c;
            i++;
        } else if (i + 2 < pattern->len && at[1] == '-') {
            char low = at[0] < at[2] ? at[0] : at[2], high = at[0] < at[2] ? at[2] : at[0];
            found |= c >= low && c <= high;
            i += 2;
        } else {
            found |= *at == c;
        }
    }
    i += i < pattern->len;
    *pattern = (struct slice){pattern->bytes + i, pattern->len - i};
    return found != inverted;
}

static bool matches(struct slice pattern, struct slice text)
{
    while (pattern.len) {
        if (pattern.bytes[0] == '*') {
            struct slice rest = {pattern.bytes + 1, pattern.len - 1};
            for (size_t i = 0; i <= text.len; i++)
                if (matches(rest, (struct slice){text.bytes + i, text.len - i}))
                    return true;
            return false;
        }
        if (!text.len)
            return false;
        if (pattern.bytes[0] == '[') {
            if (!in_brackets(&pattern, text.bytes[0]))
                return false;
        } else {
            bool any = pattern.bytes[0] == '?';
            size_t literal = pattern.bytes[0] == '\\' && pattern.len > 1;
            if (!any && pattern.bytes[literal] != text.bytes[0])
                return false;
            pattern = (struct slice){pattern.bytes + 1 + literal, pattern.len - 1 - literal};
        }
        text = (struct slice){text.bytes + 1, text.len - 1};
    }
    return !text.len;
}

struct scan {
    int64_t from, count;
    const struct slice *pattern, *kind;
};

static bool scan_options(struct call *call, struct scan *scan)
{
    for (unsigned i = 2; i < call->count; i += 2) {
        const struct slice *option = &call->words[i], *value = option + 1;
        if (i + 1 == call->count) {
            reply_error(call, SYNTAX_ERROR);
            return false;
        }
        if (slice_is(*option, "match")) {
            scan->pattern = value;
        } else if (slice_is(*option, "type")) {
            scan->kind = value;
        } else if (slice_is(*option, "count")) {
            if (!word_integer(call, i + 1, &scan->count))
                return false;
        } else {
            scan->count = 0;
        }
        if (scan->count < 1) {
            reply_error(call, SYNTAX_ERROR);
            return false;
        }
    }
    return true;
}

static bool scan_shows(struct call *call, struct key *slot, const struct scan *scan)
{
    struct slice name = store_text(&call->model->store, slot->name);
    return slot->kind != NOTHING && slot->db == *call->db && key_find(call, name) &&
           (!scan->pattern || matches(*scan->pattern, name)) &&
           (!scan->kind || slice_is(*scan->kind, kind_name(slot)));
}

/* The cursor is the next slot. */
void cmd_scan(struct call *call)
{
    struct scan scan = {.count = 10};
    if (!slice_integer(call->words[1], &scan.from) || scan.from < 0) {
        reply_error(call, "ERR invalid cursor");
        return;
    }
    if (!scan_options(call, &scan))
        return;
    struct store *store = &call->model->store;
    int64_t end =
        scan.count < store->key_count - scan.from ? scan.from + scan.count : store->key_count;
    size_t shown = 0;
    for (int64_t i = scan.from; i < end; i++)
        shown += scan_shows(call, &store->keys[i], &scan);
    char cursor[21];
    reply_array(call, 2);
    reply_bulk(call,
               (struct slice){cursor, integer_print(cursor, end < store->key_count ? end : 0)});
    reply_array(call, shown);
    for (int64_t i = scan.from; i < end; i++)
        if (scan_shows(call, &store->keys[i], &scan))
            reply_text(call, store->keys[i].name);
}

/* ---- Strings ---- */

void cmd_get(struct call *call)
{
    struct key *key;
    if (!key_of_kind(call, call->words[1], STRING, &key))
        return;
    if (key)
        reply_text(call, store_items(&call->model->store, key)->name);
    else
        reply_null(call);
}

struct set {
    bool nx, xx, get, keep_ttl;
    unsigned px, ex; /* the word with the time */
};

static bool set_option(struct call *call, unsigned *word, struct set *set)
{
    struct slice option = call->words[*word];
    bool more = *word + 1 < call->count, timed = set->px || set->ex || set->keep_ttl;
    if (slice_is(option, "nx") && !set->xx)
        set->nx = true;
    else if (slice_is(option, "xx") && !set->nx)
        set->xx = true;
    else if (slice_is(option, "get"))
        set->get = true;
    else if (slice_is(option, "keepttl") && !set->px && !set->ex)
        set->keep_ttl = true;
    else if (slice_is(option, "px") && more && !timed)
        set->px = ++*word;
    else if (slice_is(option, "ex") && more && !timed)
        set->ex = ++*word;
    else
        return false;
    return true;
}

/* *expires_ms is -1 if the key is to stay. */
static bool set_options(struct call *call, struct set *set, int64_t *expires_ms)
{
    for (unsigned i = 3; i < call->count; i++) {
        if (!set_option(call, &i, set)) {
            reply_error(call, SYNTAX_ERROR);
            return false;
        }
    }
    *expires_ms = -1;
    if (!set->px && !set->ex)
        return true;
    int64_t ms;
    if (!word_integer(call, set->px ? set->px : set->ex, &ms))
        return false;
    if (ms <= 0 || (set->ex && __builtin_mul_overflow(ms, 1000, &ms)) ||
        __builtin_add_overflow(ms, now_ms(call->model), expires_ms)) {
        reply_error(call, "ERR invalid expire time in 'set' command");
        return false;
    }
    return true;
}

static void put_string(struct call *call, struct key *key, struct slice value)
{
    if (!key->count)
        store_insert(&call->model->store, key, 0);
    store_items(&call->model->store, key)->name = store_keep(&call->model->store, value);
}

static void overwrite(struct call *call, struct key *key, const struct set *set, int64_t expires_ms)
{
    bool keep = set->keep_ttl || (call->model->plant == MODEL_FORGETS_KEEPS && expires_ms < 0);
    if (key && key->kind != STRING) {
        key->kind = STRING;
        key->count = key->room = 0;
    } else if (!key) {
        key = key_make(call, call->words[1], STRING);
    }
    put_string(call, key, call->words[2]);
    if (!keep)
        key->expires_ms = expires_ms;
}

void cmd_set(struct call *call)
{
    struct set set = {0};
    int64_t expires_ms;
    if (!set_options(call, &set, &expires_ms))
        return;
    struct key *key = key_find(call, call->words[1]);
    if (set.get && key && key->kind != STRING) {
        key_of_kind(call, call->words[1], STRING, &key);
        return;
    }
    bool refused = (set.nx && key) || (set.xx && !key);
    if (set.get && key)
        reply_text(call, store_items(&call->model->store, key)->name);
    else if (set.get || refused)
        reply_null(call);
    else
        reply_status(call, "OK");
    if (!refused)
        overwrite(call, key, &set, expires_ms);
}

void cmd_incrby(struct call *call)
{
    int64_t by, value = 0;
    struct key *key;
    if (!word_integer(call, 2, &by) || !key_of_kind(call, call->words[1], STRING, &key))
        return;
    struct store *store = &call->model->store;
    if (key && !slice_integer(store_text(store, store_items(store, key)->name), &value)) {
        reply_error(call, NOT_AN_INTEGER);
        return;
    }
    if (__builtin_add_overflow(value, by, &value)) {
        reply_error(call, "ERR increment or decrement would overflow");
        return;
    }
    if (!key)
        key = key_make(call, call->words[1], STRING);
    char digits[21];
    put_string(call, key, (struct slice){digits, integer_print(digits, value)});
    reply_integer(call, value);
}
