/* completion.c - the verb `completion`: scripts for bash, zsh and fish, made from the tables of verbs and options.
 *
 * All three know: the verbs, the options of each verb, the words that an option's argument or a verb's operand may be,
 * and where a file is meant. After `run NAME` the command's own completion takes over where the shell can do that. */
#include "text.h"
#include "verbs.h"
#include <stdlib.h>
#include <string.h>

static const struct option_spec OPTIONS[] = {OPTION_JSON, OPTION_HELP};

static bool takes_file(const struct option_spec *spec)
{
    return spec->argument && strcmp(spec->argument, "FILE") == 0;
}

static void print_word(void *arg, const char *word, size_t len)
{
    const char **separator = arg;
    printf("%s%.*s", *separator, (int)len, word);
    *separator = " ";
}

static void print_choices(const char *argument)
{
    const char *separator = "";
    choices_each(argument, print_word, &separator);
}

/* Text between single quotes of a shell. */
static void print_quoted(const char *text)
{
    putchar('\'');
    for (; *text; text++)
        *text == '\'' ? fputs("'\\''", stdout) : putchar(*text);
    putchar('\'');
}

/* ---- bash ---- */

/* An arm of a case: what may follow an option that takes an argument. */
static void bash_arguments(const struct option_spec *specs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct option_spec *spec = &specs[i];
        if (!spec->argument)
            continue;
        printf("    ");
        if (spec->letter)
            printf("-%c | ", spec->letter);
        printf("--%s) ", spec->name);
        if (takes_file(spec)) {
            printf("COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n");
        } else if (is_choice(spec->argument)) {
            printf("COMPREPLY=($(compgen -W '");
            print_choices(spec->argument);
            printf("' -- \"$cur\")) ;;\n");
        } else {
            printf(";;\n");
        }
    }
}

static void bash_words(const struct option_spec *specs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        printf("%s--%s", i ? " " : "", specs[i].name);
}

static void bash_verb(const struct verb *verb)
{
    printf("_holdfast_%s() {\n    case $prev in\n", verb->name);
    bash_arguments(verb->options, verb->option_count);
    printf("    *)\n        if [[ $cur == -* ]]; then\n            COMPREPLY=($(compgen -W '");
    bash_words(verb->options, verb->option_count);
    printf("' -- \"$cur\"))\n        else\n            COMPREPLY=($(compgen -W '");
    print_choices(verb->operands);
    printf("' -- \"$cur\"))\n        fi\n        ;;\n    esac\n}\n");
}

/* The word that ends the options of `run` and begins a command: skips options and their arguments. */
static void bash_run_command(void)
{
    printf("_holdfast_command_at() {\n    local i operands=0\n    for ((i = $1; i < COMP_CWORD; i++)); do\n"
           "        case ${COMP_WORDS[i]} in\n        --) ((operands > 0)) && echo $((i + 1)) && return ;;\n        ");
    const char *bar = "";
    for (size_t i = 0; i < VERB_RUN.option_count; i++) {
        const struct option_spec *spec = &VERB_RUN.options[i];
        if (!spec->argument)
            continue;
        if (spec->letter)
            printf("%s-%c | ", bar, spec->letter);
        printf("%s--%s", spec->letter ? "" : bar, spec->name);
        bar = " | ";
    }
    printf(") ((operands == 0)) && ((i++)) ;;\n        -*) ;;\n"
           "        *) ((operands++ > 0)) && echo $i && return ;;\n        esac\n    done\n"
           "    ((operands > 0)) && echo \"$COMP_CWORD\"\n}\n");
}

static void print_bash(void)
{
    printf("# bash completion for holdfast; made by `holdfast completion bash`.\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (!VERBS[i]->hidden)
            bash_verb(VERBS[i]);
    bash_run_command();
    printf(
        "_holdfast() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb= i at\n"
        "    COMPREPLY=()\n    for ((i = 1; i < COMP_CWORD; i++)); do\n        case ${COMP_WORDS[i]} in\n"
        "        -u | --url) ((i++)) ;;\n        -*) ;;\n        *) verb=${COMP_WORDS[i]} && break ;;\n        esac\n"
        "    done\n    if [[ $verb == run ]] && at=$(_holdfast_command_at $((i + 1))) && [[ -n $at ]]; then\n"
        "        if declare -F _command_offset >/dev/null; then\n            _command_offset \"$at\"\n"
        "        elif ((at == COMP_CWORD)); then\n            COMPREPLY=($(compgen -c -- \"$cur\"))\n"
        "        else\n            COMPREPLY=($(compgen -f -- \"$cur\"))\n        fi\n"
        "    elif [[ -n $verb ]]; then\n"
        "        declare -F \"_holdfast_$verb\" >/dev/null && \"_holdfast_$verb\"\n"
        "    elif [[ $cur == -* ]]; then\n        COMPREPLY=($(compgen -W '");
    bash_words(GLOBAL_OPTIONS, GLOBAL_OPTION_COUNT);
    printf("' -- \"$cur\"))\n    else\n        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (!VERBS[i]->hidden)
            printf("%s%s", i ? " " : "", VERBS[i]->name);
    printf("' -- \"$cur\"))\n    fi\n}\ncomplete -F _holdfast holdfast\n");
}

/* ---- zsh ---- */

/* In a specification of _arguments brackets and colons mean something. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text))
            putchar('\\');
        *text == '\'' ? fputs("'\\''", stdout) : putchar(*text);
    }
}

static void zsh_word(void *arg, const char *word, size_t len)
{
    const char **separator = arg;
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)len, word);
    fputs(*separator, stdout);
    zsh_text(text);
    *separator = " ";
}

static void zsh_choices(const char *argument)
{
    const char *separator = "";
    putchar('(');
    choices_each(argument, zsh_word, &separator);
    putchar(')');
}

static void zsh_option(const struct option_spec *spec)
{
    const char *equals = spec->argument ? "=" : "";
    printf("        ");
    if (spec->letter)
        printf("'(-%c --%s)'{-%c%s,--%s%s}'[", spec->letter, spec->name, spec->letter, spec->argument ? "+" : "",
               spec->name, equals);
    else
        printf("'--%s%s[", spec->name, equals);
    zsh_text(spec->help);
    putchar(']');
    if (spec->argument) {
        putchar(':');
        zsh_text(spec->argument);
        putchar(':');
        if (takes_file(spec)) {
            printf("_files");
        } else if (is_choice(spec->argument)) {
            zsh_choices(spec->argument);
        }
    }
    printf("' \\\n");
}

static void zsh_verb(const struct verb *verb)
{
    printf("_holdfast_%s() {\n    _arguments %s \\\n", verb->name, verb->stops_at_operand ? "-S -A '-*'" : "-S");
    for (size_t i = 0; i < verb->option_count; i++)
        zsh_option(&verb->options[i]);
    if (verb->stops_at_operand) {
        printf("        '1:NAME:' '*:::command:_normal'\n}\n");
    } else if (is_choice(verb->operands)) {
        printf("        '1:");
        zsh_text(verb->operands);
        putchar(':');
        zsh_choices(verb->operands);
        printf("'\n}\n");
    } else {
        printf("        '*:");
        zsh_text(verb->operands);
        printf(":'\n}\n");
    }
}

static void print_zsh(void)
{
    printf("#compdef holdfast\n# zsh completion for holdfast; made by `holdfast completion zsh`.\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (!VERBS[i]->hidden)
            zsh_verb(VERBS[i]);
    printf("_holdfast() {\n    local curcontext=$curcontext state line\n    local -a verbs=(\n");
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (VERBS[i]->hidden)
            continue;
        printf("        '%s:", VERBS[i]->name);
        zsh_text(VERBS[i]->summary);
        printf("'\n");
    }
    printf("    )\n    _arguments -C -S -A '-*' \\\n");
    for (size_t i = 0; i < GLOBAL_OPTION_COUNT; i++)
        zsh_option(&GLOBAL_OPTIONS[i]);
    printf(
        "        '1:verb:->verb' '*::arguments:->arguments'\n    case $state in\n"
        "    verb) _describe verb verbs ;;\n"
        "    arguments) (( $+functions[_holdfast_$line[1]] )) && _holdfast_$line[1] ;;\n    esac\n}\n"
        "if [ \"$funcstack[1]\" = _holdfast ]; then\n    _holdfast \"$@\"\nelse\n    compdef _holdfast holdfast\nfi\n");
}

/* ---- fish ---- */

static void fish_options(const char *condition, const struct option_spec *specs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct option_spec *spec = &specs[i];
        printf("complete -c holdfast -n '%s' -l %s", condition, spec->name);
        if (spec->letter)
            printf(" -s %c", spec->letter);
        if (spec->argument)
            printf(takes_file(spec) ? " -r -F" : " -x");
        if (is_choice(spec->argument)) {
            printf(" -a '");
            print_choices(spec->argument);
            putchar('\'');
        }
        printf(" -d ");
        print_quoted(spec->help);
        putchar('\n');
    }
}

static void fish_verb(const struct verb *verb)
{
    char condition[96];
    snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %s", verb->name);
    printf("complete -c holdfast -n __fish_use_subcommand -a %s -d ", verb->name);
    print_quoted(verb->summary);
    putchar('\n');
    fish_options(condition, verb->options, verb->option_count);
    if (is_choice(verb->operands)) {
        printf("complete -c holdfast -n '%s' -a '", condition);
        print_choices(verb->operands);
        printf("'\n");
    }
}

static void print_fish(void)
{
    printf("# fish completion for holdfast; made by `holdfast completion fish`.\ncomplete -c holdfast -f\n");
    fish_options("__fish_use_subcommand", GLOBAL_OPTIONS, GLOBAL_OPTION_COUNT);
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (!VERBS[i]->hidden)
            fish_verb(VERBS[i]);
}

/* ---- The verb ---- */

static const struct shell {
    const char *name;
    void (*print)(void);
} SHELLS[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

static void print_script(const void *shell)
{
    ((const struct shell *)shell)->print();
}

static int print_json(const struct shell *shell)
{
    char *script = text_printed(print_script, shell);
    if (!script)
        return EXIT_INTERNAL;
    printf("{\"shell\":\"%s\",\"script\":", shell->name);
    json_print_text(stdout, script);
    printf("}\n");
    free(script);
    return finish_stdout();
}

static int run_completion(const struct cli_options *options, int argc, char **argv)
{
    int code = check_operands(&VERB_COMPLETION, argc, argv, 1, 1);
    if (code != 0)
        return code;
    for (size_t i = 0; i < sizeof SHELLS / sizeof SHELLS[0]; i++) {
        if (strcmp(argv[0], SHELLS[i].name) != 0)
            continue;
        if (options->json)
            return print_json(&SHELLS[i]);
        print_script(&SHELLS[i]);
        return finish_stdout();
    }
    complain("completion: \"%s\" is not one of %s", text_shown(argv[0]).text, VERB_COMPLETION.operands);
    return EXIT_USAGE;
}

const struct verb VERB_COMPLETION = {
    .name = "completion",
    .operands = "bash|zsh|fish",
    .summary = "Prints a script that completes verbs and options in a shell.",
    .details = "bash: source <(holdfast completion bash)\n"
               "zsh:  holdfast completion zsh >\"${fpath[1]}/_holdfast\"\n"
               "fish: holdfast completion fish >~/.config/fish/completions/holdfast.fish\n\n"
               "With --json: one object with the keys shell and script.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_completion,
};
