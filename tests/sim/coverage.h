/* coverage.h - which states of a claim met which inputs: every pair that claim.def knows, how often
 * it was met, and those that never were. Included once by a simulator. */
#pragma once
#include "core/claim.h"

#include <stdio.h>

static uint64_t covered[CLAIM_STATES][INPUT_COUNT];

/* Pairs that a simulator need not meet: nothing in its world makes them, or hardly anything. Those
 * are stepped through by tests/unit/core_claim_table.c alone. -1: any. */
struct excuse {
    int state, input;
};

static bool is_excused(const struct excuse *excuses, unsigned state, unsigned in)
{
    for (; excuses->state != CLAIM_STATES; excuses++)
        if ((excuses->state < 0 || excuses->state == (int)state) &&
            (excuses->input < 0 || excuses->input == (int)in))
            return true;
    return false;
}

static inline void print_coverage(void)
{
    printf("# %-10s", "");
    for (unsigned in = 0; in < INPUT_COUNT; in++)
        printf(" %8.8s", claim_input_name(in));
    putchar('\n');
    for (unsigned state = 0; state < CLAIM_STATES; state++) {
        printf("# %-10s", claim_state_name(state));
        for (unsigned in = 0; in < INPUT_COUNT; in++) {
            if (claim_legal(state, in))
                printf(" %8llu", (unsigned long long)covered[state][in]);
            else
                printf(" %8s", covered[state][in] ? "illegal" : ".");
        }
        putchar('\n');
    }
}

/* Names every pair that was never met; false: one of them has no excuse. `excuses` end with
 * CLAIM_STATES. */
static inline bool all_pairs_met(const struct excuse *excuses)
{
    unsigned missing = 0;
    const char *comma = "";
    printf("# not met, as nothing here brings it about:");
    for (unsigned state = 0; state < CLAIM_STATES; state++)
        for (unsigned in = 0; in < INPUT_COUNT; in++) {
            if (!claim_legal(state, in) || covered[state][in])
                continue;
            bool may = is_excused(excuses, state, in);
            missing += !may;
            printf("%s %s in %s%s", comma, claim_input_name(in), claim_state_name(state),
                   may ? "" : " (which should be)");
            comma = ",";
        }
    putchar('\n');
    return !missing;
}
