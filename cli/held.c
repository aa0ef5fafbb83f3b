/* held.c - writes and reads HOLDFAST_HELD. */
#include "held.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "HOLDFAST_HELD"
#define BYTES_MAX 16384 /* longest inherited value; a longer one can only come from a loop */

static const char *inherited(void)
{
    const char *text = getenv(VARIABLE);
    return text && strlen(text) <= BYTES_MAX ? text : "";
}

char *held_variable(const struct lock_set *locks)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return NULL;

    fprintf(out, VARIABLE "=%s", inherited());
    for (size_t i = 0; i < locks->count; i++)
        fprintf(out, "%s%" PRIu64 " %s", i > 0 || *inherited() ? "\n" : "",
                hf_lease_token(locks->leases[i]), locks->names[i]);

    if (fclose(out) == 0)
        return text;

    free(text);
    return NULL;
}

/* Finds the next line for the name, from *at on. Returns its token, or 0 if there is no further
 * line. */
static uint64_t next_token(const char **at, const char *name)
{
    while (**at) {
        char *end;
        size_t len = strcspn(*at, "\n");
        const char *stop = *at + len;
        uint64_t token = strtoull(*at, &end, 10);
        bool matches = end < stop && *end == ' ' && (size_t)(stop - end - 1) == strlen(name) &&
                       strncmp(end + 1, name, strlen(name)) == 0;
        *at = stop + (*stop == '\n');
        if (matches && token > 0)
            return token;
    }

    return 0;
}

bool held_mentions(const char *name)
{
    const char *at = inherited();
    return next_token(&at, name) > 0;
}

static bool is_ours(const char *name, const struct hf_row *row)
{
    const char *at = inherited();
    uint64_t token;

    if (row->role != HF_HOLDER || row->foreign)
        return false;
    while ((token = next_token(&at, name)) > 0)
        if (token == row->token)
            return true;
    return false;
}

uint64_t held_in_the_way(const char *name, const struct row_list *rows, hf_kind kind,
                         uint32_t units)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct hf_row *row = &rows->all[i];
        bool fits_beside =
            kind == HF_SEMAPHORE && row->units + (units ? units : 1) <= row->capacity;
        if (!fits_beside && is_ours(name, row))
            return row->token;
    }
    return 0;
}
