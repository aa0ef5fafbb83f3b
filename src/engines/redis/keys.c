/* keys.c - how names and ids are written as keys and texts of the server. */
#include "keys.h"

#include "base/error.h"
#include "base/name.h"
#include "key_slot.h"

#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_companion_letter(char letter)
{
    return letter && strchr(REDIS_COMPANION_LETTERS, letter);
}

/* Returns true for {TAG}~x:KEY. */
static bool is_companion_in_cluster(const char *key, size_t len)
{
    const char *close = memchr(key, '}', len);
    size_t left = close ? len - (size_t)(close - key) : 0;
    bool is_long = left > 4 && close - key < SLOT_TAG_MAX;
    return is_long && close[1] == '~' && is_companion_letter(close[2]) && close[3] == ':';
}

/* Returns true for keys that belong to a lock or a client: {KEY}:x, ~x:KEY and {TAG}~x:KEY are
 * companions of a lock, {PREFIX}:inbox:ID is the inbox of a client, {PREFIX}:names the index of
 * names. */
static bool is_taken(const char *key, size_t len)
{
    bool is_short = len < 4;
    if (is_short)
        return false;
    if (key[0] == '~')
        return key[2] == ':' && is_companion_letter(key[1]);
    if (key[0] != '{')
        return false;

    bool ends_like_companion = key[len - 3] == '}' && key[len - 2] == ':';
    if (ends_like_companion && is_companion_letter(key[len - 1]))
        return true;
    if (is_companion_in_cluster(key, len))
        return true;
    return memmem(key, len, "}:inbox:", strlen("}:inbox:")) ||
           memmem(key, len, "}:names", strlen("}:names"));
}

hf_status redis_keys_of(struct redis_keys *keys, const char *prefix, const char *name, size_t len)
{
    size_t before = strlen(prefix);
    assert(before <= REDIS_PREFIX_MAX && len > 0 && len <= HF_NAME_MAX);

    keys->lock_len = before + len;
    memcpy(keys->lock, prefix, before);
    memcpy(keys->lock + before, name, len);
    if (is_taken(keys->lock, keys->lock_len))
        return error_set(HF_INVALID,
                         "the key %.*s could belong to another lock, as {NAME}:q and ~q:NAME do; "
                         "choose another name or prefix",
                         (int)keys->lock_len, keys->lock);

    char *at = keys->companion;
    if (memchr(keys->lock, '}', keys->lock_len)) {
        memcpy(at, "~x:", 3);
        memcpy(at + 3, keys->lock, keys->lock_len);
        keys->letter = 1;
    } else {
        at[0] = '{';
        memcpy(at + 1, keys->lock, keys->lock_len);
        memcpy(at + 1 + keys->lock_len, "}:", 2);
        keys->letter = keys->lock_len + 3;
    }

    keys->companion_len = keys->lock_len + (keys->letter == 1 ? 3 : 4);
    return HF_OK;
}

hf_status redis_keys_in_cluster(struct redis_keys *keys, const char *prefix, const char *name,
                                size_t len)
{
    hf_status status = redis_keys_of(keys, prefix, name, len);
    bool is_in_slot =
        !memchr(keys->lock, '}', keys->lock_len) || redis_slot_has_tag(keys->lock, keys->lock_len);
    if (status != HF_OK || is_in_slot)
        return status;

    char tag[SLOT_TAG_MAX];
    redis_slot_tag(redis_slot_of(keys->lock, keys->lock_len), tag);
    keys->letter = strlen(tag) + 3;
    keys->companion_len = keys->letter + 2 + keys->lock_len;
    assert(keys->companion_len < sizeof keys->companion);

    snprintf(keys->companion, sizeof keys->companion, "{%s}~x:", tag);
    memcpy(keys->companion + keys->letter + 2, keys->lock, keys->lock_len);
    return HF_OK;
}

const char *redis_keys_name(const char *prefix, const char *key, size_t len)
{
    assert(key);
    size_t before = strlen(prefix), place;
    bool has_prefix = len > before && memcmp(key, prefix, before) == 0;
    if (!has_prefix || is_taken(key, len) || len - before > HF_NAME_MAX)
        return NULL;

    return name_flaw(key + before, len - before, &place) ? NULL : key + before;
}

const char *redis_keys_any_name(const char *prefix, const char *key, size_t len, size_t *name_len)
{
    bool is_braced = len > 4 && key[0] == '{' && memcmp(key + len - 3, "}:t", 3) == 0;
    bool is_marked = len > 3 && memcmp(key, "~t:", 3) == 0;

    if (is_braced)
        key += 1, len -= 4;
    else if (is_marked)
        key += 3, len -= 3;

    const char *name = redis_keys_name(prefix, key, len);
    *name_len = name ? len - (size_t)(name - key) : 0;
    return name;
}

const char *redis_keys_channel(const struct redis_keys *keys, char channel[REDIS_KEY_MAX])
{
    assert(keys->companion_len < REDIS_KEY_MAX && keys->letter < keys->companion_len);
    memcpy(channel, keys->companion, keys->companion_len);
    channel[keys->companion_len] = 0;
    channel[keys->letter] = 'f';
    return channel;
}

/* Reads eight bytes as one number, the highest first. */
static uint64_t eight_bytes(const uint8_t *b)
{
    uint64_t word;
    memcpy(&word, b, sizeof word);
    return be64toh(word);
}

void redis_id_text(const struct id *id, char text[REDIS_ID_TEXT + 1])
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint64_t high = eight_bytes(id->b), low = eight_bytes(id->b + 8), two = low >> 62;

    low <<= 2; /* letter 10 has the last four bits of `high` and the first two of `low` */
    for (int i = 0; i < 10; i++, high <<= 6, low <<= 6) {
        text[i] = alphabet[high >> 58];
        text[11 + i] = alphabet[low >> 58];
    }

    text[10] = alphabet[high >> 58 | two];
    text[21] = alphabet[low >> 58];
    text[22] = 0;
}

/* Returns the value of a letter of an id, or -1. */
static int value_of(char letter)
{
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    if (letter == '-')
        return 62;
    return letter == '_' ? 63 : -1;
}

bool redis_id_read(const char text[REDIS_ID_TEXT], struct id *id)
{
    uint32_t bits = 0;
    unsigned count = 0;
    uint8_t *out = id->b;

    for (int i = 0; i < REDIS_ID_TEXT; i++) {
        int value = value_of(text[i]);
        if (value < 0)
            return false;

        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count >= 8)
            *out++ = (uint8_t)(bits >> (count -= 8));
    }

    assert(out == id->b + sizeof id->b);
    return (bits & 15) == 0; /* the unused four bits must be zero */
}

void redis_keys_pattern(const char *before, const char *prefix, size_t len, char *pattern,
                        size_t size)
{
    size_t out = strlen(before);
    assert(size >= 2 + out);
    memcpy(pattern, before, out);

    for (size_t i = 0; i < len && out + 3 < size; i++) {
        if (strchr("*?[]\\^", prefix[i]))
            pattern[out++] = '\\';
        pattern[out++] = prefix[i];
    }

    pattern[out++] = '*';
    pattern[out] = 0;
}

/* Reads the flags: a letter, and then the round of the request if it is not 0, as in "b12"
 * (wait_replicas.c). */
bool redis_meta_read(const char *text, struct redis_meta *meta)
{
    assert(text);
    char flags[24];
    int host_at = 0, host_end = 0;
    if (sscanf(text, "%" SCNu64 " %23s %" SCNd64 " %n%*s%n", &meta->ticket, flags, &meta->pid,
               &host_at, &host_end) < 3 ||
        !host_end)
        return false;

    meta->detached = flags[0] == 'd';
    meta->host = text + host_at;
    meta->host_len = host_end - host_at;
    meta->label = text[host_end] ? text + host_end + 1 : "";
    return true;
}
