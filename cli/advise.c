/* advise.c - the verb `advise`: which lock fits which story. Options tell the story, or on a terminal the answers to
 * six questions at most; a table knows the rest. docs/choosing.md draws the same tree. */
#include "advise_times.h"
#include "text.h"
#include "verbs.h"
#include <string.h>
#include <unistd.h>

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
    DATABASE = 512,
    QUEUE = 1024,
    RATE = 2048,
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
    TRAIT("database", DATABASE, "all that must be protected is in one database"),
    TRAIT("queue", QUEUE, "each piece of work must be done, by anybody, once"),
    TRAIT("rate", RATE, "so many calls a second, not so many at once"),
    {"ask", 0, NULL, STORE_CONSTANT, OPTION_FIELD(ask), 1, 1, "ask for the story, also where no terminal is"},
    {"from-history", 0, "NAME", STORE_TEXT, OPTION_FIELD(from_history), 0, 0, "say which ttl fits past holds of NAME"},
    {"from-metrics", 0, "SOURCE", STORE_TEXT, OPTION_FIELD(from_metrics), 0, 0,
     "the same from metrics of serve: http://..., a file, or - for stdin"},
    OPTION_URL,
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
    {MACHINES | CORRECT, "two writers on different machines would destroy data",
     "holdfast -u 'redis://HOST/0?replicas=1' run NAME -- CMD, and holdfast fence sql",
     "replicas=K survives the loss of the server, redlock://A,B,C that of a minority; only the token survives a writer "
     "that "
     "was asleep. Have what is written refuse older ones."},
    {DATABASE, "all that must be protected is in one database",
     "no lock: a transaction, SELECT ... FOR UPDATE, or UNIQUE",
     "The database excludes and remembers in one place, and cannot disagree with itself. A lock beside it can."},
    {QUEUE, "each piece of work must be done, by anybody, once", "no lock: a queue, and work that may be done twice",
     "A lock says who works now, not what is done. A queue remembers; a key for each piece makes doing it twice "
     "harmless."},
    {RATE, "not more than so many calls a second", "no lock: a rate limiter",
     "A semaphore bounds how many are at it at once, not how often they come."},
};
#define ADVICE_COUNT (sizeof ADVICE / sizeof ADVICE[0])

static bool within(int64_t part, int64_t whole)
{
    return (part & ~whole) == 0;
}

/* Does this advice belong to the story, and is it not a part of another one that does? */
static bool fits(const struct advice *advice, int64_t story)
{
    if (story == 0 || advice->traits == 0 || !within(advice->traits, story))
        return advice->traits == story;
    for (size_t i = 0; i < ADVICE_COUNT; i++)
        if (ADVICE[i].traits != advice->traits && within(ADVICE[i].traits, story) &&
            within(advice->traits, ADVICE[i].traits))
            return false;
    return true;
}

/* ---- Questions ---- */

static const struct question {
    const char *text;
    struct {
        const char *key, *means;
        int64_t traits;
        bool last; /* nothing more needs to be known */
    } answer[5];
} QUESTIONS[] = {
    {"Is all that must be protected in one database?", {{"n", "no", 0, false}, {"y", "yes", DATABASE, true}}},
    {"What must not happen?",
     {{"1", "two at once", 0, false},
      {"n", "more than N at once", MANY, false},
      {"w", "somebody reads or writes while another writes", READERS, false},
      {"q", "a piece of work is forgotten or done twice", QUEUE, true},
      {"r", "more than N calls a second", RATE, true}}},
    {"Who comes while it is taken:", {{"w", "waits for its turn", 0, false}, {"s", "skips it this time", SKIP, false}}},
    {"Who holds it is:",
     {{"p", "one process or command", 0, false}, {"s", "a script, in several steps", SCRIPT, false}}},
    {"Are they on several machines?", {{"n", "no", 0, false}, {"y", "yes", MACHINES, false}}},
    {"If two are at it in spite of all:",
     {{"t", "it costs time or money", 0, false}, {"d", "data is destroyed", CORRECT, false}}},
};
#define QUESTION_COUNT (sizeof QUESTIONS / sizeof QUESTIONS[0])
#define ANSWER_COUNT (sizeof QUESTIONS[0].answer / sizeof QUESTIONS[0].answer[0])

/* Puts a question on stderr until one of its answers comes; an empty line is the first one. -1: there is no answer. */
static int put_question(const struct question *question)
{
    char line[64];
    for (;;) {
        fprintf(stderr, "%s\n", question->text);
        for (size_t i = 0; i < ANSWER_COUNT && question->answer[i].key; i++)
            fprintf(stderr, "  %s  %s\n", question->answer[i].key, question->answer[i].means);
        fprintf(stderr, "[%s] ", question->answer[0].key);
        if (!fgets(line, sizeof line, stdin))
            return -1;
        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; i < ANSWER_COUNT && question->answer[i].key; i++)
            if (strcmp(line, question->answer[i].key) == 0 || (i == 0 && !*line))
                return (int)i;
    }
}

/* Asks for the story; 64 when the answers end before the questions do. */
static int ask_story(int64_t *story)
{
    for (size_t i = 0; i < QUESTION_COUNT; i++) {
        int chosen = put_question(&QUESTIONS[i]);
        if (chosen < 0) {
            complain("advise: there is no answer to: %s", QUESTIONS[i].text);
            return EXIT_USAGE;
        }
        *story |= QUESTIONS[i].answer[chosen].traits;
        if (QUESTIONS[i].answer[chosen].last)
            break;
    }
    fprintf(stderr, "\n");
    return 0;
}

/* ---- Answers ---- */

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

static void print_fitting(int64_t story, bool all, bool json)
{
    const char *comma = "";
    printf(json ? "[" : "");
    for (size_t i = 0; i < ADVICE_COUNT; i++) {
        if (!all && !fits(&ADVICE[i], story))
            continue;
        print_one(&ADVICE[i], json, comma);
        comma = ",";
    }
    if (json)
        printf("\n]\n");
    else if (!*comma)
        printf("No lock has only that; tell more of the story, or see all: holdfast advise\n");
}

/* The whole story as one command line. */
static void print_together(int64_t story)
{
    bool script = story & SCRIPT;
    if (story & (DATABASE | QUEUE | RATE))
        return;
    printf("together:\n    holdfast%s %s%s%s%s NAME%s\n", story & MACHINES ? " -u URL" : "",
           script ? "acquire --lease FILE --ttl 10m" : "run", story & SKIP ? " -n -E 0" : "",
           story & MANY ? " --capacity N" : "", story & READERS ? " -s (or -x to write)" : "",
           script ? "; ...; holdfast release --lease FILE" : " -- CMD");
}

static int run_advise(const struct cli_options *options, int argc, char **argv)
{
    int64_t story = options->story;
    bool asks = options->ask != 0 || (story == 0 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
    int code = check_operands(&VERB_ADVISE, argc, argv, 0, 0);
    if (code == 0 && options->from_history)
        return advise_from_history(options);
    if (code == 0 && options->from_metrics)
        return advise_from_metrics(options);
    if (code == 0 && asks)
        code = ask_story(&story);
    if (code != 0)
        return code;
    print_fitting(story, story == 0 && !asks, options->json != 0);
    if (asks && !options->json)
        print_together(story);
    return finish_stdout();
}

const struct verb VERB_ADVISE = {
    .name = "advise",
    .operands = "",
    .summary = "Says which lock fits which story; options tell yours.",
    .details = "Without options it asks six questions at most; where no terminal is, it prints all stories.\n"
               "With --json: an array of objects with the keys story, use and why;\n"
               "with --from-history or --from-metrics one object (docs/json.md).\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_advise,
};
