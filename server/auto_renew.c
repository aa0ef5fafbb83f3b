/* auto_renew.c - a linked list of leases. It stays short: most clients renew their own leases,
 * as they should. */
#include "auto_renew.h"
#include "http.h"
#include <stdlib.h>
#include <string.h>

#define SAME_END_MS 5 /* rounding error between two readings of the end */

struct auto_renewed {
    struct auto_renewed *next;
    hf_lease *lease;
    size_t users;
    int64_t ends_ms; /* end of the lease when it was last checked */
    bool over;       /* no longer in the list; the last user frees it */
    char id[];
};

static struct auto_renewed *all;
static size_t count;

static void note_end(struct auto_renewed *auto_renewed)
{
    auto_renewed->ends_ms = clock_ms() + hf_lease_left_ms(auto_renewed->lease);
}

bool auto_renew_add(const char *id, hf_lease *lease)
{
    if (!hf_lease_ok(lease)) { /* lost already; on_lost has run, or never runs for a freed handle */
        hf_lease_free(lease);
        return true;
    }

    struct auto_renewed *auto_renewed = calloc(1, sizeof *auto_renewed + strlen(id) + 1);
    if (!auto_renewed)
        return false;

    strcpy(auto_renewed->id, id);
    auto_renewed->lease = lease;
    note_end(auto_renewed);
    auto_renewed->next = all;
    all = auto_renewed;
    count++;

    return true;
}

static void free_auto_renewed(struct auto_renewed *auto_renewed)
{
    hf_lease_free(auto_renewed->lease);
    explicit_bzero(auto_renewed->id, strlen(auto_renewed->id));
    free(auto_renewed);
}

static void take_out(struct auto_renewed *auto_renewed)
{
    struct auto_renewed **at = &all;

    if (auto_renewed->over)
        return;

    while (*at != auto_renewed)
        at = &(*at)->next;
    *at = auto_renewed->next;
    auto_renewed->over = true;
    count--;
}

struct auto_renewed *auto_renew_enter(const char *id, size_t len)
{
    for (struct auto_renewed *auto_renewed = all; auto_renewed; auto_renewed = auto_renewed->next)
        if (strlen(auto_renewed->id) == len && memcmp(auto_renewed->id, id, len) == 0) {
            auto_renewed->users++;
            return auto_renewed;
        }
    return NULL;
}

bool auto_renew_has(const char *id)
{
    struct auto_renewed *auto_renewed = all;
    while (auto_renewed && strcmp(auto_renewed->id, id) != 0)
        auto_renewed = auto_renewed->next;
    return auto_renewed != NULL;
}

hf_lease *auto_renew_lease(const struct auto_renewed *auto_renewed)
{
    return auto_renewed->lease;
}

void auto_renew_leave(struct auto_renewed *auto_renewed, bool ended)
{
    if (ended)
        take_out(auto_renewed);
    /* the client's extension does not count as a renewal by the service */
    else
        note_end(auto_renewed);
    if (--auto_renewed->users == 0 && auto_renewed->over)
        free_auto_renewed(auto_renewed);
}

void auto_renew_renewed(void (*fn)(void *arg, int64_t slack_ms), void *arg)
{
    for (struct auto_renewed *auto_renewed = all; auto_renewed; auto_renewed = auto_renewed->next) {
        int64_t slack_ms = auto_renewed->ends_ms - clock_ms();
        if (auto_renewed->users > 0 ||
            hf_lease_left_ms(auto_renewed->lease) <= slack_ms + SAME_END_MS)
            continue;
        fn(arg, slack_ms > 0 ? slack_ms : 0);
        note_end(auto_renewed);
    }
}

void auto_renew_drop(const hf_lease *lease)
{
    struct auto_renewed *auto_renewed = all;

    while (auto_renewed && auto_renewed->lease != lease)
        auto_renewed = auto_renewed->next;
    if (!auto_renewed)
        return;

    take_out(auto_renewed);
    if (auto_renewed->users == 0)
        free_auto_renewed(auto_renewed);
}

void auto_renew_take_all(void (*fn)(void *arg, hf_lease *lease), void *arg)
{
    while (all) {
        struct auto_renewed *auto_renewed = all;
        take_out(auto_renewed);
        if (auto_renewed->users > 0)
            continue;
        fn(arg, auto_renewed->lease);
        explicit_bzero(auto_renewed->id, strlen(auto_renewed->id));
        free(auto_renewed);
    }
}

size_t auto_renew_count(void)
{
    return count;
}
