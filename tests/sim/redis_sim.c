/* clang-format off */
/* redis_sim.c - the simulator of the Redis engine: production claims and the production engine
 * against the shipped scripts in the model of a server, under virtual time, with faults drawn from
 * a seed. What it tells is judged by checker/checker.h.
 *
 *     redis [--seed FIRST] [--schedules N | --seconds S] [--kept FILE]   the kept schedules, then new ones
 *     redis --plants [--plant NAME] [--schedules N | --seconds S]        every planted bug, or that one, must be found;
 *                                                                        with --rare also those that take minutes
 *     redis --trace --seed N                                             every step of that schedule
 *     ... --replicas                                                     every grant waits for the replica
 *     ... --converts                                                     readers and writers only
 *     redis --every-call [--schedules N]                                 each call of each script of those schedules
 * fails, one at a time, with each error
 *     redis --every-line [--schedules N | --seconds S]                   the same for the first call in each line of
 * the library, until each has failed often enough; prints how often
 *     ... --refused-call N --refused-with NAME                           that one only
 *     ... --looks                                                        every process lists names, holds or the past
 *     ... --refuses                                                      calls of scripts are refused in every schedule
 *     ... --plant NAME --processes P --rounds R --faults NAME,...        as the command for a shrunk schedule says
 *
 * The same seed is the same schedule: that is what the hash is for. Prints TAP. */
/* clang-format on */
#include "sim/limits.h"
#include "sim/redis_world/failure_report.h"
#include "sim/refused_lines.h"

/* ---- Runs ---- */

static unsigned faults_of(const char *list)
{
    unsigned faults = 0;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t len = strcspn(at, ",");
        unsigned bit = 0;
        while (bit < FAULT_KINDS &&
               (strlen(fault_names[bit]) != len || memcmp(fault_names[bit], at, len) != 0))
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
    bool met = all_pairs_met(never_here),
         whole = o.faults == FAULT_ALL && !o.replicas && !o.converts;
    bool enough = !whole || ((done < 5000 || all_happened()) && (done < 20000 || met));
    if (!enough)
        puts("# some kind of fault never happened, or some pair of state and input was never met");
    bool ok = !failures && enough;
    printf("%s %u - %llu schedules with faults keep every promise (hash %016llx, %.0f a second of "
           "one processor)\n",
           ok ? "ok" : "not ok", number, (unsigned long long)done, (unsigned long long)hash,
           took > 0 ? (double)done / took : 0);
    return ok;
}

/* ---- Every call fails once ---- */

static bool refuse_call(struct options *o, uint64_t *points)
{
    bool failed = *run(o);
    note_refused(model_counts(model));
    *points += 1;
    if (failed) {
        printf("# seed %llu: %s\n", (unsigned long long)o->seed, w.failure);
        show_failure(o);
    }
    return failed;
}

/* One schedule as it is, and then once for each call of a script in it and each error. */
static uint64_t refuse_every_call(struct options o, uint64_t *points, unsigned most)
{
    uint64_t failures = 0;
    o.refused_call = 0;
    run(&o);
    uint64_t calls = model_counts(model).calls;
    for (o.refused_call = 1; o.refused_call <= calls && failures < most; o.refused_call++)
        for (o.refused_with = 0; o.refused_with < CALL_ERRORS && failures < most; o.refused_with++)
            failures += refuse_call(&o, points);
    return failures;
}

static bool run_every_call(struct options o, const struct limits *limits, unsigned number)
{
    double began = seconds_now();
    uint64_t points = 0, done = 0, failures = 0;
    for (; goes_on(limits, done, began) && failures < 5; done++, o.seed++)
        failures += refuse_every_call(o, &points, 2);
    print_tally();
    print_refused_lines(false);
    printf("%s %u - %llu times a call of a script is refused, each of %llu schedules with each of "
           "%d errors\n",
           failures ? "not ok" : "ok", number, (unsigned long long)points, (unsigned long long)done,
           CALL_ERRORS);
    return !failures;
}

/* ---- Every line of the library fails ---- */

/* One schedule as it is, and then again for each line that was refused seldom so far: its first
 * call fails, with each error. */
static uint64_t refuse_new_lines(struct options o, uint64_t *points)
{
    static struct model_line line[LINES_MOST];
    uint64_t failures = 0;
    memset(line, 0, sizeof line);
    o.refused_call = 0;
    model_note_lines(model, line, LINES_MOST);
    run(&o);
    model_note_lines(model, NULL, 0);
    note_called(line);
    for (unsigned i = 1; i < LINES_MOST && failures < 2; i++) {
        o.refused_call = line[i].first;
        bool is_new = is_due(line, i);
        for (o.refused_with = 0; is_new && o.refused_with < CALL_ERRORS; o.refused_with++)
            failures += refuse_call(&o, points);
    }
    return failures;
}

/* Seeds in turn with readers and writers only, and with a replica. */
static bool run_every_line(struct options o, const struct limits *limits, unsigned number)
{
    double began = seconds_now();
    uint64_t points = 0, done = 0, failures = 0;
    for (; goes_on(limits, done, began) && failures < 5; done++, o.seed++) {
        o.converts = o.seed % 4 == 1;
        o.replicas = o.seed % 4 == 2;
        o.looks = true;
        failures += refuse_new_lines(o, &points);
    }
    print_tally();
    print_refused_lines(true);
    printf("%s %u - %llu times a call of a script is refused, in %llu schedules\n",
           failures ? "not ok" : "ok", number, (unsigned long long)points,
           (unsigned long long)done);
    return !failures;
}

static bool is_found(struct options o, const struct limits *limits, unsigned number)
{
    o.replicas |= o.plant == PLANT_LATE_UNDO || o.plant == PLANT_LATE_DOWNGRADE;
    o.converts |= o.plant == PLANT_LATE_DOWNGRADE || o.plant == PLANT_HALF_DOWNGRADE;
    o.refuses |= o.plant == PLANT_COUNTER_LOST || o.plant == PLANT_LATE_COUNT ||
                 o.plant == PLANT_HALF_SURE || o.plant == PLANT_HALF_DOWNGRADE;
    double began = seconds_now(), used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    plant(o.plant);
    uint64_t done = 0;
    for (; goes_on(limits, done, began); done++, o.seed++) {
        if (!*run(&o))
            continue;
        printf("ok %u - %-14s seed %7llu %6.2f s  %s: %s\n", number, plants[o.plant].name,
               (unsigned long long)o.seed, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used,
               plants[o.plant].text, w.failure);
        fflush(stdout);
        return true;
    }
    printf("not ok %u - %s is not found within %llu schedules: %s\n", number, plants[o.plant].name,
           (unsigned long long)done, plants[o.plant].text);
    fflush(stdout);
    return false;
}

/* ---- The command line, and the schedules that once failed ---- */

struct overrides {
    struct options options;
    struct limits limits;
    const char *kept; /* a file with one schedule a line */
    bool all_plants, rare, trace, every_call, every_line;
};

static unsigned error_of(const char *name)
{
    unsigned i = 0;
    while (i < CALL_ERRORS && strcmp(call_errors[i].name, name) != 0)
        i++;
    if (i < CALL_ERRORS)
        return i;
    fprintf(stderr, "redis: no error is called %s\n", name);
    exit(64);
}

/* One option that has a value. False: there is no such option. */
static bool set_option(struct overrides *overrides, const char *name, const char *value)
{
    struct options *o = &overrides->options;
    if (strcmp(name, "--seed") == 0)
        o->seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--schedules") == 0)
        overrides->limits.schedules = strtoull(value, NULL, 10);
    else if (strcmp(name, "--seconds") == 0)
        overrides->limits.seconds = strtod(value, NULL);
    else if (strcmp(name, "--processes") == 0)
        o->processes = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--rounds") == 0)
        o->rounds = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--faults") == 0)
        o->faults = faults_of(value);
    else if (strcmp(name, "--plant") == 0)
        o->plant = find_plant(value);
    else if (strcmp(name, "--refused-call") == 0)
        o->refused_call = strtoull(value, NULL, 10);
    else if (strcmp(name, "--refused-with") == 0)
        o->refused_with = error_of(value);
    else if (strcmp(name, "--kept") == 0)
        overrides->kept = value;
    else
        return false;
    return true;
}

static struct overrides read_words(int count, char **words)
{
    struct overrides overrides = {
        .options = {.processes = PROCESSES, .rounds = ROUNDS, .faults = FAULT_ALL},
        .limits = {.seconds = 30}};
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i], "--trace") == 0)
            overrides.trace = true;
        else if (strcmp(words[i], "--plants") == 0)
            overrides.all_plants = true;
        else if (strcmp(words[i], "--every-call") == 0)
            overrides.every_call = true;
        else if (strcmp(words[i], "--every-line") == 0)
            overrides.every_line = true;
        else if (strcmp(words[i], "--rare") == 0)
            overrides.rare = true;
        else if (strcmp(words[i], "--replicas") == 0)
            overrides.options.replicas = true;
        else if (strcmp(words[i], "--converts") == 0)
            overrides.options.converts = true;
        else if (strcmp(words[i], "--looks") == 0)
            overrides.options.looks = true;
        else if (strcmp(words[i], "--refuses") == 0)
            overrides.options.refuses = true;
        else if (i + 1 < count && set_option(&overrides, words[i], words[i + 1]))
            i++;
        else {
            fputs("usage: redis [--seed N] [--schedules N | --seconds S] [--kept FILE]\n"
                  "             [--plants] [--rare] [--plant NAME]\n"
                  "             [--every-call] [--every-line] [--refused-call N --refused-with "
                  "NAME]\n"
                  "             [--trace] [--replicas] [--converts] [--looks] [--refuses] "
                  "[--processes P] "
                  "[--rounds R] [--faults "
                  "NAME,...]\n",
                  stderr);
            exit(64);
        }
    }
    return overrides;
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
    printf("%s %u - %u schedules that once failed keep every promise\n", ok ? "ok" : "not ok",
           number, count);
    printf("%s %u - the same seed is the same schedule\n", others ? "not ok" : "ok", number + 1);
    return ok && !others;
}

/* Those that show in one of many thousand schedules only. */
static bool is_rare(unsigned which)
{
    return which == PLANT_TURN_DRIFT || which == PLANT_OLD_PUSH || which == PLANT_NO_CUT_BACK ||
           which == PLANT_STEP_COUNTS || which == PLANT_LATE_DOWNGRADE || which == PLANT_GATHERED ||
           which == PLANT_LATE_SET || which == PLANT_ADOPT_SURE || which == PLANT_RETRY_TIME ||
           which == PLANT_WAIT_SHORT || which == PLANT_LATE_COUNT ||
           which == PLANT_HALF_DOWNGRADE || which == PLANT_NOT_IN_ORDER;
}

static bool find_all(struct options o, const struct limits *limits, bool rare)
{
    unsigned number = 1;
    bool ok = all_have_places(number);
    for (unsigned i = 1; i < FIRST_CROWD_PLANT; i++) {
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
    printf("%s 1 - seed %llu %s (hash %016llx)\n", ok ? "ok" : "not ok",
           (unsigned long long)o->seed, w.failure, (unsigned long long)w.hash);
    return ok;
}

static bool do_as_wished(const struct overrides *overrides)
{
    struct options o = overrides->options;
    bool every = overrides->all_plants && !o.plant, ok = true;
    if (!every)
        printf("1..%d\n", overrides->kept ? 3 : 1);
    plant(o.plant);
    if (overrides->trace)
        return show_one(&o);
    if (every)
        return find_all(o, &overrides->limits, overrides->rare);
    if (overrides->all_plants)
        return is_found(o, &overrides->limits, 1);
    if (overrides->every_call)
        return run_every_call(o, &overrides->limits, 1);
    if (overrides->every_line)
        return run_every_line(o, &overrides->limits, 1);
    if (overrides->kept)
        ok = run_kept(overrides->kept, 1);
    return run_new(o, &overrides->limits, overrides->kept ? 3 : 1) && ok;
}

int main(int argc, char **argv)
{
    struct overrides overrides = read_words(argc - 1, argv + 1);
    bytes_room = malloc(BYTES_ROOM);
    judge = history_open();
    bool ok = bytes_room && do_as_wished(&overrides);
    model_close(model);
    free(bytes_room);
    history_close(judge);
    return ok ? 0 : 1;
}
