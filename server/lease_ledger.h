/* lease_ledger.h - every lease that this instance granted, until its end is known. This is the one
 * place that counts grants and ends, so acquired = released + lost + ended elsewhere + held, and a
 * lease whose client never comes back is counted and logged. Used on the loop's thread only.
 *
 * A lease leaves the ledger by a release or a break through this instance, by a loss that the
 * library reports (leases that this instance renews), or by its time. Shortly before its end the
 * engine is asked whether another instance extended or released it, and once more after its end. A
 * release or a break with unknown outcome counts when the lease is found to have ended. */
#pragma once
#include "server.h"

struct ledger_entry {
    uint64_t key;
    uint64_t token;
    const char *name;            /* name of the lock; NULL after the end */
    int64_t granted_ms, ends_ms; /* times of clock_ms() */
    int64_t ttl_ms;
    enum lease_end end;
    char correlation[HF_CORRELATION_MAX + 1], label[HF_LABEL_MAX + 1];

    /* The fields below belong to lease_ledger.c. */
    struct lease_ledger *ledger;
    struct ledger_entry *next, *older, *newer;
    struct event *timer;
    char *exported; /* text of the hold, or its name if it has no text; NULL after the end */
    char *owner;    /* owner in the request; NULL: none, or the lease has ended */
    /* This instance renews it: the library reports its end. */
    bool is_renewed;
    bool is_busy;
    /* END_RELEASED or END_BROKEN: a request for that was sent, and its outcome is unknown;
     * otherwise END_NONE */
    enum lease_end in_doubt;
};

struct lease_ledger *lease_ledger_new(struct server *server); /* NULL if out of memory */
void lease_ledger_free(struct lease_ledger *ledger);

/* Counts a grant and returns its key. `exported`: text of the hold; NULL: it has none, and its
 * handle lives as long as the hold. A lease with HF_AUTO_RENEW is not checked at its end. */
uint64_t lease_ledger_add(struct lease_ledger *ledger, const char *exported, const hf_lease *lease,
                          const struct hf_request *request);

/* Returns the entry of a lease. NULL if another instance granted the lease, or if it ended long
 * ago. Valid until the loop continues. */
struct ledger_entry *lease_ledger_find_key(const struct lease_ledger *ledger, uint64_t key);

/* Note an extension and an end. They do nothing if the entry is NULL or has ended. */
void lease_ledger_extended(struct ledger_entry *entry, int64_t ends_ms);
void lease_ledger_end(struct ledger_entry *entry, enum lease_end end);
/* Notes that the hold was found to have ended. `is_early`: before its end time. */
void lease_ledger_gone(struct ledger_entry *entry, bool is_early);
/* A release ended with `outcome`. If that is unknown, or HF_BUSY because the release was not tried,
 * the checks around the end time find the end. The entry may be NULL. */
void lease_ledger_release(struct ledger_entry *entry, hf_status outcome);

/* Notes a break of a hold. It concerns every lease of the hold, because those of one owner have the
 * same token. */
void lease_ledger_break(struct lease_ledger *ledger, const char *name, uint64_t token,
                        bool is_certain);
/* The library reports that a lease with that token is lost. If this instance renews it, ends it in
 * the ledger. */
void lease_ledger_lost(struct lease_ledger *ledger, const char *name, uint64_t token,
                       enum lease_end end);

/* Calls fn for each lease that has not ended and whose request had an owner. */
void lease_ledger_each_owned(const struct lease_ledger *ledger,
                             void (*fn)(void *arg, const struct ledger_entry *entry), void *arg);

size_t lease_ledger_count(const struct lease_ledger *ledger); /* leases that have not ended */
uint64_t lease_ledger_untracked(const struct lease_ledger *ledger);
