/* entropy.c - random ids without a system call each. */
#include "entropy.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

/* The best known attack breaks seven rounds, and ids must only be unique and hard to guess. */
enum { ROUNDS = 8 };

/* The state is four rows of four words. A quarter round works on all four columns at once. */
typedef uint32_t row __attribute__((vector_size(16)));

static inline row rotate(row v, int bits)
{
    return v << bits | v >> (32 - bits);
}

static inline void quarters(row w[4])
{
    w[0] += w[1], w[3] = rotate(w[3] ^ w[0], 16);
    w[2] += w[3], w[1] = rotate(w[1] ^ w[2], 12);
    w[0] += w[1], w[3] = rotate(w[3] ^ w[0], 8);
    w[2] += w[3], w[1] = rotate(w[1] ^ w[2], 7);
}

/* Rotates the rows so that the diagonals become columns; `back` undoes that. */
static inline void turn(row w[4], bool back)
{
    row one = w[back ? 3 : 1], three = w[back ? 1 : 3];
    w[back ? 3 : 1] = __builtin_shufflevector(one, one, 1, 2, 3, 0);
    w[2] = __builtin_shufflevector(w[2], w[2], 2, 3, 0, 1);
    w[back ? 1 : 3] = __builtin_shufflevector(three, three, 3, 0, 1, 2);
}

void entropy_chacha_block(const uint32_t state[16], int rounds, uint8_t out[64])
{
    row before[4], w[4];
    memcpy(before, state, sizeof before);
    memcpy(w, state, sizeof w);
    for (int round = 0; round < rounds; round += 2) {
        quarters(w);
        turn(w, false);
        quarters(w);
        turn(w, true);
    }

    for (int i = 0; i < 4; i++)
        w[i] += before[i];
    memcpy(out, w, sizeof w);
}

int entropy_seed(struct entropy *e)
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

void entropy_take(struct entropy *e, void *out, size_t len)
{
    for (uint8_t *to = out; len;) {
        if (e->used == sizeof e->block) {
            entropy_chacha_block(e->state, ROUNDS, e->block);
            if (++e->state[12] == 0)
                e->state[13]++;
            e->used = 0;
        }
        size_t n = sizeof e->block - e->used;
        n = n < len ? n : len;
        memcpy(to, e->block + e->used, n);
        memset(e->block + e->used, 0, n); /* so that a used id cannot be read from memory */
        e->used += (uint32_t)n, to += n, len -= n;
    }
}
