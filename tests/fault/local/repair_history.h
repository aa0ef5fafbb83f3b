/* repair_history.h - notes of past holds: in order, not too many, none lost, none of a hold that
 * goes on. */
#pragma once
#include "repair_notices.h"

struct note {
    uint64_t token;
    int64_t ended_at;
};
struct notes {
    struct note note[HISTORY];
    unsigned count;
};
static struct notes scene_notes[NAMES];

static uint32_t resource_index(struct table *t, int name)
{
    size_t len = strlen(names[name].text);
    return resource_find(t, resource_name_hash(names[name].text, len), names[name].text, len);
}

static void read_notes(struct table *t, uint32_t index, struct notes *notes)
{
    notes->count = 0;
    FOR_EACH_CELL (t, i, &t->cells[index].resource.past)
        if (notes->count < HISTORY)
            notes->note[notes->count++] =
                (struct note){t->cells[i].entry.token, t->cells[i].entry.check_at};
}

static void remember_notes(struct table *t)
{
    for (int name = 0; name < NAMES; name++) {
        uint32_t index = resource_index(t, name);
        scene_notes[name].count = 0;
        if (index)
            read_notes(t, index, &scene_notes[name]);
    }
}

static bool check_note(struct table *t, uint32_t index, const struct entry *e)
{
    const struct resource *r = &t->cells[index].resource;
    if (e->resource != index || e->client || e->named || !e->units || e->token > r->token ||
        (e->why != HF_OK && e->why != HF_LOST))
        return complain("resource %u has a note that makes no sense", index);
    FOR_EACH_CELL (t, i, &r->holders)
        if (t->cells[i].entry.token == e->token)
            return complain("resource %u has a note of a hold that goes on", index);
    return true;
}

/* The list itself was walked before. */
static bool check_past(struct table *t, uint32_t index)
{
    const struct resource *r = &t->cells[index].resource;
    int64_t last = 0;
    if (r->past.count > HISTORY)
        return complain("resource %u remembers %u holds, not %d", index, r->past.count, HISTORY);
    FOR_EACH_CELL (t, i, &r->past) {
        const struct entry *e = &t->cells[i].entry;
        if (!check_note(t, index, e))
            return false;
        if (e->check_at < last)
            return complain("resource %u remembers its holds out of order", index);
        FOR_EACH_CELL (t, j, &r->past)
            if (j != i && t->cells[j].entry.token == e->token)
                return complain("resource %u remembers a hold twice", index);
        last = e->check_at;
    }
    return true;
}

/* The notes of the scene are still there and in their order, but for the oldest ones that had to
 * give way: one more than there are new ones, because whoever died may have made room for another.
 */
static bool notes_survive(struct table *t)
{
    for (int name = 0; name < NAMES; name++) {
        const struct notes *was = &scene_notes[name];
        uint32_t index = was->count ? resource_index(t, name) : 0;
        bool gives_way = name == AGED || name == PAGES; /* with its resource, or by its age */
        if (!was->count || (!index && gives_way))
            continue;
        struct notes is = {0};
        if (index)
            read_notes(t, index, &is);
        unsigned lost = 0, kept;
        while (lost < was->count && (!is.count || was->note[lost].token != is.note[0].token))
            lost++;
        for (kept = 0; lost + kept < was->count && kept < is.count; kept++)
            if (was->note[lost + kept].token != is.note[kept].token ||
                was->note[lost + kept].ended_at != is.note[kept].ended_at)
                return complain("%s remembers something else than before", names[name].word);
        unsigned made = is.count - kept, full = was->count + made + 1;
        if (lost + kept != was->count ||
            (!gives_way && lost > (full > HISTORY ? full - HISTORY : 0)))
            return complain("%s has forgotten %u of %u holds and remembers %u new ones",
                            names[name].word, lost, was->count, made);
    }
    return true;
}
