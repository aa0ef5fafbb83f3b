/* completion.c - the verb `completion`: prints scripts for bash, zsh and fish, made from the
 * tables of verbs and options.
 *
 * All three know: the verbs, the options of each verb, the words that an option's argument or a
 * verb's operand may be, and where a file is meant. After `run NAME` the command's own completion
 * takes over where the shell can do that. */
#include "output.h"
#include "verbs.h"
#include <stdlib.h>
#include <string.h>

static const struct option_spec OPTIONS[] = {OPTION_JSON, OPTION_HELP};

static bool takes_file(const struct option_spec *spec)
{
    return spec->argument && strcmp(spec->argument, "FILE") == 0;
}

/* Returns true if the first operand is the name of a lock, or its beginning. */
static bool takes_name(const struct verb *verb)
{
    return strncmp(verb->operands, "NAME", 4) == 0 || strcmp(verb->operands, "[PREFIX]") == 0;
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

static bool takes_verb(const struct verb *verb)
{
    return strcmp(verb->operands, "[VERB]") == 0;
}

static bool has_words(const struct verb *verb)
{
    return is_choice(verb->operands) || takes_verb(verb);
}

static void print_verbs(void)
{
    const char *separator = "";
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (!VERBS[i]->hidden)
            print_word(&separator, VERBS[i]->name, strlen(VERBS[i]->name));
}

/* Prints the words that the operand of a verb may be. */
static void print_operands(const struct verb *verb)
{
    if (takes_verb(verb))
        print_verbs();
    else
        print_choices(verb->operands);
}

/* Prints a text in single quotes of a shell. */
static void print_quoted(const char *text)
{
    putchar('\'');
    for (; *text; text++)
        *text == '\'' ? fputs("'\\''", stdout) : putchar(*text);
    putchar('\'');
}

/* ---- bash ---- */

/* Prints the arms of a case: the words that may follow each option that takes an argument. */
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
    printf("' -- \"$cur\"))\n        else\n            ");
    if (takes_name(verb)) {
        printf("_holdfast_names\n");
    } else {
        printf("COMPREPLY=($(compgen -W '");
        print_operands(verb);
        printf("' -- \"$cur\"))\n");
    }
    printf("        fi\n        ;;\n    esac\n}\n");
}

/* clang-format off: each source line is one line of the script */
static const char BASH_WORDS[] =
    "# Joins the pieces into which readline splits a word at \":\" and \"=\": words, the place of "
    "the cursor\n"
    "# among them, and where each began.\n"
    "_holdfast_join() {\n"
    "    local rest=$COMP_LINE i piece\n"
    "    words=() origins=() cword=$COMP_CWORD\n"
    "    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do\n"
    "        piece=${COMP_WORDS[i]}\n"
    "        if [[ -n $COMP_LINE && $i -gt 0 && $rest != [[:blank:]]* ]]; then\n"
    "            words[${#words[@]} - 1]+=$piece\n"
    "        else\n"
    "            words+=(\"$piece\") origins+=(\"$i\")\n"
    "        fi\n"
    "        rest=${rest#\"${rest%%[![:blank:]]*}\"}\n"
    "        rest=${rest#\"$piece\"}\n"
    "        ((i == COMP_CWORD)) && cword=$((${#words[@]} - 1))\n"
    "    done\n"
    "}\n"
    "# Offers the names of locks of the engine that -u names. They are foreign texts: nothing "
    "expands them.\n"
    "_holdfast_names() {\n"
    "    local url=() i name\n"
    "    for ((i = 1; i < cword; i++)); do\n"
    "        case ${words[i]} in\n"
    "        -u | --url) url=(-u \"${words[i + 1]}\") ;;\n"
    "        --url=*) url=(-u \"${words[i]#*=}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    while IFS= read -r name; do\n"
    "        [[ $name == \"$cur\"* ]] && COMPREPLY+=(\"$(printf %q \"$name\")\")\n"
    "    done < <(timeout 1 \"${words[0]}\" \"${url[@]}\" list --format name 2>/dev/null | sort "
    "-u)\n"
    "}\n";
static const char BASH_COMMAND_AT[] =
    "_holdfast_command_at() {\n"
    "    local i operands=0 named=0\n"
    "    for ((i = $1; i < cword; i++)); do\n"
    "        case ${words[i]} in\n"
    "        --) ((operands > 0 || named)) && echo $((i + 1)) && return ;;\n"
    "        -l | --lock) ((operands == 0)) && named=1 && ((i++)) ;;\n";
static const char BASH_COMMAND_AT_END[] =
    ") ((operands == 0)) && ((i++)) ;;\n"
    "        -*) ;;\n"
    "        *) ((operands++ > 0 || named)) && echo $i && return ;;\n"
    "        esac\n"
    "    done\n"
    "    [[ $operands -eq 0 && ($named -eq 0 || $i -gt $cword || ${words[cword]} == -*) ]] ||\n"
    "        echo \"$cword\"\n"
    "}\n";
static const char BASH_MAIN[] =
    "_holdfast() {\n"
    "    local -a words origins\n"
    "    local cword cur prev verb= i at colon\n"
    "    _holdfast_join\n"
    "    cur=${words[cword]} prev=${words[cword - 1]}\n"
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < cword; i++)); do\n"
    "        case ${words[i]} in\n"
    "        -u | --url) ((i++)) ;;\n"
    "        -*) ;;\n"
    "        *) verb=${words[i]} && break ;;\n"
    "        esac\n"
    "    done\n"
    "    if ((i > cword)); then\n"
    "        return\n"
    "    elif [[ $verb == run ]] && at=$(_holdfast_command_at $((i + 1))) && [[ -n $at ]]; then\n"
    "        if declare -F _command_offset >/dev/null; then\n"
    "            _command_offset \"${origins[at]}\"\n"
    "        elif ((at == cword)); then\n"
    "            COMPREPLY=($(compgen -c -- \"$cur\"))\n"
    "        else\n"
    "            COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "        fi\n"
    "    elif [[ -n $verb ]]; then\n"
    "        declare -F \"_holdfast_$verb\" >/dev/null && \"_holdfast_$verb\"\n";
static const char BASH_END[] =
    "    fi\n"
    "    if [[ -n $COMP_LINE && $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then\n"
    "        colon=${cur%\"${cur##*:}\"}\n"
    "        COMPREPLY=(\"${COMPREPLY[@]#\"$colon\"}\")\n"
    "    fi\n"
    "}\n"
    "complete -F _holdfast holdfast\n";
/* clang-format on */

/* Prints a function that finds the first word of CMD in `run`. It skips options, their arguments,
 * and NAME unless -l is given. If the argument of an option is being typed, i ends behind the last
 * word. */
static void bash_run_command(void)
{
    const char *bar = "";
    printf("%s        ", BASH_COMMAND_AT);
    for (size_t i = 0; i < VERB_RUN.option_count; i++) {
        const struct option_spec *spec = &VERB_RUN.options[i];
        if (!spec->argument || spec->store == STORE_VALUE)
            continue;
        if (spec->letter)
            printf("%s-%c | ", bar, spec->letter);
        printf("%s--%s", spec->letter ? "" : bar, spec->name);
        bar = " | ";
    }

    fputs(BASH_COMMAND_AT_END, stdout);
}

static void print_bash(void)
{
    printf("# bash completion for holdfast; made by `holdfast completion bash`.\n%s", BASH_WORDS);
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (!VERBS[i]->hidden)
            bash_verb(VERBS[i]);

    bash_run_command();
    printf("%s    elif [[ $cur == -* ]]; then\n        COMPREPLY=($(compgen -W '", BASH_MAIN);
    bash_words(GLOBAL_OPTIONS, GLOBAL_OPTION_COUNT);
    printf("' -- \"$cur\"))\n    else\n        COMPREPLY=($(compgen -W '");
    print_verbs();
    printf("' -- \"$cur\"))\n%s", BASH_END);
}

/* ---- zsh ---- */

/* Brackets and colons are special in a specification of _arguments, so they are escaped. */
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
    const char *equals = spec->argument ? "=" : "", *many = spec->store == STORE_VALUE ? "*" : "";

    printf("        ");
    if (spec->letter && *many)
        printf("'*'{-%c+,--%s=}'[", spec->letter, spec->name);
    else if (spec->letter)
        printf("'(-%c --%s)'{-%c%s,--%s%s}'[", spec->letter, spec->name, spec->letter,
               spec->argument ? "+" : "", spec->name, equals);
    else
        printf("'%s--%s%s[", many, spec->name, equals);
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
    printf("_holdfast_%s() {\n", verb->name);
    if (verb->stops_at_operand) /* with -l there is no NAME */
        printf("    local -a name=('1:NAME:_holdfast_names')\n    [[ $words[2] == -* ]] && (( "
               "${words[(I)(-l*|--lock*)]} )) && name=()\n");
    printf("    _arguments %s \\\n", verb->stops_at_operand ? "-S -A '-*'" : "-S");

    for (size_t i = 0; i < verb->option_count; i++)
        zsh_option(&verb->options[i]);

    if (verb->stops_at_operand) {
        printf("        $name '*:::command:_normal'\n}\n");
    } else if (has_words(verb)) {
        printf("        '1:");
        zsh_text(verb->operands);
        printf(":(");
        print_operands(verb);
        printf(")'\n}\n");
    } else {
        printf("        '*:");
        zsh_text(verb->operands);
        printf(takes_name(verb) ? ":_holdfast_names'\n}\n" : ":'\n}\n");
    }
}

/* clang-format off: each source line is one line of the script */
static const char ZSH_NAMES[] =
    "# The names of locks of the engine that -u names.\n"
    "_holdfast_names() {\n"
    "    local -a all=(${(z)BUFFER}) url names\n"
    "    local -i i\n"
    "    for ((i = 2; i < $#all; i++)); do\n"
    "        [[ $all[i] == (-u|--url) ]] && url=(-u \"${(Q)all[i+1]}\")\n"
    "    done\n"
    "    names=(${(fu)\"$(timeout 1 ${(Q)all[1]} $url list --format name 2>/dev/null)\"})\n"
    "    compadd -a names\n"
    "}\n";
/* clang-format on */

static void print_zsh(void)
{
    printf(
        "#compdef holdfast\n# zsh completion for holdfast; made by `holdfast completion zsh`.\n");

    fputs(ZSH_NAMES, stdout);
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

    printf("        '1:verb:->verb' '*::arguments:->arguments'\n    case $state in\n    verb) "
           "_describe verb verbs ;;\n    arguments) (( $+functions[_holdfast_$line[1]] )) && "
           "_holdfast_$line[1] ;;\n    esac\n}\nif [ \"$funcstack[1]\" = _holdfast ]; then\n    "
           "_holdfast \"$@\"\nelse\n    compdef _holdfast holdfast\nfi\n");
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
    printf("complete -c holdfast -n __holdfast_needs_verb -a %s -d ", verb->name);
    print_quoted(verb->summary);
    putchar('\n');
    fish_options(condition, verb->options, verb->option_count);
    if (takes_name(verb))
        printf("complete -c holdfast -n '%s' -a '(__holdfast_names)'\n", condition);
    if (has_words(verb)) {
        printf("complete -c holdfast -n '%s' -a '", condition);
        print_operands(verb);
        printf("'\n");
    }
}

/* clang-format off: each source line is one line of the script */
static const char FISH_FUNCTIONS[] =
    "# Is the verb still to be typed? The URL of -u is none.\n"
    "function __holdfast_needs_verb\n"
    "    set -l skips 0\n"
    "    for word in (commandline -opc)[2..]\n"
    "        if test $skips = 1\n"
    "            set skips 0\n"
    "        else if contains -- $word -u --url\n"
    "            set skips 1\n"
    "        else if not string match -q -- '-*' $word\n"
    "            return 1\n"
    "        end\n"
    "    end\n"
    "    test $skips = 0\n"
    "end\n"
    "# The names of locks of the engine that -u names.\n"
    "function __holdfast_names\n"
    "    set -l tokens (commandline -opc)\n"
    "    set -l url\n"
    "    for i in (seq 2 (count $tokens))\n"
    "        if contains -- $tokens[$i] -u --url; and test $i -lt (count $tokens)\n"
    "            set url -u $tokens[(math $i + 1)]\n"
    "        end\n"
    "    end\n"
    "    timeout 1 $tokens[1] $url list --format name 2>/dev/null | sort -u\n"
    "end\n";
/* clang-format on */

static void print_fish(void)
{
    printf("# fish completion for holdfast; made by `holdfast completion fish`.\ncomplete -c "
           "holdfast -f\n");
    fputs(FISH_FUNCTIONS, stdout);
    fish_options("__holdfast_needs_verb", GLOBAL_OPTIONS, GLOBAL_OPTION_COUNT);
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

    complain("completion: \"%s\" is not one of %s", output_shown(argv[0]).text,
             VERB_COMPLETION.operands);

    return EXIT_USAGE;
}

const struct verb VERB_COMPLETION = {
    .name = "completion",
    .operands = "bash|zsh|fish",
    .summary = "Prints a script that completes verbs and options in a shell.",
    .details = "bash: source <(holdfast completion bash)\n"
               "zsh:  holdfast completion zsh >\"${fpath[1]}/_holdfast\"\n"
               "fish: holdfast completion fish >~/.config/fish/completions/holdfast.fish\n"
               "\n"
               "With --json: one object with the keys shell and script.\n",
    .options = OPTIONS,
    .option_count = sizeof OPTIONS / sizeof OPTIONS[0],
    .run = run_completion,
};
