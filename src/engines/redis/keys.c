/* keys.c - how names and ids are written in the server. */
#include "keys.h"

#include "base/name.h"
#include "base/why.h"

#include <endian.h>
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

/* From the front, and in the order of the bytes. */
static uint64_t eight_bytes(const uint8_t *b)
{
    uint64_t word;
    memcpy(&word, b, sizeof word);
    return be64toh(word);
}

void hf_id_text(const struct hf_id *id, char text[HF_ID_TEXT + 1])
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint64_t high = eight_bytes(id->b), low = eight_bytes(id->b + 8), two = low >> 62;
    low <<= 2; /* they stand in one letter with the last four of the first half */
    for (int i = 0; i < 10; i++, high <<= 6, low <<= 6) {
        text[i] = alphabet[high >> 58];
        text[11 + i] = alphabet[low >> 58];
    }
    text[10] = alphabet[high >> 58 | two];
    text[21] = alphabet[low >> 58];
    text[22] = 0;
}

/* -1: no letter of an id. */
static int value_of(char letter)
{
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    return letter == '-' ? 62 : letter == '_' ? 63 : -1;
}

bool hf_id_read(const char text[HF_ID_TEXT], struct hf_id *id)
{
    uint32_t bits = 0;
    unsigned count = 0;
    uint8_t *out = id->b;
    for (int i = 0; i < HF_ID_TEXT; i++) {
        int value = value_of(text[i]);
        if (value < 0)
            return false;
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count >= 8)
            *out++ = (uint8_t)(bits >> (count -= 8));
    }
    return (bits & 15) == 0; /* those that are left over */
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
