/* repair_plants.h - what a bad repair could leave behind, planted into a good one: the judge must
 * see each. */
#pragma once
#include "engines/local/hold_history.h"
#include "repair_verdict.h"

static struct resource *resource_called(struct table *t, enum name name)
{
    size_t len = strlen(names[name].text);
    uint32_t index =
        resource_find(t, resource_name_hash(names[name].text, len), names[name].text, len);
    if (!index)
        give_up("a name that the plants need is not there");
    return &t->cells[index].resource;
}

static void plant_leaked_cell(struct table *t)
{
    struct cell_list *list = &t->shards[RICH].free;
    cell_list_remove(t, list, list->head);
}

static void plant_cell_in_two_lists(struct table *t)
{
    struct shard *s = &t->shards[RICH];
    uint32_t last = s->free.head;
    while (t->cells[last].head.next)
        last = t->cells[last].head.next;
    t->cells[last].head.next = s->idle.head;
    s->free.count += s->idle.count;
}

static void plant_cell_freed_twice(struct table *t)
{
    struct cell_list *list = &t->shards[RICH].free;
    t->cells[t->cells[list->head].head.next].head.next = list->head;
}

static void plant_waiter_out_of_order(struct table *t)
{
    struct cell_list *queue = &resource_called(t, DESK)->waiters;
    uint32_t first = queue->head;
    cell_list_remove(t, queue, first);
    cell_list_append(t, queue, first);
}

/* In order by ticket, but the tickets are not theirs. */
static void plant_swapped_tickets(struct table *t)
{
    struct cell_list *queue = &resource_called(t, DESK)->waiters;
    uint32_t first = queue->head, second = t->cells[first].head.next;
    uint64_t ticket = t->cells[first].entry.ticket;
    t->cells[first].entry.ticket = t->cells[second].entry.ticket;
    t->cells[second].entry.ticket = ticket;
    cell_list_remove(t, queue, first);
    cell_list_append(t, queue, first);
}

static void plant_lost_token(struct table *t)
{
    resource_called(t, DESK)->token -= 1;
}

/* The name is idle: only a grant to come would show it. */
static void plant_lost_token_of_idle_name(struct table *t)
{
    resource_called(t, IDLE)->token -= 5;
}

static void plant_changed_token_of_hold(struct table *t)
{
    struct resource *r = resource_called(t, SCROLL);
    t->cells[r->holders.head].entry.token = ++r->token;
}

static void plant_token_given_twice(struct table *t)
{
    struct resource *r = resource_called(t, DOOR);
    t->cells[r->holders.head].entry.token = --r->token;
}

static void plant_lost_floor(struct table *t)
{
    resource_drop_idle(t, TIGHT);
    t->shards[TIGHT].token_floor = 0;
}

static void plant_first_waiter_that_fits(struct table *t)
{
    resource_called(t, POOL)->capacity += 2;
}

static void plant_unit_that_never_comes_back(struct table *t)
{
    resource_called(t, POOL)->used -= 1;
}

static void plant_shortened_hold(struct table *t)
{
    t->cells[resource_called(t, LOOSE)->holders.head].entry.end -= NANOS_OF_MS(1000);
    resource_called(t, LOOSE)->next_end -= NANOS_OF_MS(1000);
}

static void plant_vanished_hold(struct table *t)
{
    struct resource *r = resource_called(t, LOOSE);
    entry_drop(t, r->holders.head, clock_boot());
}

static void plant_vanished_waiter(struct table *t)
{
    entry_drop(t, resource_called(t, SCROLL)->waiters.head, clock_boot());
}

static void plant_broken_way_back(struct table *t)
{
    struct cell_list *queue = &resource_called(t, DESK)->waiters;
    t->cells[queue->tail].head.prev = 0;
}

static void plant_name_out_of_its_bucket(struct table *t)
{
    uint64_t hash = resource_called(t, IDLE)->hash;
    t->shards[RICH].bucket[hash / LOCAL_SHARDS % LOCAL_BUCKETS] = resource_called(t, IDLE)->chain;
}

static void plant_lost_piece_of_name(struct table *t)
{
    cell_give_back(t, RICH, resource_called(t, SCROLL)->more);
}

static void plant_hold_of_the_dead(struct table *t)
{
    t->cells[resource_called(t, SCROLL)->holders.head].entry.client = world.actors[XENIA].client;
}

static void plant_grant_that_nobody_hears_of(struct table *t)
{
    FOR_EACH_CELL (t, m, &t->shards[LOCAL_REGISTRY].idle) {
        cell_at(t, m)->client.rescan = 0;
        cell_at(t, m)->client.ready = 0;
    }
}

/* Its next news would not be linked in. */
static void plant_waiter_that_is_deaf(struct table *t)
{
    t->cells[resource_called(t, SCROLL)->waiters.head].entry.ready_link = READY_LINKED;
}

/* A living client seems to be inside. */
static void plant_stuck_mutex(struct table *t)
{
    atomic_store(&t->shards[3].mutex.word, world.actors[ANNA].thread);
}

/* ---- In company ---- */

/* The n-th holder of a name. */
static struct entry *holder_at(struct table *t, enum name name, unsigned n)
{
    uint32_t index = resource_called(t, name)->holders.head;
    while (n--)
        index = t->cells[index].head.next;
    return &t->cells[index].entry;
}

static struct entry *carrier_of(struct table *t, enum name name)
{
    FOR_EACH_CELL (t, i, &resource_called(t, name)->holders)
        if (t->cells[i].entry.named && t->cells[i].entry.units)
            return &t->cells[i].entry;
    give_up("nobody has the units that the plants need");
    return NULL;
}

static void plant_leaked_note(struct table *t)
{
    struct cell_list *past = &resource_called(t, STAIRS)->past;
    cell_list_remove(t, past, past->head);
}

static void plant_notes_out_of_order(struct table *t)
{
    struct cell_list *past = &resource_called(t, STAIRS)->past;
    uint32_t first = past->head;
    cell_list_remove(t, past, first);
    cell_list_append(t, past, first);
}

/* Not the last one: that is of a hold of the dead, and its making could have been cut short. */
static void plant_lost_note(struct table *t)
{
    struct resource *r = resource_called(t, STAIRS);
    uint32_t index = t->cells[r->past.tail].head.prev;
    cell_list_remove(t, &r->past, index);
    cell_give_back(t, HALL, index);
}

static void plant_lost_past(struct table *t)
{
    history_drop(t, resource_called(t, STAIRS), 0);
}

static void plant_note_too_many(struct table *t)
{
    struct resource *r = resource_called(t, LOG);
    struct entry note = t->cells[r->past.tail].entry;
    note.token -= 1000000;
    r->history++;
    history_keep(t, r, &note, HF_OK, clock_boot());
}

static void plant_note_of_a_hold_that_goes_on(struct table *t)
{
    struct resource *r = resource_called(t, CLUB);
    history_keep(t, r, carrier_of(t, CLUB), HF_OK, clock_boot());
}

static void plant_hold_noted_twice(struct table *t)
{
    struct resource *r = resource_called(t, STAIRS);
    history_keep(t, r, &t->cells[r->past.tail].entry, HF_OK, clock_boot());
}

static void plant_hold_without_units(struct table *t)
{
    resource_called(t, KEEP)->used -= 2;
    carrier_of(t, KEEP)->units = 0;
}

static void plant_hold_with_units_twice(struct table *t)
{
    resource_called(t, KEEP)->used += 1;
    FOR_EACH_CELL (t, i, &resource_called(t, KEEP)->holders)
        if (!t->cells[i].entry.units)
            t->cells[i].entry.units = 1;
}

static void plant_hold_with_fewer_units(struct table *t)
{
    resource_called(t, KEEP)->used -= 1;
    carrier_of(t, KEEP)->units -= 1;
}

static void plant_attempt_with_another_token(struct table *t)
{
    holder_at(t, KEEP, 0)->token -= 1;
}

static void plant_lost_attempt(struct table *t)
{
    uint32_t index = 0;
    FOR_EACH_CELL (t, i, &resource_called(t, KEEP)->holders)
        if (!t->cells[i].entry.units)
            index = i;
    entry_drop(t, index, clock_boot());
}

static void plant_lost_carrier(struct table *t)
{
    entry_drop(t, resource_called(t, VAULT)->holders.head, clock_boot());
}

static void plant_waiter_whose_owner_holds(struct table *t)
{
    struct entry *waiter = &t->cells[resource_called(t, VAULT)->waiters.head].entry;
    waiter->named = 1;
    waiter->owner = carrier_of(t, VAULT)->owner;
}

static void plant_waiter_without_units(struct table *t)
{
    struct resource *r = resource_called(t, VAULT);
    t->cells[r->waiters.tail].entry.units = 0;
}

static void plant_writer_beside_readers(struct table *t)
{
    holder_at(t, SHARED, 0)->kind = HF_WRITE;
}

static void plant_reader_who_has_everything(struct table *t)
{
    struct resource *r = resource_called(t, SHARED);
    holder_at(t, SHARED, 0)->units = r->used = r->capacity;
}

/* A whole hold, but one that nobody asked for. */
static void plant_reader_who_became_the_writer(struct table *t)
{
    plant_reader_who_has_everything(t);
    holder_at(t, SHARED, 0)->kind = HF_WRITE;
}

static void plant_waiter_sent_away(struct table *t)
{
    struct resource *r = resource_called(t, TANK);
    entry_refuse(t, r, r->waiters.tail, HF_TOO_BIG, clock_boot());
}

static const struct plant {
    const char *sentence;
    plant_fn *plant;
    uint32_t extra;
} plants[] = {
    {"a leaked cell", plant_leaked_cell, 0},
    {"a cell in two lists", plant_cell_in_two_lists, 0},
    {"a cell that was freed twice", plant_cell_freed_twice, 0},
    {"a waiter out of order", plant_waiter_out_of_order, 0},
    {"two waiters that have changed places, tickets and all", plant_swapped_tickets, 0},
    {"a lost token", plant_lost_token, 0},
    {"a lost token of an idle name", plant_lost_token_of_idle_name, 0},
    {"a hold with another token", plant_changed_token_of_hold, 0},
    {"a token that was given before", plant_token_given_twice, 0},
    {"a lost floor under the tokens of dropped names", plant_lost_floor, 0},
    {"a first waiter that fits", plant_first_waiter_that_fits, 0},
    {"a wrong count of used units", plant_unit_that_never_comes_back, 0},
    {"a hold that was cut short", plant_shortened_hold, 0},
    {"a hold that vanished", plant_vanished_hold, 0},
    {"a waiter that vanished", plant_vanished_waiter, 0},
    {"a list that does not lead back", plant_broken_way_back, 0},
    {"a name that is not found", plant_name_out_of_its_bucket, 0},
    {"a long name without its second piece", plant_lost_piece_of_name, 0},
    {"a hold of the dead", plant_hold_of_the_dead, 0},
    {"a grant that nobody hears of", plant_grant_that_nobody_hears_of, 0},
    {"a waiter whose bell cannot ring any more", plant_waiter_that_is_deaf, 0},
    {"a mutex that is stuck", plant_stuck_mutex, 0},
    {"a leaked note", plant_leaked_note, COMPANY},
    {"notes out of order", plant_notes_out_of_order, COMPANY},
    {"a lost note", plant_lost_note, COMPANY},
    {"a past that was lost", plant_lost_past, COMPANY},
    {"a note too many", plant_note_too_many, COMPANY},
    {"a note of a hold that goes on", plant_note_of_a_hold_that_goes_on, COMPANY},
    {"a hold that was noted twice", plant_hold_noted_twice, COMPANY},
    {"a hold that has lost its units", plant_hold_without_units, COMPANY},
    {"a hold that has its units twice", plant_hold_with_units_twice, COMPANY},
    {"a hold with fewer units than it had", plant_hold_with_fewer_units, COMPANY},
    {"an attempt with another token than its hold", plant_attempt_with_another_token, COMPANY},
    {"an attempt that vanished", plant_lost_attempt, COMPANY},
    {"an attempt that vanished with the units", plant_lost_carrier, COMPANY},
    {"a waiter whose owner holds", plant_waiter_whose_owner_holds, COMPANY},
    {"a waiter that waits for nothing", plant_waiter_without_units, COMPANY},
    {"a writer beside readers", plant_writer_beside_readers, COMPANY},
    {"a reader who has everything", plant_reader_who_has_everything, COMPANY},
    {"a reader who became the writer", plant_reader_who_became_the_writer, COMPANY},
    {"a waiter that was sent away without reason", plant_waiter_sent_away, COMPANY},
};
enum { PLANTS = sizeof plants / sizeof *plants };
