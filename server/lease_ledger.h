/* lease_ledger.h - every lease that this instance granted, until its end is known. So acquired =
 * released + lost + held adds up, and a lease whose client never comes back is counted and logged.
 * On the loop.
 *
 * A lease leaves the ledger by a release or a break through this instance, or by its time. Shortly
 * before its end the engine is asked whether another instance extended or released it, and once
 * more after its end. */
#pragma once
#include "server.h"

enum lease_end {
    END_NONE,      /* still held, as far as this instance knows */
    END_RELEASED,  /* a release through this instance */
    END_BROKEN,    /* a break through this instance */
    END_EXPIRED,   /* its ttl has passed */
    END_ELSEWHERE, /* ended early, but not through this instance */
    /* a lease that this instance renews: the library reports and counts its end */
    END_REPORTED,
};

struct ledger_entry {
    uint64_t key; /* hash of the exported text */
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
    char *exported; /* NULL after the end */
    char *owner;    /* owner in the request; NULL: none, or the lease has ended */
    bool is_renewed, is_checked, may_be_released, is_busy;
};

struct lease_ledger *lease_ledger_new(struct server *server); /* NULL if out of memory */
void lease_ledger_free(struct lease_ledger *ledger);

/* Leases with HF_AUTO_RENEW are not checked at their end: the library reports it. */
void lease_ledger_add(struct lease_ledger *ledger, const char *exported, const hf_lease *lease,
                      const struct hf_request *request);

/* NULL if another instance granted the lease, or if it ended long ago. Valid until the loop
 * continues. */
struct ledger_entry *lease_ledger_find(const struct lease_ledger *ledger, const char *exported);

void lease_ledger_extended(struct ledger_entry *entry, int64_t left_ms);
/* The outcome of a release is unknown: if the lease is not held at its end, it was released. */
void lease_ledger_in_doubt(struct ledger_entry *entry);
void lease_ledger_end(struct ledger_entry *entry, enum lease_end end);
/* Ends every lease of a hold: those of one owner have the same token. */
void lease_ledger_end_hold(struct lease_ledger *ledger, const char *name, uint64_t token,
                           enum lease_end end);

/* Calls fn for each lease that has not ended and whose request had an owner. */
void lease_ledger_each_owned(const struct lease_ledger *ledger,
                             void (*fn)(void *arg, const struct ledger_entry *entry), void *arg);

size_t lease_ledger_count(const struct lease_ledger *ledger); /* leases that have not ended */
uint64_t lease_ledger_untracked(const struct lease_ledger *ledger);
