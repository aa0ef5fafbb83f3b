/* repair_plants.h - what a bad repair could leave behind, planted into a good one: the judge must see each. */
#pragma once
#include "repair_verdict.h"

static struct hf_resource *resource_named(struct hf_table *t, enum name name)
{
    size_t len = strlen(names[name].text);
    uint32_t index = hf_resource_find(t, hf_name_hash(names[name].text, len), names[name].text, len);
    if (!index)
        give_up("a name that the plants need is not there");
    return &t->cells[index].resource;
}

static void plant_leaked_cell(struct hf_table *t)
{
    struct hf_cells *list = &t->shards[RICH].free;
    hf_cells_remove(t, list, list->head);
}

static void plant_cell_in_two_lists(struct hf_table *t)
{
    struct hf_shard *s = &t->shards[RICH];
    uint32_t last = s->free.head;
    while (t->cells[last].head.next)
        last = t->cells[last].head.next;
    t->cells[last].head.next = s->idle.head;
    s->free.count += s->idle.count;
}

static void plant_cell_freed_twice(struct hf_table *t)
{
    struct hf_cells *list = &t->shards[RICH].free;
    t->cells[t->cells[list->head].head.next].head.next = list->head;
}

static void plant_waiter_out_of_order(struct hf_table *t)
{
    struct hf_cells *queue = &resource_named(t, DESK)->waiters;
    uint32_t first = queue->head;
    hf_cells_remove(t, queue, first);
    hf_cells_append(t, queue, first);
}

/* In order by ticket, but the tickets are not theirs. */
static void plant_swapped_tickets(struct hf_table *t)
{
    struct hf_cells *queue = &resource_named(t, DESK)->waiters;
    uint32_t first = queue->head, second = t->cells[first].head.next;
    uint64_t ticket = t->cells[first].entry.ticket;
    t->cells[first].entry.ticket = t->cells[second].entry.ticket;
    t->cells[second].entry.ticket = ticket;
    hf_cells_remove(t, queue, first);
    hf_cells_append(t, queue, first);
}

static void plant_lost_token(struct hf_table *t)
{
    resource_named(t, DESK)->token -= 1;
}

/* The name is idle: only a grant to come would show it. */
static void plant_lost_token_of_idle_name(struct hf_table *t)
{
    resource_named(t, IDLE)->token -= 5;
}

static void plant_changed_token_of_hold(struct hf_table *t)
{
    struct hf_resource *r = resource_named(t, SCROLL);
    t->cells[r->holders.head].entry.token = ++r->token;
}

static void plant_token_given_twice(struct hf_table *t)
{
    struct hf_resource *r = resource_named(t, DOOR);
    t->cells[r->holders.head].entry.token = --r->token;
}

static void plant_lost_floor(struct hf_table *t)
{
    hf_resource_drop_idle(t, TIGHT);
    t->shards[TIGHT].token_floor = 0;
}

static void plant_first_waiter_that_fits(struct hf_table *t)
{
    resource_named(t, POOL)->capacity += 2;
}

static void plant_unit_that_never_comes_back(struct hf_table *t)
{
    resource_named(t, POOL)->used -= 1;
}

static void plant_shortened_hold(struct hf_table *t)
{
    t->cells[resource_named(t, LOOSE)->holders.head].entry.end -= HF_MS(1000);
    resource_named(t, LOOSE)->next_end -= HF_MS(1000);
}

static void plant_vanished_hold(struct hf_table *t)
{
    struct hf_resource *r = resource_named(t, LOOSE);
    hf_entry_drop(t, r->holders.head, hf_clock_boot());
}

static void plant_vanished_waiter(struct hf_table *t)
{
    hf_entry_drop(t, resource_named(t, SCROLL)->waiters.head, hf_clock_boot());
}

static void plant_broken_way_back(struct hf_table *t)
{
    struct hf_cells *queue = &resource_named(t, DESK)->waiters;
    t->cells[queue->tail].head.prev = 0;
}

static void plant_name_out_of_its_bucket(struct hf_table *t)
{
    uint64_t hash = resource_named(t, IDLE)->hash;
    t->shards[RICH].bucket[hash / LOCAL_SHARDS % LOCAL_BUCKETS] = resource_named(t, IDLE)->chain;
}

static void plant_lost_piece_of_name(struct hf_table *t)
{
    hf_cell_give(t, RICH, resource_named(t, SCROLL)->more);
}

static void plant_hold_of_the_dead(struct hf_table *t)
{
    t->cells[resource_named(t, SCROLL)->holders.head].entry.client = world.actors[XENIA].member;
}

static void plant_grant_that_nobody_hears_of(struct hf_table *t)
{
    HF_EACH_CELL(t, m, &t->shards[LOCAL_REGISTRY].idle)
    {
        hf_cell_at(t, m)->member.rescan = 0;
        hf_cell_at(t, m)->member.ready = 0;
    }
}

/* Its next news would not be linked in. */
static void plant_waiter_that_is_deaf(struct hf_table *t)
{
    t->cells[resource_named(t, SCROLL)->waiters.head].entry.linked = LINKED;
}

/* A living client seems to be inside. */
static void plant_stuck_mutex(struct hf_table *t)
{
    atomic_store(hf_robust_word(&t->shards[3].mutex), (uint32_t)world.actors[ANNA].pid);
}

static const struct plant {
    const char *sentence;
    plant_fn *plant;
} plants[] = {
    {"a leaked cell", plant_leaked_cell},
    {"a cell in two lists", plant_cell_in_two_lists},
    {"a cell that was freed twice", plant_cell_freed_twice},
    {"a waiter out of order", plant_waiter_out_of_order},
    {"two waiters that have changed places, tickets and all", plant_swapped_tickets},
    {"a lost token", plant_lost_token},
    {"a lost token of an idle name", plant_lost_token_of_idle_name},
    {"a hold with another token", plant_changed_token_of_hold},
    {"a token that was given before", plant_token_given_twice},
    {"a lost floor under the tokens of dropped names", plant_lost_floor},
    {"a first waiter that fits", plant_first_waiter_that_fits},
    {"a wrong count of used units", plant_unit_that_never_comes_back},
    {"a hold that was cut short", plant_shortened_hold},
    {"a hold that vanished", plant_vanished_hold},
    {"a waiter that vanished", plant_vanished_waiter},
    {"a list that does not lead back", plant_broken_way_back},
    {"a name that is not found", plant_name_out_of_its_bucket},
    {"a long name without its second piece", plant_lost_piece_of_name},
    {"a hold of the dead", plant_hold_of_the_dead},
    {"a grant that nobody hears of", plant_grant_that_nobody_hears_of},
    {"a waiter whose bell cannot ring any more", plant_waiter_that_is_deaf},
    {"a mutex that is stuck", plant_stuck_mutex},
};
enum { PLANTS = sizeof plants / sizeof *plants };
