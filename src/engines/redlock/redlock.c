/* redlock.c - the engine for a quorum of independent servers: its door. */
#include "redlock.h"

#include "base/url.h"
#include "base/why.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Opening and closing ---- */

static void free_heard(struct heard *h)
{
    for (struct heard *next; h; h = next) {
        next = h->next;
        free(h);
    }
}

static void free_pools(struct hf_redlock *l)
{
    for (struct ballot *b = l->unused_ballots, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    for (struct bid *bid = l->unused_bids, *next; bid; bid = next) {
        next = bid->next;
        free(bid);
    }
    free_heard(l->heard);
    free_heard(l->unused);
}

static void close_redlock(void *self)
{
    struct hf_redlock *l = self;
    while (l->ballots)
        hf_ballot_free(l, l->ballots);
    hf_heap_free(&l->bid_alarms);                             /* its nodes are in the bids */
    for (struct bid *bid = l->bids, *next; bid; bid = next) { /* what they stand for may be gone already */
        next = bid->next;
        hf_tally_free(l, bid);
        free(bid);
    }
    for (unsigned i = 0; i < l->servers; i++)
        hf_wire_redis.close(l->member[i].redis);
    hf_heap_free(&l->ballot_alarms);
    free_pools(l);
    free(l);
}

static hf_status open_redlock(void **self, const struct hf_url *url, const struct hf_settings *settings,
                              const struct hf_wire_host *host)
{
    *self = NULL;
    struct hf_redlock *l = calloc(1, sizeof *l);
    if (!l)
        return hf_why(HF_NO_MEMORY, "%s: no memory for a client", url->scheme);
    l->host = host;
    l->limits = (struct hf_limits)HF_REDLOCK_LIMITS;
    hf_timing_set_drift(&l->limits, settings);
    l->wishes = hf_timing_wishes_of(settings);
    l->max_ttl = HF_MS(settings->value[HF_SET_MAX_TTL]);
    hf_status status = settings->value[HF_SET_REPLICAS]
                           ? hf_why(HF_CONFIG, "replicas: a quorum has none; its servers know nothing of each other")
                           : hf_members_open(l, url, settings);
    if (status == HF_OK)
        *self = l;
    else
        close_redlock(l);
    return status;
}

/* ---- Asks ---- */

static void submit(void *self, struct hf_ask *ask, hf_nanos now)
{
    struct hf_redlock *l = self;
    struct bid *bid = ask->engine_state ? ask->engine_state : hf_bid_meet(l, ask);
    struct hf_news news = {.cue = HF_N_FAILED, .asked_at = now, .retry_at = HF_NEVER};
    if (bid) {
        hf_bid_submit(l, bid, now);
    } else {
        news.status = HF_NO_MEMORY;
        news.text = "no memory to ask";
        l->host->tell(l->host->ctx, ask, &news);
    }
    hf_members_settle(l, now);
}

static void forget(void *self, struct hf_ask *ask)
{
    if (ask->engine_state)
        hf_bid_forget(self, ask->engine_state);
}

/* ---- Lines and time ---- */

static void line_up(void *self, unsigned line, hf_nanos now)
{
    struct hf_redlock *l = self;
    hf_wire_redis.line_up(l->member[line / HF_MEMBER_LINES].redis, line % HF_MEMBER_LINES, now);
    hf_members_settle(l, now);
}

static void line_bytes(void *self, unsigned line, const char *bytes, size_t len, hf_nanos now)
{
    struct hf_redlock *l = self;
    hf_wire_redis.line_bytes(l->member[line / HF_MEMBER_LINES].redis, line % HF_MEMBER_LINES, bytes, len, now);
    hf_members_settle(l, now);
}

static void line_down(void *self, unsigned line, hf_status status, const char *why, hf_nanos now)
{
    struct hf_redlock *l = self;
    hf_wire_redis.line_down(l->member[line / HF_MEMBER_LINES].redis, line % HF_MEMBER_LINES, status, why, now);
    hf_members_settle(l, now);
}

static hf_nanos sooner(hf_nanos a, hf_nanos b)
{
    return a < b ? a : b;
}

static hf_nanos tick(void *self, hf_nanos now)
{
    struct hf_redlock *l = self;
    hf_nanos next = HF_NEVER;
    for (unsigned i = 0; i < l->servers; i++)
        next = sooner(next, hf_wire_redis.tick(l->member[i].redis, now));
    hf_members_settle(l, now);
    hf_ballots_tick(l, now);
    hf_bids_tick(l, now);
    hf_members_settle(l, now);
    const struct hf_heap_node *ballot = hf_heap_first(&l->ballot_alarms), *bid = hf_heap_first(&l->bid_alarms);
    return sooner(next, sooner(ballot ? ballot->key : HF_NEVER, bid ? bid->key : HF_NEVER));
}

/* Answers that nobody waits for: of slow servers when a majority has spoken, and of what is taken back. */
static uint32_t lines(void *self)
{
    struct hf_redlock *l = self;
    uint32_t all = l->unattended_lines;
    for (unsigned i = 0; i < l->servers; i++)
        all |= hf_wire_redis.lines(l->member[i].redis) << i * HF_MEMBER_LINES;
    return all;
}

const struct hf_wire_type hf_wire_redlock = {
    .open = open_redlock,
    .submit = submit,
    .forget = forget,
    .line_up = line_up,
    .line_bytes = line_bytes,
    .line_down = line_down,
    .lines = lines,
    .tick = tick,
    .close = close_redlock,
};
