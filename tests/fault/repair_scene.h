/* repair_scene.h - the scene before the death: who holds what, who waits behind whom, and the operations that are
 * stepped through. */
#pragma once
#include "repair_world.h"

#include <errno.h>

/* ---- Clients come and go ---- */

static void start_actor(int id)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        give_up("socketpair");
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        give_up("fork");
    if (pid == 0) {
        for (int i = 0; i < ACTORS; i++)
            if (world.actors[i].pid)
                close(world.actors[i].socket);
        close(pair[0]);
        live_as(id, pair[1]);
    }
    close(pair[1]);
    world.actors[id] = (struct actor){.pid = pid, .socket = pair[0]};
}

static void end_actor(int id)
{
    struct actor *a = &world.actors[id];
    if (!a->pid)
        return;
    kill(a->pid, SIGKILL);
    int status;
    do {
        while (waitpid(a->pid, &status, 0) < 0 && errno == EINTR)
            ;
    } while (WIFSTOPPED(status));
    close(a->socket);
    a->pid = 0;
}

static void send_command(int id, struct command c)
{
    if (write(world.actors[id].socket, &c, sizeof c) != sizeof c)
        give_up("a client does not listen");
}

static struct reply read_reply(int id)
{
    struct reply reply;
    if (read(world.actors[id].socket, &reply, sizeof reply) != sizeof reply)
        give_up("a client does not answer");
    return reply;
}

static void tell(int id, struct command c, enum hf_cue expected)
{
    send_command(id, c);
    struct reply reply = read_reply(id);
    if (reply.status != HF_OK || reply.cue != expected) {
        fprintf(stderr, "client %d, deed %d, name %s: status %d, cue %d instead of %d\n", id, (int)c.deed,
                names[c.name].word, (int)reply.status, (int)reply.cue, (int)expected);
        give_up("the scene cannot be set");
    }
    if (c.deed == JOIN)
        world.actors[id].member = reply.member;
}

/* ---- The scene ---- */

static void hold(int id, enum name name, uint32_t units, uint32_t flags)
{
    tell(id, (struct command){.deed = ASK, .slot = name, .name = name, .units = units, .flags = flags}, HF_N_GRANTED);
    if (flags & LOOSELY && !(flags & QUEUE))
        tell(id, (struct command){.deed = DETACH, .slot = name, .name = name}, HF_N_CUES);
}

static void wait_behind(int id, enum name name, uint32_t slot, uint32_t units, uint32_t flags)
{
    tell(id, (struct command){.deed = ASK, .slot = slot, .name = name, .units = units, .flags = flags | QUEUE},
         HF_N_QUEUED);
}

static void release(int id, enum name name)
{
    tell(id, (struct command){.deed = RELEASE, .slot = name, .name = name}, HF_N_RELEASED);
}

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
    tell(XENIA, (struct command){.deed = ASK, .slot = SOLO, .name = SOLO, .flags = LOOSELY}, HF_N_GRANTED);
    hold(ANNA, LOOSE, 1, LOOSELY);
    hold(XENIA, MINE, 1, LOOSELY);
    hold(ANNA, IDLE, 1, 0);
    release(ANNA, IDLE);
}

/* As if the wall clock had been stepped back since the name was last given: only what the table remembers can keep its
 * tokens rising. */
static void age_tokens(enum name name)
{
    size_t len = strlen(names[name].text);
    uint32_t index = hf_resource_find(&world.table, hf_name_hash(names[name].text, len), names[name].text, len);
    uint64_t token = world.table.cells[index].resource.token += 3600 * UINT64_C(1000000);
    note_token(name, token);
}

/* One shard without a free cell; another one with none either, but with a resource that can be dropped. */
static void set_full_shards(void)
{
    for (uint32_t i = 0; i < LOCAL_PER_CHUNK - 1; i++)
        tell(ANNA, (struct command){.deed = ASK, .slot = PACKED + i, .name = FULL}, HF_N_GRANTED);
    hold(BERT, DROPPED, 1, 0);
    for (uint32_t i = 0; i < LOCAL_PER_CHUNK - 5; i++)
        tell(BERT, (struct command){.deed = ASK, .slot = PACKED + i, .name = PACK}, HF_N_GRANTED);
    release(BERT, DROPPED);
    age_tokens(DROPPED);
    tell(BERT, (struct command){.deed = ASK, .slot = PACKED + LOCAL_PER_CHUNK - 5, .name = PACK}, HF_N_GRANTED);
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
    ANY_DEATH = DEAD_CLIENT | DEAD_INSIDE | DEAD_IN_REGISTRY | DEAD_GROWING,
};

/* What a client does in the slot that a name has. */
#define ON(deed_, name_, ...)                                                                                          \
    {                                                                                                                  \
        .deed = (deed_), .slot = (name_), .name = (name_), __VA_ARGS__                                                 \
    }

/* Lets a client begin something and kills it when it has made so many changes inside that mutex. */
static void step_to_death(int id, struct command c, pthread_mutex_t *inside, unsigned changes);

static void set_dead_client(uint32_t extra)
{
    start_actor(DORA);
    tell(DORA, (struct command){.deed = JOIN}, HF_N_CUES);
    hold(DORA, CRYPT, 1, 0);
    wait_behind(BERT, CRYPT, CRYPT, 1, BELL);
    wait_behind(CARL, CRYPT, CRYPT, 1, 0);
    wait_behind(DORA, DESK, DESK, 1, BELL);
    wait_behind(DORA, SCROLL, SCROLL, 1, 0);
    wait_behind(XENIA, CRYPT, CRYPT, 1, 0);
    struct hf_table *t = &world.table;
    if (extra & DEAD_INSIDE)
        step_to_death(DORA, (struct command)ON(RELEASE, CRYPT), &t->shards[RICH].mutex, 16);
    else if (extra & DEAD_IN_REGISTRY)
        step_to_death(DORA, (struct command){.deed = QUIT}, &t->shards[LOCAL_REGISTRY].mutex, 6);
    else if (extra & DEAD_GROWING)
        step_to_death(DORA, (struct command)ON(ASK, FULL_FRESH), &t->state->grow, 4);
    else
        end_actor(DORA);
}

static void set_extra(uint32_t extra)
{
    for (int name = SPREAD_1; extra & EXHAUSTED && world.table.state->chunks < world.table.state->room; name++)
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
        hf_nanos over = hf_clock_boot() + HF_MS(BRIEF_TTL_MS);
        while (hf_clock_boot() <= over)
            usleep(1000);
    }
    if (extra & ANY_DEATH)
        set_dead_client(extra);
    uint32_t carl = world.actors[CARL].member;
    while (extra & CROWDED && world.table.shards[LOCAL_REGISTRY].free.count)
        tell(CARL, (struct command){.deed = JOIN}, HF_N_CUES);
    world.actors[CARL].member = carl;
}

static void set_scene(uint32_t extra)
{
    for (int n = 0; n < NAMES; n++)
        world.highest[n] = 0;
    if (hf_table_open(&world.table, world.path, 0600) != HF_OK)
        give_up("the table cannot be made");
    for (int id = ANNA; id <= XENIA; id++) {
        if (id == DORA)
            continue;
        start_actor(id);
        if (id != XENIA || !(extra & NEWCOMER))
            tell(id, (struct command){.deed = JOIN}, HF_N_CUES);
    }
    if (extra & NEWCOMER) {
        hold(ANNA, DESK, 1, 0);
        wait_behind(BERT, DESK, DESK, 1, BELL);
        wait_behind(CARL, DESK, DESK, 1, 0);
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
    hf_table_close(&world.table);
    unlink(world.path);
    memset(world.actors, 0, sizeof world.actors);
}

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
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static struct command command_of(const struct operation *op)
{
    struct command c = op->command;
    if (c.deed == BURY)
        c.target = world.actors[DORA].member;
    c.flags |= STEPPED;
    return c;
}
