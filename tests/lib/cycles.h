/* cycles.h - uncontended cycles, and what each of them costs: allocations, system calls,
 * instructions. For the last two the program runs itself under strace and callgrind. counts.h
 * judges the figures. */
#pragma once
#include "holdfast.h"

#include <stdbool.h>

/* A cost that is planted in each cycle, to see that the count would show it. */
enum plant { PLANT_NOTHING, PLANT_ALLOCATION, PLANT_CALL };

/* First line of main(): runs the part that runs under the tools. Returns -1 if the arguments ask
 * for something else. */
int cycles_part(int argc, char **argv);

/* Runs cycles of every kind of lock in turn. Returns false if one failed. */
bool run_cycles(hf_client *client, int count);

/* Open a client at the URL and count what each cycle costs, of every kind in turn. */

double count_allocations(const char *url, enum plant plant); /* by all threads */
/* Returns the number of allocations of this process until now, also by shared libraries: for cycles
 * of a test's own. */
unsigned long allocations_so_far(void);

/* Returns how much of this process's heap each of many locks takes that one client holds and
 * renews, with names of 32 bytes. `planted` further bytes are allocated for each. */
double count_held_bytes(const char *url, size_t planted);

/* System calls of the thread that makes the cycles; those of other threads are in `strays`. */
struct calls {
    double sends, receives, polls; /* calls that moved bytes, or slept */
    double spins; /* calls that do not sleep: polls without time, receives of nothing */
    double others, strays;
};
struct calls count_calls(const char *url, enum plant plant);

/* Counts the instructions of the thread that makes the cycles, all of them cycles of a plain lock.
 * `planted` instructions are added to each. */
double count_instructions(const char *url, int planted);
