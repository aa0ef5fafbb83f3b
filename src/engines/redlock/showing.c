/* showing.c - for people: what a majority of the servers shows, what each of them says, and taking a hold away on all.
 *
 * Every server is asked; what stands on fewer than a majority of them is no hold, but the rest of one, or a try that is
 * being made. Whoever wants to see each server by itself sees that, too. */
#include "redlock.h"

#include "base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST HF_MS(1000) /* before the rest is not waited for */

struct shown {
    struct hf_row row;
    char *texts; /* name, host, label */
    unsigned servers;
    unsigned first; /* the first server that told of it */
};

struct tally {
    struct hf_ask ask[HF_SERVERS_MAX];
    struct hf_quorum quorum;
    unsigned open;
    hf_nanos asked_at, over_at; /* a server that hangs is not waited for longer */
    bool broken;                /* BREAK: somewhere */
    struct shown *shown;
    size_t count, room;
    bool out_of_memory;
    hf_status status[HF_SERVERS_MAX];
    char trouble[HF_SERVERS_MAX][160]; /* why a server did not answer */
};

bool hf_tally_owns(const struct bid *bid, const struct hf_ask *ask)
{
    return bid->tally && ask >= bid->tally->ask && ask < bid->tally->ask + HF_SERVERS_MAX;
}

uint32_t hf_tally_lines(const struct bid *bid)
{
    uint32_t lines = 0;
    for (unsigned i = 0; bid->tally && i < bid->tally->quorum.servers; i++)
        lines |= bid->tally->ask[i].lines << i * HF_MEMBER_LINES;
    return lines;
}

void hf_tally_free(struct hf_redlock *l, struct bid *bid)
{
    struct tally *t = bid->tally;
    if (!t)
        return;
    for (unsigned i = 0; i < l->servers; i++) {
        hf_wire_redis.forget(l->member[i].redis, &t->ask[i]);
        hf_members_unhear(l, &t->ask[i]);
    }
    l->answers_due -= t->open;
    for (size_t i = 0; i < t->count; i++)
        free(t->shown[i].texts);
    free(t->shown);
    free(t);
    bid->tally = NULL;
}

/* ---- Rows ---- */

static bool is_same(const struct hf_row *a, const struct hf_row *b)
{
    return a->token == b->token && a->role == b->role && a->foreign == b->foreign && strcmp(a->name, b->name) == 0;
}

static struct shown *add(struct tally *t, const struct hf_row *row)
{
    if (t->count == t->room) {
        size_t room = t->room ? t->room * 2 : 32;
        struct shown *more = realloc(t->shown, room * sizeof *more);
        if (!more)
            return NULL;
        t->shown = more;
        t->room = room;
    }
    size_t name = strlen(row->name) + 1, host = strlen(row->host) + 1, label = strlen(row->label) + 1;
    struct shown *s = &t->shown[t->count];
    *s = (struct shown){.row = *row, .texts = malloc(name + host + label)};
    if (!s->texts)
        return NULL;
    s->row.name = memcpy(s->texts, row->name, name);
    s->row.host = memcpy(s->texts + name, row->host, host);
    s->row.label = memcpy(s->texts + name + host, row->label, label);
    t->count++;
    return s;
}

/* The time left is that of the server which gives least: the others end later. */
void hf_tally_row(struct bid *bid, const struct hf_ask *ask, const struct hf_row *row)
{
    struct tally *t = bid->tally;
    struct shown *s = NULL;
    bool each = bid->ask->see == HF_SEE_SERVERS;
    for (size_t i = 0; !each && i < t->count && !s; i++)
        if (is_same(&t->shown[i].row, row))
            s = &t->shown[i];
    if (!s && (s = add(t, row)))
        s->first = (unsigned)(ask - t->ask);
    t->out_of_memory |= !s;
    if (!s)
        return;
    s->servers++;
    if (row->left_ms < s->row.left_ms)
        s->row.left_ms = row->left_ms;
    if (row->count > s->row.count)
        s->row.count = row->count;
}

static void show_rows(struct hf_redlock *l, struct bid *bid)
{
    struct tally *t = bid->tally;
    for (size_t i = 0; i < t->count; i++) {
        struct shown *s = &t->shown[i];
        s->row.servers = s->servers;
        s->row.servers_all = l->servers;
        if (s->servers >= hf_majority(l->servers))
            l->host->row(l->host->ctx, bid->ask, &s->row);
    }
}

/* ---- Each server by itself ---- */

static const struct hf_row *holder_on(const struct tally *t, unsigned server)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->shown[i].first == server && t->shown[i].row.role == HF_HOLDER)
            return &t->shown[i].row;
    return NULL;
}

/* What is said of a server begins with its name, which stands beside it here. */
static const char *without_name(const char *text, const char *where)
{
    size_t len = strlen(where);
    return strncmp(text, where, len) == 0 && strncmp(text + len, ": ", 2) == 0 ? text + len + 2 : text;
}

static void show_server(struct hf_redlock *l, struct bid *bid, unsigned server)
{
    const struct tally *t = bid->tally;
    struct member *m = &l->member[server];
    bool answered = t->quorum.vote[server] == HF_VOTE_YES;
    struct hf_standing standing = {.size = sizeof standing,
                                   .where = hf_quorum_member_where(m->redis),
                                   .status = t->status[server],
                                   .holder = answered ? holder_on(t, server) : NULL,
                                   .text = ""};
    standing.counts = answered && hf_member_counts(l, server, NULL, t->asked_at);
    if (!standing.counts)
        standing.text = without_name(answered ? m->trouble : t->trouble[server], standing.where);
    l->host->stand(l->host->ctx, bid->ask, &standing);
}

/* EXAMINE: what those who answered cannot say of themselves. */
static void find_trouble(struct hf_redlock *l, struct bid *bid, unsigned server)
{
    const struct tally *t = bid->tally;
    struct member *m = &l->member[server];
    bool answered = t->quorum.vote[server] == HF_VOTE_YES;
    struct hf_finding finding = {
        .size = sizeof finding, .where = hf_quorum_member_where(m->redis), .what = "quorum", .health = HF_HEALTH_WARN};
    if (answered && hf_member_counts(l, server, NULL, t->asked_at)) {
        finding.health = HF_HEALTH_OK;
        finding.text = "counts";
        finding.advice = "";
    } else {
        finding.text = without_name(answered ? m->trouble : t->trouble[server], finding.where);
        finding.advice =
            answered ? "restart servers one at a time, max_ttl apart" : "start it, or repair the way to it";
    }
    l->host->find(l->host->ctx, bid->ask, &finding);
}

/* ---- Questions ---- */

static void ask_servers(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    struct tally *t = bid->tally;
    for (unsigned i = 0; i < l->servers; i++) {
        t->ask[i] = *bid->ask;
        t->ask[i].engine_state = NULL;
        t->ask[i].slot = 0;
        t->ask[i].lines = 0;
        hf_wire_redis.submit(l->member[i].redis, &t->ask[i], now);
    }
}

/* Room for what all of them will answer. */
static bool expect_all(struct hf_redlock *l)
{
    for (unsigned i = 0; i < l->servers; i++)
        if (!hf_members_expect(l)) {
            l->answers_due -= i;
            return false;
        }
    return true;
}

void hf_tally_submit(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    if (bid->ask->verb == HF_V_RESIZE) {
        hf_bid_fail(l, bid, now, HF_UNSUPPORTED, HF_REDLOCK_COUNTS);
        return;
    }
    struct tally *t = calloc(1, sizeof *t);
    if (!t || !expect_all(l)) {
        free(t);
        hf_bid_fail(l, bid, now, HF_NO_MEMORY, "no memory to list");
        return;
    }
    bid->tally = t;
    hf_quorum_open(&t->quorum, l->servers);
    t->open = l->servers;
    t->asked_at = now;
    t->over_at = now + LONGEST;
    ask_servers(l, bid, now);
    hf_bid_set_lines(l, bid);
}

/* ---- Answers ---- */

static void say_who_is_silent(const struct hf_redlock *l, const struct tally *t, char *words, size_t size)
{
    unsigned silent = hf_quorum_count(&t->quorum, HF_VOTE_FAILED);
    int len = snprintf(words, size, "%u of %u servers answered", l->servers - silent, l->servers);
    for (unsigned i = 0; i < l->servers && len < (int)size; i++)
        if (t->quorum.vote[i] == HF_VOTE_FAILED)
            len += snprintf(words + len, size - (size_t)len, "; %s", t->trouble[i]);
}

static void conclude(struct hf_redlock *l, struct bid *bid)
{
    struct tally *t = bid->tally;
    struct hf_news answer = {.cue = HF_N_RELEASED, .asked_at = t->asked_at, .retry_at = HF_NEVER};
    bool each = bid->ask->verb == HF_V_LIST && bid->ask->see == HF_SEE_SERVERS;
    char text[900];
    for (unsigned i = 0; bid->ask->verb == HF_V_EXAMINE && i < l->servers; i++)
        find_trouble(l, bid, i);
    if (t->out_of_memory || (!each && hf_quorum_is_silent(&t->quorum))) {
        say_who_is_silent(l, t, text, sizeof text);
        answer.cue = HF_N_FAILED;
        answer.status = t->out_of_memory ? HF_NO_MEMORY : HF_NO_QUORUM;
        answer.text = t->out_of_memory ? "no memory to list" : text;
    } else if (each) {
        for (unsigned i = 0; i < l->servers; i++)
            show_server(l, bid, i);
    } else if (bid->ask->verb == HF_V_LIST) {
        show_rows(l, bid);
    } else if (!t->broken) {
        answer.cue = HF_N_GONE;
    }
    hf_tally_free(l, bid);
    hf_bid_tell(l, bid, &answer);
}

void hf_tally_hear(struct hf_redlock *l, struct bid *bid, const struct hf_ask *ask, const struct hf_news *news)
{
    struct tally *t = bid->tally;
    unsigned server = (unsigned)(ask - t->ask);
    bool yes = news->cue == HF_N_RELEASED, no = news->cue == HF_N_GONE;
    t->quorum.vote[server] = yes ? HF_VOTE_YES : no ? HF_VOTE_NO : HF_VOTE_FAILED;
    t->broken |= yes;
    if (!yes && !no) {
        t->status[server] = news->cue == HF_N_FAILED && news->status ? news->status : HF_UNAVAILABLE;
        snprintf(t->trouble[server], sizeof t->trouble[0], "%s",
                 news->text ? news->text : hf_quorum_member_where(l->member[server].redis));
    }
    l->answers_due--;
    if (--t->open == 0)
        conclude(l, bid);
    hf_bid_set_alarm(l, bid);
}

/* ---- Time ---- */

hf_nanos hf_tally_due(const struct bid *bid)
{
    return bid->tally ? bid->tally->over_at : HF_NEVER;
}

void hf_tally_tick(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    struct tally *t = bid->tally;
    if (!t || now < t->over_at)
        return;
    for (unsigned i = 0; i < l->servers; i++)
        if (t->quorum.vote[i] == HF_VOTE_OPEN) {
            t->quorum.vote[i] = HF_VOTE_FAILED;
            t->status[i] = HF_UNAVAILABLE;
            snprintf(t->trouble[i], sizeof t->trouble[0], "%.100s: no answer within %lld ms",
                     hf_quorum_member_where(l->member[i].redis), (long long)(LONGEST / HF_MS(1)));
        }
    conclude(l, bid);
}
