/* clang-format off */
/* crowd.c - the simulator of crowds on one Redis lock: up to 2,000 waiters, in a few processes or
 * in one process each, most of which die, stop or are cut off around the moment at which the lock
 * becomes free. The product and the server's model are those of sim/redis_sim.c; nothing else goes
 * wrong here. Judged by crowd_world/availability.h.
 *
 *     crowd [--seed FIRST] [--schedules N | --seconds S] [--waits N]     new schedules, with at most N waits
 *     crowd --plants [--plant NAME] [...]                                every planted bug, or that one, must be found
 *     crowd --trace --seed N [--waits N]                                 every step of that schedule
 *
 * The same seed and --waits are the same schedule. Prints TAP. */
/* clang-format on */
#define WORLD_SIZES
enum {
    MAX_EVENTS = 1 << 18,
    MAX_LINKS = 1 << 16,
    MAX_ATTEMPTS = 2100,
    MAX_ERRANDS = 1,
    NEWS_ROOM = 1 << 17
};
enum { PROCESSES = 2010, ROUNDS = 1 };
#define BYTES_ROOM (512u << 20)

#include "sim/limits.h"
#include "sim/redis_world/plant_in_script.h"

#include "sim/crowd_world/fates.h"

enum { WAITS_MOST = 2000 };

static void print_step(int process, const char *text)
{
    char who[16] = "server";
    if (process >= 0)
        snprintf(who, sizeof who, "p%d", process);
    printf("# %10.3f ms %-6s %s\n", (double)w.now / 1e6, process == -2 ? "!!" : who, text);
}

static void describe(void)
{
    printf("# seed %llu: %s\n", (unsigned long long)options.seed, w.failure);
    printf("# %s, %s, ttl %lld ms; %u waits in %u processes, %u living ones behind or between "
           "them; the holder %s at "
           "%lld ms; hash %016llx\n",
           kind_names[w.kind], w.wake, (long long)(w.ttl / NANOS_OF_MS(1)), plan.waits, plan.crowd,
           plan.living, plan.holder_dies ? "dies" : "releases",
           (long long)(plan.free_at / NANOS_OF_MS(1)), (unsigned long long)w.hash);
    printf("# again with: crowd --trace --seed %llu --waits %u\n", (unsigned long long)options.seed,
           options.waits);
}

static void print_fates(void)
{
#define N(field) (unsigned long long)fates.field
    printf("# %llu schedules with %llu waits (%llu at most in one), %llu events, %llu grants\n",
           N(schedules), N(waits), N(largest), N(events), (unsigned long long)tally.grants);
    printf("# %llu processes killed, %llu of them in a lag, %llu stopped, %llu cut off, %llu dead "
           "holders, %llu clock steps, %llu newcomers\n",
           N(kills), N(lags), N(stops), N(cuts), N(dead_holders), N(steps), N(newcomers));
    printf("# longest time without a grant to a living waiter: %.0f ms when one process dies, %.0f "
           "ms when several do, "
           "%.0f ms when the clock steps back, too\n",
           (double)fates.longest[0] / 1e6, (double)fates.longest[1] / 1e6,
           (double)fates.longest[2] / 1e6);
#undef N
}

static bool run_new(const struct limits *limits)
{
    double began = seconds_now(), used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t done = 0, failures = 0, hash = 0;
    for (; goes_on(limits, done, began) && failures < 5; done++, options.seed++) {
        if (*run()) {
            failures++;
            describe();
        }
        hash = hash * 31 + w.hash;
    }
    double took = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used; /* others may be busy */
    print_fates();
    printf("%s 1 - %llu crowds keep every promise (hash %016llx, %.0f schedules a second of one "
           "processor)\n",
           failures ? "not ok" : "ok", (unsigned long long)done, (unsigned long long)hash,
           took > 0 ? (double)done / took : 0);
    return !failures;
}

static bool is_found(const struct limits *limits, enum plant which, unsigned number)
{
    double began = seconds_now(), used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t first = options.seed, done = 0;
    bool found = false;
    plant(which);
    for (; !found && goes_on(limits, done, began); done++, options.seed++)
        found = *run();
    if (found)
        printf("ok %u - %-10s seed %6llu %5.2f s  %s: %s\n", number, plants[which].name,
               (unsigned long long)options.seed - 1, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used,
               plants[which].text, w.failure);
    else
        printf("not ok %u - %s is not found within %llu schedules: %s\n", number,
               plants[which].name, (unsigned long long)done, plants[which].text);
    fflush(stdout);
    options.seed = first;
    return found;
}

static bool find_all(const struct limits *limits)
{
    unsigned number = 1;
    bool ok = all_have_places(number);
    for (unsigned i = FIRST_CROWD_PLANT; i < PLANT_COUNT; i++)
        ok &= is_found(limits, (enum plant)i, ++number);
    printf("1..%u\n", number);
    return ok;
}

static bool show_one(void)
{
    recording = true;
    record = print_step;
    bool ok = !*run();
    describe();
    printf("%s 1 - seed %llu %s\n", ok ? "ok" : "not ok", (unsigned long long)options.seed,
           w.failure);
    return ok;
}

/* ---- The command line ---- */

struct overrides {
    struct limits limits;
    enum plant plant;
    bool plants, trace;
};

static void explain_usage(void)
{
    fputs("usage: crowd [--seed N] [--schedules N | --seconds S] [--waits N] [--plants] [--plant "
          "NAME] [--trace]\n",
          stderr);
    exit(64);
}

static bool set_option(struct overrides *overrides, const char *name, const char *value)
{
    if (strcmp(name, "--seed") == 0)
        options.seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--schedules") == 0)
        overrides->limits.schedules = strtoull(value, NULL, 10);
    else if (strcmp(name, "--seconds") == 0)
        overrides->limits.seconds = strtod(value, NULL);
    else if (strcmp(name, "--waits") == 0)
        options.waits = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--plant") == 0)
        overrides->plant = find_plant(value);
    else
        return false;
    return options.waits && options.waits <= WAITS_MOST;
}

static struct overrides read_words(int count, char **words)
{
    struct overrides overrides = {.limits = {.seconds = 30}};
    options.waits = WAITS_MOST;
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i], "--trace") == 0)
            overrides.trace = true;
        else if (strcmp(words[i], "--plants") == 0)
            overrides.plants = true;
        else if (i + 1 < count && set_option(&overrides, words[i], words[i + 1]))
            i++;
        else
            explain_usage();
    }
    return overrides;
}

static bool do_as_wished(const struct overrides *overrides)
{
    bool every = overrides->plants && !overrides->plant;
    if (every)
        return find_all(&overrides->limits);
    puts("1..1");
    plant(overrides->plant);
    if (overrides->trace)
        return show_one();
    return overrides->plants ? is_found(&overrides->limits, overrides->plant, 1)
                             : run_new(&overrides->limits);
}

int main(int argc, char **argv)
{
    struct overrides overrides = read_words(argc - 1, argv + 1);
    bytes_room = malloc(BYTES_ROOM);
    bool ok = bytes_room && do_as_wished(&overrides);
    model_close(model);
    free(bytes_room);
    return ok ? 0 : 1;
}
