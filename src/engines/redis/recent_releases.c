/* recent_releases.c - releases that are repeated when another server takes the place of this one.
 *
 * A replica that lagged still has the holds that were released last. Nobody renews them or knows of
 * them, so they would block their locks until their ttl is over. So each client repeats its own
 * releases of the last seconds on the new server. If the library drew the attempt id, the id is
 * never used again, so the server drops that hold or does nothing. An id that the caller chose may
 * hold again by then, so its release is not repeated. */
#include "redis.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECENT_BYTES = 4096, /* room for 80 releases of locks with names of 20 bytes */
    RECENT_MOST = 64,    /* number of releases that are repeated */
};
#define RECENT_FOR NANOS_OF_MS(10000)

/* One release. The lock's name follows the struct. */
struct recent_release {
    nanos at;
    char id[REDIS_ID_TEXT];
    uint16_t name_len;
};

static size_t size_of(const struct recent_release *release)
{
    return sizeof *release + release->name_len;
}

static struct recent_release entry_at(const struct recent_releases *recent, size_t at)
{
    struct recent_release release;
    assert(at + sizeof release <= recent->len);
    memcpy(&release, recent->bytes + at, sizeof release);
    return release;
}

/* Forgets the oldest releases until `len` more bytes fit. Half of the room is made free at a time,
 * so that bytes are seldom moved. */
static void make_room(struct recent_releases *recent, size_t len)
{
    size_t from = 0, least = recent->len + len - RECENT_BYTES;
    least = least > RECENT_BYTES / 2 ? least : RECENT_BYTES / 2;
    while (from < recent->len && from < least) {
        struct recent_release release = entry_at(recent, from);
        from += size_of(&release);
    }
    memmove(recent->bytes, recent->bytes + from, recent->len - from);
    recent->len -= from;
}

void redis_recent_note(struct redis *r, const struct redis_op *a)
{
    struct recent_releases *recent = &r->recent;
    const struct engine_op *op = &a->sent_op;
    struct recent_release release = {.at = r->last_now, .name_len = op->name_len};
    size_t len = size_of(&release);
    assert(len <= RECENT_BYTES);

    /* A handle that was made from an exported text does not know whether the caller chose the
     * attempt id. But then the text never says that the hold is settled, so may_be_in_flight is
     * set. */
    bool may_hold_again = op->named || op->may_be_in_flight;
    if (!r->follow.is_on || may_hold_again)
        return;
    if (!recent->bytes && !(recent->bytes = malloc(RECENT_BYTES)))
        return; /* without memory it is not repeated, and the hold ends with its ttl */

    if (recent->len + len > RECENT_BYTES)
        make_room(recent, len);
    memcpy(release.id, a->id, REDIS_ID_TEXT);
    memcpy(recent->bytes + recent->len, &release, sizeof release);
    memcpy(recent->bytes + recent->len + sizeof release, op->name, op->name_len);
    recent->len += len;
    recent->newest_at = release.at;
}

bool redis_recent_is_due(const struct redis *r, nanos now)
{
    return r->recent.len && now - r->recent.newest_at <= RECENT_FOR;
}

/* Sends one release again. Returns false if the connection broke. */
static bool repeat(struct redis *r, const struct recent_release *release, const char *name,
                   nanos now)
{
    const struct cached_keys *cached;
    char terms[80];
    if (redis_key_cache_find(r, name, release->name_len, &cached) != HF_OK)
        return true;

    snprintf(terms, sizeof terms, "r 0 %lld %lld -", (long long)r->history,
             (long long)r->history_age_ms);
    redis_op_write_release(r, release->id, cached, NULL, r->history ? terms : NULL);
    struct request request = {.kind = REQ_UNDO, .patience = r->connect_timeout};
    return redis_connection_send(r, &r->connection[CONNECTION_COMMANDS], request, now);
}

void redis_recent_repeat(struct redis *r, nanos now)
{
    struct recent_releases *recent = &r->recent;
    assert(r->server_number > 0);
    bool is_same = recent->server_number == r->server_number || !recent->server_number;
    recent->server_number = r->server_number;
    if (is_same)
        return;

    unsigned count = 0, skipped = 0;
    for (size_t at = 0; at < recent->len; count++) {
        struct recent_release release = entry_at(recent, at);
        skipped += now - release.at > RECENT_FOR;
        at += size_of(&release);
    }
    /* skips the oldest ones */
    skipped = count - skipped > RECENT_MOST ? count - RECENT_MOST : skipped;

    for (size_t at = 0; at < recent->len;) {
        struct recent_release release = entry_at(recent, at);
        const char *name = recent->bytes + at + sizeof release;
        at += size_of(&release);
        if (skipped)
            skipped--;
        else if (!repeat(r, &release, name, now))
            return;
    }
}

void redis_recent_free(struct redis *r)
{
    free(r->recent.bytes);
    r->recent = (struct recent_releases){0};
}
