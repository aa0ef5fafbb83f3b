/* id.c - ids made from texts that callers give. */
#include "id.h"

#include <assert.h>

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

/* Two hashes of 64 bits with different starts. Each byte goes into both, in different ways. */
void id_of_text(struct id *id, char salt, const char *text, size_t len)
{
    assert(text || len == 0);

    uint64_t a = mix(0x9e3779b97f4a7c15u ^ (uint8_t)salt),
             b = mix(0xd1b54a32d192ed03u + (uint8_t)salt);
    for (size_t i = 0; i < len; i++) {
        a = (a ^ (uint8_t)text[i]) * 1099511628211u;
        b = mix(b + (uint8_t)text[i] + 1);
    }

    a = mix(a ^ len), b = mix(b ^ a);
    for (int i = 0; i < 8; i++) {
        id->b[i] = (uint8_t)(a >> 8 * i);
        id->b[8 + i] = (uint8_t)(b >> 8 * i);
    }
}
