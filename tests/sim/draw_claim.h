/* draw_claim.h - writes docs/claim.md from claim.def: the drawing of a claim's states and the table
 * of its steps. */
#pragma once
#include "core/claim.h"

#include <stdio.h>

struct drawn_step {
    unsigned state, input, next;
    const char *action;
};

static const struct drawn_step drawn_steps[] = {
#define CLAIM_STEP(state, input, action, next) {CLAIM_##state, INPUT_##input, next, #action},
#include "core/claim.def"
};

static const char *const drawn_state_texts[] = {
#define CLAIM_STATE(name, text) text,
#include "core/claim.def"
};

static const char *const drawn_input_texts[] = {
#define CLAIM_INPUT(name, text) text,
#include "core/claim.def"
};

#define DRAWN_STEPS (sizeof drawn_steps / sizeof *drawn_steps)

/* One arrow for each pair of states, labelled with all inputs that may lead along it. Arrows back
 * to the same state are left to the table. */
static void draw_arrows(FILE *out, unsigned from)
{
    for (unsigned to = 0; to < CLAIM_STATES; to++) {
        const char *before = "";
        for (size_t i = 0; i < DRAWN_STEPS && to != from; i++) {
            if (drawn_steps[i].state != from || !(drawn_steps[i].next & 1u << to))
                continue;
            if (!*before)
                fprintf(out, "    %s --> %s: ", claim_state_name(from), claim_state_name(to));
            fprintf(out, "%s%s", before, claim_input_name(drawn_steps[i].input));
            before = ", ";
        }
        fputs(*before ? "\n" : "", out);
    }
}

static void draw_row(FILE *out, const struct drawn_step *step)
{
    fprintf(out, "| %s | %s | %s |", claim_state_name(step->state), claim_input_name(step->input),
            step->action);
    for (unsigned to = 0; to < CLAIM_STATES; to++)
        if (step->next & 1u << to)
            fprintf(out, " %s", claim_state_name(to));
    fputs(" |\n", out);
}

static void draw_claim(FILE *out)
{
    fputs("# The life of a claim\n\n"
          "Made from `src/core/claim.def` by `tests/sim/draw_claim.c`; a unit test compares. A "
          "claim is the state\n"
          "machine of one lease, from its first ACQUIRE to the last reply. An input that the table "
          "does not list\n"
          "for a state changes nothing.\n\n"
          "```mermaid\nstateDiagram-v2\n    [*] --> NEW\n",
          out);
    for (unsigned state = 0; state < CLAIM_STATES; state++)
        draw_arrows(out, state);
    fputs("    OVER --> [*]\n```\n\n## States\n\n| state | meaning |\n|---|---|\n", out);
    for (unsigned state = 0; state < CLAIM_STATES; state++)
        fprintf(out, "| %s | %s |\n", claim_state_name(state), drawn_state_texts[state]);
    fputs("\n## Inputs\n\n| input | meaning |\n|---|---|\n", out);
    for (unsigned input = 0; input < INPUT_COUNT; input++)
        fprintf(out, "| %s | %s |\n", claim_input_name(input), drawn_input_texts[input]);
    fputs("\n## Steps\n\n| state | input | action | leads to |\n|---|---|---|---|\n", out);
    for (size_t i = 0; i < DRAWN_STEPS; i++)
        draw_row(out, &drawn_steps[i]);
}
