/* advise.c - the verb `advise`: says which lock fits a story. The story comes from options, or
 * on a terminal from the answers to at most nine questions. advice_table.c has the answers;
 * docs/choosing.md draws the same tree. */
#include "advice_table.h"
#include "advise_times.h"
#include "output.h"
#include "verbs.h"
#include <string.h>
#include <unistd.h>

#define TRAIT(name, bit, help)                                                                     \
    {                                                                                              \
        name, 0, NULL, STORE_BIT, OPTION_FIELD(story), bit, bit, help                              \
    }

static const struct option_spec OPTIONS[] = {
    TRAIT("skip", SKIP, "when the lock is held, do not wait: do nothing this time"),
    TRAIT("many", MANY, "several may work at once, but not more than N"),
    TRAIT("weights", WEIGHTS, "some jobs need more units than others; implies --many"),
    TRAIT("readers", READERS, "many read, one writes"),
    TRAIT("script", SCRIPT, "the lock must outlive the process that took it"),
    TRAIT("open-ended", OPEN_ENDED, "nobody knows how long the work takes"),
    TRAIT("nested", NESTED, "a holder may take the same lock again"),
    TRAIT("several", SEVERAL, "several locks at once"),
    TRAIT("correct", CORRECT, "a late writer must do no harm, whatever happens"),
    TRAIT("machines", MACHINES, "on several machines"),
    TRAIT("failover", FAILOVER, "the lock must survive the loss of its server; implies --machines"),
    TRAIT("strict", STRICT,
          "not even clocks and lost data may let two in; implies --correct and --machines"),
    TRAIT("database", DATABASE, "everything that must be protected is in one database"),
    TRAIT("queue", QUEUE, "each piece of work must be done, by anybody, once"),
    TRAIT("rate", RATE, "so many calls a second, not so many at once"),
    {"ask", 0, NULL, STORE_CONSTANT, OPTION_FIELD(ask), 1, 1,
     "ask the questions, even without a terminal"},
    {"from-history", 0, "NAME", STORE_TEXT, OPTION_FIELD(from_history), 0, 0,
     "suggest a ttl from the past holds of NAME"},
    {"from-metrics", 0, "SOURCE", STORE_TEXT, OPTION_FIELD(from_metrics), 0, 0,
     "suggest a ttl from the metrics of serve: http://..., a file, or - for stdin"},
    OPTION_URL,
    OPTION_JSON,
    OPTION_HELP,
};

/* ---- Questions ---- */

static const struct question {
    const char *text;
    struct {
        const char *key, *means;
        int64_t traits;
        bool last; /* the last question: no further one is asked after this answer */
    } answer[5];
    int64_t needs, unless; /* the question is asked if the story has all traits of `needs` and none
                              of `unless` */
} QUESTIONS[] = {
    {.text = "Is everything that the lock must protect in one database?",
     .answer = {{"n", "no", 0, false}, {"y", "yes", DATABASE, true}}},
    {.text = "What must not happen?",
     .answer = {{"1", "two at once", 0, false},
                {"n", "more than N at once", MANY, false},
                {"w", "somebody reads or writes while another writes", READERS, false},
                {"q", "a piece of work is forgotten or done twice", QUEUE, true},
                {"r", "more than N calls a second", RATE, true}}},
    {.text = "A caller that finds the lock taken:",
     .answer = {{"w", "waits for its turn", 0, false},
                {"s", "skips the work this time", SKIP, false}}},
    {.text = "The lock is held by:",
     .answer = {{"p", "one process or command", 0, false},
                {"s", "a script, in several steps", SCRIPT, false}}},
    {.text = "Is it known how long the work takes?",
     .answer = {{"y", "yes", 0, false}, {"n", "no", OPEN_ENDED, false}}},
    {.text = "Does a holder call code that takes the same lock again?",
     .answer = {{"n", "no", 0, false}, {"y", "yes", NESTED, false}}},
    {.text = "Do the callers run on several machines?",
     .answer = {{"n", "no", 0, false}, {"y", "yes", MACHINES, false}}},
    {.text = "If two work at once in spite of the lock:",
     .answer = {{"t", "it costs time or money", 0, false},
                {"d", "data is destroyed", CORRECT, false}}},
    {.text = "May a clock that jumps, or a server that loses its data, let two in for a moment?",
     .answer = {{"y", "yes, if the older one's writes are refused", 0, false},
                {"n", "no", STRICT, false}},
     .needs = MACHINES | CORRECT},
    {.text = "While the lock server is lost:",
     .answer = {{"w", "the work may wait, or may be done twice", 0, false},
                {"s", "the lock must survive", FAILOVER, false}},
     .needs = MACHINES,
     .unless = CORRECT},
};
#define QUESTION_COUNT (sizeof QUESTIONS / sizeof QUESTIONS[0])
#define ANSWER_COUNT (sizeof QUESTIONS[0].answer / sizeof QUESTIONS[0].answer[0])

/* Prints a question on stderr until one of its answers is typed; an empty line means the first
 * answer. Returns the index of the answer, or -1 if stdin ends first. */
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
        if (!*line)
            return 0;
        for (size_t i = 0; i < ANSWER_COUNT && question->answer[i].key; i++)
            if (strcmp(line, question->answer[i].key) == 0)
                return (int)i;
    }
}

static bool is_asked(const struct question *question, int64_t story)
{
    return (story & question->needs) == question->needs && (story & question->unless) == 0;
}

/* Asks all questions that apply. Returns 0, or 64 if stdin ends before the last answer. */
static int ask_story(int64_t *story)
{
    for (size_t i = 0; i < QUESTION_COUNT; i++) {
        if (!is_asked(&QUESTIONS[i], *story))
            continue;
        int chosen = put_question(&QUESTIONS[i]);
        if (chosen < 0) {
            complain("advise: the answers ended before this question: %s", QUESTIONS[i].text);
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
        if (!all && !advice_fits(&ADVICE[i], story))
            continue;
        print_one(&ADVICE[i], json, comma);
        comma = ",";
    }

    if (json)
        printf("\n]\n");
    else if (!*comma)
        printf("No advice fits these options alone; give more of them, or see all stories: "
               "holdfast advise\n");
}

/* Prints the whole story as one command line. If pieces of data are written under permits, each
 * piece also has an exclusive lock, whose token is checked. */
static void print_together(int64_t story)
{
    const char *url = story & MACHINES ? " -u URL" : "";
    bool script = story & SCRIPT, pieces = (story & MANY) && (story & CORRECT) && !script;

    if (story & (DATABASE | QUEUE | RATE))
        return;
    printf("together:\n    holdfast%s %s%s%s%s%s NAME", url,
           script ? "acquire --lease FILE --ttl 10m" : "run", story & SKIP ? " -n -E 0" : "",
           story & MANY ? " --capacity N" : "", story & READERS ? " -s (or -x to write)" : "",
           story & OPEN_ENDED && !script ? " --max-hold 2h" : "");
    if (pieces)
        printf(" -- holdfast%s run PIECE", url);
    printf("%s\n", script ? "; ...; holdfast release --lease FILE" : " -- CMD");
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

    story = story_completed(story);
    print_fitting(story, story == 0 && !asks, options->json != 0);
    if (asks && !options->json)
        print_together(story);

    return finish_stdout();
}

const struct verb VERB_ADVISE = {
    .name = "advise",
    .operands = "",
    .summary = "Says which lock fits your story, which you tell by options or answers.",
    .details = "Without options it asks at most nine questions. Without a terminal it prints all "
               "stories.\n"
               "With --json: an array of objects with the keys story, use and why; with "
               "--from-history or\n"
               "--from-metrics one object (docs/json.md).\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_advise,
};
