/* redis.c - the simulator of the Redis engine: production claims and the production engine against the shipped scripts
 * in the model of a server, under virtual time, with faults drawn from a seed. What it tells is judged by
 * history/history.h.
 *
 *     redis [--seed FIRST] [--schedules N | --seconds S] [--kept FILE]   the kept schedules, then new ones
 *     redis --plants [--plant NAME] [--schedules N | --seconds S]        every planted bug, or that one, must be found;
 *                                                                        with --rare also those that take minutes
 *     redis --trace --seed N                                             every step of that schedule
 *     ... --replicas                                                     every grant waits for the replica
 *     ... --converts                                                     readers and writers only
 *     ... --plant NAME --processes P --rounds R --faults NAME,...        as the command for a shrunk schedule says
 *
 * The same seed is the same schedule: that is what the hash is for. Prints TAP. */
#include "redis_world/report.h"

#include <time.h>

/* ---- Runs ----------------------------------------------------------------------------------------------------------
 */

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double seconds_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

struct limits {
    uint64_t schedules;
    double seconds;
};

static bool goes_on(const struct limits *limits, uint64_t done, double began)
{
    if (limits->schedules)
        return done < limits->schedules;
    return (done & 15) || seconds_now() - began < limits->seconds;
}

static unsigned faults_of(const char *list)
{
    unsigned faults = 0;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t len = strcspn(at, ",");
        unsigned bit = 0;
        while (bit < FAULT_KINDS && (strlen(fault_names[bit]) != len || memcmp(fault_names[bit], at, len) != 0))
            bit++;
        if (bit < FAULT_KINDS)
            faults |= 1u << bit;
        else if (strcmp(at, "none") != 0) {
            fprintf(stderr, "redis: no fault is called %.*s\n", (int)len, at);
            exit(64);
        }
    }
    return faults;
}

/* New schedules, from that seed on. */
static bool run_new(struct options o, const struct limits *limits, unsigned number)
{
    double began = seconds_now(), used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t done = 0, failures = 0;
    uint64_t hash = 0;
    for (; goes_on(limits, done, began) && failures < 5; done++, o.seed++) {
        if (*run(&o)) {
            failures++;
            printf("# seed %llu: %s\n", (unsigned long long)o.seed, w.failure);
            show_failure(&o);
        }
        hash = hash * 31 + w.hash;
    }
    double took = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used; /* others may be busy */
    print_tally();
    print_coverage();
    bool met = all_pairs_met(never_here), whole = o.faults == FAULT_ALL && !o.replicas && !o.converts;
    bool enough = !whole || ((done < 5000 || all_happened()) && (done < 20000 || met));
    if (!enough)
        puts("# some kind of fault never happened, or some pair of state and input was never met");
    bool ok = !failures && enough;
    printf("%s %u - %llu schedules with faults keep every promise (hash %016llx, %.0f a second of one processor)\n",
           ok ? "ok" : "not ok", number, (unsigned long long)done, (unsigned long long)hash,
           took > 0 ? (double)done / took : 0);
    return ok;
}

static bool is_found(struct options o, const struct limits *limits, unsigned number)
{
    o.replicas |= o.plant == PLANT_LATE_UNDO || o.plant == PLANT_LATE_DOWNGRADE;
    o.converts |= o.plant == PLANT_LATE_DOWNGRADE;
    double began = seconds_now(), used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    plant(o.plant);
    uint64_t done = 0;
    for (; goes_on(limits, done, began); done++, o.seed++) {
        if (!*run(&o))
            continue;
        printf("ok %u - %-14s seed %7llu %6.2f s  %s: %s\n", number, plants[o.plant].name, (unsigned long long)o.seed,
               seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used, plants[o.plant].text, w.failure);
        fflush(stdout);
        return true;
    }
    printf("not ok %u - %s is not found within %llu schedules: %s\n", number, plants[o.plant].name,
           (unsigned long long)done, plants[o.plant].text);
    fflush(stdout);
    return false;
}

/* ---- The command line, and the schedules that once failed ---------------------------------------------------------
 */

struct wishes {
    struct options options;
    struct limits limits;
    const char *kept; /* a file with one schedule a line */
    bool all_plants, rare, trace;
};

/* One option that has a value. False: there is no such option. */
static bool set_option(struct wishes *wishes, const char *name, const char *value)
{
    struct options *o = &wishes->options;
    if (strcmp(name, "--seed") == 0)
        o->seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--schedules") == 0)
        wishes->limits.schedules = strtoull(value, NULL, 10);
    else if (strcmp(name, "--seconds") == 0)
        wishes->limits.seconds = strtod(value, NULL);
    else if (strcmp(name, "--processes") == 0)
        o->processes = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--rounds") == 0)
        o->rounds = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--faults") == 0)
        o->faults = faults_of(value);
    else if (strcmp(name, "--plant") == 0)
        o->plant = find_plant(value);
    else if (strcmp(name, "--kept") == 0)
        wishes->kept = value;
    else
        return false;
    return true;
}

static struct wishes read_words(int count, char **words)
{
    struct wishes wishes = {.options = {.processes = PROCESSES, .rounds = ROUNDS, .faults = FAULT_ALL},
                            .limits = {.seconds = 30}};
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i], "--trace") == 0)
            wishes.trace = true;
        else if (strcmp(words[i], "--plants") == 0)
            wishes.all_plants = true;
        else if (strcmp(words[i], "--rare") == 0)
            wishes.rare = true;
        else if (strcmp(words[i], "--replicas") == 0)
            wishes.options.replicas = true;
        else if (strcmp(words[i], "--converts") == 0)
            wishes.options.converts = true;
        else if (i + 1 < count && set_option(&wishes, words[i], words[i + 1]))
            i++;
        else {
            fputs("usage: redis [--seed N] [--schedules N | --seconds S] [--kept FILE]\n"
                  "             [--plants] [--rare] [--plant NAME]\n"
                  "             [--trace] [--replicas] [--converts] [--processes P] [--rounds R] [--faults NAME,...]\n",
                  stderr);
            exit(64);
        }
    }
    return wishes;
}

/* Those that failed once are run first, twice, as if by two processes. */
static bool run_kept(const char *path, unsigned number)
{
    char line[400], *words[32];
    unsigned count = 0, failures = 0, others = 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        int words_in_line = 0;
        line[strcspn(line, "#\n")] = 0;
        for (char *word = strtok(line, " "); word && words_in_line < 32; word = strtok(NULL, " "))
            words[words_in_line++] = word;
        if (!words_in_line)
            continue;
        struct options o = read_words(words_in_line, words).options;
        count++;
        process_id = 1;
        run(&o);
        uint64_t hash = w.hash;
        process_id = 4194303;
        bool fine = !*run(&o);
        others += w.hash != hash;
        if (fine)
            continue;
        failures++;
        printf("# seed %llu: %s\n", (unsigned long long)o.seed, w.failure);
        show_failure(&o);
    }
    if (file)
        fclose(file);
    bool ok = file && count && !failures;
    printf("%s %u - %u schedules that once failed keep every promise\n", ok ? "ok" : "not ok", number, count);
    printf("%s %u - the same seed is the same schedule\n", others ? "not ok" : "ok", number + 1);
    return ok && !others;
}

/* Those that show in one of many thousand schedules only. */
static bool is_rare(unsigned which)
{
    return which == PLANT_TURN_DRIFT || which == PLANT_OLD_PUSH || which == PLANT_NO_CUT_BACK ||
           which == PLANT_STEP_COUNTS || which == PLANT_STEP_WAITS || which == PLANT_LATE_DOWNGRADE ||
           which == PLANT_GATHERED || which == PLANT_LATE_SET || which == PLANT_ADOPT_SURE ||
           which == PLANT_RETRY_TIME || which == PLANT_WAIT_SHORT;
}

static bool all_have_places(unsigned number)
{
    bool ok = true;
    for (unsigned i = 1; i < PLANT_COUNT; i++) {
        if (!has_place((enum plant)i))
            printf("# %s: the text of the script has changed\n", plants[i].name);
        ok &= has_place((enum plant)i);
    }
    printf("%s %u - every bug in a script is planted where the script says something else\n", ok ? "ok" : "not ok",
           number);
    return ok;
}

static bool find_all(struct options o, const struct limits *limits, bool rare)
{
    unsigned number = 1;
    bool ok = all_have_places(number);
    for (unsigned i = 1; i < PLANT_COUNT; i++) {
        o.plant = (enum plant)i;
        if (rare || !is_rare(i))
            ok &= is_found(o, limits, ++number);
    }
    printf("1..%u\n", number);
    return ok;
}

static bool show_one(const struct options *o)
{
    recording = true;
    record = record_now;
    bool ok = !*run(o);
    printf("%s 1 - seed %llu %s (hash %016llx)\n", ok ? "ok" : "not ok", (unsigned long long)o->seed, w.failure,
           (unsigned long long)w.hash);
    return ok;
}

static bool do_as_wished(const struct wishes *wishes)
{
    struct options o = wishes->options;
    bool every = wishes->all_plants && !o.plant, ok = true;
    if (!every)
        printf("1..%d\n", wishes->kept ? 3 : 1);
    plant(o.plant);
    if (wishes->trace)
        return show_one(&o);
    if (every)
        return find_all(o, &wishes->limits, wishes->rare);
    if (wishes->all_plants)
        return is_found(o, &wishes->limits, 1);
    if (wishes->kept)
        ok = run_kept(wishes->kept, 1);
    return run_new(o, &wishes->limits, wishes->kept ? 3 : 1) && ok;
}

int main(int argc, char **argv)
{
    struct wishes wishes = read_words(argc - 1, argv + 1);
    bytes_room = malloc(BYTES_ROOM);
    judge = history_open();
    bool ok = bytes_room && do_as_wished(&wishes);
    model_close(model);
    free(bytes_room);
    history_close(judge);
    return ok ? 0 : 1;
}
