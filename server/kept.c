/* kept.c - a list: clients that renew by themselves, which is what they should do, are not in it. */
#include "kept.h"
#include "http.h"
#include <stdlib.h>
#include <string.h>

#define SAME_END_MS 5 /* what rounding may add between two looks */

struct kept {
    struct kept *next;
    hf_lease *lease;
    size_t users;
    int64_t ends_ms; /* as seen last */
    bool over;       /* out of the list; freed by its last user */
    char id[];
};

static struct kept *all;
static size_t count;

static void note_end(struct kept *kept)
{
    kept->ends_ms = clock_ms() + hf_lease_left_ms(kept->lease);
}

bool kept_add(const char *id, hf_lease *lease)
{
    if (!hf_lease_ok(lease)) { /* lost before it came here: nobody would take it out */
        hf_lease_free(lease);
        return true;
    }
    struct kept *kept = calloc(1, sizeof *kept + strlen(id) + 1);
    if (!kept)
        return false;
    strcpy(kept->id, id);
    kept->lease = lease;
    note_end(kept);
    kept->next = all;
    all = kept;
    count++;
    return true;
}

static void free_kept(struct kept *kept)
{
    hf_lease_free(kept->lease);
    explicit_bzero(kept->id, strlen(kept->id));
    free(kept);
}

static void take_out(struct kept *kept)
{
    struct kept **at = &all;
    if (kept->over)
        return;
    while (*at != kept)
        at = &(*at)->next;
    *at = kept->next;
    kept->over = true;
    count--;
}

struct kept *kept_enter(const char *id, size_t len)
{
    for (struct kept *kept = all; kept; kept = kept->next)
        if (strlen(kept->id) == len && memcmp(kept->id, id, len) == 0) {
            kept->users++;
            return kept;
        }
    return NULL;
}

bool kept_has(const char *id)
{
    struct kept *kept = all;
    while (kept && strcmp(kept->id, id) != 0)
        kept = kept->next;
    return kept != NULL;
}

hf_lease *kept_lease(const struct kept *kept)
{
    return kept->lease;
}

void kept_leave(struct kept *kept, bool ended)
{
    if (ended)
        take_out(kept);
    else
        note_end(kept); /* who extended it is not a renewal */
    if (--kept->users == 0 && kept->over)
        free_kept(kept);
}

void kept_renewed(void (*fn)(void *arg, int64_t slack_ms), void *arg)
{
    for (struct kept *kept = all; kept; kept = kept->next) {
        int64_t slack_ms = kept->ends_ms - clock_ms();
        if (kept->users > 0 || hf_lease_left_ms(kept->lease) <= slack_ms + SAME_END_MS)
            continue;
        fn(arg, slack_ms > 0 ? slack_ms : 0);
        note_end(kept);
    }
}

void kept_drop(const hf_lease *lease)
{
    struct kept *kept = all;
    while (kept && kept->lease != lease)
        kept = kept->next;
    if (!kept)
        return;
    take_out(kept);
    if (kept->users == 0)
        free_kept(kept);
}

void kept_take_all(void (*fn)(void *arg, hf_lease *lease), void *arg)
{
    while (all) {
        struct kept *kept = all;
        take_out(kept);
        if (kept->users > 0)
            continue;
        fn(arg, kept->lease);
        explicit_bzero(kept->id, strlen(kept->id));
        free(kept);
    }
}

size_t kept_count(void)
{
    return count;
}
