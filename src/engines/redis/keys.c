/* keys.c - how names and ids are written in the server. */
#include "keys.h"

#include "base/name.h"
#include "base/why.h"

#include <stdio.h>
#include <string.h>

static bool is_reserved(char first)
{
    return first == '{' || first == '~';
}

hf_status hf_keys_check(const char *prefix)
{
    if (is_reserved(prefix[0]))
        return hf_why(HF_CONFIG, "prefix=%.80s: must not begin with { or ~, as the keys beside a lock do", prefix);
    return HF_OK;
}

hf_status hf_keys_of(struct hf_keys *keys, const char *prefix, const char *name, size_t len)
{
    size_t before = strlen(prefix);
    if (before == 0 && is_reserved(name[0]))
        return hf_why(HF_INVALID, "%.*s: without a prefix a name must not begin with { or ~", (int)len, name);
    keys->lock_len = before + len;
    memcpy(keys->lock, prefix, before);
    memcpy(keys->lock + before, name, len);
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

const char *hf_keys_name(const char *prefix, const char *key, size_t len)
{
    size_t before = strlen(prefix), place;
    if (len <= before || memcmp(key, prefix, before) != 0 || is_reserved(key[0]) || len - before > HF_NAME_MAX)
        return NULL;
    return hf_name_flaw(key + before, len - before, &place) ? NULL : key + before;
}

const char *hf_keys_channel(const struct hf_keys *keys, char channel[HF_KEY_MAX])
{
    memcpy(channel, keys->companion, keys->companion_len);
    channel[keys->companion_len] = 0;
    channel[keys->letter] = 'f';
    return channel;
}

void hf_id_text(const struct hf_id *id, char text[HF_ID_TEXT + 1])
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const uint8_t *b = id->b;
    for (char *out = text; b < id->b + 15; b += 3, out += 4) {
        out[0] = alphabet[b[0] >> 2];
        out[1] = alphabet[(b[0] << 4 | b[1] >> 4) & 63];
        out[2] = alphabet[(b[1] << 2 | b[2] >> 6) & 63];
        out[3] = alphabet[b[2] & 63];
    }
    text[20] = alphabet[*b >> 2]; /* the 16th has two letters of its own */
    text[21] = alphabet[*b << 4 & 63];
    text[22] = 0;
}

void hf_keys_pattern(const char *prefix, size_t len, char *pattern, size_t size)
{
    size_t out = 0;
    for (size_t i = 0; i < len && out + 3 < size; i++) {
        if (strchr("*?[]\\^", prefix[i]))
            pattern[out++] = '\\';
        pattern[out++] = prefix[i];
    }
    pattern[out++] = '*';
    pattern[out] = 0;
}
