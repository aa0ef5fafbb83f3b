/* check_bytes.c - checks that the ceiling sends what the library sends. It records both and
 * compares them byte for byte. Only the id of a cycle, the token that servers proposed, the key of
 * a waiter's inbox and a measured time may differ. A value of the library must then have the same
 * counterpart wherever it occurs.
 *
 *     check_bytes WORKLOAD --url URL      prints nothing and exits with 0 if they are the same */
#include "captured.h"
#include "library.h"
#include "recorder.h"
#include "redis_bare.h"
#include "redis_requests.h"

#include <stdlib.h>
#include <string.h>

enum { CYCLES = 3, PAIRS_MOST = 64 };

/* Values in the library's commands, and the values of the ceiling in their places. */
struct pairs {
    int count;
    struct {
        const char *ours, *bare;
        size_t len;
    } pair[PAIRS_MOST];
};

static bool may_differ(const char *word, size_t len)
{
    bool digits = strspn(word, "0123456789") >= len;
    return len == ID_LEN || (len == TOKEN_LEN && digits) || memmem(word, len, ":inbox:", 7);
}

/* Notes that `bare` corresponds to `ours`, and fails if either already corresponds to another
 * value. Words of different lengths are not compared: in one place a letter precedes the key of an
 * inbox. */
static void pair_up(struct pairs *p, const char *ours, const char *bare, size_t len)
{
    for (int i = 0; i < p->count; i++) {
        if (p->pair[i].len != len)
            continue;
        bool same = memcmp(p->pair[i].ours, ours, len) == 0,
             same_bare = memcmp(p->pair[i].bare, bare, len) == 0;
        if (same != same_bare)
            bench_fail("%.*s and %.*s do not correspond", (int)len, ours, (int)len, bare);
        if (same)
            return;
    }

    if (p->count == PAIRS_MOST || !may_differ(ours, len))
        bench_fail("the library sends %.*s where the ceiling sends %.*s", (int)len, ours, (int)len,
                   bare);

    p->pair[p->count].ours = ours;
    p->pair[p->count].bare = bare;
    p->pair[p->count++].len = len;
}

static void compare_word(struct pairs *p, const char *ours, const char *bare, size_t len)
{
    for (size_t part; len; ours += part, bare += part, len -= part) {
        part = part_len(ours, len);
        bool differs = memcmp(ours, bare, part) != 0;
        if (differs && !(is_measured_time(ours, part) && is_measured_time(bare, part)))
            pair_up(p, ours, bare, part);
        part += part < len; /* skips the blank after the part */
    }
}

/* Compares two sequences of commands: headers such as "*3" and "$22" must be equal; arguments may
 * differ as compare_word() says. */
static void compare(struct pairs *p, const struct recording *ours, const struct recording *bare)
{
    size_t at = 0;
    if (ours->len != bare->len || ours->len == 0)
        bench_fail("the library sends %zu bytes in %d cycles, the ceiling %zu", ours->len, CYCLES,
                   bare->len);

    while (at < ours->len) {
        const char *mark = memchr(ours->bytes + at, '\n', ours->len - at);
        size_t head = mark ? (size_t)(mark + 1 - ours->bytes) - at : 0;
        if (head == 0 || memcmp(ours->bytes + at, bare->bytes + at, head) != 0)
            bench_fail("they differ at byte %zu: %.40s and %.40s", at, ours->bytes + at,
                       bare->bytes + at);
        size_t len = ours->bytes[at] == '$' ? strtoul(ours->bytes + at + 1, NULL, 10) : 0;
        at += head;
        compare_word(p, ours->bytes + at, bare->bytes + at, len);
        at += len ? len + 2 : 0;
    }
}

int main(int argc, char **argv)
{
    struct bench b = bench_arguments(argc, argv);
    struct recorder *ours[SERVERS_MOST], *bare[SERVERS_MOST];
    struct lock_kind library = library_kind(&b), ceiling = BARE;
    int connections, as_many;

    fill_in(&b);
    if (is_workload(b.workload, "redlock-")) {
        quorum_learn(&b);
        ceiling = BARE_QUORUM;
    } else {
        bare_learn(&b);
    }
    int servers = record_cycles(&b, &library, CYCLES, ours);
    record_cycles(&b, &ceiling, CYCLES, bare);

    for (int i = 0; i < servers; i++) {
        const struct recording *said = recorder_stop(ours[i], &connections),
                               *sent = recorder_stop(bare[i], &as_many);
        struct pairs pairs = {0};
        if (connections != as_many)
            bench_fail("the library has %d connections, the ceiling %d", connections, as_many);
        for (int conn = 0; conn < connections; conn++)
            compare(&pairs, &said[conn], &sent[conn]);
        recorder_free(ours[i]);
        recorder_free(bare[i]);
    }

    return 0;
}
