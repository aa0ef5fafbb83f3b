/* entropy.h - random ids without a system call each: ChaCha with 8 rounds, keyed once by getrandom.
 * A call of getrandom costs 381 ns, and every acquire needs an id. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct entropy {
    uint32_t state[16]; /* constants, key, counter, nonce */
    uint8_t block[64];
    uint32_t used; /* bytes of block that were used */
};

int entropy_seed(struct entropy *e); /* 0 or an errno */
void entropy_take(struct entropy *e, void *out, size_t len);

enum { ENTROPY_ID = 16 };

/* entropy_take() for the usual size, inline while there are bytes left. */
static inline void entropy_id(struct entropy *e, void *out)
{
    if (e->used > sizeof e->block - ENTROPY_ID) {
        entropy_take(e, out, ENTROPY_ID);
        return;
    }
    memcpy(out, e->block + e->used, ENTROPY_ID);
    memset(e->block + e->used, 0, ENTROPY_ID);
    e->used += ENTROPY_ID;
}

/* Makes one block of the cipher. It is a function of its own, so that a test can compare it with
 * RFC 8439, which has 20 rounds. */
void entropy_chacha_block(const uint32_t state[16], int rounds, uint8_t out[64]);
