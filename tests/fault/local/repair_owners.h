/* repair_owners.h - a scene with owners that several clients have in common, with readers and
 * writers, with names whose capacity changes and with names that remember who held them. */
#pragma once
#include "repair_clients.h"

static void ask_for(int id, struct command c, enum reply_kind expected)
{
    c.slot = c.slot ? c.slot : c.name;
    tell(id, c, expected);
    if (c.flags & LOOSELY)
        tell(id, (struct command){.deed = DETACH, .slot = c.slot, .name = c.name}, REPLY_KINDS);
}

#define HOLDS(id, ...) ask_for(id, (struct command){.deed = ASK, __VA_ARGS__}, REPLY_GRANTED)
#define WAITS(id, flags_, ...)                                                                     \
    ask_for(id, (struct command){.deed = ASK, .flags = QUEUE | (flags_), __VA_ARGS__}, REPLY_QUEUED)

/* One of the attempts has the units: Anna's in the club, Xenia's in the guild and the keep. */
static void set_teams(void)
{
    HOLDS(ANNA, .name = CLUB, .team = REDS);
    HOLDS(XENIA, .name = CLUB, .team = REDS);
    WAITS(BERT, 0, .name = CLUB);
    WAITS(CARL, BELL, .name = CLUB);
    HOLDS(XENIA, .name = GUILD, .team = REDS);
    HOLDS(ANNA, .name = GUILD, .team = REDS);
    HOLDS(CARL, .name = GUILD, .team = REDS, .flags = LOOSELY);
    WAITS(BERT, BELL, .name = GUILD);
    HOLDS(XENIA, .name = KEEP, .units = 2, .team = REDS, .flags = LOOSELY);
    HOLDS(ANNA, .name = KEEP, .units = 2, .team = REDS);
    HOLDS(BERT, .name = KEEP, .units = 2);
    WAITS(CARL, 0, .name = KEEP, .units = 2);
    HOLDS(XENIA, .name = CREW, .units = 2);
    HOLDS(ANNA, .name = CREW, .units = 3);
    WAITS(BERT, 0, .name = CREW, .units = 2, .team = BLUES);
    WAITS(CARL, BELL, .name = CREW, .units = 2);
    WAITS(ANNA, BELL, .name = CREW, .slot = SECOND + CREW, .units = 1, .team = BLUES);
    WAITS(CARL, 0, .name = CREW, .slot = SECOND + CREW, .units = 5, .team = BLUES);
    HOLDS(ANNA, .name = FERRY, .units = 3);
    WAITS(BERT, 0, .name = FERRY, .units = 4, .team = BLUES);
    WAITS(CARL, BELL, .name = FERRY, .units = 1);
    HOLDS(ANNA, .name = VAULT, .team = REDS);
    HOLDS(BERT, .name = VAULT, .team = REDS);
    WAITS(CARL, BELL, .name = VAULT);
    WAITS(ANNA, 0, .name = VAULT, .slot = SECOND + VAULT);
    HOLDS(XENIA, .name = ECHO, .team = REDS, .flags = REPEATED);
    HOLDS(ANNA, .name = ECHO, .team = REDS, .flags = REPEATED);
    HOLDS(BERT, .name = ECHO, .team = REDS);
    WAITS(CARL, BELL, .name = ECHO);
}

static void set_readers_and_writers(void)
{
    HOLDS(XENIA, .name = BOOK);
    WAITS(BERT, WRITING, .name = BOOK);
    WAITS(CARL, BELL, .name = BOOK);
    HOLDS(XENIA, .name = DIARY, .flags = WRITING);
    WAITS(BERT, 0, .name = DIARY);
    WAITS(CARL, BELL, .name = DIARY);
    WAITS(ANNA, WRITING, .name = DIARY);
    WAITS(BERT, BELL, .name = DIARY, .slot = SECOND + DIARY);
    HOLDS(XENIA, .name = ATLAS, .team = REDS);
    HOLDS(ANNA, .name = ATLAS, .team = REDS);
    WAITS(BERT, BELL | WRITING, .name = ATLAS);
    WAITS(CARL, 0, .name = ATLAS);
    HOLDS(ANNA, .name = CHART, .team = REDS);
    HOLDS(XENIA, .name = CHART, .team = REDS);
    HOLDS(BERT, .name = CHART, .team = REDS, .flags = LOOSELY);
    HOLDS(ANNA, .name = MAP, .team = REDS, .flags = WRITING);
    HOLDS(XENIA, .name = MAP, .team = REDS);
    WAITS(CARL, BELL, .name = MAP);
    WAITS(BERT, 0, .name = MAP);
    HOLDS(XENIA, .name = SHARED);
    HOLDS(ANNA, .name = SHARED, .team = REDS);
    HOLDS(XENIA, .name = TOME, .flags = LOOSELY);
    HOLDS(XENIA, .name = LEDGER, .flags = LOOSELY | WRITING);
    WAITS(CARL, BELL, .name = LEDGER);
    WAITS(BERT, WRITING, .name = LEDGER);
    HOLDS(XENIA, .name = ALBUM, .flags = WRITING);
    WAITS(BERT, 0, .name = ALBUM, .team = BLUES);
    WAITS(ANNA, BELL | WRITING, .name = ALBUM, .team = BLUES);
    WAITS(CARL, BELL, .name = ALBUM);
}

static void set_capacities(void)
{
    HOLDS(ANNA, .name = TANK, .units = 4);
    WAITS(BERT, 0, .name = TANK, .units = 2);
    WAITS(CARL, BELL, .name = TANK, .units = 3);
    WAITS(ANNA, 0, .name = TANK, .slot = SECOND + TANK, .units = 1);
    HOLDS(ANNA, .name = SHRUNK, .units = 3);
    HOLDS(BERT, .name = SHRUNK, .units = 1);
    tell(ANNA, (struct command){.deed = RESIZE, .name = SHRUNK, .target = 2}, REPLY_KINDS);
    WAITS(CARL, 0, .name = SHRUNK, .units = 2);
}

/* The stairs' holds ended in another order than they began. */
static void set_past(void)
{
    for (int i = 0; i < HISTORY + 1; i++) {
        HOLDS(ANNA, .name = LOG);
        release(ANNA, LOG);
    }
    HOLDS(XENIA, .name = LOG);
    WAITS(BERT, BELL, .name = LOG);
    HOLDS(ANNA, .name = STAIRS);
    HOLDS(BERT, .name = STAIRS);
    HOLDS(XENIA, .name = STAIRS);
    release(BERT, STAIRS);
    release(ANNA, STAIRS);
    HOLDS(ANNA, .name = AGED);
    release(ANNA, AGED);
}

/* A shard without a free cell, and with a resource in it that nobody uses but that has notes. */
static void set_snug_shard(void)
{
    for (int i = 0; i < HISTORY; i++) {
        HOLDS(ANNA, .name = PAGES);
        release(ANNA, PAGES);
    }
    for (uint32_t i = 0; world.table.shards[SNUG].free.count; i++)
        HOLDS(BERT, .name = SNUG_PACK, .slot = PACKED + i);
}

static void set_company(void)
{
    set_teams();
    set_readers_and_writers();
    set_capacities();
    set_past();
    set_snug_shard();
}

/* ---- Somebody has died before ---- */

/* Dora has the units of a hold that others share. */
static void set_doras_hold(void)
{
    HOLDS(DORA, .name = TOMB, .units = 3, .team = REDS);
    HOLDS(BERT, .name = TOMB, .team = REDS);
    HOLDS(ANNA, .name = TOMB, .team = REDS, .flags = LOOSELY);
    WAITS(CARL, BELL, .name = TOMB, .units = 3);
}

static void set_spent_hold(void)
{
    HOLDS(ANNA, .name = HOUR, .team = REDS, .flags = BRIEFLY);
    HOLDS(BERT, .name = HOUR, .team = REDS);
    HOLDS(CARL, .name = HOUR, .team = REDS, .flags = LOOSELY);
    WAITS(CARL, BELL, .name = HOUR, .slot = SECOND + HOUR);
}

/* What Dora could leave half-done: units that pass on, waiters that join, a reader that becomes the
 * writer. */
static void set_doras_work(void)
{
    set_doras_hold();
    HOLDS(DORA, .name = BAND, .units = 5);
    WAITS(BERT, 0, .name = BAND, .units = 2, .team = BLUES);
    WAITS(CARL, BELL, .name = BAND, .units = 5);
    WAITS(ANNA, BELL, .name = BAND, .units = 1, .team = BLUES);
    HOLDS(ANNA, .name = GLOBE, .team = REDS);
    HOLDS(DORA, .name = GLOBE, .team = REDS);
    HOLDS(BERT, .name = GLOBE, .team = REDS, .flags = LOOSELY);
}

static unsigned count_entries(enum name name, uint32_t state, bool with_units)
{
    unsigned count = 0;
    for (uint32_t i = 1; i < table_cells(&world.table); i++) {
        union cell *cell = &world.table.cells[i];
        if (cell->head.shard != HALL || cell_state(cell) != state)
            continue;
        const struct resource *r = &world.table.cells[cell->entry.resource].resource;
        count += strcmp(r->name, names[name].text) == 0 && (cell->entry.units != 0) == with_units;
    }
    return count;
}

static bool units_are_there_twice(void)
{
    return count_entries(TOMB, CELL_HELD, true) == 2;
}

static bool a_waiter_has_no_units(void)
{
    return count_entries(BAND, CELL_WAITING, false) == 1;
}

static bool a_reader_has_everything(void)
{
    for (uint32_t i = 1; i < table_cells(&world.table); i++) {
        const struct entry *e = &world.table.cells[i].entry;
        if (cell_state(&world.table.cells[i]) == CELL_HELD && e->kind == HF_READ &&
            e->units == HF_CAPACITY_MAX)
            return true;
    }
    return false;
}
