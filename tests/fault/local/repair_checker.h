/* repair_checker.h - the judge: what must be true of a table after a death and its repair.
 *
 * It reads the truth from the cells, before and after, and never through the lists: those are
 * checked against it. */
#pragma once
#include "repair_operations.h"

#include <stdarg.h>

enum { MOST_PEOPLE = 256 };

/* One who holds or waits. */
struct person {
    struct id attempt, owner;
    int name;
    hf_kind kind;
    uint32_t cell, client, units, word, cookie;
    uint64_t ticket, token;
    int64_t end;
    bool named;          /* others with the same owner share its hold */
    bool held, mortal;   /* mortal: its client is dead, or its time is over */
    bool fresh, refused; /* foreseen: will be granted; will be sent away */
};
struct picture {
    struct person people[MOST_PEOPLE];
    unsigned count;
    uint32_t capacity[NAMES]; /* 0: nobody has it */
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

static int name_of(struct table *t, uint32_t resource)
{
    char text[HF_NAME_MAX + 1];
    if (resource == 0 || resource >= table_cells(t) ||
        cell_state(&t->cells[resource]) != CELL_RESOURCE)
        return -1;
    resource_name(t, &t->cells[resource].resource, text);
    for (int n = 0; n < NAMES; n++)
        if (strcmp(text, names[n].text) == 0)
            return n;
    return -1;
}

static bool is_doomed(struct table *t, uint32_t client)
{
    return client && (!table_client_lives(t, client) || client == world.actors[XENIA].client ||
                      client == world.actors[DORA].client);
}

/* Everybody in the table, by the states of the cells alone. */
static void take_picture(struct table *t, struct picture *p)
{
    nanos now = clock_boot();
    *p = (struct picture){0};
    for (uint32_t i = 1; i < table_cells(t) && p->count < MOST_PEOPLE; i++) {
        uint32_t state = cell_state(&t->cells[i]);
        if (state != CELL_WAITING && state != CELL_HELD)
            continue;
        const struct entry *e = &t->cells[i].entry;
        bool held = state == CELL_HELD;
        int name = name_of(t, e->resource);
        if (name >= 0)
            p->capacity[name] = t->cells[e->resource].resource.capacity;
        p->people[p->count++] =
            (struct person){.attempt = e->attempt,
                            .owner = e->owner,
                            .named = e->named,
                            .kind = (hf_kind)e->kind,
                            .name = name,
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
        if (p->people[i].cell == who->cell &&
            memcmp(&p->people[i].attempt, &who->attempt, sizeof who->attempt) == 0)
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
    snprintf(text[turn], sizeof text[turn], "ask %u of client %d for %s (cell %u)", serial,
             who->attempt.b[0] - 1, who->name >= 0 ? names[who->name].word : "?", who->cell);
    return text[turn];
}

/* ---- Holds of one owner ---- */

static bool share_a_hold(const struct person *a, const struct person *b)
{
    return a->named && b->named && a->name == b->name &&
           memcmp(&a->owner, &b->owner, sizeof a->owner) == 0;
}

/* The first holder that shares a hold with `who`, or NULL. */
static const struct person *holder_of(const struct picture *p, const struct person *who)
{
    for (unsigned i = 0; i < p->count; i++)
        if (p->people[i].held && share_a_hold(&p->people[i], who))
            return &p->people[i];
    return NULL;
}

static uint64_t units_of_hold(const struct picture *p, const struct person *who)
{
    uint64_t sum = who->named ? 0 : who->units;
    for (unsigned i = 0; who->named && i < p->count; i++)
        if (p->people[i].held && !p->people[i].mortal && share_a_hold(&p->people[i], who))
            sum += p->people[i].units;
    return sum;
}

static uint64_t token_of_hold(const struct picture *p, const struct person *who)
{
    uint64_t token = who->token;
    for (unsigned i = 0; i < p->count; i++)
        if (p->people[i].held && p->people[i].token > token && share_a_hold(&p->people[i], who))
            token = p->people[i].token;
    return token;
}

/* Its cell says that it is over, and it can know. */
static bool was_sent_away(struct table *t, const struct person *was, hf_status why)
{
    const struct entry *e = &t->cells[was->cell].entry;
    return cell_state(&t->cells[was->cell]) == CELL_ENDED && e->client == was->client &&
           e->why == why && memcmp(&e->attempt, &was->attempt, sizeof e->attempt) == 0;
}

/* ---- What the death may have changed ---- */

/* Only what can never be granted, or what its owner must get by an upgrade, is sent away; only what
 * is broken ends, or what another client had by the same attempt and has released. */
static bool may_be_gone(struct table *t, const struct picture *before, const struct picture *now,
                        const struct person *was)
{
    if (was->held)
        return (current_is(BREAK, was->name) && was_sent_away(t, was, HF_LOST)) ||
               (current_is(RELEASE, ECHO) && was->name == ECHO && was_sent_away(t, was, HF_OK));
    const struct person *holder = holder_of(now, was);
    if (was_sent_away(t, was, HF_MISMATCH))
        return was->kind == HF_WRITE && holder && holder->kind == HF_READ;
    uint32_t capacity =
        current_is(RESIZE, was->name) ? current->command.target : before->capacity[was->name];
    return was_sent_away(t, was, HF_TOO_BIG) && was->units > capacity;
}

/* Is `is` what `was` may have become? The units of a hold are judged when it is mended. */
static bool is_the_same(const struct picture *now, const struct person *was,
                        const struct person *is)
{
    bool joins = is->held || holder_of(now, is); /* a waiter's units are 0 when it is about to */
    bool converts = current_is(UPGRADE, was->name) || current_is(DOWNGRADE, was->name);
    return is->name == was->name && is->ticket == was->ticket && is->named == was->named &&
           (is->units == was->units || (was->named && joins) || converts);
}

static bool keeps_its_token(const struct picture *before, const struct person *was,
                            const struct person *is, const uint64_t highest[NAMES])
{
    return is->token == was->token || is->token == token_of_hold(before, was) ||
           (current_is(UPGRADE, was->name) && is->token > highest[was->name]);
}

/* The survivors of `before` are in `now`: holds as they were, waiters in their place or granted
 * with a new token. */
static bool nobody_is_lost(struct table *t, const struct picture *before, const struct picture *now,
                           const uint64_t highest[NAMES])
{
    for (unsigned i = 0; i < before->count; i++) {
        const struct person *was = &before->people[i], *is = find_person(now, was);
        bool own = was->attempt.b[0] ==
                   XENIA + 1; /* the operation may extend or release her own detached hold */
        if (was->mortal || (own && !is) || (!is && may_be_gone(t, before, now, was)))
            continue;
        if (!is)
            return complain("%s has vanished", describe(was));
        if (!is_the_same(now, was, is))
            return complain("%s has become %s", describe(was), describe(is));
        if (was->held && (!is->held || !keeps_its_token(before, was, is, highest)))
            return complain("%s lost its hold or its token", describe(was));
        if (was->held && (own ? is->end < was->end : is->end != was->end))
            return complain("%s had its end moved", describe(was));
        if (!was->held && is->held && is->token <= highest[is->name] &&
            is->token != token_of_hold(before, was))
            return complain("%s was granted with token %llu, not above %llu", describe(was),
                            (unsigned long long)is->token, (unsigned long long)highest[is->name]);
    }
    for (unsigned i = 0; i < now->count; i++)
        if (!find_person(before, &now->people[i]) && now->people[i].attempt.b[0] != XENIA + 1)
            return complain("%s came from nowhere", describe(&now->people[i]));
    return true;
}

/* Readers that have left may have shown a higher token than a reader's own. */
static bool writers_have_new_tokens(const struct picture *before, const struct picture *now,
                                    const uint64_t highest[NAMES])
{
    for (unsigned i = 0; i < before->count; i++) {
        const struct person *was = &before->people[i], *is = find_person(now, was);
        if (was->held && was->kind == HF_READ && is && is->units == now->capacity[is->name] &&
            is->units != was->units && is->token <= highest[is->name])
            return complain("%s has become the writer with an old token", describe(is));
    }
    return true;
}

static struct person *first_waiter(struct picture *p, int name)
{
    struct person *first = NULL;
    for (unsigned i = 0; i < p->count; i++) {
        struct person *who = &p->people[i];
        if (who->name == name && !who->held && !who->mortal && !who->refused &&
            (!first || who->ticket < first->ticket))
            first = who;
    }
    return first;
}

/* Waiters whose owner holds join that hold; who wants to write what its owner reads is sent away.
 */
static void foresee_joins(struct picture *p, int name)
{
    for (unsigned i = 0; i < p->count; i++) {
        struct person *who = &p->people[i];
        const struct person *holder = who->name == name && !who->held ? holder_of(p, who) : NULL;
        who->refused |= holder && who->kind == HF_WRITE && holder->kind == HF_READ;
        if (!holder || who->refused)
            continue;
        who->held = who->fresh = true;
        who->units = 0;
        who->token = holder->token;
        who->kind = holder->kind;
    }
}

/* One of those who are left of a hold has its units; all have its newest token. */
static void foresee_heirs(struct picture *p, int name)
{
    for (unsigned i = 0; i < p->count; i++) {
        struct person *who = &p->people[i];
        if (who->name != name || !who->held || who->mortal)
            continue;
        bool carries = true;
        for (unsigned j = 0; j < p->count; j++) {
            const struct person *other = &p->people[j];
            if (!other->held || !share_a_hold(who, other))
                continue;
            carries &= j >= i || other->mortal;
            who->units = other->units > who->units ? other->units : who->units;
            who->token = other->token > who->token ? other->token : who->token;
        }
        who->units = carries ? who->units : 0;
        if (carries && names[name].kind == HF_READ)
            who->kind = who->units == p->capacity[name] ? HF_WRITE : HF_READ;
    }
}

/* Lets the mortal die and gives what is free to whoever is first: what a repair must come to. A new
 * hold gets token 0 here. */
static void foresee(struct picture *p)
{
    for (int name = 0; name < NAMES; name++) {
        uint64_t used = 0;
        foresee_joins(p, name);
        foresee_heirs(p, name);
        for (unsigned i = 0; i < p->count; i++)
            if (p->people[i].name == name && p->people[i].held && !p->people[i].mortal)
                used += p->people[i].units;
        for (struct person *first; (first = first_waiter(p, name));) {
            if (first->units > p->capacity[name]) {
                first->refused = true;
                continue;
            }
            if (used + first->units > p->capacity[name])
                break;
            first->held = first->fresh = true;
            used += first->units;
            foresee_joins(p, name);
        }
    }
}

/* How it ended for one of those that were foreseen. */
static bool came_for(struct table *t, const struct picture *foreseen, const struct picture *after,
                     const struct person *who)
{
    const struct person *is = find_person(after, who);
    if ((who->mortal || who->refused) && is)
        return complain("%s should be gone", describe(who));
    if (who->refused && !was_sent_away(t, who, HF_TOO_BIG) && !was_sent_away(t, who, HF_MISMATCH))
        return complain("%s should have been sent away", describe(who));
    if (who->mortal || who->refused)
        return true;
    if (!is)
        return complain("%s did not survive", describe(who));
    if (is->held != who->held)
        return complain("%s %s", describe(who), who->held ? "still waits" : "holds out of turn");
    if (is->ticket != who->ticket || is->client != who->client || is->named != who->named)
        return complain("%s is not the same any more", describe(who));
    uint64_t units = who->held ? units_of_hold(foreseen, who) : who->units;
    uint64_t has = is->held ? units_of_hold(after, is) : is->units;
    if (units != has)
        return complain("%s has %llu units, not %llu", describe(who), (unsigned long long)has,
                        (unsigned long long)units);
    if ((who->token && is->token != who->token) ||
        (who->held && !who->fresh && is->end != who->end))
        return complain("%s had its token or its end changed", describe(who));
    if (who->held && !who->token && is->token <= world.highest[who->name])
        return complain("%s got token %llu, not above %llu", describe(who),
                        (unsigned long long)is->token,
                        (unsigned long long)world.highest[who->name]);
    return true;
}

/* `after` is what was foreseen, person by person. */
static bool came_as_foreseen(struct table *t, const struct picture *foreseen,
                             const struct picture *after)
{
    for (unsigned i = 0; i < foreseen->count; i++)
        if (!came_for(t, foreseen, after, &foreseen->people[i]))
            return false;
    for (unsigned i = 0; i < after->count; i++)
        if (!find_person(foreseen, &after->people[i]))
            return complain("%s came with the repair", describe(&after->people[i]));
    return true;
}
