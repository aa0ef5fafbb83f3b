/* repair_verdict.h - a table after a death is repaired, judged and then used until everybody was
 * served. */
#pragma once
#include "repair_structure.h"
#include "sys/shm_file.h"

#include <linux/futex.h>

typedef void plant_fn(struct table *t); /* spoils a table that was in order */

/* The scene before the operation. */
static struct picture scene;
static uint64_t scene_highest[NAMES];

static void remember_scene(void)
{
    take_picture(&world.table, &scene);
    note_tokens(&scene);
    remember_notes(&world.table);
    for (int n = 0; n < NAMES; n++)
        scene_highest[n] = world.highest[n];
}

/* ---- Death ---- */

static void mark_mutex(struct robust_mutex *mutex, uint32_t thread)
{
    futex_word *word = &mutex->word;
    uint32_t value = atomic_load(word);
    if ((value & FUTEX_TID_MASK) == thread)
        atomic_store(word, (value & FUTEX_WAITERS) | FUTEX_OWNER_DIED);
}

/* What the kernel does to the mutexes of a table when the thread ends that owns them. All of them
 * are listed before they are locked and until they are unlocked, so every word that has the
 * thread's id is reached. */
static void emulate_death(struct table *t, uint32_t thread)
{
    mark_mutex(&t->state->grow, thread);
    for (uint32_t s = 0; s <= LOCAL_SHARDS; s++)
        mark_mutex(&t->shards[s].mutex, thread);
    for (uint32_t i = 1; i < table_cells(t); i++)
        if (t->cells[i].head.shard == LOCAL_REGISTRY)
            mark_mutex(&t->cells[i].client.life, thread);
}

static bool bury_the_dead(struct table *t)
{
    for (uint32_t i = 1; i < table_cells(t); i++) {
        uint32_t state = state_of_cell(t, i);
        if ((state != CELL_CLIENT && state != CELL_DEAD) ||
            robust_mutex_held(atomic_load(&t->cells[i].client.life.word)))
            continue;
        if (table_client_reap(t, i) != REAP_DONE)
            return complain("member %u cannot be buried", i);
    }
    return true;
}

/* ---- Use ---- */

static enum reply_kind try_name(struct table *t, const struct table_caller *judge, int name,
                                uint64_t *token)
{
    struct engine_reply outcome = {.kind = REPLY_KINDS};
    struct engine_op op = {.name = names[name].text,
                           .name_len = (uint16_t)strlen(names[name].text),
                           .attempt.b = {99, (uint8_t)name},
                           .kind = names[name].kind,
                           .units = 1,
                           .capacity = names[name].capacity,
                           .ttl_ms = LONG_TTL_MS,
                           .until = clock_boot() + NANOS_OF_MS(20)};
    table_acquire(t, judge, &op, clock_boot(), &outcome);
    enum reply_kind kind = outcome.kind;
    *token = outcome.token;
    if (kind == REPLY_GRANTED) {
        table_release(t, &op, clock_boot(), &outcome);
        kind = outcome.kind == REPLY_RELEASED ? REPLY_GRANTED : REPLY_FAILED;
    }
    return kind;
}

/* Asks for every name: it is busy where somebody holds or waits, and to be had elsewhere. */
static bool try_all(struct table *t, const struct table_caller *judge, const struct picture *p)
{
    for (int name = 0; name < NAMES; name++) {
        uint64_t used = 0, token,
                 capacity = p->capacity[name] ? p->capacity[name] : names[name].capacity;
        bool queue = false;
        for (unsigned i = 0; i < p->count; i++)
            if (p->people[i].name == name) {
                used += p->people[i].held ? p->people[i].units : 0;
                queue |= !p->people[i].held;
            }
        enum reply_kind expected = !queue && used < capacity ? REPLY_GRANTED : REPLY_BUSY;
        enum reply_kind kind = try_name(t, judge, name, &token);
        if (kind != expected)
            return complain("%s answers %d, not %d: %s", names[name].word, (int)kind, (int)expected,
                            error_text());
        if (kind == REPLY_GRANTED && token <= world.highest[name])
            return complain("%s gives token %llu after %llu", names[name].word,
                            (unsigned long long)token, (unsigned long long)world.highest[name]);
        if (kind == REPLY_GRANTED)
            note_token((uint32_t)name, token);
    }
    return true;
}

/* Lets one holder release, as its client would; what it gives back goes to whoever is first, and
 * they are told. */
static bool release_one(struct table *t, struct picture *p, struct person *who)
{
    static struct picture before, after;
    struct engine_reply outcome = {.kind = REPLY_KINDS};
    struct engine_op op = {.name = names[who->name].text,
                           .name_len = (uint16_t)strlen(names[who->name].text),
                           .attempt = who->attempt,
                           .slot = slot_make(who->cell, who->cookie),
                           .until = clock_boot() + NANOS_OF_MS(20)};
    before = *p;
    table_release(t, &op, clock_boot(), &outcome);
    if (outcome.kind != REPLY_RELEASED)
        return complain("%s cannot be released: %d", describe(who), (int)outcome.kind);
    who->mortal = true;
    foresee(p);
    take_picture(t, &after);
    before.people[who - p->people].mortal = true;
    if (!came_as_foreseen(t, p, &after) || !everybody_is_told(t, &before, &after) ||
        !those_who_ended_are_told(t, &before, &after) || !everybody_looks(t))
        return false;
    note_tokens(&after);
    *p = after;
    return true;
}

static bool serve_everybody(struct table *t, struct picture *p)
{
    while (p->count) {
        struct person *holder = NULL;
        for (unsigned i = 0; i < p->count && !holder; i++)
            if (p->people[i].held)
                holder = &p->people[i];
        if (!holder)
            return complain("%s waits for nobody", describe(&p->people[0]));
        if (!release_one(t, p, holder))
            return false;
    }
    return true;
}

/* ---- The verdict ---- */

/* Somebody must look before the end of a hold is noticed. */
static bool touch_expired(struct table *t, const struct table_caller *judge,
                          const struct picture *now)
{
    uint64_t token;
    for (unsigned i = 0; i < now->count; i++)
        if (now->people[i].held && now->people[i].mortal && now->people[i].end <= clock_boot() &&
            try_name(t, judge, now->people[i].name, &token) == REPLY_FAILED)
            return complain("%s cannot be asked for: %s", names[now->people[i].name].word,
                            error_text());
    return true;
}

static bool judge_repaired(struct table *t, const struct table_caller *judge, plant_fn *plant)
{
    static struct picture now, after;
    take_picture(t, &now);
    if (!nobody_is_lost(t, &scene, &now, scene_highest) ||
        !writers_have_new_tokens(&scene, &now, scene_highest))
        return false;
    note_tokens(&now);
    foresee(&now);
    if (!bury_the_dead(t) || !check_structure(t))
        return false;
    if (plant) {
        plant(t);
        if (!check_structure(t))
            return false;
    }
    if (!notes_survive(t) || !touch_expired(t, judge, &now))
        return false;
    take_picture(t, &after);
    if (!came_as_foreseen(t, &now, &after) || !everybody_is_told(t, &scene, &after) ||
        !those_who_ended_are_told(t, &scene, &after) || !everybody_looks(t))
        return false;
    note_tokens(&after);
    return try_all(t, judge, &after) && serve_everybody(t, &after) && try_all(t, judge, &after) &&
           check_structure(t);
}

/* True: the table is as good as new. Otherwise `complaint` says what is wrong. */
static bool judge_table(struct table *t, plant_fn *plant)
{
    struct table_caller judge = {.pid = getpid()};
    uint64_t highest[NAMES];
    for (int n = 0; n < NAMES; n++)
        highest[n] = world.highest[n];
    /* The newcomer's own lock of the registry repairs that shard; the picture is of cells, which a
     * repair only frees.
     */
    bool fine =
        table_client_join(t, judge.pid, clock_boot() + NANOS_OF_MS(1000), &judge.client) == HF_OK
            ? judge_repaired(t, &judge, plant)
            : complain("a newcomer cannot join: %s", error_text());
    if (judge.client && !table_client_leave(t, judge.client) && fine)
        fine = complain("the newcomer cannot leave");
    if (fine)
        fine = check_structure(t);
    for (int n = 0; n < NAMES; n++)
        world.highest[n] = highest[n];
    return fine;
}

/* A copy of the table as it is now; the caller closes it. */
static void copy_table(struct table *copy)
{
    FILE *file = fopen(world.scratch, "w");
    size_t size = (size_t)shm_file_size(world.table.fd);
    if (!file || fwrite(world.table.map, 1, size, file) != size || fclose(file) != 0)
        give_up("the table cannot be copied");
    if (table_open(copy, world.scratch, 0600) != HF_OK)
        give_up("the copy cannot be opened");
}

/* Would the table be mended if this thread died now? */
static bool judge_copy(uint32_t thread, plant_fn *plant)
{
    struct table copy;
    copy_table(&copy);
    emulate_death(&copy, thread);
    bool fine = judge_table(&copy, plant);
    table_close(&copy);
    return fine;
}
