/* repair_judge.h - the judge: what must be true of a table after a death and its repair.
 *
 * It reads the truth from the cells, before and after, and never through the lists: those are checked against it. */
#pragma once
#include "repair_scene.h"

#include <stdarg.h>

enum { MOST_PEOPLE = 256 };

/* One who holds or waits. */
struct person {
    struct hf_id attempt;
    int name;
    uint32_t cell, client, units, word, cookie;
    uint64_t ticket, token;
    int64_t end;
    bool held, mortal; /* mortal: its client is dead, or its time is over */
};
struct picture {
    struct person people[MOST_PEOPLE];
    unsigned count;
};

static char complaint[512];

static __attribute__((format(printf, 1, 2))) bool complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(complaint, sizeof complaint, format, args);
    va_end(args);
    return false;
}

static int name_of(struct hf_table *t, uint32_t resource)
{
    char text[HF_NAME_MAX + 1];
    if (resource == 0 || resource >= hf_table_cells(t) || hf_cell_state(&t->cells[resource]) != CELL_RESOURCE)
        return -1;
    hf_resource_name(t, &t->cells[resource].resource, text);
    for (int n = 0; n < NAMES; n++)
        if (strcmp(text, names[n].text) == 0)
            return n;
    return -1;
}

static bool is_doomed(struct hf_table *t, uint32_t client)
{
    return client &&
           (!hf_member_lives(t, client) || client == world.actors[XENIA].member || client == world.actors[DORA].member);
}

/* Everybody in the table, by the states of the cells alone. */
static void take_picture(struct hf_table *t, struct picture *p)
{
    hf_nanos now = hf_clock_boot();
    p->count = 0;
    for (uint32_t i = 1; i < hf_table_cells(t) && p->count < MOST_PEOPLE; i++) {
        uint32_t state = hf_cell_state(&t->cells[i]);
        if (state != CELL_WAITING && state != CELL_HELD)
            continue;
        const struct hf_entry *e = &t->cells[i].entry;
        bool held = state == CELL_HELD;
        p->people[p->count++] = (struct person){.attempt = e->attempt,
                                                .name = name_of(t, e->resource),
                                                .cell = i,
                                                .client = e->client,
                                                .units = e->units,
                                                .word = e->head.word,
                                                .cookie = e->cookie,
                                                .ticket = e->ticket,
                                                .token = held ? e->token : 0,
                                                .end = held ? e->end : 0,
                                                .held = held,
                                                .mortal = is_doomed(t, e->client) || (held && e->end <= now)};
    }
}

/* Tokens that somebody was seen to hold were given, whatever became of them. */
static void note_tokens(const struct picture *p)
{
    for (unsigned i = 0; i < p->count; i++)
        if (p->people[i].held && p->people[i].name >= 0)
            note_token((uint32_t)p->people[i].name, p->people[i].token);
}

static const struct person *find_person(const struct picture *p, const struct person *who)
{
    for (unsigned i = 0; i < p->count; i++)
        if (memcmp(&p->people[i].attempt, &who->attempt, sizeof who->attempt) == 0)
            return &p->people[i];
    return NULL;
}

static const char *describe(const struct person *who)
{
    static char text[2][80];
    static unsigned turn;
    turn ^= 1;
    uint32_t serial;
    memcpy(&serial, who->attempt.b + 4, sizeof serial);
    snprintf(text[turn], sizeof text[turn], "ask %u of client %d for %s (cell %u)", serial, who->attempt.b[0] - 1,
             who->name >= 0 ? names[who->name].word : "?", who->cell);
    return text[turn];
}

/* ---- What the death may have changed ---- */

/* The survivors of `before` are in `now`: holds as they were, waiters in their place or granted with a new token. */
static bool nobody_is_lost(const struct picture *before, const struct picture *now, const uint64_t highest[NAMES])
{
    for (unsigned i = 0; i < before->count; i++) {
        const struct person *was = &before->people[i], *is = find_person(now, was);
        bool own = was->attempt.b[0] == XENIA + 1; /* the operation may extend or release her own detached hold */
        if (was->mortal || (own && !is))
            continue;
        if (!is)
            return complain("%s has vanished", describe(was));
        if (is->name != was->name || is->units != was->units || is->ticket != was->ticket)
            return complain("%s has become %s", describe(was), describe(is));
        if (was->held && (!is->held || is->token != was->token))
            return complain("%s lost its hold or its token", describe(was));
        if (was->held && (own ? is->end < was->end : is->end != was->end))
            return complain("%s had its end moved", describe(was));
        if (!was->held && is->held && is->token <= highest[is->name])
            return complain("%s was granted with token %llu, not above %llu", describe(was),
                            (unsigned long long)is->token, (unsigned long long)highest[is->name]);
    }
    for (unsigned i = 0; i < now->count; i++)
        if (!find_person(before, &now->people[i]) && now->people[i].attempt.b[0] != XENIA + 1)
            return complain("%s came from nowhere", describe(&now->people[i]));
    return true;
}

static struct person *first_waiter(struct picture *p, int name)
{
    struct person *first = NULL;
    for (unsigned i = 0; i < p->count; i++) {
        struct person *who = &p->people[i];
        if (who->name == name && !who->held && !who->mortal && (!first || who->ticket < first->ticket))
            first = who;
    }
    return first;
}

/* Lets the mortal die and gives what is free to whoever is first: what a repair must come to. A new hold gets token 0
 * here. */
static void foresee(struct picture *p)
{
    for (int name = 0; name < NAMES; name++) {
        uint64_t used = 0;
        for (unsigned i = 0; i < p->count; i++)
            if (p->people[i].name == name && p->people[i].held && !p->people[i].mortal)
                used += p->people[i].units;
        for (struct person *first; (first = first_waiter(p, name)) && used + first->units <= names[name].capacity;) {
            first->held = true;
            used += first->units;
        }
    }
}

/* `after` is what was foreseen, person by person. */
static bool came_as_foreseen(const struct picture *foreseen, const struct picture *after)
{
    for (unsigned i = 0; i < foreseen->count; i++) {
        const struct person *who = &foreseen->people[i], *is = find_person(after, who);
        if (who->mortal && is)
            return complain("%s should be gone", describe(who));
        if (who->mortal)
            continue;
        if (!is)
            return complain("%s did not survive", describe(who));
        if (is->held != who->held)
            return complain("%s %s", describe(who), who->held ? "still waits" : "holds out of turn");
        if (is->ticket != who->ticket || is->units != who->units || is->client != who->client)
            return complain("%s is not the same any more", describe(who));
        if (who->token && (is->token != who->token || is->end != who->end))
            return complain("%s had its token or its end changed", describe(who));
        if (who->held && !who->token && is->token <= world.highest[who->name])
            return complain("%s got token %llu, not above %llu", describe(who), (unsigned long long)is->token,
                            (unsigned long long)world.highest[who->name]);
    }
    for (unsigned i = 0; i < after->count; i++)
        if (!find_person(foreseen, &after->people[i]))
            return complain("%s came with the repair", describe(&after->people[i]));
    return true;
}

/* ---- News ---- */

static bool is_in_ready_list(struct hf_table *t, uint32_t member, uint32_t cell)
{
    uint32_t left = hf_table_cells(t);
    for (uint32_t i = hf_cell_at(t, member)->member.ready; i && left--; i = hf_cell_at(t, i)->entry.ready_next)
        if (i == cell)
            return true;
    return false;
}

/* Who has been granted since can know it: by its bell, or by its word. */
static bool everybody_is_told(struct hf_table *t, const struct picture *before, const struct picture *after)
{
    for (unsigned i = 0; i < after->count; i++) {
        const struct person *is = &after->people[i], *was = find_person(before, is);
        if (!was || was->held || !is->held || !is->client)
            continue;
        if (is->word == was->word)
            return complain("%s was granted and its word did not change", describe(is));
        const struct hf_member *m = &hf_cell_at(t, is->client)->member;
        if (is->cookie && !m->rescan && !is_in_ready_list(t, is->client, is->cell))
            return complain("%s was granted and its client is not told", describe(is));
    }
    return true;
}

/* What a living client's background thread does when its bell has rung. */
static bool everybody_looks(struct hf_table *t)
{
    HF_EACH_CELL(t, m, &t->shards[LOCAL_REGISTRY].idle)
    {
        struct hf_member *member = &hf_cell_at(t, m)->member;
        uint32_t left = hf_table_cells(t);
        for (uint32_t i = atomic_exchange(&member->ready, 0), next; i; i = next) {
            struct hf_entry *e = &hf_cell_at(t, i)->entry;
            uint32_t state = hf_cell_state(hf_cell_at(t, i));
            next = e->ready_next;
            if (!left-- || !e->linked || e->client != m ||
                (state != CELL_WAITING && state != CELL_HELD && state != CELL_ENDED))
                return complain("the ready list of member %u leads to cell %u in state %u", m, i, state);
            e->linked = 0;
            if (state == CELL_ENDED && !e->cookie)
                hf_lease_discard(t, i, m);
        }
        member->rescan = 0;
    }
    return true;
}
