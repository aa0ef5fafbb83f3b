/* lease_ledger.c - a hash table of leases by their exported text, each with a timer for its end.
 * Entries that have ended stay for a while: a client that comes too late gets the true times. */
#include "lease_ledger.h"
#include "caller_label.h"
#include "lease_id.h"
#include "lock_client.h"
#include "snapshot_stream.h"
#include <stdlib.h>
#include <string.h>

#define BUCKETS_OF_LEDGER 16384
#define LIVE_MAX 50000   /* leases in the ledger; further ones are counted as untracked */
#define ENDED_MAX 512    /* entries that have ended and are kept */
#define CHECK_PART 10    /* the engine is asked when a tenth of the ttl is left ... */
#define CHECK_MAX_MS 500 /* ... but at most this long before the end */
#define AFTER_END_MS 20  /* the engine's clock may be a little behind */
#define RETRY_MS 1000    /* pause after a check that the engine did not answer */

struct lease_ledger {
    struct server *server;
    struct ledger_entry *buckets[BUCKETS_OF_LEDGER];
    struct ledger_entry *oldest_ended, *newest_ended;
    size_t live, ended;
    uint64_t untracked;
};

/* ---- The table ---- */

static struct ledger_entry **bucket_of(const struct lease_ledger *ledger, uint64_t key)
{
    return (struct ledger_entry **)&ledger->buckets[key % BUCKETS_OF_LEDGER];
}

struct ledger_entry *lease_ledger_find(const struct lease_ledger *ledger, const char *exported)
{
    uint64_t key = text_hash(exported);
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
    struct lease_ledger *ledger = entry->ledger;
    struct metrics *metrics = &ledger->server->metrics;

    if (entry->end != END_NONE)
        return;
    entry->end = end;
    ledger->live--;

    if (!entry->is_renewed) {
        metrics->lost[LOSS_BROKEN] += end == END_BROKEN;
        metrics->lost[LOSS_EXPIRED] += end == END_EXPIRED;
        metrics->ended_elsewhere += end == END_ELSEWHERE;
    }
    if (end == END_EXPIRED)
        report_expiry(entry);
    free_secrets(entry);

    entry->older = ledger->newest_ended;
    *(entry->older ? &entry->older->newer : &ledger->oldest_ended) = entry;
    ledger->newest_ended = entry;
    if (++ledger->ended > ENDED_MAX && !ledger->oldest_ended->is_busy)
        drop_oldest(ledger);
}

void lease_ledger_end_hold(struct lease_ledger *ledger, const char *name, uint64_t token,
                           enum lease_end end)
{
    for (size_t i = 0; i < BUCKETS_OF_LEDGER; i++)
        for (struct ledger_entry *entry = ledger->buckets[i], *next; entry; entry = next) {
            bool same = entry->token == token && entry->name && strcmp(entry->name, name) == 0;
            next = entry->next;
            if (same)
                lease_ledger_end(entry, end);
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

/* The first check comes shortly before the end, so that a release elsewhere is not taken for an
 * expiry. */
static void arm_first_check(struct ledger_entry *entry)
{
    int64_t left = entry->ends_ms - clock_ms(), early = left / CHECK_PART;

    entry->is_checked = false;
    arm(entry, left - (early < CHECK_MAX_MS ? early : CHECK_MAX_MS));
}

struct check {
    struct job job;
    struct ledger_entry *entry;
    char *exported;
    hf_status status;
    int64_t left_ms;
};

static void do_check(struct job *job)
{
    struct check *check = (struct check *)(void *)job;
    hf_client *client = lock_client_client(check->entry->ledger->server->engine);
    hf_lease *lease = NULL;

    check->status = hf_lease_attach(client, check->exported, &lease);
    if (check->status == HF_OK && !hf_lease_ok(lease))
        check->status = HF_LOST;
    if (check->status == HF_OK)
        check->left_ms = hf_lease_left_ms(lease);
    hf_lease_free(lease);
}

static enum lease_end end_found(const struct ledger_entry *entry)
{
    if (entry->may_be_released)
        return END_RELEASED;
    return entry->is_checked ? END_EXPIRED : END_ELSEWHERE;
}

static void take_result(struct ledger_entry *entry, const struct check *check)
{
    bool is_over = check->status == HF_LOST || check->status == HF_NOT_HELD;
    int64_t ends_ms = clock_ms() + check->left_ms;

    if (is_over) {
        lease_ledger_end(entry, end_found(entry));
    } else if (check->status != HF_OK) {
        arm(entry, RETRY_MS);
    } else if (ends_ms > entry->ends_ms + CHECK_MAX_MS) { /* another instance has extended it */
        lease_ledger_extended(entry, check->left_ms);
    } else {
        entry->is_checked = true;
        entry->ends_ms = ends_ms > entry->ends_ms ? ends_ms : entry->ends_ms;
        arm(entry, check->left_ms + AFTER_END_MS);
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
    struct check *check = server->stopping ? NULL : calloc(1, sizeof *check);
    char *exported = check ? strdup(entry->exported) : NULL;
    (void)fd;
    (void)what;

    if (!exported) {
        free(check);
        arm(entry, RETRY_MS);
        return;
    }

    *check = (struct check){.job = {do_check, after_check, NULL}, .entry = entry};
    check->exported = exported;
    entry->is_busy = true;
    lock_client_do(server->engine, server->workers, &check->job);
}

/* ---- As a whole ---- */

void lease_ledger_add(struct lease_ledger *ledger, const char *exported, const hf_lease *lease,
                      const struct hf_request *request)
{
    struct ledger_entry *entry = ledger->live < LIVE_MAX ? calloc(1, sizeof *entry) : NULL;
    char *copy = entry ? strdup(exported) : NULL;
    struct event *timer = copy ? event_new(ledger->server->base, -1, 0, on_timer, entry) : NULL;

    if (!timer) {
        ledger->untracked++;
        free(copy);
        free(entry);
        return;
    }

    int64_t now = clock_ms();
    struct lease_facts facts = {.name = ""};
    (void)lease_text_read(copy, &facts);
    *entry = (struct ledger_entry){.key = text_hash(exported),
                                   .token = hf_lease_token(lease),
                                   .granted_ms = now,
                                   .ends_ms = now + hf_lease_left_ms(lease),
                                   .ttl_ms = request->ttl_ms,
                                   .name = facts.name,
                                   .is_renewed = request->flags & HF_AUTO_RENEW,
                                   .ledger = ledger,
                                   .timer = timer,
                                   .exported = copy};
    entry->owner = request->owner ? strdup(request->owner) : NULL;
    snprintf(entry->correlation, sizeof entry->correlation, "%s", request->correlation_id);
    snprintf(entry->label, sizeof entry->label, "%s", request->label ? request->label : "");
    entry->next = *bucket_of(ledger, entry->key);
    *bucket_of(ledger, entry->key) = entry;
    ledger->live++;
    if (!entry->is_renewed)
        arm_first_check(entry);
}

void lease_ledger_extended(struct ledger_entry *entry, int64_t left_ms)
{
    if (entry->end != END_NONE)
        return;
    entry->ends_ms = clock_ms() + left_ms;
    if (!entry->is_renewed)
        arm_first_check(entry);
}

void lease_ledger_in_doubt(struct ledger_entry *entry)
{
    entry->may_be_released = true;
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
