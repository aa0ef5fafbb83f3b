/* io_spin.h - learns from past waits whether spinning pays; io_spin.c says what spinning is.
 *
 * A *miss* is a wait whose reply came after the spin had ended. Each miss in a row doubles the
 * number of the following waits that sleep without spinning. A *hit* halves the count of misses:
 * one hit may be chance; after four hits spinning is tried on every wait again. */
#pragma once
#include <assert.h>
#include <stdbool.h>

/* Where spinning never pays, one wait in 2^12 spins, which costs about 10 ns per wait on
 * average. */
enum { IO_SPIN_MISSES_MAX = 12 };

struct io_spin {
    unsigned misses; /* count, halved by each hit */
    unsigned rest;   /* number of waits that sleep without spinning before the next spin */
};

static inline bool io_spin_pays(struct io_spin *spin)
{
    if (!spin->rest)
        return true;

    spin->rest--;
    return false;
}

static inline void io_spin_learn(struct io_spin *spin, bool hit)
{
    assert(spin->misses <= IO_SPIN_MISSES_MAX);

    if (hit)
        spin->misses /= 2;
    else if (spin->misses < IO_SPIN_MISSES_MAX)
        spin->misses++;
    spin->rest = (1u << spin->misses) - 1;
}
