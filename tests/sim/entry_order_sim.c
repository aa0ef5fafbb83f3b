/* clang-format off */
/* entry_order_sim.c - the rule of core/entry_order.h under random schedules: clients with lagging
 * views of a list that is changed by guarded transactions only. After every step: no two believers
 * exclude each other, no believer was dropped, tokens rise and are unique.
 *
 *     entry_order_sim [SCHEDULES [FIRST_SEED]]   that many clean schedules; then every planted bug must be found
 *     entry_order_sim --bug NAME [SCHEDULES]     that bug alone
 *
 * The same seed is the same schedule. Prints TAP. */
/* clang-format on */
#include "core/entry_order.h"

#include <stdarg.h>
#include <string.h>

#define PLANTS(X)                                                                                  \
    X(NONE, "none", "nothing")                                                                     \
    X(WAITER, "waiter", "an upgrade does not compare the first waiter")                            \
    X(OWN_MOD, "own-mod", "an upgrade does not compare its own entry's change")                    \
    X(SHRINK, "shrink", "a smaller capacity does not compare the holders")                         \
    X(NO_MARKS, "no-marks", "a smaller capacity does not confirm the holders")                     \
    X(NO_CLAIM, "no-claim", "shared grants after a wait write nothing of their own")               \
    X(PASSING, "passing", "entries pass one that does not fit")                                    \
    X(MEASURE, "measure", "the capacity of the first entry is the measure of all")
#include "sim/plant_selection.h"

enum {
    ACTORS = 7,
    SNAPSHOTS = 12, /* how far a view may lag */
    STEPS = 80,
    SCHEDULES_USUAL = 100000,
    FIND_WITHIN = 20000,
    TOKENS_MAX = STEPS + 1
};

/* An entry as the store keeps it. */
struct stored {
    struct queue_entry entry;
    uint64_t changed; /* revision of the last write */
    unsigned actor;
};

struct snapshot {
    uint64_t revision;
    size_t count;
    struct stored stored[ACTORS];
    struct queue_resize resize;
    uint64_t resize_changed;
};

enum stage { IDLE, WAITS, BELIEVES };

struct actor {
    enum stage stage;
    hf_kind kind; /* as its holder knows it: a downgrade and an upgrade change it */
    bool foreign;
    uint32_t units;
    uint64_t seen, seen_resize; /* revisions of its view of the entries, and of the resize */
    uint64_t created, token;
    bool survives; /* it held, and perhaps did not know yet, when the capacity became smaller */
};

static struct {
    enum plant plant;
    uint64_t seed;
    struct snapshot now, past[SNAPSHOTS];
    struct actor actor[ACTORS];
    uint64_t token[TOKENS_MAX], highest, highest_alone;
    size_t tokens;
    uint32_t declared;  /* what most semaphores of this schedule declare */
    unsigned semaphore; /* of 4: how often a request is for a semaphore */
    bool counts_units;  /* the last step granted permits: their sum must fit */
    bool failed;
    char why[160];
} w;

static struct {
    unsigned long grants, upgrades, resizes, refused;
} seen;

static uint32_t draw(uint32_t below)
{
    w.seed = w.seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w.seed >> 33) % below;
}

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list args;
    if (w.failed)
        return;
    va_start(args, format);
    vsnprintf(w.why, sizeof w.why, format, args);
    va_end(args);
    w.failed = true;
}

/* ---- The store ---- */

static struct stored *stored_of(struct snapshot *snapshot, unsigned actor)
{
    for (size_t i = 0; i < snapshot->count; i++)
        if (snapshot->stored[i].actor == actor)
            return &snapshot->stored[i];
    return NULL;
}

/* Ends a change: the next revision, and a snapshot of it for the views. */
static uint64_t commit(void)
{
    w.past[w.now.revision % SNAPSHOTS] = w.now;
    return w.now.revision;
}

static uint64_t begin_change(void)
{
    return ++w.now.revision;
}

static void append(unsigned actor, struct queue_entry entry)
{
    entry.arrival = begin_change();
    w.now.stored[w.now.count++] =
        (struct stored){.entry = entry, .changed = entry.arrival, .actor = actor};
    commit();
}

static void remove_stored(unsigned actor)
{
    struct stored *at = stored_of(&w.now, actor);
    size_t index = (size_t)(at - w.now.stored);
    memmove(at, at + 1, (w.now.count - index - 1) * sizeof *at);
    w.now.count--;
}

static void delete_entry(unsigned actor)
{
    begin_change();
    remove_stored(actor);
    commit();
}

/* ---- The rule, with planted bugs ---- */

/* What the rule would be without its barrier, or with the first entry as the measure. */
static void spoil(struct queue_entry *entries, size_t count, struct queue_resize resize)
{
    uint64_t used = 0;
    for (size_t i = 0; i < count; i++)
        used += entries[i].holds ? entry_order_need(&entries[i]) : 0;

    for (size_t i = 0; i < count; i++) {
        struct queue_entry *entry = &entries[i];
        bool agrees = entry_order_agree(entry, &entries[0]) && !entry->foreign;
        uint32_t capacity = entry_order_capacity(entry, resize);
        if (w.plant == PLANT_MEASURE && entry->kind == HF_SEMAPHORE && !entry->foreign &&
            entries[0].kind == HF_SEMAPHORE && !entries[0].foreign) {
            agrees = true;
            capacity = entry_order_capacity(&entries[0], resize);
        }
        if (!entry->holds && agrees && used + entry_order_need(entry) <= capacity) {
            entry->holds = true;
            used += entry_order_need(entry);
        }
    }
}

/* Judges the entries as of one revision with the resize as of another one. */
static void judge(const struct snapshot *entries, const struct snapshot *resize,
                  struct queue_entry out[ACTORS])
{
    for (size_t i = 0; i < entries->count; i++)
        out[i] = entries->stored[i].entry;
    entry_order_judge(out, entries->count, resize->resize);
    if (entries->count && (w.plant == PLANT_PASSING || w.plant == PLANT_MEASURE))
        spoil(out, entries->count, resize->resize);
}

static const struct snapshot *at(uint64_t revision)
{
    return &w.past[revision % SNAPSHOTS];
}

static bool holds_in(const struct snapshot *entries, const struct snapshot *resize, unsigned actor)
{
    struct queue_entry out[ACTORS];
    judge(entries, resize, out);
    for (size_t i = 0; i < entries->count; i++)
        if (entries->stored[i].actor == actor)
            return out[i].holds;
    return false;
}

/* A native client holds once no older key is left. */
static bool native_holds_in(const struct snapshot *entries, unsigned actor)
{
    return entries->count && entries->stored[0].actor == actor;
}

/* ---- Granting ---- */

static bool is_alone(const struct actor *actor)
{
    return actor->foreign || actor->kind == HF_EXCLUSIVE || actor->kind == HF_WRITE;
}

static void note_token(const struct actor *actor, uint64_t token)
{
    uint64_t below = is_alone(actor) ? w.highest : w.highest_alone;
    if (token <= below)
        fail("token %llu was given after %llu", (unsigned long long)token,
             (unsigned long long)below);
    for (size_t i = 0; i < w.tokens; i++)
        if (w.token[i] == token)
            fail("token %llu was given twice", (unsigned long long)token);

    w.token[w.tokens++] = token;
    w.highest = token > w.highest ? token : w.highest;
    if (is_alone(actor) && token > w.highest_alone)
        w.highest_alone = token;
}

static void grant(struct actor *actor, uint64_t token)
{
    actor->stage = BELIEVES;
    actor->token = token;
    note_token(actor, token);
    w.counts_units = actor->kind == HF_SEMAPHORE && !actor->foreign && !actor->survives;
    seen.grants++;
}

/* Readers and permits overlap, so each that waited writes its own entry for a token of its own. */
static void claim(unsigned number, const struct snapshot *entries, const struct snapshot *resize)
{
    struct actor *actor = &w.actor[number];
    struct stored *mine = stored_of(&w.now, number);
    const struct stored *known = stored_of((struct snapshot *)entries, number);
    bool same_resize =
        actor->kind != HF_SEMAPHORE || w.now.resize_changed == resize->resize_changed;
    if (mine->changed != known->changed || !same_resize) {
        seen.refused++;
        return;
    }

    mine->changed = begin_change();
    mine->entry.confirmed = actor->kind == HF_SEMAPHORE;
    grant(actor, commit());
}

/* The actor reads its view. */
static void read_view(unsigned number)
{
    struct actor *actor = &w.actor[number];
    const struct snapshot *entries = at(actor->seen), *resize = at(actor->seen_resize);
    if (actor->foreign) {
        if (native_holds_in(entries, number))
            grant(actor, actor->seen);
    } else if (holds_in(entries, resize, number)) {
        if (is_alone(actor) || w.plant == PLANT_NO_CLAIM)
            grant(actor, actor->seen);
        else
            claim(number, entries, resize);
    }
}

/* Moves a view forward to a revision of which there still is a snapshot. */
static uint64_t later(uint64_t seen_at, bool moves)
{
    uint64_t oldest = w.now.revision >= SNAPSHOTS ? w.now.revision - SNAPSHOTS + 1 : 0;
    uint64_t floor = seen_at > oldest ? seen_at : oldest;
    return moves ? floor + draw((uint32_t)(w.now.revision - floor) + 1) : floor;
}

static void move_view(struct actor *actor)
{
    actor->seen = later(actor->seen, draw(3));
    actor->seen_resize = later(actor->seen_resize, draw(3));
}

/* ---- What actors do ---- */

static void enqueue(unsigned number)
{
    struct actor *actor = &w.actor[number];
    bool semaphore = draw(4) < w.semaphore;
    hf_kind other = draw(3) ? (hf_kind)(HF_READ + draw(2)) : HF_EXCLUSIVE;
    *actor = (struct actor){.stage = WAITS, .kind = semaphore ? HF_SEMAPHORE : other};
    actor->foreign = draw(10) == 0;
    uint32_t declared = draw(8) ? w.declared : 1 + draw(4);
    actor->units = 1 + draw(declared);

    append(number, (struct queue_entry){.kind = actor->kind,
                                        .units = actor->units,
                                        .capacity = declared,
                                        .foreign = actor->foreign});
    actor->created = actor->seen = actor->seen_resize = w.now.revision;
    bool at_once = !actor->foreign && holds_in(&w.now, &w.now, number);
    if (at_once)
        grant(actor, actor->created);
}

/* A release, a death, or a waiter that leaves. */
static void go(unsigned number)
{
    delete_entry(number);
    w.actor[number].stage = IDLE;
}

/* The first entry behind the actor in its view that does not hold; NULL: none. */
static const struct stored *first_waiter(const struct snapshot *view,
                                         const struct queue_entry judged[ACTORS])
{
    for (size_t i = 0; i < view->count; i++)
        if (!judged[i].holds)
            return &view->stored[i];
    return NULL;
}

static bool is_there(const struct stored *known)
{
    const struct stored *found = stored_of(&w.now, known->actor);
    return found && found->entry.arrival == known->entry.arrival;
}

static void upgrade(unsigned number)
{
    struct actor *actor = &w.actor[number];
    const struct snapshot *view = at(actor->seen);
    struct queue_entry judged[ACTORS];
    judge(view, view, judged);
    for (size_t i = 0; i < view->count; i++)
        if (judged[i].holds && view->stored[i].actor != number)
            return; /* there are other readers: BUSY */

    const struct stored *waiter = first_waiter(view, judged);
    const struct stored *known = stored_of((struct snapshot *)view, number);
    struct stored *mine = stored_of(&w.now, number);
    bool unchanged = w.plant == PLANT_OWN_MOD || mine->changed == known->changed;
    bool barred = waiter ? is_there(waiter) : w.now.count == 1;
    if (!unchanged || !(barred || w.plant == PLANT_WAITER)) {
        seen.refused++;
        return;
    }

    mine->changed = begin_change();
    mine->entry.kind = actor->kind = HF_WRITE;
    actor->token = commit();
    note_token(actor, actor->token);
    seen.upgrades++;
}

static void downgrade(unsigned number)
{
    struct stored *mine = stored_of(&w.now, number);
    mine->changed = begin_change();
    mine->entry.kind = w.actor[number].kind = HF_READ;
    commit();
}

static bool still_as_in(const struct snapshot *view, const struct queue_entry judged[ACTORS])
{
    const struct stored *waiter = first_waiter(view, judged);
    for (size_t i = 0; i < view->count; i++)
        if (judged[i].holds && !is_there(&view->stored[i]))
            return false;
    if (waiter)
        return is_there(waiter);

    for (size_t i = 0; i < w.now.count; i++)
        if (w.now.stored[i].changed > view->revision)
            return false;
    return true;
}

static void confirm_holders(const struct snapshot *view, const struct queue_entry judged[ACTORS])
{
    for (size_t i = 0; i < view->count; i++) {
        struct stored *holder = judged[i].holds ? stored_of(&w.now, view->stored[i].actor) : NULL;
        if (!holder)
            continue;
        holder->entry.confirmed = true;
        holder->changed = w.now.revision;
        w.actor[holder->actor].survives = true;
    }
}

/* An administrator changes the capacity. Its view may lag, too. */
static void resize(void)
{
    uint64_t back = draw(SNAPSHOTS / 2);
    uint64_t revision = w.now.revision > back ? w.now.revision - back : w.now.revision;
    const struct snapshot *view = at(revision);
    struct queue_resize to = {.declared = w.declared, .capacity = 1 + draw(w.declared + 2)};
    uint32_t before = view->resize.capacity ? view->resize.capacity : w.declared;
    struct queue_entry judged[ACTORS];
    judge(view, view, judged);

    bool shrinks = to.capacity < before;
    bool is_guarded = w.plant == PLANT_SHRINK || !shrinks || still_as_in(view, judged);
    bool all_are_semaphores = true;
    for (size_t i = 0; i < view->count; i++)
        all_are_semaphores &= !judged[i].holds || (view->stored[i].entry.kind == HF_SEMAPHORE &&
                                                   !view->stored[i].entry.foreign);
    if (view->resize_changed != w.now.resize_changed || !is_guarded || !all_are_semaphores) {
        seen.refused++;
        return;
    }

    begin_change();
    w.now.resize = to;
    w.now.resize_changed = w.now.revision;
    if (shrinks && w.plant != PLANT_NO_MARKS)
        confirm_holders(view, judged);
    commit();
    seen.resizes++;
}

/* ---- Judging ---- */

static bool exclude(const struct actor *a, const struct actor *b)
{
    bool readers = a->kind == HF_READ && b->kind == HF_READ;
    bool permits = a->kind == HF_SEMAPHORE && b->kind == HF_SEMAPHORE;
    return a->foreign || b->foreign || !(readers || permits);
}

static void check_pair(unsigned i, unsigned k)
{
    if (w.actor[i].stage != BELIEVES || w.actor[k].stage != BELIEVES)
        return;
    const struct queue_entry *a = &stored_of(&w.now, i)->entry, *b = &stored_of(&w.now, k)->entry;
    bool permits = a->kind == HF_SEMAPHORE && b->kind == HF_SEMAPHORE;
    if (exclude(&w.actor[i], &w.actor[k]) || (permits && a->capacity != b->capacity))
        fail("actors %u and %u both believe that they hold", i, k);
}

/* Permits: the sum is within the capacity when the last of them is granted. */
static void check_sum(void)
{
    uint32_t sum = 0, capacity = 0;
    for (unsigned i = 0; i < ACTORS; i++) {
        if (w.actor[i].stage != BELIEVES || w.actor[i].kind != HF_SEMAPHORE || w.actor[i].foreign)
            continue;
        sum += w.actor[i].units;
        capacity = entry_order_capacity(&stored_of(&w.now, i)->entry, w.now.resize);
    }
    if (w.counts_units && sum > capacity)
        fail("%u units are believed to be held of %u", sum, capacity);
}

static void check(void)
{
    for (unsigned i = 0; i < ACTORS; i++) {
        bool native = w.actor[i].foreign;
        if (w.actor[i].stage == BELIEVES && !native && !holds_in(&w.now, &w.now, i))
            fail("actor %u believes that it holds and was dropped", i);
        for (unsigned k = 0; k < i; k++)
            check_pair(i, k);
    }
    check_sum();
}

/* ---- Schedules ---- */

static void act(unsigned number)
{
    struct actor *actor = &w.actor[number];
    if (actor->stage == IDLE) {
        enqueue(number);
        return;
    }

    bool converts = !actor->foreign && actor->stage == BELIEVES && draw(2);
    move_view(actor);
    if (actor->stage == WAITS && draw(12) == 0)
        go(number);
    else if (actor->stage == WAITS)
        read_view(number);
    else if (converts && actor->kind == HF_READ)
        upgrade(number);
    else if (converts && actor->kind == HF_WRITE)
        downgrade(number);
    else if (draw(3) == 0)
        go(number);
}

static bool run(uint64_t seed, enum plant plant)
{
    memset(&w, 0, sizeof w);
    w.plant = plant;
    w.seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    w.declared = 2 + draw(4);
    w.semaphore = draw(5);

    for (unsigned step = 0; step < STEPS && !w.failed; step++) {
        w.counts_units = false;
        if (w.semaphore && draw(10) == 0)
            resize();
        else
            act(draw(ACTORS));
        check();
    }
    return !w.failed;
}

/* Returns the number of the schedule that failed, or `schedules`. */
static unsigned long search(enum plant plant, unsigned long schedules, uint64_t first)
{
    for (unsigned long i = 0; i < schedules; i++)
        if (!run(first + i, plant))
            return i;
    return schedules;
}

static int report(bool good, unsigned number, const char *sentence)
{
    printf("%s %u - %s\n", good ? "ok" : "not ok", number, sentence);
    if (!good && w.failed)
        printf("# %s\n", w.why);
    return good ? 0 : 1;
}

static int find(enum plant plant, unsigned number, unsigned long schedules)
{
    char sentence[160];
    unsigned long found = search(plant, schedules, 1);
    snprintf(sentence, sizeof sentence, "a planted bug is found: %s (schedule %lu)",
             plants[plant].text, found + 1);
    return report(found < schedules, number, sentence);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--bug") == 0) {
        printf("1..1\n");
        return find(find_plant(argv[2]), 1, argc > 3 ? strtoul(argv[3], NULL, 10) : FIND_WITHIN);
    }

    unsigned long schedules = argc > 1 ? strtoul(argv[1], NULL, 10) : SCHEDULES_USUAL;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    char sentence[200];
    printf("1..%d\n", PLANT_COUNT);
    unsigned long done = search(PLANT_NONE, schedules, first);
    snprintf(sentence, sizeof sentence,
             "%lu schedules: %lu grants, %lu upgrades, %lu resizes, %lu transactions refused", done,
             seen.grants, seen.upgrades, seen.resizes, seen.refused);
    int failed = report(done == schedules, 1, sentence);
    if (failed)
        printf("# seed %llu\n", (unsigned long long)(first + done));

    for (unsigned plant = 1; plant < PLANT_COUNT; plant++)
        failed += find((enum plant)plant, plant + 1, FIND_WITHIN);
    return failed ? 1 : 0;
}
