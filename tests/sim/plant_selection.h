/* plant_selection.h - a program's list of planted bugs as an enum and a table. Included once,
 * behind the list, which is PLANTS(X) with X(id, name, what is wrong, and what else the program
 * wants to know). NONE comes first. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum plant {
#define X(id, ...) PLANT_##id,
    PLANTS(X)
#undef X
        PLANT_COUNT
};

static const struct {
    const char *name, *text;
} plants[] = {
#define X(id, name, text, ...) {name, text},
    PLANTS(X)
#undef X
};

/* The bug of that name; ends the program if there is none. */
static inline enum plant find_plant(const char *name)
{
    for (unsigned plant = 0; plant < PLANT_COUNT; plant++)
        if (strcmp(plants[plant].name, name) == 0)
            return (enum plant)plant;
    fprintf(stderr, "%s: no bug is called %s; there are:", program_invocation_short_name, name);
    for (unsigned plant = 1; plant < PLANT_COUNT; plant++)
        fprintf(stderr, " %s", plants[plant].name);
    fputc('\n', stderr);
    exit(64);
}
