/* repair_verdict.h - a table after a death is repaired, judged and then used until everybody was served. */
#pragma once
#include "repair_structure.h"
#include "sys/mapping.h"

#include <linux/futex.h>

typedef void plant_fn(struct hf_table *t); /* spoils a table that was in order */

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

static void mark_mutex(pthread_mutex_t *mutex, pid_t thread)
{
    hf_word *word = hf_robust_word(mutex);
    uint32_t value = atomic_load(word);
    if ((value & FUTEX_TID_MASK) == (uint32_t)thread)
        atomic_store(word, (value & FUTEX_WAITERS) | FUTEX_OWNER_DIED);
}

/* What the kernel does to a thread's robust mutexes when it ends. The C library announces a mutex (list_op_pending)
 * before it takes it and until it has let go, so every word that carries the thread's id is reached, listed or not. */
static void emulate_death(struct hf_table *t, pid_t thread)
{
    mark_mutex(&t->state->grow, thread);
    for (uint32_t s = 0; s <= LOCAL_SHARDS; s++)
        mark_mutex(&t->shards[s].mutex, thread);
    for (uint32_t i = 1; i < hf_table_cells(t); i++)
        if (t->cells[i].head.shard == LOCAL_REGISTRY)
            mark_mutex(&t->cells[i].member.life, thread);
}

static bool bury_the_dead(struct hf_table *t)
{
    for (uint32_t i = 1; i < hf_table_cells(t); i++) {
        uint32_t state = cell_state(t, i);
        if ((state != CELL_CLIENT && state != CELL_DEAD) ||
            hf_robust_held(atomic_load(hf_robust_word(&t->cells[i].member.life))))
            continue;
        if (hf_member_bury(t, i) != HF_BURIAL_DONE)
            return complain("member %u cannot be buried", i);
    }
    return true;
}

/* ---- Use ---- */

static enum hf_cue try_name(struct hf_table *t, const struct hf_asker *judge, int name, uint64_t *token)
{
    struct hf_news news = {.cue = HF_N_CUES};
    struct hf_ask ask = {.name = names[name].text,
                         .name_len = (uint32_t)strlen(names[name].text),
                         .attempt.b = {99, (uint8_t)name},
                         .kind = names[name].kind,
                         .units = 1,
                         .capacity = names[name].capacity,
                         .ttl_ms = LONG_TTL_MS,
                         .until = hf_clock_boot() + HF_MS(20)};
    hf_lease_ask(t, judge, &ask, hf_clock_boot(), &news);
    enum hf_cue cue = news.cue;
    *token = news.token;
    if (cue == HF_N_GRANTED) {
        hf_lease_release(t, &ask, hf_clock_boot(), &news);
        cue = news.cue == HF_N_RELEASED ? HF_N_GRANTED : HF_N_FAILED;
    }
    return cue;
}

/* Asks for every name: it is busy where somebody holds or waits, and to be had elsewhere. */
static bool try_all(struct hf_table *t, const struct hf_asker *judge, const struct picture *p)
{
    for (int name = 0; name < NAMES; name++) {
        uint64_t used = 0, token, capacity = p->capacity[name] ? p->capacity[name] : names[name].capacity;
        bool queue = false;
        for (unsigned i = 0; i < p->count; i++)
            if (p->people[i].name == name) {
                used += p->people[i].held ? p->people[i].units : 0;
                queue |= !p->people[i].held;
            }
        enum hf_cue expected = !queue && used < capacity ? HF_N_GRANTED : HF_N_BUSY;
        enum hf_cue cue = try_name(t, judge, name, &token);
        if (cue != expected)
            return complain("%s answers %d, not %d: %s", names[name].word, (int)cue, (int)expected, hf_why_text());
        if (cue == HF_N_GRANTED && token <= world.highest[name])
            return complain("%s gives token %llu after %llu", names[name].word, (unsigned long long)token,
                            (unsigned long long)world.highest[name]);
        if (cue == HF_N_GRANTED)
            note_token((uint32_t)name, token);
    }
    return true;
}

/* Lets one holder release, as its client would; what it gives back goes to whoever is first, and they are told. */
static bool release_one(struct hf_table *t, struct picture *p, struct person *who)
{
    static struct picture before, after;
    struct hf_news news = {.cue = HF_N_CUES};
    struct hf_ask ask = {.name = names[who->name].text,
                         .name_len = (uint32_t)strlen(names[who->name].text),
                         .attempt = who->attempt,
                         .slot = hf_slot(who->cell, who->cookie),
                         .until = hf_clock_boot() + HF_MS(20)};
    before = *p;
    hf_lease_release(t, &ask, hf_clock_boot(), &news);
    if (news.cue != HF_N_RELEASED)
        return complain("%s cannot be released: %d", describe(who), (int)news.cue);
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

static bool serve_everybody(struct hf_table *t, struct picture *p)
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
static bool touch_expired(struct hf_table *t, const struct hf_asker *judge, const struct picture *now)
{
    uint64_t token;
    for (unsigned i = 0; i < now->count; i++)
        if (now->people[i].held && now->people[i].mortal && now->people[i].end <= hf_clock_boot() &&
            try_name(t, judge, now->people[i].name, &token) == HF_N_FAILED)
            return complain("%s cannot be asked for: %s", names[now->people[i].name].word, hf_why_text());
    return true;
}

static bool judge_repaired(struct hf_table *t, const struct hf_asker *judge, plant_fn *plant)
{
    static struct picture now, after;
    take_picture(t, &now);
    if (!nobody_is_lost(t, &scene, &now, scene_highest) || !writers_have_new_tokens(&scene, &now, scene_highest))
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
    return try_all(t, judge, &after) && serve_everybody(t, &after) && try_all(t, judge, &after) && check_structure(t);
}

/* True: the table is as good as new. Otherwise `complaint` says what is wrong. */
static bool judge_table(struct hf_table *t, plant_fn *plant)
{
    struct hf_asker judge = {.pid = getpid()};
    uint64_t highest[NAMES];
    for (int n = 0; n < NAMES; n++)
        highest[n] = world.highest[n];
    /* The newcomer's own lock of the registry repairs that shard; the picture is of cells, which a repair only frees.
     */
    bool fine = hf_member_join(t, judge.pid, hf_clock_boot() + HF_MS(1000), &judge.member) == HF_OK
                    ? judge_repaired(t, &judge, plant)
                    : complain("a newcomer cannot join: %s", hf_why_text());
    if (judge.member && !hf_member_leave(t, judge.member) && fine)
        fine = complain("the newcomer cannot leave");
    if (fine)
        fine = check_structure(t);
    for (int n = 0; n < NAMES; n++)
        world.highest[n] = highest[n];
    return fine;
}

/* A copy of the table as it is now; the caller closes it. */
static void copy_table(struct hf_table *copy)
{
    FILE *file = fopen(world.scratch, "w");
    size_t size = (size_t)hf_mapping_size(world.table.fd);
    if (!file || fwrite(world.table.map, 1, size, file) != size || fclose(file) != 0)
        give_up("the table cannot be copied");
    if (hf_table_open(copy, world.scratch, 0600) != HF_OK)
        give_up("the copy cannot be opened");
}

/* Would the table be mended if this thread died now? */
static bool judge_copy(pid_t thread, plant_fn *plant)
{
    struct hf_table copy;
    copy_table(&copy);
    emulate_death(&copy, thread);
    bool fine = judge_table(&copy, plant);
    if (fine)
        hf_table_close(&copy); /* otherwise a mutex of ours may still lie in it */
    return fine;
}
