/* lease_ledger.c - a hash table of leases by the hash of their exported text, each with a timer for
 * its end.
 * Entries that have ended stay for a while: a client that comes too late gets the true times. */
#include "lease_ledger.h"
#include "caller_label.h"
#include "lock_client.h"
#include "snapshot_stream.h"
#include <stdlib.h>
#include <string.h>

#define BUCKETS_OF_LEDGER 16384
#define LIVE_MAX 50000   /* leases in the ledger; further ones are counted as untracked */
#define ENDED_MAX 512    /* entries that have ended and are kept */
#define CHECK_PART 10    /* the engine is asked when a tenth of the time is left ... */
#define CHECK_MAX_MS 500 /* ... but at most this long before the end */
#define AFTER_END_MS 20  /* the engine's clock may be a little behind */
#define RETRY_MS 1000    /* pause after a check that the engine did not answer */

struct lease_ledger {
    struct server *server;
    struct ledger_entry *buckets[BUCKETS_OF_LEDGER];
    struct ledger_entry *oldest_ended, *newest_ended;
    size_t live, ended;
    uint64_t untracked;
    uint64_t unnamed; /* number of leases without a text so far, which makes their keys unique */
};

/* ---- The table ---- */

static struct ledger_entry **bucket_of(const struct lease_ledger *ledger, uint64_t key)
{
    return (struct ledger_entry **)&ledger->buckets[key % BUCKETS_OF_LEDGER];
}

struct ledger_entry *lease_ledger_find_key(const struct lease_ledger *ledger, uint64_t key)
{
    struct ledger_entry *entry = *bucket_of(ledger, key);

    while (entry && entry->key != key)
        entry = entry->next;
    return entry;
}

static void free_secrets(struct ledger_entry *entry)
{
    if (entry->timer)
        event_free(entry->timer);
    entry->timer = NULL;
    if (entry->exported)
        explicit_bzero(entry->exported, strlen(entry->exported));
    free(entry->exported);
    entry->exported = NULL;
    free(entry->owner);
    entry->owner = NULL;
    entry->name = NULL;
}

static void free_entry(struct ledger_entry *entry)
{
    free_secrets(entry);
    free(entry);
}

static void drop_oldest(struct lease_ledger *ledger)
{
    struct ledger_entry *oldest = ledger->oldest_ended, **at;

    ledger->oldest_ended = oldest->newer;
    *(oldest->newer ? &oldest->newer->older : &ledger->newest_ended) = NULL;
    ledger->ended--;

    for (at = bucket_of(ledger, oldest->key); *at != oldest;)
        at = &(*at)->next;
    *at = oldest->next;
    free_entry(oldest);
}

/* ---- The end of a lease ---- */

static void report_expiry(const struct ledger_entry *entry)
{
    static const char text[] = "the ttl passed; the client neither extended nor released the lease";
    struct server *server = entry->ledger->server;
    struct caller_label labels = caller_label_read(entry->label);
    struct lease_change change = {.event = "expired",
                                  .name = entry->name,
                                  .label = entry->label,
                                  .text = text,
                                  .token = entry->token,
                                  .at_ms = wall_ms() - (clock_ms() - entry->ends_ms),
                                  .held_ms = entry->ends_ms - entry->granted_ms,
                                  .waited_ms = -1};

    const struct log_field fields[] = {
        {"name", entry->name, 0},
        {"token", NULL, (int64_t)entry->token},
        {"ttlMs", NULL, entry->ttl_ms},
        {"heldMs", NULL, entry->ends_ms - entry->granted_ms},
        {"outcome", hf_status_name(HF_LOST), 0},
        {"label", labels.label, 0},
        {"caller", labels.caller, 0},
        {"correlationId", entry->correlation, 0},
        {"text", text, 0},
    };
    log_event(server->log_form, HF_LOG_WARN, "expired", fields, sizeof fields / sizeof fields[0]);
    snapshot_change(server->view, &change);
}

void lease_ledger_end(struct ledger_entry *entry, enum lease_end end)
{
    if (!entry || entry->end != END_NONE)
        return;

    struct lease_ledger *ledger = entry->ledger;
    struct metrics *metrics = &ledger->server->metrics;
    entry->end = end;
    ledger->live--;

    metrics->ended[end]++;
    if (end == END_RELEASED)
        histogram_note(&metrics->hold, (double)(clock_ms() - entry->granted_ms) / 1000);
    if (end == END_EXPIRED && !entry->is_renewed)
        report_expiry(entry);
    free_secrets(entry);

    entry->older = ledger->newest_ended;
    *(entry->older ? &entry->older->newer : &ledger->oldest_ended) = entry;
    ledger->newest_ended = entry;
    if (++ledger->ended > ENDED_MAX && !ledger->oldest_ended->is_busy)
        drop_oldest(ledger);
}

void lease_ledger_break(struct lease_ledger *ledger, const char *name, uint64_t token,
                        bool is_certain)
{
    for (size_t i = 0; i < BUCKETS_OF_LEDGER; i++)
        for (struct ledger_entry *entry = ledger->buckets[i], *next; entry; entry = next) {
            bool same = entry->token == token && entry->name && strcmp(entry->name, name) == 0;
            next = entry->next;
            if (same && is_certain)
                lease_ledger_end(entry, END_BROKEN);
            else if (same)
                entry->in_doubt = END_BROKEN;
        }
}

void lease_ledger_lost(struct lease_ledger *ledger, const char *name, uint64_t token,
                       enum lease_end end)
{
    for (size_t i = 0; i < BUCKETS_OF_LEDGER; i++)
        for (struct ledger_entry *entry = ledger->buckets[i]; entry; entry = entry->next) {
            bool is_it = entry->is_renewed && entry->token == token && entry->name &&
                         strcmp(entry->name, name) == 0;
            if (!is_it)
                continue;
            lease_ledger_end(entry, end);
            return;
        }
}

void lease_ledger_each_owned(const struct lease_ledger *ledger,
                             void (*fn)(void *arg, const struct ledger_entry *entry), void *arg)
{
    for (size_t i = 0; i < BUCKETS_OF_LEDGER; i++)
        for (const struct ledger_entry *entry = ledger->buckets[i]; entry; entry = entry->next)
            if (entry->owner)
                fn(arg, entry);
}

/* ---- Checks around the end ---- */

static void arm(struct ledger_entry *entry, int64_t ms)
{
    int64_t left = ms > 1 ? ms : 1;
    struct timeval time = {.tv_sec = left / 1000, .tv_usec = (left % 1000) * 1000};
    event_add(entry->timer, &time);
}

/* Returns true if the entry has the text of its hold. Without it this instance cannot ask the
 * engine for the hold. */
static bool has_text(const struct ledger_entry *entry)
{
    return entry->name > entry->exported;
}

/* The first check comes shortly before the end, so that a release elsewhere is not taken for an
 * expiry. */
static void arm_first_check(struct ledger_entry *entry)
{
    int64_t left = entry->ends_ms - clock_ms(), early = left / CHECK_PART;

    arm(entry, left - (early < CHECK_MAX_MS ? early : CHECK_MAX_MS));
}

struct check {
    struct job job;
    struct ledger_entry *entry;
    char *exported;
    hf_status status;
    int64_t ends_ms_known; /* end of the hold as the ledger knew it */
    int64_t ends_ms;       /* end of the hold, by clock_ms() */
    bool is_early;         /* the outcome was known before ends_ms_known */
};

static void do_check(struct job *job)
{
    struct check *check = (struct check *)(void *)job;
    hf_client *client = lock_client_client(check->entry->ledger->server->engine);
    hf_lease *lease = NULL;

    check->status = hf_lease_attach(client, check->exported, &lease);
    if (check->status == HF_OK && !hf_lease_ok(lease))
        check->status = HF_LOST;
    int64_t now = clock_ms();
    if (check->status == HF_OK)
        check->ends_ms = now + hf_lease_left_ms(lease);
    check->is_early = now < check->ends_ms_known;
    hf_lease_free(lease);
}

static void take_result(struct ledger_entry *entry, const struct check *check)
{
    bool is_over = check->status == HF_LOST || check->status == HF_NOT_HELD;

    if (is_over) {
        lease_ledger_gone(entry, check->is_early);
    } else if (check->status != HF_OK) {
        arm(entry, RETRY_MS);
    } else if (check->ends_ms > entry->ends_ms + CHECK_MAX_MS) { /* another instance extended it */
        lease_ledger_extended(entry, check->ends_ms);
    } else {
        if (check->ends_ms > entry->ends_ms)
            entry->ends_ms = check->ends_ms;
        arm(entry, check->ends_ms + AFTER_END_MS - clock_ms());
    }
}

static void after_check(struct job *job)
{
    struct check *check = (struct check *)(void *)job;
    struct ledger_entry *entry = check->entry;

    entry->is_busy = false;
    if (entry->end == END_NONE)
        take_result(entry, check);
    explicit_bzero(check->exported, strlen(check->exported));
    free(check->exported);
    free(check);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct ledger_entry *entry = arg;
    struct server *server = entry->ledger->server;
    (void)fd;
    (void)what;

    if (!has_text(entry)) {
        lease_ledger_gone(entry, false);
        return;
    }
    struct check *check = server->stopping ? NULL : calloc(1, sizeof *check);
    char *exported = check ? strdup(entry->exported) : NULL;

    if (!exported) {
        free(check);
        arm(entry, RETRY_MS);
        return;
    }

    *check = (struct check){
        .job = {do_check, after_check, NULL}, .entry = entry, .ends_ms_known = entry->ends_ms};
    check->exported = exported;
    entry->is_busy = true;
    lock_client_do(server->engine, server->workers, &check->job);
}

/* ---- As a whole ---- */

static struct ledger_entry *new_entry(struct lease_ledger *ledger, const char *text)
{
    struct ledger_entry *entry = ledger->live < LIVE_MAX ? calloc(1, sizeof *entry) : NULL;
    char *copy = entry ? strdup(text) : NULL;
    struct event *timer = copy ? event_new(ledger->server->base, -1, 0, on_timer, entry) : NULL;

    if (!timer) {
        free(copy);
        free(entry);
        return NULL;
    }

    entry->ledger = ledger;
    entry->exported = copy;
    entry->timer = timer;

    return entry;
}

uint64_t lease_ledger_add(struct lease_ledger *ledger, const char *exported, const hf_lease *lease,
                          const struct hf_request *request)
{
    const char *name = hf_lease_name(lease);
    uint64_t key = exported ? text_hash(exported) : ++ledger->unnamed;
    struct ledger_entry *entry = new_entry(ledger, exported ? exported : name);

    ledger->server->metrics.acquired++;
    if (!entry) {
        ledger->untracked++;
        return key;
    }

    int64_t now = clock_ms();
    entry->key = key;
    entry->token = hf_lease_token(lease);
    entry->granted_ms = now;
    entry->ends_ms = now + hf_lease_left_ms(lease);
    entry->ttl_ms = request->ttl_ms;
    entry->name = entry->exported + strlen(entry->exported) - strlen(name);
    entry->is_renewed = request->flags & HF_AUTO_RENEW;
    entry->owner = request->owner ? strdup(request->owner) : NULL;
    snprintf(entry->correlation, sizeof entry->correlation, "%s", request->correlation_id);
    snprintf(entry->label, sizeof entry->label, "%s", request->label ? request->label : "");
    entry->next = *bucket_of(ledger, key);
    *bucket_of(ledger, key) = entry;
    ledger->live++;
    if (!entry->is_renewed)
        arm_first_check(entry);
    return key;
}

void lease_ledger_extended(struct ledger_entry *entry, int64_t ends_ms)
{
    if (entry->end != END_NONE)
        return;
    entry->ends_ms = ends_ms;
    if (!entry->is_renewed)
        arm_first_check(entry);
}

void lease_ledger_gone(struct ledger_entry *entry, bool is_early)
{
    if (entry->in_doubt != END_NONE)
        lease_ledger_end(entry, entry->in_doubt);
    else
        lease_ledger_end(entry, is_early ? END_ELSEWHERE : END_EXPIRED);
}

/* The handle that renewed the lease is gone: from now on the checks around the lease's end find out
 * how it ended. */
static void find_end_by_time(struct ledger_entry *entry)
{
    if (entry->end != END_NONE)
        return;
    if (entry->is_renewed)
        entry->ends_ms = clock_ms() + entry->ttl_ms;
    entry->is_renewed = false;
    arm_first_check(entry);
}

void lease_ledger_release(struct ledger_entry *entry, hf_status outcome)
{
    bool is_gone = outcome == HF_LOST || outcome == HF_NOT_HELD;

    if (!entry)
        return;
    if (outcome == HF_OK) {
        lease_ledger_end(entry, END_RELEASED);
    } else if (is_gone) {
        lease_ledger_gone(entry, clock_ms() < entry->ends_ms);
    } else {
        if (outcome != HF_BUSY)
            entry->in_doubt = END_RELEASED;
        find_end_by_time(entry);
    }
}

struct lease_ledger *lease_ledger_new(struct server *server)
{
    struct lease_ledger *ledger = calloc(1, sizeof *ledger);
    if (ledger)
        ledger->server = server;
    return ledger;
}

void lease_ledger_free(struct lease_ledger *ledger)
{
    for (size_t i = 0; ledger && i < BUCKETS_OF_LEDGER; i++)
        for (struct ledger_entry *entry = ledger->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            free_entry(entry);
        }
    free(ledger);
}

size_t lease_ledger_count(const struct lease_ledger *ledger)
{
    return ledger->live;
}

uint64_t lease_ledger_untracked(const struct lease_ledger *ledger)
{
    return ledger->untracked;
}
