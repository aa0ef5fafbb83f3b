/* failed_logins.c - a hash table of fixed size, one slot an address. */
#include "failed_logins.h"
#include "http.h"
#include "metrics.h"

#define MINUTE_MS 60000

void failed_logins_note(struct failed_logins *logins, const char *address)
{
    uint64_t hash = text_hash(address);
    size_t i = hash % LOGIN_SLOTS;
    int64_t minute = clock_ms() / MINUTE_MS;
    bool is_new = logins->slot[i].address != hash || logins->slot[i].minute != minute;

    if (is_new)
        logins->slot[i].count = 0;
    logins->slot[i].address = hash;
    logins->slot[i].minute = minute;
    logins->slot[i].count++;
}

bool failed_logins_blocks(const struct failed_logins *logins, const char *address, int64_t most)
{
    uint64_t hash = text_hash(address);
    size_t i = hash % LOGIN_SLOTS;
    bool is_present =
        logins->slot[i].address == hash && logins->slot[i].minute == clock_ms() / MINUTE_MS;

    return is_present && logins->slot[i].count >= most;
}
