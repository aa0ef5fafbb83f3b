/* advise.c - the verb `advise`: which lock fits which story. It asks nothing: options tell the story, a table knows the
 * rest. */
#include "text.h"
#include "verbs.h"

enum story_trait {
    SKIP = 1,
    MANY = 2,
    READERS = 4,
    WEIGHTS = 8,
    SCRIPT = 16,
    NESTED = 32,
    SEVERAL = 64,
    CORRECT = 128,
    MACHINES = 256,
};

#define TRAIT(name, bit, help)                                                                                         \
    {                                                                                                                  \
        name, 0, NULL, STORE_BIT, OPTION_FIELD(story), bit, bit, help                                                  \
    }

static const struct option_spec OPTIONS[] = {
    TRAIT("skip", SKIP, "when it is held, do not wait: do nothing this time"),
    TRAIT("many", MANY, "several may work at once, but not more than N"),
    TRAIT("weights", WEIGHTS, "some need more of it than others"),
    TRAIT("readers", READERS, "many read, one writes"),
    TRAIT("script", SCRIPT, "the lock must outlive the process that took it"),
    TRAIT("nested", NESTED, "who holds it may ask for it again"),
    TRAIT("several", SEVERAL, "several locks at once"),
    TRAIT("correct", CORRECT, "a late writer must do no harm, whatever happens"),
    TRAIT("machines", MACHINES, "on several machines"),
    OPTION_JSON,
    OPTION_HELP,
};

static const struct advice {
    int64_t traits;
    const char *story, *use, *why;
} ADVICE[] = {
    {0, "one at a time, the others wait for their turn", "holdfast run NAME -- CMD",
     "A mutex with a queue: first come, first served. The lock ends with the command, also when that is killed."},
    {SKIP, "a cron job that must not run twice at once", "holdfast run -n -E 0 NAME -- CMD",
     "Busy is an answer: without -E it is exit code 75."},
    {MANY, "at most N jobs at once", "holdfast run --capacity N NAME -- CMD",
     "A semaphore: every unit has an owner and comes back by itself when that dies."},
    {MANY | SKIP, "at most N jobs at once, further ones are dropped", "holdfast run -n --capacity N NAME -- CMD",
     "A semaphore that is not waited for."},
    {MANY | WEIGHTS, "jobs of different sizes share N units", "holdfast run --capacity N --units K NAME -- CMD",
     "A weighted semaphore. A big job is not overtaken by small ones for ever: the queue keeps its order."},
    {READERS, "many may read while nobody writes", "holdfast run -s NAME -- READ; holdfast run -x NAME -- WRITE",
     "A read-write lock: readers enter together, and neither side starves."},
    {SCRIPT, "a script takes it in one step and gives it back in another",
     "holdfast acquire --lease FILE --ttl 10m NAME; holdfast release --lease FILE",
     "A detached lease: it lives by its ttl alone, so choose that well, and extend it."},
    {NESTED, "a function that holds the lock calls another that takes it", "hf_acquire with the same owner (C library)",
     "Reentrant: each level has its own lease, and it is free when the last one is released."},
    {SEVERAL, "two accounts must be locked together", "hf_acquire_many (C library)",
     "All or nothing, in one order for everybody, so that two callers cannot deadlock."},
    {CORRECT, "two writers would destroy data", "holdfast run NAME -- CMD, and holdfast fence sql",
     "A process that is stopped can wake up after its lease ended. Give HOLDFAST_TOKEN to what it writes to, and have "
     "that refuse older ones."},
    {MACHINES, "the jobs run on several machines", "holdfast -u URL run NAME -- CMD, URL of a server that all reach",
     "local: is for one machine. `holdfast version` says which engines are built in."},
};
#define ADVICE_COUNT (sizeof ADVICE / sizeof ADVICE[0])

/* Traits that are told one by one where no advice has them together. */
static bool fits(const struct advice *advice, int64_t story, bool exact)
{
    if (story == 0)
        return true;
    return exact ? advice->traits == story : advice->traits != 0 && (advice->traits & ~story) == 0;
}

static void print_one(const struct advice *advice, bool json, const char *comma)
{
    if (!json) {
        printf("%s:\n    %s\n    %s\n", advice->story, advice->use, advice->why);
        return;
    }
    printf("%s\n{\"story\":", comma);
    json_print_text(stdout, advice->story);
    printf(",\"use\":");
    json_print_text(stdout, advice->use);
    printf(",\"why\":");
    json_print_text(stdout, advice->why);
    printf("}");
}

static int run_advise(const struct cli_options *options, int argc, char **argv)
{
    const char *comma = "";
    bool exact = false, json = options->json != 0;
    int code = check_operands(&VERB_ADVISE, argc, argv, 0, 0);
    if (code != 0)
        return code;
    for (size_t i = 0; i < ADVICE_COUNT; i++)
        exact |= options->story != 0 && ADVICE[i].traits == options->story;
    printf(json ? "[" : "");
    for (size_t i = 0; i < ADVICE_COUNT; i++) {
        if (!fits(&ADVICE[i], options->story, exact))
            continue;
        print_one(&ADVICE[i], json, comma);
        comma = ",";
    }
    if (json)
        printf("\n]\n");
    else if (!*comma)
        printf("No lock has only that; tell more of the story, or see all: holdfast advise\n");
    return finish_stdout();
}

const struct verb VERB_ADVISE = {
    .name = "advise",
    .operands = "",
    .summary = "Says which lock fits which story; options tell yours.",
    .details = "Without options: all stories. With --json: an array of objects with the keys story, use and why.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_advise,
};
