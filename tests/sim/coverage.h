/* coverage.h - which states of a claim met which inputs: every pair that claim.def knows, how often it was met, and
 * those that never were. Included once by a simulator. */
#pragma once
#include "core/claim.h"

#include <stdio.h>

static uint64_t covered[HF_S_COUNT][HF_I_COUNT];

/* Pairs that a simulator need not meet: nothing in its world makes them, or hardly anything. Those are stepped through
 * by tests/unit/core_claim_table.c alone. -1: any. */
struct excuse {
    int state, input;
};

static bool is_excused(const struct excuse *excuses, unsigned state, unsigned in)
{
    for (; excuses->state != HF_S_COUNT; excuses++)
        if ((excuses->state < 0 || excuses->state == (int)state) && (excuses->input < 0 || excuses->input == (int)in))
            return true;
    return false;
}

static void print_coverage(void)
{
    printf("# %-10s", "");
    for (unsigned in = 0; in < HF_I_COUNT; in++)
        printf(" %8.8s", hf_input_name(in));
    putchar('\n');
    for (unsigned state = 0; state < HF_S_COUNT; state++) {
        printf("# %-10s", hf_state_name(state));
        for (unsigned in = 0; in < HF_I_COUNT; in++) {
            if (hf_claim_legal(state, in))
                printf(" %8llu", (unsigned long long)covered[state][in]);
            else
                printf(" %8s", covered[state][in] ? "illegal" : ".");
        }
        putchar('\n');
    }
}

/* Names every pair that was never met; false: one of them has no excuse. `excuses` end with HF_S_COUNT. */
static bool all_pairs_met(const struct excuse *excuses)
{
    unsigned missing = 0;
    const char *comma = "";
    printf("# not met, as nothing here brings it about:");
    for (unsigned state = 0; state < HF_S_COUNT; state++)
        for (unsigned in = 0; in < HF_I_COUNT; in++) {
            if (!hf_claim_legal(state, in) || covered[state][in])
                continue;
            bool may = is_excused(excuses, state, in);
            missing += !may;
            printf("%s %s in %s%s", comma, hf_input_name(in), hf_state_name(state), may ? "" : " (which should be)");
            comma = ",";
        }
    putchar('\n');
    return !missing;
}
