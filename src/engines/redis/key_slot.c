/* key_slot.c - the slots of a cluster. */
#include "key_slot.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* CRC-16 with the polynomial 0x1021: four bits at a time. */
static inline uint16_t add_byte(uint16_t sum, uint8_t byte)
{
    static const uint16_t of_bits[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                         0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                         0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    sum = (uint16_t)(sum << 4 ^ of_bits[sum >> 12 ^ byte >> 4]);
    return (uint16_t)(sum << 4 ^ of_bits[sum >> 12 ^ (byte & 15)]);
}

static uint16_t checksum(const char *text, size_t len)
{
    uint16_t sum = 0;
    for (size_t i = 0; i < len; i++)
        sum = add_byte(sum, (uint8_t)text[i]);
    return sum;
}

/* Returns the hash tag of a key; NULL: it has none. */
static const char *tag_of(const char *key, size_t len, size_t *tag_len)
{
    const char *open = memchr(key, '{', len);
    if (!open)
        return NULL;

    size_t left = len - (size_t)(open + 1 - key);
    const char *close = memchr(open + 1, '}', left);
    if (!close || close == open + 1)
        return NULL;

    *tag_len = (size_t)(close - open - 1);
    return open + 1;
}

bool redis_slot_has_tag(const char *key, size_t len)
{
    size_t tag_len;
    return tag_of(key, len, &tag_len) != NULL;
}

unsigned redis_slot_of(const char *key, size_t len)
{
    size_t tag_len;
    const char *tag = tag_of(key, len, &tag_len);
    unsigned sum = tag ? checksum(tag, tag_len) : checksum(key, len);
    return sum % CLUSTER_SLOTS;
}

/* Finds a short hexadecimal number that falls into that slot as a hash tag. Checksums are spread
 * evenly: every slot has a number below 2^20. The checksum of all digits but the last is computed
 * once for 16 numbers. */
void redis_slot_tag(unsigned slot, char tag[SLOT_TAG_MAX])
{
    static const char digits[] = "0123456789abcdef";
    assert(slot < CLUSTER_SLOTS);
    for (unsigned high = 0;; high++) {
        int len = high ? snprintf(tag, SLOT_TAG_MAX - 1, "%x", high) : 0;
        uint16_t sum = checksum(tag, (size_t)len);
        for (int low = 0; low < 16; low++)
            if (add_byte(sum, (uint8_t)digits[low]) % CLUSTER_SLOTS == slot) {
                tag[len] = digits[low];
                tag[len + 1] = 0;
                return;
            }
    }
}
