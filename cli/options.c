/* options.c - reads options by their table and prints the table as help. */
#include "options.h"
#include "output.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 32    /* longest word that gets a suggestion */
#define CLOSE_ENOUGH 2 /* most edits between a word and its suggestion */

const struct cli_options CLI_OPTIONS_NONE = {.wait_ms = HF_WAIT_DEFAULT,
                                             .connect_wait_ms = CONNECT_WAIT_MS,
                                             .busy_code = -1,
                                             .kind = -1,
                                             .grace_ms = -1,
                                             .status_fd = -1,
                                             .state = -1};

struct parse {
    const struct option_spec *specs;
    size_t count;
    struct arguments words;
    int next;       /* index of the next word */
    uint64_t given; /* a bit for each option that was given, by its index in `specs` */
    struct cli_options *options;
};

size_t words_distance(const char *left, const char *right)
{
    size_t width = strlen(right);
    size_t row[WORD_MAX + 1];

    if (strlen(left) > WORD_MAX || width > WORD_MAX)
        return WORD_MAX;
    for (size_t i = 0; i <= width; i++)
        row[i] = i;

    for (size_t y = 1; left[y - 1]; y++) {
        size_t diagonal = row[0];
        row[0] = y;
        for (size_t x = 1; x <= width; x++) {
            size_t best = diagonal + (left[y - 1] != right[x - 1]);
            diagonal = row[x];
            if (row[x] + 1 < best)
                best = row[x] + 1;
            if (row[x - 1] + 1 < best)
                best = row[x - 1] + 1;
            row[x] = best;
        }
    }

    return row[width];
}

/* `given` is a long name without its dashes, or one letter with its dash. */
static int refuse_unknown(const struct parse *parse, const char *given, size_t len)
{
    char word[WORD_MAX + 1];
    const struct option_spec *closest = NULL;
    size_t best = CLOSE_ENOUGH + 1;

    snprintf(word, sizeof word, "%.*s", (int)len, given);
    for (size_t i = 0; len > 2 && i < parse->count; i++) {
        size_t distance = words_distance(word, parse->specs[i].name);
        if (distance < best) {
            best = distance;
            closest = &parse->specs[i];
        }
    }

    bool means_wait = strcmp(word, "timeout") == 0;
    for (size_t i = 0; means_wait && i < parse->count; i++)
        if (strcmp(parse->specs[i].name, "wait") == 0)
            closest = &parse->specs[i];
    struct shown shown = text_shown_bytes(given, len);
    const char *dashes = given[0] == '-' ? "" : "--";
    if (closest)
        complain("unknown option %s%s; did you mean --%s?", dashes, shown.text, closest->name);
    else
        complain("unknown option %s%s", dashes, shown.text);

    return -1;
}

bool is_choice(const char *argument)
{
    return argument && argument[0] >= 'a' && argument[0] <= 'z';
}

void choices_each(const char *argument, void (*fn)(void *arg, const char *word, size_t len),
                  void *arg)
{
    if (!is_choice(argument))
        return;
    for (size_t len; *argument; argument += len + (argument[len] == '|')) {
        len = strcspn(argument, "|");
        size_t shown = strcspn(argument, "|ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        fn(arg, argument, shown);
    }
}

struct choice {
    const char *wanted;
    int64_t at, found;
};

static void compare_choice(void *arg, const char *word, size_t len)
{
    struct choice *choice = arg;
    if (strlen(choice->wanted) == len && strncmp(choice->wanted, word, len) == 0)
        choice->found = choice->at;
    choice->at++;
}

static int store_choice(const struct option_spec *spec, const char *value, char *place)
{
    struct choice choice = {.wanted = value, .found = -1};

    choices_each(spec->argument, compare_choice, &choice);
    if (choice.found < 0) {
        complain("--%s: \"%s\" is not one of %s", spec->name, output_shown(value).text,
                 spec->argument);
        return -1;
    }

    memcpy(place, &choice.found, sizeof choice.found);
    return 0;
}

static int store_number(const struct option_spec *spec, const char *value, char *place)
{
    int64_t number;
    char *end = "";

    errno = 0;
    if (spec->store == STORE_NUMBER) {
        number = strtoll(value, &end, 10);
    } else if (hf_parse_duration(value, &number) != HF_OK) {
        complain("--%s: %s", spec->name, hf_error_text());
        return -1;
    }

    bool is_number = end != value && !*end && errno != ERANGE;
    bool in_range = number >= spec->low && number <= spec->high;
    if (!is_number || !in_range) {
        const char *unit = spec->store == STORE_DURATION ? " ms" : "";
        complain("--%s: \"%s\" is not between %lld and %lld%s", spec->name,
                 output_shown(value).text, (long long)spec->low, (long long)spec->high, unit);
        return -1;
    }

    memcpy(place, &number, sizeof number);
    return 0;
}

static int store_value(const struct option_spec *spec, const char *value,
                       struct option_values *values)
{
    if (values->count == OPTION_VALUES_MAX) {
        complain("--%s: there are more than %d options of this kind", spec->name,
                 OPTION_VALUES_MAX);
        return -1;
    }

    values->names[values->count] = spec->name;
    values->texts[values->count++] = value;
    return 0;
}

/* Refuses two different options that set the same field. If one option is given twice, the last
 * one counts. */
static int refuse_contradiction(struct parse *parse, const struct option_spec *spec)
{
    bool adds = spec->store == STORE_BIT || spec->store == STORE_VALUE;

    for (size_t i = 0; i < parse->count && !adds; i++) {
        const struct option_spec *other = &parse->specs[i];
        bool given = parse->given >> i & 1;
        bool contradicts = other != spec && other->field == spec->field;
        if (!given || !contradicts)
            continue;
        complain("--%s and --%s cannot be combined", other->name, spec->name);
        return -1;
    }

    parse->given |= UINT64_C(1) << (spec - parse->specs);
    return 0;
}

/* Stores one option; `value` is NULL exactly when the option takes none. */
static int store(struct parse *parse, const struct option_spec *spec, const char *value)
{
    char *place = (char *)parse->options + spec->field;
    int64_t number = 0;

    if (refuse_contradiction(parse, spec) != 0)
        return -1;
    switch (spec->store) {
    case STORE_TEXT:
        memcpy(place, &value, sizeof value);
        return 0;
    case STORE_VALUE:
        return store_value(spec, value, (struct option_values *)(void *)place);
    case STORE_CHOICE:
        return store_choice(spec, value, place);
    case STORE_NUMBER:
    case STORE_DURATION:
        return store_number(spec, value, place);
    case STORE_BIT:
        memcpy(&number, place, sizeof number);
        break;
    case STORE_CONSTANT:
        break;
    }

    number |= spec->low;
    memcpy(place, &number, sizeof number);

    return 0;
}

/* Stores the value of an option: either attached to it or the next word. */
static int take_value(struct parse *parse, const struct option_spec *spec, const char *attached)
{
    if (!attached && parse->next < parse->words.count)
        attached = parse->words.all[parse->next++];
    if (!attached) {
        complain("--%s needs an argument: %s", spec->name, spec->argument);
        return -1;
    }

    return store(parse, spec, attached);
}

static int parse_long(struct parse *parse, const char *word)
{
    size_t len = strcspn(word, "=");
    const char *attached = word[len] ? word + len + 1 : NULL;

    for (size_t i = 0; i < parse->count; i++) {
        const struct option_spec *spec = &parse->specs[i];
        if (strlen(spec->name) != len || strncmp(spec->name, word, len) != 0)
            continue;
        if (spec->argument)
            return take_value(parse, spec, attached);
        if (!attached)
            return store(parse, spec, NULL);
        complain("--%s takes no argument", spec->name);
        return -1;
    }

    return refuse_unknown(parse, word, len);
}

/* Parses a cluster of letters such as -nE7; the last letter may have its argument attached. */
static int parse_letters(struct parse *parse, const char *letters)
{
    while (*letters) {
        const struct option_spec *spec = NULL;
        for (size_t i = 0; i < parse->count && !spec; i++)
            if (parse->specs[i].letter == *letters)
                spec = &parse->specs[i];
        if (!spec) {
            char given[2] = {'-', *letters};
            return refuse_unknown(parse, given, sizeof given);
        }
        letters++;
        if (spec->argument)
            return take_value(parse, spec, *letters ? letters : NULL);
        if (store(parse, spec, NULL) != 0)
            return -1;
    }

    return 0;
}

int options_parse(const struct option_spec *specs, size_t count, bool stops_at_operand,
                  struct arguments *arguments, struct cli_options *options)
{
    struct parse parse = {.specs = specs, .count = count, .words = *arguments, .options = options};
    char **operands = arguments->all;
    int kept = 0;

    assert(count <= 64);
    while (parse.next < parse.words.count) {
        char *word = operands[parse.next];
        bool operand = word[0] != '-' || !word[1];
        if (operand && stops_at_operand)
            break;
        parse.next++;
        if (operand) {
            operands[kept++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0)
            break;
        int result =
            word[1] == '-' ? parse_long(&parse, word + 2) : parse_letters(&parse, word + 1);
        if (result != 0)
            return -1;
    }

    while (parse.next < parse.words.count)
        operands[kept++] = operands[parse.next++];

    arguments->count = kept;
    operands[kept] = NULL;

    return 0;
}

/* Writes "-w, --wait DUR" and returns its width. */
static int describe(const struct option_spec *spec, char *text, size_t size)
{
    char letter[] = {spec->letter ? '-' : ' ', spec->letter ? spec->letter : ' ',
                     spec->letter ? ',' : ' ', 0};
    return snprintf(text, size, "%s --%s%s%s", letter, spec->name, spec->argument ? " " : "",
                    spec->argument ? spec->argument : "");
}

void options_print(const struct option_spec *specs, size_t count)
{
    char left[64];
    int width = 0;

    for (size_t i = 0; i < count; i++) {
        int columns = describe(&specs[i], left, sizeof left);
        width = columns > width ? columns : width;
    }

    for (size_t i = 0; i < count; i++) {
        describe(&specs[i], left, sizeof left);
        printf("  %-*s  %s\n", width, left, specs[i].help);
    }
}
