/* entropy.h - unguessable ids without a system call each: ChaCha20 keyed once by getrandom (which costs 381 ns a call).
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct hf_entropy {
    uint32_t state[16]; /* constants, key, counter, nonce */
    uint8_t block[64];
    uint32_t used; /* bytes of block that were given out */
};

int hf_entropy_seed(struct hf_entropy *e); /* 0 or an errno */
void hf_entropy_take(struct hf_entropy *e, void *out, size_t len);

/* One block of the cipher; apart so that a test can hold it against RFC 8439. */
void hf_chacha_block(const uint32_t state[16], uint8_t out[64]);
