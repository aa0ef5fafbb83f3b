/* repair_scene.h - the scene before the death: who holds what, who waits behind whom. */
#pragma once
#include "repair_owners.h"

/* ---- The scene ---- */

static void set_queues(void)
{
    hold(XENIA, DOOR, 1, 0);
    wait_behind(BERT, DOOR, DOOR, 1, 0);
    wait_behind(CARL, DOOR, DOOR, 1, BELL);
    wait_behind(ANNA, DOOR, DOOR, 1, 0);
    hold(XENIA, GATE, 1, 0);
    wait_behind(CARL, GATE, GATE, 1, BELL);
    wait_behind(BERT, GATE, GATE, 1, 0);
    hold(ANNA, DESK, 1, 0);
    wait_behind(BERT, DESK, DESK, 1, BELL);
    wait_behind(XENIA, DESK, DESK, 1, BELL);
    wait_behind(CARL, DESK, DESK, 1, 0);
    hold(ANNA, POOL, 2, 0);
    hold(XENIA, POOL, 2, 0);
    wait_behind(XENIA, POOL, SECOND + POOL, 3, 0);
    wait_behind(BERT, POOL, POOL, 1, BELL);
    wait_behind(CARL, POOL, POOL, 2, 0);
    wait_behind(ANNA, POOL, SECOND + POOL, 1, BELL);
    hold(ANNA, SCROLL, 1, 0);
    wait_behind(BERT, SCROLL, SCROLL, 1, 0);
}

static void set_single_holds(void)
{
    tell(XENIA, (struct command){.deed = ASK, .slot = SOLO, .name = SOLO, .flags = LOOSELY},
         REPLY_GRANTED);
    hold(ANNA, LOOSE, 1, LOOSELY);
    hold(XENIA, MINE, 1, LOOSELY);
    hold(ANNA, IDLE, 1, 0);
    release(ANNA, IDLE);
}

/* As if the wall clock had been stepped back since the name was last given: only what the table
 * remembers can keep its tokens rising. */
static void age_tokens(enum name name)
{
    size_t len = strlen(names[name].text);
    uint32_t index = resource_find(&world.table, resource_name_hash(names[name].text, len),
                                   names[name].text, len);
    uint64_t token = world.table.cells[index].resource.token += 3600 * UINT64_C(1000000);
    note_token(name, token);
}

/* One shard without a free cell; another one with none either, but with a resource that can be
 * dropped. */
static void set_full_shards(void)
{
    for (uint32_t i = 0; i < LOCAL_PER_CHUNK - 1; i++)
        tell(ANNA, (struct command){.deed = ASK, .slot = PACKED + i, .name = FULL}, REPLY_GRANTED);
    hold(BERT, DROPPED, 1, 0);
    for (uint32_t i = 0; i < LOCAL_PER_CHUNK - 5; i++)
        tell(BERT, (struct command){.deed = ASK, .slot = PACKED + i, .name = PACK}, REPLY_GRANTED);
    release(BERT, DROPPED);
    age_tokens(DROPPED);
    tell(BERT, (struct command){.deed = ASK, .slot = PACKED + LOCAL_PER_CHUNK - 5, .name = PACK},
         REPLY_GRANTED);
    if (world.table.shards[CRAMMED].free.count || world.table.shards[TIGHT].free.count)
        give_up("the full shards are not full");
}

enum extra {
    EXHAUSTED = 1,          /* the file has no room for another chunk */
    CROWDED = 2,            /* the registry has no free cell */
    EXPIRED = 4,            /* a hold is over that nobody has looked at */
    NEWCOMER = 8,           /* Xenia has not joined yet */
    RUNG = 16,              /* Xenia was granted by the bell, and has not looked yet */
    LEFT_WHILE_RUNG = 32,   /* and she has released that hold: its cell waits for her look */
    DEAD_CLIENT = 64,       /* Dora is dead, and nobody has buried her */
    DEAD_INSIDE = 128,      /* she died inside a shard's mutex, half-way through a hand-over */
    DEAD_IN_REGISTRY = 256, /* or half-way out of the ring of clients */
    DEAD_GROWING = 512,     /* or while she made the table longer */
    COMPANY = 1024, /* another scene: owners with several attempts, readers and writers, notes of
                       the past */
    DEAD_CARRIER = 2048,     /* Dora is dead, and she had the units of a hold that others share */
    SPENT_CARRIER = 4096,    /* the time of such a one is over, and nobody has looked */
    DEAD_PASSING = 8192,     /* Dora died when the units of her hold were on their way to another */
    DEAD_GATHERING = 16384,  /* or when an owner's second attempt was about to join its first */
    DEAD_CONVERTING = 32768, /* or when she was about to be the writer */
    DEAD_AT_WORK = DEAD_PASSING | DEAD_GATHERING | DEAD_CONVERTING,
    ANY_DEATH = DEAD_CLIENT | DEAD_INSIDE | DEAD_IN_REGISTRY | DEAD_GROWING,
};

/* What a client does in the slot that a name has. */
#define ON(deed_, name_, ...)                                                                      \
    {                                                                                              \
        .deed = (deed_), .slot = (name_), .name = (name_), __VA_ARGS__                             \
    }

/* Lets a client begin something and kills it when it has made so many changes inside that mutex. */
static void step_to_death(int id, struct command c, struct robust_mutex *inside, unsigned changes);
/* The same, when that has come to be. */
static void step_until(int id, struct command c, bool (*come)(void));

static void set_dead_client(uint32_t extra)
{
    start_actor(DORA);
    tell(DORA, (struct command){.deed = JOIN}, REPLY_KINDS);
    hold(DORA, CRYPT, 1, 0);
    wait_behind(BERT, CRYPT, CRYPT, 1, BELL);
    wait_behind(CARL, CRYPT, CRYPT, 1, 0);
    wait_behind(DORA, DESK, DESK, 1, BELL);
    wait_behind(DORA, SCROLL, SCROLL, 1, 0);
    wait_behind(XENIA, CRYPT, CRYPT, 1, 0);
    struct table *t = &world.table;
    if (extra & DEAD_INSIDE)
        step_to_death(DORA, (struct command)ON(RELEASE, CRYPT), &t->shards[RICH].mutex, 16);
    else if (extra & DEAD_IN_REGISTRY)
        step_to_death(DORA, (struct command){.deed = QUIT}, &t->shards[LOCAL_REGISTRY].mutex, 6);
    else if (extra & DEAD_GROWING)
        step_to_death(DORA, (struct command)ON(ASK, FULL_FRESH), &t->state->grow, 4);
    else
        end_actor(DORA);
}

static void outlive_brief_holds(void)
{
    nanos over = clock_boot() + NANOS_OF_MS(BRIEF_TTL_MS);
    while (clock_boot() <= over)
        usleep(1000);
}

/* Who has the units is gone, and nobody has looked yet. */
static void set_late_company(uint32_t extra)
{
    if (extra & DEAD_CARRIER) {
        start_actor(DORA);
        tell(DORA, (struct command){.deed = JOIN}, REPLY_KINDS);
        set_doras_hold();
        end_actor(DORA);
    }
    if (extra & SPENT_CARRIER) {
        set_spent_hold();
        outlive_brief_holds();
    }
}

static void set_dead_worker(uint32_t extra)
{
    start_actor(DORA);
    tell(DORA, (struct command){.deed = JOIN}, REPLY_KINDS);
    set_doras_work();
    if (extra & DEAD_PASSING)
        step_until(DORA, (struct command)ON(RELEASE, TOMB), units_are_there_twice);
    else if (extra & DEAD_GATHERING)
        step_until(DORA, (struct command)ON(RELEASE, BAND), a_waiter_has_no_units);
    else
        step_until(DORA, (struct command)ON(UPGRADE, GLOBE), a_reader_has_everything);
}

static void set_extra(uint32_t extra)
{
    for (int name = SPREAD_1;
         extra & EXHAUSTED && world.table.state->chunks < world.table.state->room; name++)
        hold(CARL, name, 1, 0);
    if (extra & (RUNG | LEFT_WHILE_RUNG)) {
        hold(ANNA, FRESH, 1, 0);
        wait_behind(XENIA, FRESH, FRESH, 1, BELL);
        wait_behind(BERT, FRESH, FRESH, 1, 0);
        release(ANNA, FRESH);
    }
    if (extra & LEFT_WHILE_RUNG)
        release(XENIA, FRESH);
    if (extra & EXPIRED) {
        hold(ANNA, BRIEF, 1, BRIEFLY);
        wait_behind(BERT, BRIEF, BRIEF, 1, 0);
        wait_behind(XENIA, BRIEF, BRIEF, 1, 0);
        wait_behind(CARL, BRIEF, BRIEF, 1, BELL);
        outlive_brief_holds();
    }
    if (extra & ANY_DEATH)
        set_dead_client(extra);
    uint32_t carl = world.actors[CARL].client;
    while (extra & CROWDED && world.table.shards[LOCAL_REGISTRY].free.count)
        tell(CARL, (struct command){.deed = JOIN}, REPLY_KINDS);
    world.actors[CARL].client = carl;
}

static void set_scene(uint32_t extra)
{
    for (int n = 0; n < NAMES; n++)
        world.highest[n] = 0;
    if (table_open(&world.table, world.path, 0600) != HF_OK)
        give_up("the table cannot be made");
    for (int id = ANNA; id <= XENIA; id++) {
        if (id == DORA)
            continue;
        start_actor(id);
        if (id != XENIA || !(extra & NEWCOMER))
            tell(id, (struct command){.deed = JOIN}, REPLY_KINDS);
    }
    if (extra & NEWCOMER) {
        hold(ANNA, DESK, 1, 0);
        wait_behind(BERT, DESK, DESK, 1, BELL);
        wait_behind(CARL, DESK, DESK, 1, 0);
    } else if (extra & DEAD_AT_WORK) {
        set_dead_worker(extra);
    } else if (extra & COMPANY) {
        set_company();
        set_late_company(extra);
    } else {
        set_queues();
        set_single_holds();
        set_full_shards();
    }
    set_extra(extra);
}

static void clear_scene(void)
{
    for (int id = 0; id < ACTORS; id++)
        end_actor(id);
    table_close(&world.table);
    unlink(world.path);
    memset(world.actors, 0, sizeof world.actors);
}
