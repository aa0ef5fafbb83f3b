/* kept.c - a list: clients that renew by themselves, which is what they should do, are not in it. */
#include "kept.h"
#include <stdlib.h>
#include <string.h>

struct kept {
    struct kept *next;
    hf_lease *lease;
    size_t users;
    bool over; /* out of the list; freed by its last user */
    char id[];
};

static struct kept *all;
static size_t count;

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

hf_lease *kept_lease(const struct kept *kept)
{
    return kept->lease;
}

void kept_leave(struct kept *kept, bool ended)
{
    if (ended)
        take_out(kept);
    if (--kept->users == 0 && kept->over)
        free_kept(kept);
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
