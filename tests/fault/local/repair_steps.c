/* repair_steps.c - a client may die between any two instructions: the next one to come finds a
 * table that is as good as new.
 *
 *     repair [--every N] [--kills N] [--seed N] [--only TEXT]
 *
 * Steps a client through each operation under ptrace; after every instruction that changed the
 * table (or every Nth of them) a copy, in which the client has died, is repaired and judged. Then
 * clients are really killed, at points drawn from the seed, and the table itself is judged. The
 * judge is judged by bad repairs that are planted. Prints TAP. */
#include "repair_plants.h"
#include "repair_stepper.h"

#include <sched.h>

static struct options {
    unsigned every, kills;
    uint64_t seed;
    const char *only;
} options = {.every = 1, .kills = 200, .seed = 20250};

static unsigned tests, failures;

static void report(bool fine, const char *sentence, const char *more)
{
    tests++;
    failures += !fine;
    printf("%sok %u - %s%s\n", fine ? "" : "not ", tests, sentence, more);
    if (!fine)
        printf("# %s\n", complaint);
    fflush(stdout);
}

static uint64_t draw(uint64_t below)
{
    options.seed ^= options.seed << 13;
    options.seed ^= options.seed >> 7;
    options.seed ^= options.seed << 17;
    return options.seed % below;
}

/* ---- Every instruction ---- */

static struct walk walks[OPERATIONS];

static void test_operation(unsigned i)
{
    char sentence[160], more[160];
    struct walk *w = &walks[i];
    w->every = options.every;
    current = &operations[i];
    set_scene(operations[i].extra);
    remember_scene();
    bool fine = walk_operation(&operations[i], w);
    if (fine && w->changes == 0)
        fine = complain("no instruction changed the table");
    snprintf(sentence, sizeof sentence, "death at any instruction of %s is mended",
             operations[i].sentence);
    snprintf(more, sizeof more, " # %llu instructions, %llu changed the table, %llu judged",
             (unsigned long long)w->steps, (unsigned long long)w->changes,
             (unsigned long long)w->judged);
    report(fine, sentence, more);
    current = NULL;
    clear_scene();
}

static void sum_up(void)
{
    struct walk all = {0};
    for (unsigned i = 0; i < OPERATIONS; i++) {
        all.steps += walks[i].steps;
        all.changes += walks[i].changes;
        all.judged += walks[i].judged;
        all.inside += walks[i].inside;
    }
    printf("# %d operations: %llu instructions, %llu changed the table, %llu judged, %llu of them "
           "inside a mutex\n",
           (int)OPERATIONS, (unsigned long long)all.steps, (unsigned long long)all.changes,
           (unsigned long long)all.judged, (unsigned long long)all.inside);
}

/* ---- Real deaths ---- */

static uint32_t repairs(void)
{
    uint32_t sum = 0;
    for (uint32_t s = 0; s <= LOCAL_SHARDS; s++)
        sum += world.table.shards[s].repairs;
    return sum;
}

/* Steps to a point between the first and the last change of the operation, and kills. */
static void kill_in_operation(const struct operation *op, const struct walk *w)
{
    pid_t pid = world.actors[XENIA].pid;
    static struct picture now;
    uint64_t until = w->first + draw(w->last - w->first + 2);
    begin_steps(XENIA, command_of(op));
    for (uint64_t i = 0; i < until && step(pid); i++)
        if (look_at_table()) {
            take_picture(&world.table, &now);
            note_tokens(&now);
        }
    end_actor(XENIA);
}

/* Lets a client do everything at full speed, and kills it at some moment. */
static void kill_in_full_run(bool in_company)
{
    struct command c = {.deed = in_company ? CHURN_IN_COMPANY : CHURN,
                        .target = (uint32_t)draw(UINT32_MAX)};
    send_command(XENIA, c);
    uint64_t before = world.highest[FRESH];
    for (int i = 0; world.highest[FRESH] == before && i < 5000; i++)
        usleep(1000);
    if (world.highest[FRESH] == before)
        give_up("the client that should be killed at work does not work");
    usleep((useconds_t)draw(3000));
    end_actor(XENIA);
}

static bool kill_once(unsigned i, unsigned *inside)
{
    unsigned which = (unsigned)draw(OPERATIONS);
    bool running = i % 4 == 3, in_company = i % 8 == 3;
    current = running ? NULL : &operations[which];
    set_scene(running ? in_company * COMPANY : operations[which].extra);
    remember_scene();
    uint32_t repaired = repairs();
    if (running)
        kill_in_full_run(in_company);
    else
        kill_in_operation(&operations[which], &walks[which]);
    struct table live;
    if (table_open(&live, world.path, 0600) != HF_OK)
        give_up("the table cannot be opened after a death");
    bool fine = judge_table(&live, NULL);
    *inside += repairs() != repaired;
    table_close(&live);
    if (!fine)
        printf("# kill %u: %s\n", i, running ? "at full speed" : operations[which].sentence);
    current = NULL;
    clear_scene();
    return fine;
}

static void test_kills(void)
{
    char sentence[160], more[160];
    unsigned inside = 0, bad = 0;
    uint64_t seed = options.seed;
    for (unsigned i = 0; i < options.kills; i++)
        bad += !kill_once(i, &inside);
    if (!bad && inside * 4 < options.kills)
        bad = 1, complain("only %u of %u deaths were inside a mutex", inside, options.kills);
    snprintf(sentence, sizeof sentence, "%u real deaths at points drawn from a seed are mended",
             options.kills);
    snprintf(more, sizeof more, " # seed %llu, %u of them inside a mutex, %u bad",
             (unsigned long long)seed, inside, bad);
    report(bad == 0, sentence, more);
}

/* ---- The judge ---- */

static void test_plants(uint32_t extra)
{
    char sentence[160], more[sizeof complaint + 8];
    set_scene(extra);
    remember_scene();
    uint32_t thread = world.actors[XENIA].thread;
    report(judge_copy(thread, NULL),
           extra ? "the judge finds nothing in a good repair in company"
                 : "the judge finds nothing in a good repair",
           "");
    for (int i = 0; i < PLANTS; i++) {
        if (plants[i].extra != extra)
            continue;
        bool found = !judge_copy(thread, plants[i].plant);
        snprintf(more, sizeof more, " # %s", complaint);
        snprintf(sentence, sizeof sentence, "the judge finds %s", plants[i].sentence);
        report(found || complain("it does not"), sentence, found ? more : "");
    }
    clear_scene();
}

/* ---- */

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value && strcmp(argv[i], "--every") == 0)
            options.every = (unsigned)strtoul(value, NULL, 10);
        else if (value && strcmp(argv[i], "--kills") == 0)
            options.kills = (unsigned)strtoul(value, NULL, 10);
        else if (value && strcmp(argv[i], "--seed") == 0)
            options.seed = strtoull(value, NULL, 10);
        else if (value && strcmp(argv[i], "--only") == 0)
            options.only = value;
        else
            exit((fprintf(stderr, "repair: do not know %s\n", argv[i]), 64));
        i++;
    }
    if (!options.every || !options.seed)
        exit((fprintf(stderr, "repair: --every and --seed must be above 0\n"), 64));
}

/* Stepping is a hundred thousand changes between two processes: three times faster on one
 * processor. */
static void stay_on_one_processor(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        give_up("sched_setaffinity");
}

/* G18 */
int main(int argc, char **argv)
{
    read_options(argc, argv);
    stay_on_one_processor();
    snprintf(world.path, sizeof world.path, "/dev/shm/holdfast-repair-%d", (int)getpid());
    snprintf(world.scratch, sizeof world.scratch, "%s-copy", world.path);
    world.highest =
        mmap(NULL, LOCAL_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (world.highest == MAP_FAILED)
        give_up("mmap");
    choose_names();
    test_plants(0);
    test_plants(COMPANY);
    for (unsigned i = 0; i < OPERATIONS; i++)
        if (!options.only || strstr(operations[i].sentence, options.only))
            test_operation(i);
    sum_up();
    if (!options.only)
        test_kills();
    unlink(world.scratch);
    printf("1..%u\n", tests);
    return failures != 0;
}
