/* standings.h - what each server of a quorum says of a name, as hf_show_servers tells of it. */
#pragma once
#include "rows.h"

enum { STANDINGS_MAX = 16 };

struct standing {
    char where[300], text[400];
    bool answered, counts, held;
    size_t holder; /* held: which of the rows */
};

struct standings {
    struct standing all[STANDINGS_MAX];
    size_t count;
    struct rows holders;
};

/* An hf_standing_fn; arg is a struct standings that began as zero. */
void standings_add(void *standings, const struct hf_standing *standing);
void standings_free(struct standings *standings);

void standings_print(const struct standings *standings);
/* One object for each, behind `printed` others of the same array. */
void standings_print_json(const struct standings *standings, const char *name, size_t printed);
