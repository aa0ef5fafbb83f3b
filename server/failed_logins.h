/* failed_logins.h - how often each address, or network of IPv6, failed to log in during the present
 * minute. Used on the loop's thread only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { LOGIN_SLOTS = 1024 };

struct failed_logins {
    struct {
        /* hash of the address; a newer address replaces an older one in the same slot */
        uint64_t address;
        int64_t minute;
        uint32_t count;
    } slot[LOGIN_SLOTS];
};

void failed_logins_note(struct failed_logins *logins, const char *address);
/* Returns true if an address has failed `most` times in this minute. */
bool failed_logins_blocks(const struct failed_logins *logins, const char *address, int64_t most);
