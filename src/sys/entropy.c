/* entropy.c - unguessable ids without a system call each. */
#include "entropy.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static inline uint32_t rotate(uint32_t v, int bits)
{
    return v << bits | v >> (32 - bits);
}

/* A macro, so that the sixteen words stay in registers. */
#define QUARTER(a, b, c, d)                                                                                            \
    (a += b, d = rotate(d ^ a, 16), c += d, b = rotate(b ^ c, 12), a += b, d = rotate(d ^ a, 8), c += d,               \
     b = rotate(b ^ c, 7))

void hf_chacha_block(const uint32_t state[16], uint8_t out[64])
{
    uint32_t w[16];
    memcpy(w, state, sizeof w);
    for (int round = 0; round < 10; round++) {
        QUARTER(w[0], w[4], w[8], w[12]);
        QUARTER(w[1], w[5], w[9], w[13]);
        QUARTER(w[2], w[6], w[10], w[14]);
        QUARTER(w[3], w[7], w[11], w[15]);
        QUARTER(w[0], w[5], w[10], w[15]);
        QUARTER(w[1], w[6], w[11], w[12]);
        QUARTER(w[2], w[7], w[8], w[13]);
        QUARTER(w[3], w[4], w[9], w[14]);
    }
    for (int i = 0; i < 16; i++) {
        w[i] += state[i];
        out[4 * i] = (uint8_t)w[i], out[4 * i + 1] = (uint8_t)(w[i] >> 8);
        out[4 * i + 2] = (uint8_t)(w[i] >> 16), out[4 * i + 3] = (uint8_t)(w[i] >> 24);
    }
}

int hf_entropy_seed(struct hf_entropy *e)
{
    static const uint32_t constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    memset(e, 0, sizeof *e);
    memcpy(e->state, constants, sizeof constants);
    e->used = sizeof e->block;
    size_t got = 0;
    while (got < 32) {
        ssize_t n = getrandom((uint8_t *)(e->state + 4) + got, 32 - got, 0);
        if (n < 0 && errno != EINTR)
            return errno;
        got += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

void hf_entropy_take(struct hf_entropy *e, void *out, size_t len)
{
    for (uint8_t *to = out; len;) {
        if (e->used == sizeof e->block) {
            hf_chacha_block(e->state, e->block);
            if (++e->state[12] == 0)
                e->state[13]++;
            e->used = 0;
        }
        size_t n = sizeof e->block - e->used;
        n = n < len ? n : len;
        memcpy(to, e->block + e->used, n);
        memset(e->block + e->used, 0, n); /* an id that was given out cannot be read back */
        e->used += (uint32_t)n, to += n, len -= n;
    }
}
