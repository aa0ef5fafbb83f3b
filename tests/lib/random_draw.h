/* random_draw.h - chance, for tests in which everything happens at once: drawn from one seed, which
 * is printed, so that a run can be repeated as far as the machine allows. */
#pragma once
#include "sentence.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t seed;

static inline uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

/* Draws from the seed that was given; without one, or with 0, from a new one. */
static inline void draw_from(const char *given)
{
    seed = given ? strtoull(given, NULL, 10) : 0;
    if (seed == 0)
        seed = (uint64_t)arc4random() << 32 | arc4random();
    print_message("# seed %llu\n", (unsigned long long)seed);
}

/* Makes this process draw other numbers than the one that started it. */
static inline void draw_apart(void)
{
    seed ^= (uint64_t)getpid() * UINT64_C(0x9e3779b97f4a7c15);
}
