/* options.h - the options of every verb as data: one table per verb yields parsing, the help text and, later, man pages
 * and completion. */
#pragma once
#include "holdfast.h"

/* Everything that options can say, for all verbs together; a verb's table names the fields that it offers. */
struct cli_options {
    const char *url;   /* NULL: $HOLDFAST_URL, else local: */
    int64_t wait_ms;   /* HF_WAIT_DEFAULT: not given */
    int64_t busy_code; /* exit code for busy; -1: not given */
    int64_t kind;      /* enum hf_kind; -1: not given */
    int64_t units, capacity;
    int64_t ttl_ms, grace_ms, max_hold_ms; /* ttl, max_hold 0 and grace -1: not given */
    const char *label;
    const char *script; /* -c: one string for sh */
    int64_t json, help, version;
};

extern const struct cli_options CLI_OPTIONS_NONE; /* nothing given */

enum option_store {
    STORE_CONSTANT, /* no argument: `low` is stored */
    STORE_TEXT,     /* the argument itself, as const char * */
    STORE_NUMBER,   /* a whole number between low and high, as int64_t */
    STORE_DURATION, /* milliseconds between low and high (HF_FOREVER where low allows it), as int64_t */
};

struct option_spec {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    const char *argument;
    enum option_store store;
    size_t field; /* offset into struct cli_options */
    int64_t low, high;
    const char *help;
};

struct verb {
    const char *name;
    const char *operands; /* as in the synopsis */
    const char *summary;  /* one line */
    const char *details;  /* more for --help */
    const struct option_spec *options;
    size_t option_count;
    int (*run)(const struct cli_options *options, int argc, char **argv); /* argv: what follows the options */
};

#define OPTION_FIELD(member) offsetof(struct cli_options, member)
#define OPTION_URL                                                                                                     \
    {                                                                                                                  \
        "url", 'u', "URL", STORE_TEXT, OPTION_FIELD(url), 0, 0, "the engine; else $HOLDFAST_URL, else local:"          \
    }
#define OPTION_HELP                                                                                                    \
    {                                                                                                                  \
        "help", 'h', NULL, STORE_CONSTANT, OPTION_FIELD(help), 1, 1, "show this text"                                  \
    }
#define OPTION_JSON                                                                                                    \
    {                                                                                                                  \
        "json", 0, NULL, STORE_CONSTANT, OPTION_FIELD(json), 1, 1, "print JSON"                                        \
    }

/* Parses the options at the front of argv. Returns how many arguments they took (the `--` that may end them included),
 * or -1 after a message on stderr that names what was wrong. */
int options_parse(const struct option_spec *specs, size_t count, int argc, char **argv, struct cli_options *options);

/* Prints the options of a table, aligned, to stdout. */
void options_print(const struct option_spec *specs, size_t count);

/* How many single-byte edits lie between two words: for "did you mean". */
size_t words_distance(const char *left, const char *right);
