/* redlock.c - the engine for a quorum of independent servers: its door, its URL, its members.
 *
 * Each member is the Redis engine for one server; its lines are ours, shifted. What members tell is noted and dealt
 * with when they have finished, because they must not be called back from inside. */
#include "redlock.h"

#include "base/url.h"
#include "base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HINT_SPREAD HF_MS(12)  /* those who hear that a lock is free do not all ask in the same moment */
enum { SPREAD_DOUBLINGS = 3 }; /* and those whose votes split again and again ever less so */

/* ---- What members say ---- */

static void member_dial(void *ctx, unsigned line, const struct hf_address *to)
{
    struct member *m = ctx;
    m->lock->host->dial(m->lock->host->ctx, m->index * HF_MEMBER_LINES + line, to);
}

static bool member_send(void *ctx, unsigned line, const void *bytes, size_t len)
{
    struct member *m = ctx;
    return m->lock->host->send(m->lock->host->ctx, m->index * HF_MEMBER_LINES + line, bytes, len);
}

static void member_hang_up(void *ctx, unsigned line)
{
    struct member *m = ctx;
    m->lock->host->hang_up(m->lock->host->ctx, m->index * HF_MEMBER_LINES + line);
}

static void member_tell(void *ctx, struct hf_ask *ask, const struct hf_news *news)
{
    struct member *m = ctx;
    struct hf_redlock *l = m->lock;
    struct heard *h = l->unused ? l->unused : malloc(sizeof *h);
    if (!h)
        return; /* the round's time ends without it */
    if (h == l->unused)
        l->unused = h->next;
    *h = (struct heard){.ask = ask, .news = *news};
    if (news->text) {
        snprintf(h->text, sizeof h->text, "%s", news->text);
        h->news.text = h->text;
    }
    *(l->heard_last ? &l->heard_last->next : &l->heard) = h;
    l->heard_last = h;
}

static void member_row(void *ctx, struct hf_ask *ask, const struct hf_row *row)
{
    struct member *m = ctx;
    for (struct bid *bid = m->lock->bids; bid; bid = bid->next)
        if (hf_tally_owns(bid, ask))
            hf_tally_row(bid, row);
}

static void member_find(void *ctx, struct hf_ask *ask, const struct hf_finding *finding)
{
    struct member *m = ctx;
    for (struct bid *bid = m->lock->bids; bid; bid = bid->next)
        if (hf_tally_owns(bid, ask))
            m->lock->host->find(m->lock->host->ctx, bid->ask, finding);
}

static void member_recheck(void *ctx)
{
    struct member *m = ctx;
    m->lock->host->recheck(m->lock->host->ctx);
}

static uint32_t member_random(void *ctx)
{
    struct member *m = ctx;
    return m->lock->host->random(m->lock->host->ctx);
}

/* Tries that are taken back tell of it as releases do, so those who split the votes wake each other. */
static hf_nanos pause_after_hint(struct hf_redlock *l, const struct bid *bid)
{
    hf_nanos spread = HINT_SPREAD << (bid->splits < SPREAD_DOUBLINGS ? bid->splits : SPREAD_DOUBLINGS);
    return spread / 1024 * (l->host->random(l->host->ctx) % 1024);
}

static void hear_ear(struct hf_redlock *l, struct hf_ask *first, hf_nanos now)
{
    struct bid *bid = (struct bid *)(void *)((char *)first - offsetof(struct bid, ear));
    if (bid->listens && bid->hint_at == HF_NEVER)
        bid->hint_at = now + pause_after_hint(l, bid);
}

static void hear_one(struct hf_redlock *l, const struct heard *h, hf_nanos now)
{
    if (h->ask->slot == SLOT_SEAT) {
        hf_ballot_hear(l, (struct seat *)(void *)((char *)h->ask - offsetof(struct seat, ask)), &h->news, now);
        return;
    }
    if (h->ask->slot == SLOT_EAR) {
        hear_ear(l, h->ask - h->ask->seen, now);
        return;
    }
    for (struct bid *bid = l->bids; bid; bid = bid->next)
        if (hf_tally_owns(bid, h->ask)) {
            hf_tally_hear(l, bid, h->ask, &h->news);
            return;
        }
}

void hf_redlock_unhear(struct hf_redlock *l, const struct hf_ask *ask)
{
    for (struct heard *h = l->heard; h; h = h->next)
        if (h->ask == ask)
            h->ask = NULL;
}

/* Deals with what was told, and with what is told meanwhile. */
static void settle(struct hf_redlock *l, hf_nanos now)
{
    for (struct heard *h; (h = l->heard);) {
        l->heard = h->next;
        if (!l->heard)
            l->heard_last = NULL;
        if (h->ask)
            hear_one(l, h, now);
        h->next = l->unused;
        l->unused = h;
    }
}

/* ---- The URL ---- */

static hf_status open_member(struct hf_redlock *l, const struct hf_url *url, const struct hf_settings *settings,
                             const char *text, size_t len)
{
    struct hf_url one = {0};
    if (l->servers == HF_SERVERS_MAX)
        return hf_why(HF_CONFIG, "%s: the URL: more than %d servers", url->scheme, HF_SERVERS_MAX);
    struct member *m = &l->member[l->servers];
    strcpy(one.scheme, strcmp(url->scheme, "redlocks") == 0 ? "rediss" : "redis");
    snprintf(one.body, sizeof one.body, "//%.*s", (int)len, text);
    m->lock = l;
    m->index = l->servers;
    m->host = (struct hf_wire_host){
        .ctx = m,
        .dial = member_dial,
        .send = member_send,
        .hang_up = member_hang_up,
        .tell = member_tell,
        .row = member_row,
        .find = member_find,
        .recheck = member_recheck,
        .random = member_random,
    };
    hf_status status = hf_wire_redis.open(&m->redis, &one, settings, &m->host);
    if (status != HF_OK)
        return hf_why(status, "server %u: %s", l->servers + 1, hf_why_text());
    hf_quorum_member_join(m->redis);
    l->servers++;
    for (unsigned i = 0; i + 1 < l->servers; i++)
        if (strcasecmp(hf_quorum_member_where(l->member[i].redis), hf_quorum_member_where(m->redis)) == 0)
            return hf_why(HF_CONFIG, "%s: the URL: %s stands there twice", url->scheme,
                          hf_quorum_member_where(m->redis));
    return HF_OK;
}

/* h:p,h:p,h:p */
static hf_status open_members(struct hf_redlock *l, const struct hf_url *url, const struct hf_settings *settings)
{
    const char *at = url->body;
    if (strncmp(at, "//", 2) != 0 || !at[2])
        return hf_why(HF_CONFIG, "%s: the URL: it looks like %s://host:port,host:port,host:port", url->scheme,
                      url->scheme);
    for (at += 2;; at++) {
        size_t len = strcspn(at, ",");
        if (len == 0)
            return hf_why(HF_CONFIG, "%s: the URL: a server without a name", url->scheme);
        hf_status status = open_member(l, url, settings, at, len);
        if (status != HF_OK || !at[len])
            return status;
        at += len;
    }
}

/* ---- The door ---- */

static void close_redlock(void *self)
{
    struct hf_redlock *l = self;
    while (l->ballots)
        hf_ballot_free(l, l->ballots);
    for (struct bid *bid = l->bids, *next; bid; bid = next) {
        next = bid->next;
        hf_tally_free(l, bid);
        free(bid);
    }
    for (unsigned i = 0; i < l->servers; i++)
        hf_wire_redis.close(l->member[i].redis);
    for (struct heard *h = l->heard, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    for (struct heard *h = l->unused, *next; h; h = next) {
        next = h->next;
        free(h);
    }
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
                           : open_members(l, url, settings);
    if (status == HF_OK)
        *self = l;
    else
        close_redlock(l);
    return status;
}

static struct bid *meet(struct hf_redlock *l, struct hf_ask *ask)
{
    struct bid *bid = calloc(1, sizeof *bid);
    if (!bid)
        return NULL;
    bid->ask = ask;
    bid->hint_at = HF_NEVER;
    bid->next = l->bids;
    if (l->bids)
        l->bids->prev = bid;
    l->bids = bid;
    ask->engine_state = bid;
    return bid;
}

static void submit(void *self, struct hf_ask *ask, hf_nanos now)
{
    struct hf_redlock *l = self;
    struct bid *bid = ask->engine_state ? ask->engine_state : meet(l, ask);
    struct hf_news news = {.cue = HF_N_FAILED, .asked_at = now, .retry_at = HF_NEVER};
    if (!bid) {
        news.status = HF_NO_MEMORY;
        news.text = "no memory to ask";
        l->host->tell(l->host->ctx, ask, &news);
    } else if (HF_MS(ask->ttl_ms) > l->max_ttl && (ask->verb == HF_V_ACQUIRE || ask->verb == HF_V_EXTEND)) {
        hf_why(HF_INVALID, "ttl: %lld ms is longer than max_ttl, which is %lld ms and the same for all clients",
               (long long)ask->ttl_ms, (long long)(l->max_ttl / HF_MS(1)));
        news.status = HF_INVALID;
        news.text = hf_why_text();
        hf_bid_tell(l, bid, &news);
    } else if (ask->verb == HF_V_LIST || ask->verb == HF_V_BREAK || ask->verb == HF_V_RESIZE ||
               ask->verb == HF_V_EXAMINE) {
        hf_tally_submit(l, bid, now);
    } else {
        hf_ballot_submit(l, bid, now);
    }
    settle(l, now);
}

static void forget(void *self, struct hf_ask *ask)
{
    struct hf_redlock *l = self;
    struct bid *bid = ask->engine_state;
    if (!bid)
        return;
    ask->engine_state = NULL;
    ask->lines = 0;
    hf_ballot_part(l, bid);
    hf_tally_free(l, bid);
    *(bid->prev ? &bid->prev->next : &l->bids) = bid->next;
    if (bid->next)
        bid->next->prev = bid->prev;
    free(bid);
}

static void line_up(void *self, unsigned line, hf_nanos now)
{
    struct hf_redlock *l = self;
    hf_wire_redis.line_up(l->member[line / HF_MEMBER_LINES].redis, line % HF_MEMBER_LINES, now);
    settle(l, now);
}

static void line_bytes(void *self, unsigned line, const char *bytes, size_t len, hf_nanos now)
{
    struct hf_redlock *l = self;
    hf_wire_redis.line_bytes(l->member[line / HF_MEMBER_LINES].redis, line % HF_MEMBER_LINES, bytes, len, now);
    settle(l, now);
}

static void line_down(void *self, unsigned line, hf_status status, const char *why, hf_nanos now)
{
    struct hf_redlock *l = self;
    hf_wire_redis.line_down(l->member[line / HF_MEMBER_LINES].redis, line % HF_MEMBER_LINES, status, why, now);
    settle(l, now);
}

static hf_nanos tick(void *self, hf_nanos now)
{
    struct hf_redlock *l = self;
    hf_nanos next = HF_NEVER;
    for (unsigned i = 0; i < l->servers; i++) {
        hf_nanos due = hf_wire_redis.tick(l->member[i].redis, now);
        next = due < next ? due : next;
    }
    settle(l, now);
    hf_nanos due = hf_ballot_tick(l, now);
    settle(l, now);
    return due < next ? due : next;
}

/* Answers that nobody waits for: what is taken back in the background, now or when it is tried again. */
static uint32_t lines(void *self)
{
    struct hf_redlock *l = self;
    uint32_t all = 0;
    for (unsigned i = 0; i < l->servers; i++)
        all |= hf_wire_redis.lines(l->member[i].redis) << i * HF_MEMBER_LINES;
    for (const struct ballot *b = l->ballots; b; b = b->next)
        for (unsigned i = 0; !b->bid && i < l->servers; i++)
            all |= (b->seat[i].ask.lines | (b->seat[i].again != HF_NEVER)) << i * HF_MEMBER_LINES;
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
