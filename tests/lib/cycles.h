/* cycles.h - uncontended cycles, and what each of them costs: allocations, system calls,
 * instructions. For the last two the program runs itself under strace and callgrind. What comes out
 * is judged by counts.h. */
#pragma once
#include "holdfast.h"

#include <stdbool.h>

/* What is done beside each cycle, to see that the count would show it. */
enum plant { PLANT_NOTHING, PLANT_ALLOCATION, PLANT_CALL };

/* The first line of main(): the part that runs under the tools. -1: the arguments ask for something
 * else. */
int cycles_part(int argc, char **argv);

/* Of every kind of lock in turn; false: one failed. */
bool run_cycles(hf_client *client, int count);

/* These open a client there and count what each cycle costs, of every kind in turn. */

double count_allocations(const char *url, enum plant plant); /* of all threads */
/* Of this process until now, also by shared libraries: for cycles of a test's own. */
unsigned long allocations_so_far(void);

/* What each of many locks with names of 32 bytes, held and renewed by one client, takes of this
 * process's heap; so many bytes are planted beside each. */
double count_held_bytes(const char *url, size_t planted);

/* By the thread that makes the cycles; what other threads did meanwhile is in `strays`. */
struct calls {
    double sends, receives, polls; /* that moved bytes, or slept */
    double spins; /* looks that do not sleep: polls without time, receives of nothing */
    double others, strays;
};
struct calls count_calls(const char *url, enum plant plant);

/* Of the thread that makes the cycles, which are all of a plain lock here. So many are planted in
 * each. */
double count_instructions(const char *url, int planted);
