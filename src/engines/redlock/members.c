/* members.c - the servers of a quorum: the URL that names them, what they say, and whether it counts.
 *
 * Each member is the Redis engine for one server; its lines are ours, shifted. What members tell is noted and dealt
 * with when they have finished, because they must not be called back from inside. */
#include "redlock.h"

#include "base/url.h"
#include "base/why.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void note_hint(struct hf_redlock *l, struct hf_ask *ear)
{
    if (ear->slot != SLOT_EAR)
        return;
    struct bid *bid = (struct bid *)(void *)((char *)(ear - ear->seen) - offsetof(struct bid, ear));
    if (bid->is_hinted)
        return;
    bid->is_hinted = true;
    bid->hinted = l->hinted;
    l->hinted = bid;
}

static void member_tell(void *ctx, struct hf_ask *ask, const struct hf_news *news)
{
    struct member *m = ctx;
    struct hf_redlock *l = m->lock;
    if (news->cue == HF_N_HINT) { /* nobody's answer */
        note_hint(l, ask);
        return;
    }
    struct heard *h = l->unused;
    assert(h); /* hf_members_expect() */
    l->unused = h->next;
    *h = (struct heard){.ask = ask, .news = *news};
    if (news->text) {
        snprintf(h->text, sizeof h->text, "%s", news->text);
        h->news.text = h->text;
    }
    *(l->heard_last ? &l->heard_last->next : &l->heard) = h;
    l->heard_last = h;
}

static struct bid *owner_of(const struct hf_redlock *l, const struct hf_ask *ask)
{
    struct bid *bid = l->bids;
    while (bid && !hf_tally_owns(bid, ask))
        bid = bid->next;
    return bid;
}

static void member_row(void *ctx, struct hf_ask *ask, const struct hf_row *row)
{
    struct member *m = ctx;
    struct bid *bid = owner_of(m->lock, ask);
    if (bid)
        hf_tally_row(bid, ask, row);
}

static void member_find(void *ctx, struct hf_ask *ask, const struct hf_finding *finding)
{
    struct member *m = ctx;
    struct bid *bid = owner_of(m->lock, ask);
    if (bid)
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

/* ---- What follows from it ---- */

/* One more than are due: the answer that is being dealt with has its room still. */
bool hf_members_expect(struct hf_redlock *l)
{
    for (struct heard *h; l->room_for_answers < l->answers_due + 2; l->room_for_answers++) {
        if (!(h = malloc(sizeof *h)))
            return false;
        h->next = l->unused;
        l->unused = h;
    }
    l->answers_due++;
    return true;
}

static void hear_one(struct hf_redlock *l, const struct heard *h, hf_nanos now)
{
    if (h->ask->slot == SLOT_SEAT) {
        hf_ballot_hear(l, (struct seat *)(void *)((char *)h->ask - offsetof(struct seat, ask)), &h->news, now);
        return;
    }
    struct bid *bid = owner_of(l, h->ask);
    if (bid)
        hf_tally_hear(l, bid, h->ask, &h->news);
}

static void hear_hints(struct hf_redlock *l, hf_nanos now)
{
    for (struct bid *bid; (bid = l->hinted);) {
        l->hinted = bid->hinted;
        bid->is_hinted = false;
        hf_bid_hint_soon(l, bid, now);
    }
}

void hf_members_unhear(struct hf_redlock *l, const struct hf_ask *ask)
{
    for (struct heard *h = l->heard; h; h = h->next)
        if (h->ask == ask)
            h->ask = NULL;
}

void hf_members_settle(struct hf_redlock *l, hf_nanos now)
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
    hear_hints(l, now);
}

/* ---- Who counts ---- */

/* The same server under another name, which has its vote already; of a server that nobody asks for a vote, the first
 * name in the list. Which it is shows when both have answered, and not in the order of the list. */
static const struct member *twin(const struct hf_redlock *l, unsigned server, const struct hf_quorum *votes)
{
    const char *run_id = hf_quorum_member_run_id(l->member[server].redis);
    for (unsigned i = 0; run_id[0] && i < l->servers; i++) {
        bool is_first = votes ? i != server && votes->vote[i] == HF_VOTE_YES : i < server;
        if (is_first && strcmp(hf_quorum_member_run_id(l->member[i].redis), run_id) == 0)
            return &l->member[i];
    }
    return NULL;
}

/* A server that came back a moment ago may have forgotten holds: until the longest of them is over, its yes is worth
 * nothing. Its age is that at the asking: who was stopped before hearing the answer must not find it grown. What it
 * says of its uptime is in whole seconds, and by a clock that may run faster than ours. With one server there is nobody
 * who could remember better. */
bool hf_member_counts(struct hf_redlock *l, unsigned server, const struct hf_quorum *votes, hf_nanos asked_at)
{
    struct member *m = &l->member[server];
    const char *where = hf_quorum_member_where(m->redis);
    const struct member *same = twin(l, server, votes);
    hf_nanos since = hf_quorum_member_up_since(m->redis);
    hf_nanos age = asked_at > since ? asked_at - since : 0;
    hf_nanos needed = l->max_ttl + hf_timing_drift(&l->limits, l->max_ttl) + HF_MS(1000);
    if (!same && (l->servers == 1 || (since != HF_NEVER && age > needed)))
        return true;
    if (same)
        snprintf(m->trouble, sizeof m->trouble, "%.90s: is the same server as %.90s, and counts once", where,
                 hf_quorum_member_where(same->redis));
    else if (since == HF_NEVER)
        snprintf(m->trouble, sizeof m->trouble, "%.100s: does not say since when it runs, so it does not count", where);
    else
        snprintf(m->trouble, sizeof m->trouble, "%.100s: runs for %lld s only and counts again in %lld s", where,
                 (long long)(age / HF_MS(1000)), (long long)((needed - age) / HF_MS(1000) + 1));
    return false;
}

/* ---- The URL ---- */

static const struct hf_wire_host host_of_members = {
    .dial = member_dial,
    .send = member_send,
    .hang_up = member_hang_up,
    .tell = member_tell,
    .row = member_row,
    .find = member_find,
    .recheck = member_recheck,
    .random = member_random,
};

/* One server of the list: user:password@host:port, as the URL's own scheme says; or with a scheme of its own. */
static hf_status read_server(const struct hf_url *url, const char *text, size_t len, struct hf_url *one)
{
    static const char *const schemes[] = {"redis", "rediss", "valkey", "valkeys"};
    const char *mark = memmem(text, len, "://", 3);
    if (!mark) {
        strcpy(one->scheme, strcmp(url->scheme, "redlocks") == 0 ? "rediss" : "redis");
        snprintf(one->body, sizeof one->body, "//%.*s", (int)len, text);
        return HF_OK;
    }
    size_t before = (size_t)(mark - text);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strlen(schemes[i]) == before && strncasecmp(text, schemes[i], before) == 0) {
            strcpy(one->scheme, schemes[i]);
            snprintf(one->body, sizeof one->body, "%.*s", (int)(len - before - 1), mark + 1);
            return HF_OK;
        }
    return hf_why(HF_CONFIG, "%s: the URL: before a server stands redis://, rediss:// (TLS), or nothing", url->scheme);
}

static hf_status open_member(struct hf_redlock *l, const struct hf_url *url, const struct hf_settings *settings,
                             const char *text, size_t len)
{
    struct hf_url one = {0};
    if (l->servers == HF_SERVERS_MAX)
        return hf_why(HF_CONFIG, "%s: the URL: more than %d servers", url->scheme, HF_SERVERS_MAX);
    struct member *m = &l->member[l->servers];
    m->lock = l;
    m->index = l->servers;
    m->host = host_of_members;
    m->host.ctx = m;
    hf_status status = read_server(url, text, len, &one);
    if (status == HF_OK)
        status = hf_wire_redis.open(&m->redis, &one, settings, &m->host);
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
hf_status hf_members_open(struct hf_redlock *l, const struct hf_url *url, const struct hf_settings *settings)
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
