/* repair_operations.h - the operations that are stepped through. */
#pragma once
#include "repair_scene.h"

/* ---- The operations ---- */

struct operation {
    const char *sentence;
    struct command command;
    enum hf_cue expected;
    uint32_t extra;
};
static const struct operation operations[] = {
    {"acquiring a new name", ON(ASK, FRESH), HF_N_GRANTED, 0},
    {"acquiring a new name of 512 bytes", ON(ASK, FRESH_SCROLL), HF_N_GRANTED, 0},
    {"acquiring an idle name", ON(ASK, IDLE), HF_N_GRANTED, 0},
    {"acquiring a busy name without waiting", ON(ASK, LOOSE), HF_N_BUSY, 0},
    {"acquiring a busy name of 512 bytes without waiting", ON(ASK, SCROLL), HF_N_BUSY, 0},
    {"queueing", ON(ASK, SCROLL, .flags = QUEUE), HF_N_QUEUED, 0},
    {"queueing for the bell", ON(ASK, LOOSE, .flags = QUEUE | BELL), HF_N_QUEUED, 0},
    {"refreshing a place in the queue", ON(ASK_AGAIN, DESK), HF_N_QUEUED, 0},
    {"refreshing when the hold ahead is over", ON(ASK_AGAIN, BRIEF), HF_N_QUEUED, EXPIRED},
    {"refreshing behind a dead holder", ON(ASK_AGAIN, CRYPT), HF_N_QUEUED, DEAD_CLIENT},
    {"acquiring behind a dead holder without waiting",
     {.deed = ASK, .slot = SECOND + CRYPT, .name = CRYPT},
     HF_N_BUSY,
     DEAD_CLIENT},
    {"leaving the middle of a queue", ON(LEAVE, DESK), HF_N_RELEASED, 0},
    {"leaving the head of a queue so that the next fits",
     {.deed = LEAVE, .slot = SECOND + POOL, .name = POOL},
     HF_N_RELEASED,
     0},
    {"releasing to a parked waiter", ON(RELEASE, DOOR), HF_N_RELEASED, 0},
    {"releasing to a waiter with a bell", ON(RELEASE, GATE), HF_N_RELEASED, 0},
    {"releasing units to several waiters", ON(RELEASE, POOL), HF_N_RELEASED, 0},
    {"releasing what nobody waits for", ON(RELEASE, SOLO), HF_N_RELEASED, 0},
    {"releasing a detached hold", ON(RELEASE, MINE), HF_N_RELEASED, 0},
    {"releasing a hold that the bell announced", ON(RELEASE, FRESH), HF_N_RELEASED, RUNG},
    {"looking after the bell rang", {.deed = DRAIN}, HF_N_CUES, RUNG},
    {"looking after the bell rang for what was given back", {.deed = DRAIN}, HF_N_CUES, LEFT_WHILE_RUNG},
    {"extending", ON(EXTEND, DOOR), HF_N_EXTENDED, 0},
    {"extending a detached hold", ON(EXTEND, MINE), HF_N_EXTENDED, 0},
    {"detaching", ON(DETACH, SOLO), HF_N_CUES, 0},
    {"detaching a hold that the bell announced", ON(DETACH, FRESH), HF_N_CUES, RUNG},
    {"acquiring so that an idle resource is dropped", ON(ASK, TIGHT_FRESH), HF_N_GRANTED, 0},
    {"acquiring so that a resource is dropped and the table grows", ON(ASK, TIGHT_SCROLL), HF_N_GRANTED, 0},
    {"acquiring so that the table grows", ON(ASK, FULL_FRESH), HF_N_GRANTED, 0},
    {"acquiring so that the file grows", ON(ASK, FULL_FRESH), HF_N_GRANTED, EXHAUSTED},
    {"joining", {.deed = JOIN}, HF_N_CUES, NEWCOMER},
    {"joining so that the table grows", {.deed = JOIN}, HF_N_CUES, NEWCOMER | CROWDED},
    {"leaving as a client", {.deed = QUIT}, HF_N_CUES, RUNG},
    {"burying a dead client", {.deed = BURY}, HF_N_CUES, DEAD_CLIENT},
    {"repairing, and burying, after a death inside", {.deed = BURY}, HF_N_CUES, DEAD_INSIDE},
    {"repairing a shard", {.deed = ENTER, .target = RICH}, HF_N_CUES, DEAD_INSIDE},
    {"repairing the registry", {.deed = ENTER, .target = LOCAL_REGISTRY}, HF_N_CUES, DEAD_IN_REGISTRY},
    {"repairing a shard that was growing, and growing it", ON(ASK, FULL_FRESH), HF_N_GRANTED, DEAD_GROWING | EXHAUSTED},
    {"acquiring in a full table", ON(ASK, FULL_FRESH, .flags = NO_ROOM, .fails = HF_FULL), HF_N_FAILED, EXHAUSTED},
    {"acquiring a name of 512 bytes when the table becomes full half-way",
     ON(ASK, TIGHT_SCROLL, .flags = NO_ROOM, .fails = HF_FULL), HF_N_FAILED, EXHAUSTED},
    {"re-entering", {.deed = ASK, .slot = SECOND + CLUB, .name = CLUB, .team = REDS}, HF_N_GRANTED, COMPANY},
    {"re-entering behind a dead carrier of units", ON(ASK, TOMB, .team = REDS), HF_N_GRANTED, COMPANY | DEAD_CARRIER},
    {"re-entering behind a carrier of units whose time is over", ON(ASK, HOUR, .team = REDS), HF_N_GRANTED,
     COMPANY | SPENT_CARRIER},
    {"passing waiters so that a waiting attempt of the same owner joins", ON(ASK, FERRY, .team = BLUES, .flags = BARGE),
     HF_N_GRANTED, COMPANY},
    {"queueing as an owner that waits already",
     {.deed = ASK, .slot = SECOND + CREW, .name = CREW, .team = BLUES, .flags = QUEUE | BELL},
     HF_N_QUEUED,
     COMPANY},
    {"releasing one of several attempts", ON(RELEASE, CLUB), HF_N_RELEASED, COMPANY},
    {"releasing the attempt that has the units", ON(RELEASE, GUILD), HF_N_RELEASED, COMPANY},
    {"releasing the detached attempt that has the units", ON(RELEASE, KEEP), HF_N_RELEASED, COMPANY},
    {"releasing to waiters with one owner, who enter together", ON(RELEASE, CREW), HF_N_RELEASED, COMPANY},
    {"detaching one of several attempts", ON(DETACH, GUILD), HF_N_CUES, COMPANY},
    {"asking behind a dead carrier of units", ON(ASK, TOMB, .units = 3), HF_N_BUSY, COMPANY | DEAD_CARRIER},
    {"burying a carrier of units", {.deed = BURY}, HF_N_CUES, COMPANY | DEAD_CARRIER},
    {"asking behind a carrier of units whose time is over", ON(ASK, HOUR), HF_N_BUSY, COMPANY | SPENT_CARRIER},
    {"showing a hold whose carrier of units is over", ON(SHOW, HOUR), HF_N_CUES, COMPANY | SPENT_CARRIER},
    {"listing everything", {.deed = LIST_ALL}, HF_N_CUES, COMPANY | SPENT_CARRIER},
    {"upgrading with a writer waiting", ON(UPGRADE, BOOK), HF_N_EXTENDED, COMPANY},
    {"upgrading with the units, one of two attempts", ON(UPGRADE, ATLAS), HF_N_EXTENDED, COMPANY},
    {"upgrading without the units, one of three attempts", ON(UPGRADE, CHART), HF_N_EXTENDED, COMPANY},
    {"upgrading beside another reader", ON(UPGRADE, SHARED), HF_N_BUSY, COMPANY},
    {"upgrading a detached hold", ON(UPGRADE, TOME), HF_N_EXTENDED, COMPANY},
    {"downgrading so that readers enter", ON(DOWNGRADE, DIARY), HF_N_EXTENDED, COMPANY},
    {"downgrading without the units, one of two attempts", ON(DOWNGRADE, MAP), HF_N_EXTENDED, COMPANY},
    {"downgrading a detached hold", ON(DOWNGRADE, LEDGER), HF_N_EXTENDED, COMPANY},
    {"releasing as a reader to a writer", ON(RELEASE, BOOK), HF_N_RELEASED, COMPANY},
    {"releasing as a writer to readers", ON(RELEASE, DIARY), HF_N_RELEASED, COMPANY},
    {"releasing to a reader whose owner also waits to write", ON(RELEASE, ALBUM), HF_N_RELEASED, COMPANY},
    {"asking to write as an owner that reads",
     {.deed = ASK, .slot = SECOND + SHARED, .name = SHARED, .team = REDS, .flags = WRITING, .fails = HF_MISMATCH},
     HF_N_FAILED,
     COMPANY},
    {"asking as another kind", ON(ASK, VAULT, .flags = MISFIT, .fails = HF_MISMATCH), HF_N_FAILED, COMPANY},
    {"asking for more than a changed capacity", ON(ASK, SHRUNK, .units = 4, .fails = HF_TOO_BIG), HF_N_FAILED, COMPANY},
    {"making the capacity larger", ON(RESIZE, TANK, .target = 9), HF_N_CUES, COMPANY},
    {"making the capacity smaller than waiters ask for", ON(RESIZE, TANK, .target = 1), HF_N_CUES, COMPANY},
    {"breaking a hold of two attempts", ON(BREAK, VAULT), HF_N_CUES, COMPANY},
    {"releasing an attempt that another client repeated", ON(RELEASE, ECHO), HF_N_RELEASED, COMPANY},
    {"repairing when units were passed on", {.deed = ENTER, .target = HALL}, HF_N_CUES, DEAD_PASSING},
    {"repairing when an attempt was about to join", {.deed = ENTER, .target = HALL}, HF_N_CUES, DEAD_GATHERING},
    {"repairing when a reader was about to write", {.deed = ENTER, .target = HALL}, HF_N_CUES, DEAD_CONVERTING},
    {"burying who died when she passed units on", {.deed = BURY}, HF_N_CUES, DEAD_PASSING},
    {"releasing what has a full past", ON(RELEASE, LOG), HF_N_RELEASED, COMPANY},
    {"releasing after those that came later", ON(RELEASE, STAIRS), HF_N_RELEASED, COMPANY},
    {"showing a past that is too old", ON(SHOW_PAST, AGED), HF_N_CUES, COMPANY},
    {"acquiring so that a resource with a past is dropped", ON(ASK, SNUG_FRESH), HF_N_GRANTED, COMPANY},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* The one that is being studied; NULL: none. */
static const struct operation *current;

static bool current_is(enum deed deed, int name)
{
    return current && current->command.deed == deed && current->command.name == (uint32_t)name;
}

static struct command command_of(const struct operation *op)
{
    struct command c = op->command;
    if (c.deed == BURY)
        c.target = world.actors[DORA].member;
    c.flags |= STEPPED;
    return c;
}
