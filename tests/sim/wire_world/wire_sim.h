/* wire_sim.h - the program of a simulator:
 *
 *     NAME_sim [SCHEDULES [FIRST SEED]]              prints TAP; every planted bug must be found,
 * too NAME_sim --plant NAME [SCHEDULES [FIRST SEED]] that bug alone NAME_sim --seconds N [FIRST
 * SEED]              new schedules for so long NAME_sim --trace SEED [PLANT]                  that
 * schedule, and all that happens in it
 *
 * Every eighth schedule is calm: there connections are cut at most, and a lock that is free is
 * granted soon. What clients are told
 * goes to the judge of all runs (checker/checker.h). At the end, when all is healed and released,
 * nothing of a lock is left on the servers. */
#pragma once
#include "wire_events.h"

#include <time.h>

enum { CALM_EVERY = 16, FIND_WITHIN = 20000 };

static bool all_done(void)
{
    for (unsigned i = 0; i < CLIENTS * SLOTS; i++)
        if (w.client[i / SLOTS].attempt[i % SLOTS].alive)
            return false;
    return true;
}

static bool all_rounds_done(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        if (w.client[i].rounds < ROUNDS * SLOTS)
            return false;
    return all_done();
}

static void open_world(uint64_t seed, enum plant plant)
{
    static const hf_kind kinds[] = {HF_EXCLUSIVE, HF_EXCLUSIVE, HF_SEMAPHORE, HF_READ};
    memset(&w, 0, sizeof w);
    w.seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    draw(2);
    planted = plant;
    w.now = w.free_since = FIRST_DAY;
    w.calm = plant == PLANT_NONE && seed % CALM_EVERY < 2;
    w.kind = kinds[draw(4)];
    servers_begin(plant);
    if (w.calm)
        w.kind = HF_EXCLUSIVE;
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client *c = &w.client[i];
        c->ahead = NANOS_OF_MS((int64_t)draw(1000000));
        c->fast_ppm = (int64_t)draw(4000) - 2000;
        open_client(i);
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            c->attempt[slot].client = i;
            wish_at(&c->attempt[slot], w.now + NANOS_OF_MS(draw(500)));
        }
    }
    if (!w.calm || seed % 2)
        schedule((struct occurrence){.at = w.now + NANOS_OF_MS(500), .what = FAULT});
}

static void close_world(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        WORLD_ENGINE.close(w.client[i].engine);
    while (w.count)
        free(calendar_take(w.heap, &w.count).bytes);
    free(w.heap);
}

static void run_until(nanos end, bool (*is_over)(void))
{
    while (w.count && w.heap[0].at < end && !w.flaw[0] && !(is_over && is_over()))
        happen();
}

/* Returns false if a flaw was found; w.flaw says which. */
static bool run(uint64_t seed, enum plant plant)
{
    history_begin(judge, &(struct history_rules)WORLD_RULES);
    open_world(seed, plant);
    run_until(FIRST_DAY + NANOS_OF_MS(60000), all_rounds_done);
    w.peace = true;
    run_until(w.now + NANOS_OF_MS(40000), all_done);
    if (!w.flaw[0] && !all_done())
        flaw("somebody did not end");
    run_until(w.now + NANOS_OF_MS(servers_rest_ms(w.has_died)), NULL);
    if (!w.flaw[0])
        servers_check_rest();
    history_finish(judge);
    if (history_failures(judge))
        flaw("%s", history_failure(judge));
    bool good = !w.flaw[0];
    close_world();
    return good;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool is_found(enum plant plant, uint64_t first, unsigned long schedules)
{
    double began = seconds_now();
    uint64_t seed = first;
    while (seed < first + schedules && run(seed, plant))
        seed++;
    bool found = w.flaw[0] != 0;
    printf("%sok %d - %s: seed %llu, %.1f s, %s: %s\n", found ? "" : "not ", plant + 1,
           plants[plant].name, (unsigned long long)seed, seconds_now() - began, plants[plant].text,
           found ? w.flaw : "not found");
    fflush(stdout);
    return found;
}

static void print_sums(unsigned long schedules, double seconds)
{
    printf("# %lu schedules in %.1f s, %.0f a second:", schedules, seconds,
           (double)schedules / seconds);
#define X(name, text) printf(" %lu " text ";", sum.name);
    ALL_COUNTS(X)
#undef X
    if (limits.offers & ENGINE_CAN_CONVERT)
        printf(" %lu upgrades; %lu downgrades;", upgrades, downgrades);
    putchar('\n');
}

static bool is_covered(void)
{
    bool all = true;
#define X(name, text) all &= sum.name > 0;
    ALL_COUNTS(X)
#undef X
    if (limits.offers & ENGINE_CAN_CONVERT)
        all &= upgrades > 0 && downgrades > 0;
    return all;
}

/* Clean schedules, that many or for that long. Returns false at a flaw. */
static bool try_clean(uint64_t first, unsigned long schedules, double seconds)
{
    double began = seconds_now();
    uint64_t seed = first;
    bool good = true;
    while (good && (seconds > 0 ? seconds_now() - began < seconds : seed < first + schedules))
        good = run(seed++, PLANT_NONE);
    print_sums((unsigned long)(seed - first), seconds_now() - began);
    good &= is_covered();
    printf("%sok 1 - schedules without a planted bug\n", good ? "" : "not ");
    if (w.flaw[0])
        printf("# seed %llu: %s\n", (unsigned long long)(seed - 1), w.flaw);
    return good;
}

static bool try_all(uint64_t first, unsigned long schedules)
{
    printf("1..%d\n", PLANT_COUNT);
    bool good = try_clean(first, schedules, 0);
    for (unsigned plant = PLANT_NONE + 1; plant < PLANT_COUNT; plant++)
        good &= is_found((enum plant)plant, first, FIND_WITHIN);
    return good;
}

static bool run_traced(uint64_t seed, const char *plant)
{
    is_traced = true;
    bool good = run(seed, plant ? find_plant(plant) : PLANT_NONE);
    printf("# %s\n", good ? "nothing is wrong" : w.flaw);
    return good;
}

static bool run_as_asked(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--trace") == 0)
        return run_traced(strtoull(argv[2], NULL, 10), argv[3]);
    bool is_timed = argc > 2 && strcmp(argv[1], "--seconds") == 0;
    bool is_one = argc > 2 && strcmp(argv[1], "--plant") == 0;
    int at = is_timed || is_one ? 3 : 1;
    unsigned long schedules = argc > at && !is_timed ? strtoul(argv[at++], NULL, 10) : 2000;
    uint64_t first = argc > at ? strtoull(argv[at], NULL, 10) : 1;
    if (is_one)
        return is_found(find_plant(argv[2]), first, schedules);
    if (!is_timed)
        return try_all(first, schedules);
    printf("1..1\n");
    return try_clean(first, 0, strtod(argv[2], NULL));
}

int main(int argc, char **argv)
{
    judge = history_open();
    bool good = run_as_asked(argc, argv);
    history_close(judge);
    return good ? 0 : 1;
}
