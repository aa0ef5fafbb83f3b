/* key_cache.c - writes the beginning of a call: the verb, and the keys of one lock.
 *
 * The keys follow from the name alone. They are cached in wire format for names that were used
 * recently: a release follows its acquire, and most handles are used for the same name again. */
#include "redis.h"

#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { CALL_MOST = 96 };

/* Returns the verb as this client calls it: servers of a quorum have some verbs of their own. */
static const struct script_verb *verb_of(const struct redis *r, enum script_id script)
{
    static const enum script_id of_quorum[SCRIPT_QUORUM_ACQUIRE] = {
        [SCRIPT_ACQUIRE] = SCRIPT_QUORUM_ACQUIRE,
        [SCRIPT_RELEASE] = SCRIPT_QUORUM_RELEASE,
        [SCRIPT_INSPECT] = SCRIPT_QUORUM_INSPECT};
    bool is_other = r->is_quorum_member && script < SCRIPT_QUORUM_ACQUIRE && of_quorum[script] != 0;
    return &redis_script_verbs[is_other ? of_quorum[script] : script];
}

unsigned redis_keys_of_lock(const struct redis *r)
{
    _Static_assert(REDIS_KEYS_QUORUM < 10, "add_call() writes one digit");
    if (r->is_quorum_member || r->cluster.is_on)
        return REDIS_KEYS_QUORUM;
    return r->box[0] == 'i' ? REDIS_KEYS_BRIEF : REDIS_KEYS;
}

hf_status redis_keys_here(const struct redis *r, struct redis_keys *keys, const char *name,
                          size_t len)
{
    return r->cluster.is_on ? redis_keys_in_cluster(keys, r->prefix, name, len)
                            : redis_keys_of(keys, r->prefix, name, len);
}

/* Writes the companion keys. They differ in one letter, so the first is written and copied. */
static void add_companions(struct resp_command *c, const struct redis_keys *keys, unsigned count)
{
    static const char letters[] = REDIS_COMPANION_LETTERS;
    assert(count < sizeof letters);
    char *first = resp_command_room(c, count * (keys->companion_len + RESP_FRAME_MAX));
    if (!first)
        return;

    char *end = resp_put_word(first, keys->companion, keys->companion_len);
    size_t len = (size_t)(end - first), letter = len - 2 - keys->companion_len + keys->letter;
    first[letter] = letters[0];

    for (unsigned i = 1; i < count; i++, end += len) {
        memcpy(end, first, len);
        end[letter] = letters[i];
    }

    resp_command_end(c, end);
}

/* Writes "FCALL", the function and the number of keys; or "EVALSHA", the script and the number
 * of keys. */
static void add_call(struct redis *r, enum script_id script, unsigned keys, unsigned arguments)
{
    struct resp_command *c = &r->command;
    const struct script_verb *verb = verb_of(r, script);
    const struct script_words *words = r->by_scripts ? &verb->evalsha : &verb->fcall;

    resp_command_begin(c, 3 + keys + r->by_scripts + arguments);
    char *to = resp_command_room(c, CALL_MOST);
    if (!to)
        return;

    assert(words->len + 3 <= CALL_MOST && keys < 10);
    to = (char *)mempcpy(to, words->bytes, words->len);
    *to++ = (char)('0' + keys);
    *to++ = '\r';
    *to++ = '\n';
    resp_command_end(c, to);
}

/* The words end with "$1", for a number of one digit. Here the number may be longer, so that end is
 * left out. */
void redis_script_begin_several(struct redis *r, enum script_id script, unsigned keys,
                                unsigned arguments)
{
    static const char one_digit[] = "$1\r\n";
    const struct script_verb *verb = verb_of(r, script);
    const struct script_words *words = r->by_scripts ? &verb->evalsha : &verb->fcall;

    resp_command_begin(&r->command, 3 + keys + r->by_scripts + arguments);
    resp_command_words(&r->command, words->bytes, words->len - (sizeof one_digit - 1));
    resp_command_number(&r->command, keys);
}

void redis_script_keys(struct redis *r, const struct cached_keys *cached)
{
    resp_command_words(&r->command, cached->words.bytes, cached->words.len);
}

/* EVALSHA: writes the verb behind the keys, because one script runs several verbs. */
void redis_script_verb(struct redis *r, enum script_id script)
{
    const struct script_words *word = &verb_of(r, script)->word;

    if (r->by_scripts)
        resp_command_words(&r->command, word->bytes, word->len);
}

bool redis_script_begin_uncached(struct redis *r, enum script_id script,
                                 const struct redis_keys *keys, unsigned arguments)
{
    assert(script < SCRIPT_VERBS);
    add_call(r, script, redis_keys_of_lock(r), arguments);
    resp_command_word(&r->command, keys->lock, keys->lock_len);
    add_companions(&r->command, keys, redis_keys_of_lock(r) - 1);
    redis_script_verb(r, script);
    return !r->command.failed;
}

/* Begins a call with the keys of the index: the set of names, and the mark that the set is
 * whole. */
void redis_script_begin_index(struct redis *r, enum script_id script, unsigned arguments)
{
    char key[REDIS_PREFIX_MAX + 24];
    add_call(r, script, 2, arguments);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "{%s}:names%s", r->prefix, i ? ":whole" : "");
        resp_command_text(&r->command, key);
    }

    redis_script_verb(r, script);
}

/* ---- The cache ---- */

static bool is_for(const struct cached_keys *cached, const char *name, size_t len)
{
    return cached->words.len && cached->name_len == len &&
           memcmp(cached->words.bytes + cached->name_at, name, len) == 0;
}

static hf_status fill(const struct redis *r, struct cached_keys *cached, const char *name,
                      size_t len)
{
    struct redis_keys keys;
    struct resp_command *c = &cached->words;
    hf_status status = redis_keys_here(r, &keys, name, len);
    c->len = 0;
    if (status != HF_OK)
        return status;

    resp_command_word(c, keys.lock, keys.lock_len);
    cached->lock_len = c->len;
    add_companions(c, &keys, redis_keys_of_lock(r) - 1);
    cached->two_len = cached->lock_len + (c->len - cached->lock_len) / (redis_keys_of_lock(r) - 1);
    if (c->failed) {
        resp_command_free(c);
        return error_set(HF_NO_MEMORY, "no memory to send");
    }

    assert(c->len > cached->lock_len);
    cached->name_at = cached->lock_len - 2 - len;
    cached->name_len = len;
    return HF_OK;
}

hf_status redis_key_cache_find(struct redis *r, const char *name, size_t len,
                               const struct cached_keys **out)
{
    /* A lease handle keeps its name at the same address, so that address selects the place in the
     * cache. */
    struct cached_keys *cached = &r->cached[(uintptr_t)name / 64 % CACHED_KEYS];

    *out = cached;
    return is_for(cached, name, len) ? HF_OK : fill(r, cached, name, len);
}

/* ---- Names in the server's index ---- */

/* FNV-1a with 64 bits: another name with the same hash would be missing in lists. */
static uint64_t hash_of(const char *name, size_t len)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(1099511628211);
    return hash;
}

bool redis_key_cache_is_listed(const struct redis *r, const char *name, size_t len, nanos now)
{
    uint64_t hash = hash_of(name, len);
    const struct listed_name *listed = &r->listed[hash % LISTED_NAMES];
    return listed->hash == hash && listed->until > now;
}

void redis_key_cache_set_listed(struct redis *r, const char *name, size_t len, nanos now)
{
    uint64_t hash = hash_of(name, len);
    r->listed[hash % LISTED_NAMES] = (struct listed_name){hash, now + LISTED_FOR};
}

void redis_key_cache_unlist(struct redis *r)
{
    memset(r->listed, 0, sizeof r->listed);
}

/* ---- Calls ---- */

void redis_script_begin(struct redis *r, enum script_id script, const struct cached_keys *cached,
                        unsigned arguments)
{
    add_call(r, script, redis_keys_of_lock(r), arguments);
    resp_command_words(&r->command, cached->words.bytes, cached->words.len);
    redis_script_verb(r, script);
}

void redis_script_begin_two_keys(struct redis *r, enum script_id script,
                                 const struct cached_keys *cached, unsigned arguments)
{
    add_call(r, script, 2, arguments);
    resp_command_words(&r->command, cached->words.bytes, cached->two_len);
    redis_script_verb(r, script);
}

void redis_script_begin_one_key(struct redis *r, enum script_id script,
                                const struct cached_keys *cached, unsigned arguments)
{
    add_call(r, script, 1, arguments);
    resp_command_words(&r->command, cached->words.bytes, cached->lock_len);
    redis_script_verb(r, script);
}

void redis_key_cache_free(struct redis *r)
{
    for (int i = 0; i < CACHED_KEYS; i++)
        resp_command_free(&r->cached[i].words);
}
