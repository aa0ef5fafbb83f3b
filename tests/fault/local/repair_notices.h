/* repair_notices.h - who was granted, sent away or broken can know it. */
#pragma once
#include "repair_checker.h"

static bool is_in_ready_list(struct table *t, uint32_t client, uint32_t cell)
{
    uint32_t left = table_cells(t);
    for (uint32_t i = cell_at(t, client)->client.ready; i && left--;
         i = cell_at(t, i)->entry.ready_next)
        if (i == cell)
            return true;
    return false;
}

/* Who has been granted since can know it: by its bell, or by its word. */
static bool is_told(struct table *t, const struct person *who)
{
    return !who->cookie || cell_at(t, who->client)->client.rescan ||
           is_in_ready_list(t, who->client, who->cell);
}

static bool everybody_is_told(struct table *t, const struct picture *before,
                              const struct picture *after)
{
    for (unsigned i = 0; i < after->count; i++) {
        const struct person *is = &after->people[i], *was = find_person(before, is);
        if (!was || was->held || !is->held || !is->client)
            continue;
        if (is->word == was->word)
            return complain("%s was granted and its word did not change", describe(is));
        if (!is_told(t, is))
            return complain("%s was granted and its client is not told", describe(is));
    }
    return true;
}

static bool cell_is_ended(struct table *t, const struct person *was)
{
    return was_sent_away(t, was, HF_LOST) || was_sent_away(t, was, HF_OK);
}

/* So can who was sent away, and who was broken. */
static bool those_who_ended_are_told(struct table *t, const struct picture *before,
                                     const struct picture *after)
{
    for (unsigned i = 0; i < before->count; i++) {
        const struct person *was = &before->people[i];
        if (was->mortal || !was->client || find_person(after, was))
            continue;
        if (was->held && cell_is_ended(t, was) && !cell_at(t, was->client)->client.recheck)
            return complain("%s was ended and its client is not told", describe(was));
        if (!was->held && (t->cells[was->cell].head.word == was->word || !is_told(t, was)))
            return complain("%s was sent away and is not told", describe(was));
    }
    return true;
}

/* What a living client's background thread does when its bell has rung. */
static bool everybody_looks(struct table *t)
{
    FOR_EACH_CELL (t, m, &t->shards[LOCAL_REGISTRY].idle) {
        struct table_client *client = &cell_at(t, m)->client;
        uint32_t left = table_cells(t);
        for (uint32_t i = atomic_exchange(&client->ready, 0), next; i; i = next) {
            struct entry *e = &cell_at(t, i)->entry;
            uint32_t state = cell_state(cell_at(t, i));
            next = e->ready_next;
            if (!left-- || !e->ready_link || e->client != m ||
                (state != CELL_WAITING && state != CELL_HELD && state != CELL_ENDED))
                return complain("the ready list of member %u leads to cell %u in state %u", m, i,
                                state);
            e->ready_link = 0;
            if (state == CELL_ENDED && !e->cookie)
                table_discard(t, i, m);
        }
        client->rescan = client->recheck = 0;
    }
    return true;
}
