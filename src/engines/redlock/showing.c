/* showing.c - for people: what a majority of the servers shows, and taking a hold away on all of them.
 *
 * Every server is asked; what stands on fewer than a majority of them is no hold, but the rest of one, or a try that is
 * being made. */
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
    char trouble[240];
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
        hf_redlock_unhear(l, &t->ask[i]);
    }
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
void hf_tally_row(struct bid *bid, const struct hf_row *row)
{
    struct tally *t = bid->tally;
    struct shown *s = NULL;
    for (size_t i = 0; i < t->count && !s; i++)
        if (is_same(&t->shown[i].row, row))
            s = &t->shown[i];
    if (!s)
        s = add(t, row);
    t->out_of_memory |= !s;
    if (!s)
        return;
    s->servers++;
    if (row->left_ms < s->row.left_ms)
        s->row.left_ms = row->left_ms;
    if (row->count > s->row.count)
        s->row.count = row->count;
}

static void show(struct hf_redlock *l, struct bid *bid)
{
    struct tally *t = bid->tally;
    for (size_t i = 0; i < t->count; i++) {
        struct shown *s = &t->shown[i];
        s->row.servers = s->servers;
        if (s->servers >= hf_majority(l->servers))
            l->host->row(l->host->ctx, bid->ask, &s->row);
    }
}

/* ---- Questions and answers ---- */

void hf_tally_submit(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    struct hf_news news = {.cue = HF_N_FAILED, .asked_at = now, .retry_at = HF_NEVER};
    struct tally *t = bid->ask->verb == HF_V_RESIZE ? NULL : calloc(1, sizeof *t);
    if (!t) {
        bool resize = bid->ask->verb == HF_V_RESIZE;
        news.status = resize ? HF_UNSUPPORTED : HF_NO_MEMORY;
        news.text = resize ? HF_REDLOCK_COUNTS : "no memory to list";
        hf_bid_tell(l, bid, &news);
        return;
    }
    bid->tally = t;
    hf_quorum_open(&t->quorum, l->servers);
    t->open = l->servers;
    t->asked_at = now;
    t->over_at = now + LONGEST;
    for (unsigned i = 0; i < l->servers; i++) {
        t->ask[i] = *bid->ask;
        t->ask[i].engine_state = NULL;
        t->ask[i].slot = 0;
        t->ask[i].lines = 0;
        hf_wire_redis.submit(l->member[i].redis, &t->ask[i], now);
    }
    hf_bid_set_lines(l, bid);
}

static void conclude(struct hf_redlock *l, struct bid *bid)
{
    struct tally *t = bid->tally;
    struct hf_news answer = {.cue = HF_N_RELEASED, .asked_at = t->asked_at, .retry_at = HF_NEVER};
    char text[320];
    if (hf_quorum_is_silent(&t->quorum) || t->out_of_memory) {
        snprintf(text, sizeof text, "%u of %u servers answered; %s",
                 l->servers - hf_quorum_count(&t->quorum, HF_VOTE_FAILED), l->servers, t->trouble);
        answer.cue = HF_N_FAILED;
        answer.status = t->out_of_memory ? HF_NO_MEMORY : HF_NO_QUORUM;
        answer.text = t->out_of_memory ? "no memory to list" : text;
    } else if (bid->ask->verb == HF_V_LIST) {
        show(l, bid);
    } else if (!t->broken) {
        answer.cue = HF_N_GONE;
    }
    hf_tally_free(l, bid);
    hf_bid_tell(l, bid, &answer);
}

void hf_tally_hear(struct hf_redlock *l, struct bid *bid, const struct hf_ask *ask, const struct hf_news *news)
{
    struct tally *t = bid->tally;
    enum hf_vote *vote = &t->quorum.vote[ask - t->ask];
    if (*vote != HF_VOTE_OPEN)
        return;
    bool yes = news->cue == HF_N_RELEASED, no = news->cue == HF_N_GONE;
    *vote = yes ? HF_VOTE_YES : no ? HF_VOTE_NO : HF_VOTE_FAILED;
    t->broken |= yes;
    if (!yes && !no)
        snprintf(t->trouble, sizeof t->trouble, "%s", news->text ? news->text : "no answer");
    if (--t->open == 0)
        conclude(l, bid);
}

hf_nanos hf_tally_tick(struct hf_redlock *l, struct bid *bid, hf_nanos now)
{
    struct tally *t = bid->tally;
    if (!t || now < t->over_at)
        return t ? t->over_at : HF_NEVER;
    for (unsigned i = 0; i < l->servers; i++)
        if (t->quorum.vote[i] == HF_VOTE_OPEN)
            t->quorum.vote[i] = HF_VOTE_FAILED;
    if (!t->trouble[0])
        snprintf(t->trouble, sizeof t->trouble, "no answer in time");
    conclude(l, bid);
    return HF_NEVER;
}
